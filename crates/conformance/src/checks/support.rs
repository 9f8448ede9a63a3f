//! What the node under test supports, alone and together with perfrun's node.

use perfrun_contract::{
    capabilities::Capabilities,
    matrix::{Stack, Transport},
    parameters::Parameters,
    role::Role,
    support::{self, CellStacks, End},
};

use crate::nodes::Participant;

/// The stack of perfrun's node that speaks the wire of the node under test.
pub(super) fn reference(capabilities: &Capabilities) -> Option<Stack> {
    Stack::built_in().find(|stack| stack.wire() == Some(&capabilities.wire))
}

/// Why a plan would skip a trial of these nodes, each with its stack and role.
pub(super) fn why_skipped(
    stack: &str,
    capabilities: &Capabilities,
    transport: Transport,
    roles: &[(Participant, &str, Role)],
    parameters: &Parameters,
) -> Option<String> {
    if transport.is_in_process() {
        return Some("peers of one process are not checked with separate ones".to_owned());
    }
    let end = |part: &'static str, role: Role| {
        let (_, name, _) = roles.iter().find(|(.., played)| *played == role)?;
        // By its own name, a node is a built-in stack with the rules that plans have for it.
        let built_in = Stack::built_in().find(|built_in| built_in.as_ref() == *name);
        Some(End {
            name: part,
            stack: built_in.unwrap_or(Stack::External),
            capabilities: built_in.is_none().then_some(capabilities),
        })
    };
    let stacks = CellStacks {
        client: end("the client", Role::Client)?,
        server: end("the server", Role::Server)?,
        relay: end("the relay", Role::Relay),
    };
    // What the node itself claims counts as well, also for a built-in stack.
    roles
        .iter()
        .filter(|(who, ..)| *who != Participant::Reference)
        .find_map(|(.., role)| capabilities.why_role_unsupported(stack, *role, transport, parameters))
        .or_else(|| support::why_unsupported(stacks, transport, parameters))
}
