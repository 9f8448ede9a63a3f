//! Whether a node is one of those that the plan was made for.

use perfrun_contract::{
    matrix::{IpFamily, NodeProgramKind, Setting},
    node::{CONTRACT, Info},
    parameters::Pace,
    plan::{Cell, Plan},
    role::Role,
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
    let planned = plan.node(name);
    let has = IpFamily::from(info.listen_ip);
    if let Some(needed) = planned.map(|node| node.ip_family).filter(|needed| *needed != has) {
        return Err(format!(
            "{name} listens on {}, and its cells need {needed}: use a machine or a cluster that gives nodes an {needed} \
             address, or set matrix.ipFamilies: [{has}]",
            info.listen_ip
        ));
    }
    let Some(planned) = planned.filter(|node| node.program == NodeProgramKind::External) else {
        let unknown = unknown_setting(plan, name, info).or_else(|| unknown_pace(plan, name, info));
        return unknown.map_or(Ok(None), Err);
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
    if let Some(claimed) = plan.external.get(variant)
        && claimed.wire != capabilities.wire
    {
        return Err(format!(
            "{name} speaks the wire {}, and the document says {}: copy what `perfrun describe` prints",
            capabilities.wire, claimed.wire
        ));
    }
    let reason = roles_in_cells(plan, name).find_map(|(cell, role)| {
        let settings = cell.stack_of(role).1;
        capabilities
            .why_role_unsupported(stack, role, cell.transport, &cell.parameters)
            .or_else(|| capabilities.why_settings_unsupported(stack, settings, cell.transport))
    });
    match reason {
        Some(reason) => Err(format!(
            "{name} cannot do what the document says: {reason}; copy what `perfrun describe` prints"
        )),
        None => Ok(Some(stack.to_owned())),
    }
}

/// The cells that a node has a part in, with its role.
fn roles_in_cells<'a>(plan: &'a Plan, name: &'a str) -> impl Iterator<Item = (&'a Cell, Role)> {
    plan.cells.iter().flat_map(move |cell| {
        let by_role = cell.nodes_by_role().into_iter();
        let plays = by_role.filter(move |(_, names)| names.iter().any(|named| named == name));
        plays.map(move |(role, _)| (cell, role))
    })
}

/// Why a node of perfrun cannot be used: an older one would ignore a setting, and measure something else.
fn unknown_setting(plan: &Plan, name: &str, info: &Info) -> Option<String> {
    roles_in_cells(plan, name).find_map(|(cell, role)| {
        let (stack, settings) = cell.stack_of(role);
        let known = info.capabilities.get(stack.as_ref());
        let is_known = |setting: &Setting| known.is_some_and(|known| known.settings.contains(setting.as_ref()));
        let unknown = settings.effective_on(cell.transport).find(|setting| !is_known(setting))?;
        Some(format!(
            "{name} does not know the setting {unknown} of {stack}: use a node of this release, or remove the setting"
        ))
    })
}

/// Why a node of perfrun cannot be used: an older one refuses an echo with a period.
fn unknown_pace(plan: &Plan, name: &str, info: &Info) -> Option<String> {
    let is_unknown = roles_in_cells(plan, name).any(|(cell, role)| {
        let known = info.capabilities.get(cell.stack_of(role).0.as_ref());
        let knows = |pace| known.is_some_and(|known| known.knows_pace(pace));
        matches!(cell.parameters.pace(), Some(pace @ Pace::Period(_)) if !knows(pace))
    });
    is_unknown
        .then(|| format!("{name} does not know the period of an echo: use a node of this release, or set pause instead of period"))
}
