//! What a cell's bytes go over.

use std::fmt;

use perfrun_contract::{matrix::Transport, network::NONE, plan::Cell};

/// A transport, on a network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Path<'a> {
    pub(crate) transport: Transport,
    pub(crate) network: &'a str,
}

impl<'a> Path<'a> {
    pub(crate) fn of(cell: &'a Cell) -> Self {
        Self {
            transport: cell.transport,
            network: &cell.network,
        }
    }

    /// What the baseline goes over that this is held against.
    pub(crate) fn raw(self) -> Self {
        Self {
            transport: self.transport.raw(),
            ..self
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network {
            NONE => write!(f, "{}", self.transport),
            network => write!(f, "{} on {network}", self.transport),
        }
    }
}
