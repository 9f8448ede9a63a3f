//! `perfrun link`: impairs, shows and measures a link by hand, without a run.
//!
//! `perfrun-link` defines what an impairment is, and `perfrun-emulator` carries it out. This module has only
//! network namespaces, text for people, and the process that impairs in user space.

mod clear;
mod namespace;
mod probe;
mod set;
mod show;
mod words;

use crate::args::LinkCommand;

/// Runs a command. Returns the exit status.
pub fn link(command: &LinkCommand) -> anyhow::Result<u8> {
    match command {
        LinkCommand::Set(args) => set::set(args),
        LinkCommand::Show(args) => show::show(args),
        LinkCommand::Probe(args) => probe::probe(args),
        LinkCommand::Clear(args) => clear::clear(args),
    }
}
