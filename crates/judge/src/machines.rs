//! Pairs of cells whose nodes ran on different machines: their differences may be those of the machines.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{CellPair, NoFinding},
    node::Info,
    plan::Plan,
};

use crate::{analysis::Analysis, text::DIFFERENT_MACHINES};

/// Takes back what was found of pairs of cells on different machines, and what follows from it.
pub(crate) fn withdraw(plan: &Plan, nodes: &BTreeMap<String, Info>, analysis: &mut Analysis<'_>) {
    analysis.withdraw(
        |cell_pair| machines_differ(plan, nodes, cell_pair),
        NoFinding::DifferentMachines,
        DIFFERENT_MACHINES,
    );
}

/// Whether a node of the candidate ran on another machine than the one in its place in the baseline.
pub(crate) fn machines_differ(plan: &Plan, nodes: &BTreeMap<String, Info>, cell_pair: CellPair) -> bool {
    let Some((baseline, candidate)) = plan.compared(cell_pair) else {
        return false;
    };
    // Both cells of a pair have the same number of nodes of each role.
    baseline.nodes().zip(candidate.nodes()).any(|(a, b)| {
        let infos = nodes.get(a).zip(nodes.get(b));
        infos.is_some_and(|(a, b)| !a.shares_machine_with(b))
    })
}
