//! The comparisons of a run. Its findings are corrected for their number.

use perfrun_contract::{
    compare::{Bound, CellPair, TOLERANCE},
    metric::Metric,
    plan::Plan,
};

/// A hypothesis that a run tests: a metric does not differ between a pair of cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hypothesis {
    /// Index of the pair of cells in the plan.
    pub(crate) cell_pair: usize,
    pub(crate) metric: Metric,
    /// Differences within this share count as no difference.
    pub(crate) tolerance: f64,
}

/// What a plan compares: of each pair of cells the metrics that have an expectation of at most some
/// regression, or if there are none, those that stand for its workload.
pub(crate) fn of(plan: &Plan) -> Vec<Hypothesis> {
    let mut hypotheses = vec![];
    for (cell_pair, cells) in plan.judging.cell_pairs.iter().enumerate() {
        let before = hypotheses.len();
        for expectation in &plan.judging.expect {
            let (Bound::MaxRegression(tolerance), true) =
                (expectation.bound, expectation.cells.contains(&cells.candidate))
            else {
                continue;
            };
            let metric = expectation.metric;
            match hypotheses[before..]
                .iter_mut()
                .find(|hypothesis: &&mut Hypothesis| hypothesis.metric == metric)
            {
                Some(hypothesis) => hypothesis.tolerance = tolerance.min(hypothesis.tolerance),
                None => hypotheses.push(Hypothesis {
                    cell_pair,
                    metric,
                    tolerance,
                }),
            }
        }
        if hypotheses.len() == before {
            let baseline = plan.cells.get(cells.baseline).into_iter();
            let metrics = baseline.flat_map(|cell| cell.parameters.primary());
            let metrics = metrics.filter(|metric| is_alike(plan, *cells, *metric));
            hypotheses.extend(metrics.map(|metric| Hypothesis {
                cell_pair,
                metric,
                tolerance: TOLERANCE,
            }));
        }
    }
    hypotheses
}

/// Whether a metric is the same quantity in both cells of a pair of cells. What programs of two kinds have
/// allocated is not: in Go, for example, it includes what the garbage collector has not found yet.
fn is_alike(plan: &Plan, cell_pair: CellPair, metric: Metric) -> bool {
    let program = |cell: usize| plan.cells.get(cell).map(|cell| cell.client_stack.program());
    metric != Metric::ClientAllocatedPerStream || program(cell_pair.baseline) == program(cell_pair.candidate)
}
