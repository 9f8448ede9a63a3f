//! Controls: baselines that are measured once more, in the place of the candidate. If one differs from its
//! baseline, something else than the program differs, such as the machine or what a trial leaves behind. Then
//! nothing that the comparison found can be believed.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{ALPHA, CONTROL_ALPHA, Comparison, Twin, Why},
    matrix::StackName,
    node::Info,
    plan::Plan,
};

use crate::{
    apart::are_apart,
    comparison::{comparison, obstacle},
    family::Member,
    looks::{Known, Look},
    pairs::differences,
    words::{Sample, words},
};

/// Compares the controls of a run with their baselines, by the metrics and at the look that their twins are
/// judged by. Takes back the findings of the comparisons whose control differs.
///
/// All controls of a run together are wrong in at most [`CONTROL_ALPHA`] of runs: each has an equal part of
/// that error (Bonferroni), which its metrics share (Holm). As with twins, a look has its share of it.
pub(crate) fn check(plan: &Plan, nodes: &BTreeMap<String, Info>, known: &mut Known<'_>) -> Vec<Comparison> {
    let twins = &plan.judging.twins;
    let mut compared = vec![];
    let mut void: Vec<&StackName> = vec![];
    for (index, twin) in twins.iter().enumerate() {
        let Some(of_control) = twin.of_control() else {
            continue;
        };
        let look = known.twins[index].look;
        let pairs = known.trials.pairs(of_control, look.rounds);
        let apart = are_apart(plan, nodes, of_control).then_some(Why::TwinsApart);
        let family = known.family.iter();
        let members: Vec<&Member> = family.filter(|member| member.twin == index).collect();
        let sample = |member: &&Member| Sample::Open {
            differences: differences(&pairs, member.metric),
            tolerance: member.tolerance,
            obstacle: apart.or_else(|| obstacle(&pairs, member.metric)),
        };
        let share = error_of_each(plan, look) / ALPHA;
        let found = words(members.iter().map(sample).collect(), share);
        for (member, found) in members.into_iter().zip(found) {
            let Some(found) = found else {
                continue;
            };
            if found.word.differs() {
                void.extend(candidate(plan, *twin));
            }
            compared.push(Comparison {
                detectable: found.detectable,
                ..comparison(plan, of_control, member, &pairs, &found)
            });
        }
    }
    let is_void: Vec<bool> = twins
        .iter()
        .map(|twin| candidate(plan, *twin).is_some_and(|candidate| void.contains(&candidate)))
        .collect();
    known.withdraw(
        &is_void,
        Why::ControlDiffers,
        "the control, the baseline once more, differs from it",
    );
    compared
}

/// Whether the rounds of a look are enough for the control of a twin to differ. The smallest p of n pairs is
/// 2 ÷ 2ⁿ, that of differences with one sign. It must be at most the part of the error that each of its
/// metrics has. The answer depends on the plan alone, so that it adds nothing to the error.
pub(crate) fn can_differ(plan: &Plan, family: &[Member], twin: usize, look: Look) -> bool {
    let metrics = family.iter().filter(|member| member.twin == twin).count();
    let chance = error_of_each(plan, look) / metrics as f64;
    f64::from(look.rounds) >= 1.0 - chance.log2()
}

/// The error that each control of a run may have at a look.
fn error_of_each(plan: &Plan, look: Look) -> f64 {
    let twins = plan.judging.twins.iter();
    let count = twins.filter(|twin| twin.control.is_some()).count();
    look.share * CONTROL_ALPHA / count as f64
}

/// The variant that a twin has in the place of its baseline. The twins of one comparison have the same.
fn candidate(plan: &Plan, twin: Twin) -> Option<&StackName> {
    let cell = |index: usize| plan.cells.get(index);
    let (baseline, candidate) = cell(twin.baseline).zip(cell(twin.candidate))?;
    Some(match baseline.client == candidate.client {
        true => &candidate.server,
        false => &candidate.client,
    })
}
