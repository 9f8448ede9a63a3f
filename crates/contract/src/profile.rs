//! Where the CPU time of nodes went.

use std::collections::BTreeMap;

use strum::{Display, EnumIter};

use crate::role::Role;

/// A profile of the nodes of one role, during one extra trial of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The id of the cell.
    pub cell: String,
    /// The role of the nodes.
    pub role: Role,
    /// Samples of all groups.
    pub samples: u64,
    /// Samples of each group that has any.
    pub groups: BTreeMap<Group, u64>,
    /// Functions with the samples in their own code, most first.
    pub functions: Vec<(String, u64)>,
    /// The file of the flame graph, relative to the results folder.
    pub flame_graph: String,
}

impl Profile {
    /// The share of a group, from 0 to 1.
    pub fn share(&self, group: Group) -> f64 {
        let samples = self.groups.get(&group).copied().unwrap_or_default();
        samples as f64 / self.samples.max(1) as f64
    }
}

/// Whose code used the CPU.
#[derive(Clone, Copy, Debug, Display, EnumIter, Eq, Ord, PartialEq, PartialOrd)]
#[strum(serialize_all = "lowercase")]
pub enum Group {
    /// The kernel, for any of the others.
    Kernel,
    /// The stack under test.
    Stack,
    /// Ciphers, hashes and signatures.
    Crypto,
    /// The async runtime.
    Runtime,
    /// The allocator of memory.
    Allocator,
    /// perfrun's own code.
    Perfrun,
    /// Code of no known owner.
    Other,
}
