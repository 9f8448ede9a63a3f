//! Names of nodes. Cells share them, so that there are no more names than nodes.

use std::collections::HashMap;

use perfrun_contract::{
    matrix::{IpFamily, NodeProgramKind, Stack},
    plan::{Cell, Names, PlannedNode},
    role::Role,
};

use super::stacks::ResolvedStack;
use crate::spec::Topology;

/// The nodes of one role, variant, program and IP family, which all cells with that variant in that role
/// share.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct NodeGroup<'a> {
    pub role: Role,
    /// None for built-in stacks.
    pub variant: Option<&'a str>,
    pub program: NodeProgramKind,
    pub ip_family: IpFamily,
    /// Whether these are the nodes of the variant's control.
    pub is_control: bool,
}

impl<'a> NodeGroup<'a> {
    /// The nodes of a stack in a role, with an IP family.
    pub(super) fn of(stack: ResolvedStack<'a>, role: Role, ip_family: IpFamily) -> Self {
        Self {
            role,
            variant: stack.variant.map(|variant| variant.name.as_str()),
            program: stack.stack.program(),
            ip_family,
            is_control: stack.is_control,
        }
    }
}

/// The number of nodes in a role.
pub(super) fn count(topology: &Topology, role: Role) -> u32 {
    match role {
        Role::Server => topology.servers,
        Role::Client => topology.clients,
        Role::Relay => 1,
    }
}

/// Names of the nodes of all groups, made on first use.
pub(super) struct NodeGroups<'a> {
    pub topology: &'a Topology,
    made: HashMap<NodeGroup<'a>, Names>,
}

impl<'a> NodeGroups<'a> {
    pub(super) fn of(topology: &'a Topology) -> Self {
        Self {
            topology,
            made: HashMap::new(),
        }
    }

    /// Names of the nodes in this role with this stack and this IP family.
    pub(super) fn names(&mut self, role: Role, stack: ResolvedStack<'a>, ip_family: IpFamily) -> Names {
        let node_group = NodeGroup::of(stack, role, ip_family);
        let count = count(self.topology, role);
        let make = || (0..count).map(|index| name(node_group, index)).collect();
        self.made.entry(node_group).or_insert_with(make).clone()
    }

    /// All nodes of these cells. A cell has all nodes of a group, or none.
    pub(super) fn nodes(&self, cells: &[Cell]) -> Vec<PlannedNode> {
        let made = self.made.iter();
        let mut left: HashMap<&String, &NodeGroup<'a>> = made
            .filter_map(|(node_group, names)| Some((names.first()?, node_group)))
            .collect();
        let mut nodes = vec![];
        for (_, names) in cells.iter().flat_map(Cell::nodes_by_role) {
            if let Some(node_group) = names.first().and_then(|first| left.remove(first)) {
                nodes.extend(names.iter().map(|name| PlannedNode {
                    name: name.clone(),
                    role: node_group.role,
                    variant: node_group.variant.map(str::to_owned),
                    program: node_group.program,
                    ip_family: node_group.ip_family,
                }));
            }
        }
        nodes
    }
}

fn name(
    NodeGroup {
        role,
        variant,
        program,
        ip_family,
        is_control,
    }: NodeGroup<'_>,
    index: u32,
) -> String {
    // Names of pods have room for one more character.
    let numbered_role = match (ip_family, is_control) {
        (IpFamily::IPv4, false) => format!("{role}-{index}"),
        (IpFamily::IPv4, true) => format!("{role}-{index}c"),
        (IpFamily::IPv6, false) => format!("{role}6-{index}"),
        (IpFamily::IPv6, true) => format!("{role}6c{index}"),
    };
    match (variant, program) {
        (Some(variant), _) => format!("{numbered_role}-{variant}"),
        (None, NodeProgramKind::Go) => format!("{numbered_role}-{}", Stack::GoLibp2p),
        (None, NodeProgramKind::Rust | NodeProgramKind::External) => numbered_role,
    }
}
