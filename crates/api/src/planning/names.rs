//! Names of nodes: as many as a run has nodes, however many cells it has.

use std::collections::HashMap;

use perfrun_contract::{matrix::StackName, node::Role, plan::Names};

use crate::spec::{PerfRunSpec, Topology};

/// The nodes of one role and build: those that all cells with this build on this side share.
pub(super) type Side<'a> = (Role, Option<&'a str>);

/// The side that a stack is on.
pub(super) fn side<'a>(spec: &'a PerfRunSpec, role: Role, stack: &StackName) -> Side<'a> {
    (role, variant(spec, stack))
}

/// The variant that needs nodes of its own, if the name is one.
fn variant<'a>(spec: &'a PerfRunSpec, name: &StackName) -> Option<&'a str> {
    let listed = spec.stacks.iter().find(|listed| listed.name == name.0)?;
    Some(listed.name.as_str())
}

/// How many nodes a side has.
pub(super) fn count(topology: &Topology, role: Role) -> u32 {
    match role {
        Role::Server => topology.servers,
        Role::Client => topology.clients,
        Role::Relay => 1,
    }
}

/// Names of all sides, each made when it is first asked for.
pub(super) struct Sides<'a> {
    spec: &'a PerfRunSpec,
    made: HashMap<Side<'a>, Names>,
}

impl<'a> Sides<'a> {
    pub fn of(spec: &'a PerfRunSpec) -> Self {
        Self {
            spec,
            made: HashMap::new(),
        }
    }

    /// Names of the nodes in this role that run this stack.
    pub fn names(&mut self, role: Role, stack: &StackName) -> Names {
        let (role, variant) = side(self.spec, role, stack);
        let count = count(&self.spec.topology, role);
        let make = || (0..count).map(|index| name(role, index, variant)).collect();
        self.made.entry((role, variant)).or_insert_with(make).clone()
    }
}

fn name(role: Role, index: u32, variant: Option<&str>) -> String {
    match variant {
        Some(variant) => format!("{role}-{index}-{variant}"),
        None => format!("{role}-{index}"),
    }
}
