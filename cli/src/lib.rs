//! The parts of the `perfrun` command.

pub mod local;
