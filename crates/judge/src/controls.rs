//! Controls: baselines that are measured once more, in the place of the candidate. If one differs from its
//! baseline, something else than the program differs, such as the machine or what a trial leaves behind. Then
//! no finding of the comparison can be believed.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{ALPHA, CellPair, Comparison, NoFinding},
    matrix::StackName,
    node::Info,
    plan::Plan,
};

use crate::{
    analysis::Analysis,
    comparison::{comparison, obstacle},
    family::Hypothesis,
    hypothesis_tests::{ComparisonInput, test_comparisons},
    machines::machines_differ,
    pairs::differences,
    text::CONTROL_DIFFERS,
};

/// Compares the controls of a run with their baselines, by the metrics and at the check that their pairs of
/// cells are judged by. Takes back the findings of the comparisons whose control differs.
///
/// All controls of a run together are wrong in at most
/// [`CONTROL_ALPHA`](perfrun_contract::compare::CONTROL_ALPHA) of runs: each has an equal part of that error
/// (Bonferroni), which its metrics share (Holm). As with pairs of cells, a check has its share of it.
pub(crate) fn check(
    plan: &Plan,
    nodes: &BTreeMap<String, Info>,
    analysis: &mut Analysis<'_>,
) -> Vec<Comparison> {
    // What replaces the baseline, which is the same in all pairs of cells of a comparison.
    let candidate = |cell_pair: CellPair| Some(plan.compared_variants(cell_pair)?.1);
    let mut compared = vec![];
    let mut void: Vec<&StackName> = vec![];
    for (index, &cell_pair) in plan.judging.cell_pairs.iter().enumerate() {
        let Some(of_control) = cell_pair.of_control() else {
            continue;
        };
        let check = analysis.cell_pairs[index].check;
        let pairs = analysis.trials.pairs(of_control, check.iterations);
        let obstacle_of_machines =
            machines_differ(plan, nodes, of_control).then_some(NoFinding::DifferentMachines);
        let hypotheses = analysis.comparisons.iter().map(|state| state.hypothesis);
        let hypotheses = hypotheses.filter(|hypothesis| hypothesis.cell_pair == index);
        let input = |hypothesis: &Hypothesis| ComparisonInput::Open {
            differences: differences(&pairs, hypothesis.metric),
            tolerance: hypothesis.tolerance,
            obstacle: obstacle_of_machines.or_else(|| obstacle(&pairs, hypothesis.metric)),
        };
        let share = check.error_of_control(plan) / ALPHA;
        let inputs = hypotheses
            .map(|hypothesis| (hypothesis, input(&hypothesis)))
            .collect();
        for (hypothesis, found) in test_comparisons(inputs, share) {
            let Some(found) = found else {
                continue;
            };
            if found.finding.differs() {
                void.extend(candidate(cell_pair));
            }
            compared.push(Comparison {
                detectable_difference: found.detectable_difference,
                ..comparison(plan, of_control, &hypothesis, &pairs, &found)
            });
        }
    }
    analysis.withdraw(
        |cell_pair| candidate(cell_pair).is_some_and(|candidate| void.contains(&candidate)),
        NoFinding::ControlDiffers,
        CONTROL_DIFFERS,
    );
    compared
}
