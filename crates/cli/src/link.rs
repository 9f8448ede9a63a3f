//! `perfrun link`: impairs, shows and measures a link by hand, without a run.
//!
//! `perfrun-link` defines what an impairment is, and `perfrun-emulator` carries it out. This module has only
//! network namespaces, text for people, and the process that impairs in user space.

mod clear;
mod place;
mod probe;
mod set;
mod show;
mod words;

use crate::args::Link;

/// Runs a command. Returns the exit status.
pub fn link(command: &Link) -> anyhow::Result<u8> {
    match command {
        Link::Set(args) => set::set(args),
        Link::Show(args) => show::show(args),
        Link::Probe(args) => probe::probe(args),
        Link::Clear(args) => clear::clear(args),
    }
}
