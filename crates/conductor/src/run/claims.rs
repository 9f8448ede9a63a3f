//! Whether a node is one of those that the plan was made for.

use perfrun_contract::{
    matrix::NodeProgramKind,
    node::{CONTRACT, Info, Role},
    plan::{Cell, Plan},
};

/// Checks what a node says of itself. Returns the name by which it knows its external stack; `None` for
/// `perfrun-node` and `perfrun-node-go`. The error says why the run cannot use the node.
pub(super) fn check(plan: &Plan, name: &str, info: &Info) -> Result<Option<String>, String> {
    if info.contract != CONTRACT {
        return Err(format!(
            "{name} speaks version {} of the node contract, and this perfrun speaks version {CONTRACT}: use a node \
             for this release",
            info.contract
        ));
    }
    let planned = plan.nodes.iter().find(|node| node.name == name);
    let Some(planned) = planned.filter(|node| node.program == NodeProgramKind::External) else {
        return Ok(None);
    };
    let variant = planned.variant.as_deref().unwrap_or_default();
    let Some(stack) = info.stack_of_variant(variant) else {
        let stacks: Vec<&str> = info.stacks.keys().map(String::as_str).collect();
        return Err(format!(
            "{name} must speak the stack {variant}, or only one stack: it speaks {}",
            stacks.join(", ")
        ));
    };
    let Some(capabilities) = info.capabilities.get(stack) else {
        return Err(format!(
            "{name} does not report the capabilities of its stack {stack}"
        ));
    };
    let claimed = plan.external.get(variant).map(|claimed| claimed.wire.as_str());
    if claimed.is_some_and(|claimed| claimed != capabilities.wire) {
        return Err(format!(
            "{name} speaks the wire {}, and the document says {}: copy what `perfrun describe` prints",
            capabilities.wire,
            claimed.unwrap_or_default()
        ));
    }
    let roles = |cell: &Cell| {
        let has = |names: &[String]| names.iter().any(|named| named == name);
        let of = [
            (Role::Relay, has(&cell.relays)),
            (Role::Server, has(&cell.servers)),
            (Role::Client, has(&cell.clients)),
        ];
        of.into_iter().filter(|(_, plays)| *plays).map(|(role, _)| role)
    };
    let lack = plan.cells.iter().find_map(|cell| {
        roles(cell).find_map(|role| capabilities.lack(stack, role, cell.transport, &cell.parameters))
    });
    match lack {
        Some(lack) => Err(format!(
            "{name} cannot do what the document says: {lack}; copy what `perfrun describe` prints"
        )),
        None => Ok(Some(stack.to_owned())),
    }
}
