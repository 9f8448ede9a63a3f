//! Twins whose nodes ran on different machines: what differs may be the machines.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{Twin, Why},
    node::Info,
    plan::Plan,
};

use crate::looks::Known;

/// Takes back what was found of such twins, and what follows from it.
pub(crate) fn withdraw(plan: &Plan, nodes: &BTreeMap<String, Info>, known: &mut Known<'_>) {
    let apart: Vec<bool> = plan
        .judging
        .twins
        .iter()
        .map(|twin| are_apart(plan, nodes, *twin))
        .collect();
    known.withdraw(
        &apart,
        Why::TwinsApart,
        "the two were measured on different machines",
    );
}

/// Whether a node of the candidate ran on another machine than the one in its place in the baseline.
pub(crate) fn are_apart(plan: &Plan, nodes: &BTreeMap<String, Info>, twin: Twin) -> bool {
    let cell = |index: usize| plan.cells.get(index);
    let Some((baseline, candidate)) = cell(twin.baseline).zip(cell(twin.candidate)) else {
        return false;
    };
    // Twins have as many nodes of each role.
    baseline.nodes().zip(candidate.nodes()).any(|(a, b)| {
        let infos = nodes.get(a).zip(nodes.get(b));
        infos.is_some_and(|(a, b)| !a.shares_machine_with(b))
    })
}
