//! Names of nodes. Cells share them, so that there are no more names than nodes.

use std::collections::HashMap;

use perfrun_contract::{matrix::StackName, node::Role, plan::Names};

use crate::spec::{PerfRunSpec, Topology};

/// The nodes of one role and variant, which all cells with that variant in that role share.
pub(super) type Side<'a> = (Role, Option<&'a str>);

/// The side of a stack in a role.
pub(super) fn side<'a>(spec: &'a PerfRunSpec, role: Role, stack: &StackName) -> Side<'a> {
    (role, variant(spec, stack))
}

/// The variant of this name; `None` if the name is a built-in stack.
fn variant<'a>(spec: &'a PerfRunSpec, name: &StackName) -> Option<&'a str> {
    let listed = spec.stacks.iter().find(|listed| listed.name == name.0)?;
    Some(listed.name.as_str())
}

/// The number of nodes in a role.
pub(super) fn count(topology: &Topology, role: Role) -> u32 {
    match role {
        Role::Server => topology.servers,
        Role::Client => topology.clients,
        Role::Relay => 1,
    }
}

/// Names of the nodes of all sides, made on first use.
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

    /// Names of the nodes in this role with this stack.
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
