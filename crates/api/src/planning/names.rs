//! Names of nodes. Cells share them, so that there are no more names than nodes.

use std::collections::HashMap;

use perfrun_contract::{
    matrix::{IpFamily, NodeProgramKind, Stack, StackName},
    plan::Names,
    role::Role,
};

use super::cell_pairs::variant;
use crate::spec::{PerfRunSpec, Topology};

/// The nodes of one role, variant, program and IP family, which all cells with that variant in that role
/// share.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Side<'a> {
    pub role: Role,
    /// None for built-in stacks.
    pub variant: Option<&'a str>,
    pub program: NodeProgramKind,
    pub ip_family: IpFamily,
    /// Whether these are the nodes of the variant's control.
    pub is_control: bool,
}

/// The side of a stack in a role, with an IP family.
pub(super) fn side<'a>(
    spec: &'a PerfRunSpec,
    role: Role,
    stack: &StackName,
    ip_family: IpFamily,
) -> Side<'a> {
    let (name, is_control) = variant(stack);
    let listed = spec.stacks.iter().find(|listed| listed.name == name);
    let kind = listed.map_or_else(|| name.parse().unwrap_or(Stack::Raw), |listed| listed.stack);
    Side {
        role,
        variant: listed.map(|listed| listed.name.as_str()),
        program: kind.program(),
        ip_family,
        is_control,
    }
}

/// The stack of the relay between clients and a server. The raw reference has a proxy of its own.
pub(super) fn relay<'a>(spec: &'a PerfRunSpec, server: &'a StackName) -> &'a StackName {
    let chosen = spec.topology.relay.as_ref();
    chosen
        .filter(|_| server.0 != Stack::Raw.as_ref())
        .unwrap_or(server)
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
    pub(super) fn of(spec: &'a PerfRunSpec) -> Self {
        Self {
            spec,
            made: HashMap::new(),
        }
    }

    /// Names of the nodes in this role with this stack and this IP family.
    pub(super) fn names(&mut self, role: Role, stack: &StackName, ip_family: IpFamily) -> Names {
        let side = side(self.spec, role, stack, ip_family);
        let count = count(&self.spec.topology, role);
        let make = || (0..count).map(|index| name(side, index)).collect();
        self.made.entry(side).or_insert_with(make).clone()
    }
}

fn name(
    Side {
        role,
        variant,
        program,
        ip_family,
        is_control,
    }: Side<'_>,
    index: u32,
) -> String {
    // Names of pods have room for one more character.
    let place = match (ip_family, is_control) {
        (IpFamily::IPv4, false) => format!("{role}-{index}"),
        (IpFamily::IPv4, true) => format!("{role}-{index}c"),
        (IpFamily::IPv6, false) => format!("{role}6-{index}"),
        (IpFamily::IPv6, true) => format!("{role}6c{index}"),
    };
    match (variant, program) {
        (Some(variant), _) => format!("{place}-{variant}"),
        (None, NodeProgramKind::Go) => format!("{place}-{}", Stack::GoLibp2p),
        (None, NodeProgramKind::Rust | NodeProgramKind::External) => place,
    }
}
