//! Twins whose nodes ran on different machines: what differs may be the machines.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{Twin, Verdict, Why, Word},
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
    for (member, found) in known.family.iter().zip(&mut known.found) {
        if let Some(found) = found.as_mut().filter(|_| apart[member.twin]) {
            (found.word, found.why) = (Word::NotComparable, Some(Why::TwinsApart));
            (found.detectable, found.pairs_needed) = (None, None);
        }
    }
    for (ask, answer) in known.asks.iter().zip(&mut known.answers) {
        if ask.twin.is_some_and(|twin| apart[twin]) {
            answer.verdict = Verdict::Inconclusive;
            answer.evidence += "; but the two were measured on different machines";
        }
    }
}

/// Whether a node of the candidate ran on another machine than the one in its place in the baseline.
fn are_apart(plan: &Plan, nodes: &BTreeMap<String, Info>, twin: Twin) -> bool {
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
