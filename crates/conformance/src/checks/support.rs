//! What the node under test supports, alone and together with perfrun's node.

use std::fmt;

use perfrun_contract::{
    capabilities::Capabilities,
    matrix::{Stack, Transport},
    parameters::Parameters,
    role::Role,
    support::{self, CellStack, CellStacks},
};

use crate::nodes::Participant;

/// A stack of the node under test, on one of its transports. Its text is part of the names of checks.
#[derive(Clone, Copy)]
pub(super) struct TestedStack<'a> {
    pub(super) name: &'a str,
    pub(super) capabilities: &'a Capabilities,
    pub(super) transport: Transport,
}

impl fmt::Display for TestedStack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.name, self.transport)
    }
}

impl TestedStack<'_> {
    /// The stack of perfrun's node that speaks its wire.
    pub(super) fn reference(self) -> Option<Stack> {
        Stack::built_in().find(|stack| stack.wire() == Some(&self.capabilities.wire))
    }

    /// Why a plan would skip a trial of these nodes, each with its stack and role.
    pub(super) fn why_skipped(
        self,
        roles: &[(Participant, &str, Role)],
        parameters: &Parameters,
    ) -> Option<String> {
        let Self {
            name,
            capabilities,
            transport,
        } = self;
        if transport.is_in_process() {
            return Some("peers of one process are not checked with separate ones".to_owned());
        }
        let cell_stack = |part: &'static str, role: Role| {
            let (_, name, _) = roles.iter().find(|(.., played)| *played == role)?;
            // By its own name, a node is a built-in stack with the rules that plans have for it.
            let built_in = Stack::named(name);
            Some(CellStack {
                name: part,
                stack: built_in.unwrap_or(Stack::External),
                capabilities: built_in.is_none().then_some(capabilities),
            })
        };
        let stacks = CellStacks {
            client: cell_stack("the client", Role::Client)?,
            server: cell_stack("the server", Role::Server)?,
            relay: cell_stack("the relay", Role::Relay),
        };
        // What the node itself claims counts as well, also for a built-in stack.
        roles
            .iter()
            .filter(|(who, ..)| *who != Participant::Reference)
            .find_map(|(.., role)| capabilities.why_role_unsupported(name, *role, transport, parameters))
            .or_else(|| support::why_unsupported(stacks, transport, parameters))
    }
}
