//! `perfrun link`: a link impaired, looked at and measured by hand, without a run.
//!
//! What can be asked for is the subject of `perfrun-link`, doing it that of `perfrun-emulator`. Here are only namespaces,
//! words for people, and the process that impairs in user space.

mod clear;
mod place;
mod probe;
mod set;
mod show;
mod words;

use crate::args::Link;

/// Does it; returns the exit status.
pub fn link(command: &Link) -> anyhow::Result<u8> {
    match command {
        Link::Set(args) => set::set(args),
        Link::Show(args) => show::show(args),
        Link::Probe(args) => probe::probe(args),
        Link::Clear(args) => clear::clear(args),
    }
}
