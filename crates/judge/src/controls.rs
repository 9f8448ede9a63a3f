//! Controls: baselines that are measured once more, in the place of the candidate. If one differs from its
//! baseline, something else than the program differs, such as the machine or what a trial leaves behind. Then
//! nothing that the comparison found can be believed.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{ALPHA, CONTROL_ALPHA, CellPair, Comparison, NoFinding},
    matrix::StackName,
    node::Info,
    plan::Plan,
};

use crate::{
    apart::are_apart,
    comparison::{comparison, obstacle},
    family::Member,
    interim::{InterimCheck, Known},
    outcomes::{Sample, outcomes},
    pairs::differences,
};

/// Compares the controls of a run with their baselines, by the metrics and at the interim check that their
/// pairs of cells are judged by. Takes back the findings of the comparisons whose control differs.
///
/// All controls of a run together are wrong in at most [`CONTROL_ALPHA`] of runs: each has an equal part of
/// that error (Bonferroni), which its metrics share (Holm). As with pairs of cells, an interim check has its
/// share of it.
pub(crate) fn check(plan: &Plan, nodes: &BTreeMap<String, Info>, known: &mut Known<'_>) -> Vec<Comparison> {
    let cell_pairs = &plan.judging.cell_pairs;
    let mut compared = vec![];
    let mut void: Vec<&StackName> = vec![];
    for (index, cell_pair) in cell_pairs.iter().enumerate() {
        let Some(of_control) = cell_pair.of_control() else {
            continue;
        };
        let check = known.cell_pairs[index].check;
        let pairs = known.trials.pairs(of_control, check.iterations);
        let apart = are_apart(plan, nodes, of_control).then_some(NoFinding::DifferentMachines);
        let family = known.family.iter();
        let members: Vec<&Member> = family.filter(|member| member.cell_pair == index).collect();
        let sample = |member: &&Member| Sample::Open {
            differences: differences(&pairs, member.metric),
            tolerance: member.tolerance,
            obstacle: apart.or_else(|| obstacle(&pairs, member.metric)),
        };
        let share = error_of_each(plan, check) / ALPHA;
        let found = outcomes(members.iter().map(sample).collect(), share);
        for (member, found) in members.into_iter().zip(found) {
            let Some(found) = found else {
                continue;
            };
            if found.finding.differs() {
                void.extend(candidate(plan, *cell_pair));
            }
            compared.push(Comparison {
                detectable_difference: found.detectable_difference,
                ..comparison(plan, of_control, member, &pairs, &found)
            });
        }
    }
    let is_void: Vec<bool> = cell_pairs
        .iter()
        .map(|cell_pair| candidate(plan, *cell_pair).is_some_and(|candidate| void.contains(&candidate)))
        .collect();
    known.withdraw(
        &is_void,
        NoFinding::ControlDiffers,
        "the control, the baseline once more, differs from it",
    );
    compared
}

/// Whether the iterations of an interim check are enough for the control of a pair of cells to differ. The
/// smallest p of n pairs is 2 ÷ 2ⁿ, that of differences with one sign. It must be at most the part of the
/// error that each of its metrics has. The answer depends on the plan alone, so that it adds nothing to the
/// error.
pub(crate) fn can_differ(plan: &Plan, family: &[Member], cell_pair: usize, check: InterimCheck) -> bool {
    let metrics = family
        .iter()
        .filter(|member| member.cell_pair == cell_pair)
        .count();
    let chance = error_of_each(plan, check) / metrics as f64;
    f64::from(check.iterations) >= 1.0 - chance.log2()
}

/// The error that each control of a run may have at an interim check.
fn error_of_each(plan: &Plan, check: InterimCheck) -> f64 {
    let cell_pairs = plan.judging.cell_pairs.iter();
    let count = cell_pairs.filter(|cell_pair| cell_pair.control.is_some()).count();
    check.share * CONTROL_ALPHA / count as f64
}

/// The variant that a pair of cells has in the place of its baseline. The pairs of cells of one comparison
/// have the same.
fn candidate(plan: &Plan, cell_pair: CellPair) -> Option<&StackName> {
    let cell = |index: usize| plan.cells.get(index);
    let (baseline, candidate) = cell(cell_pair.baseline).zip(cell(cell_pair.candidate))?;
    Some(match baseline.client == candidate.client {
        true => &candidate.server,
        false => &candidate.client,
    })
}
