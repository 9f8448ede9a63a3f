//! Findings as systems for continuous integration show them: one by one, each held or not.

use perfrun_contract::{
    compare::{Judged, Verdict},
    plan::Plan,
};
use perfrun_judge::{
    runs::{self, Basis},
    sentence,
};

use crate::tables::comparisons::bound;

/// An expectation or a comparison, and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What is expected or compared, of which cell.
    pub name: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// What that is based on.
    pub evidence: String,
}

/// One for each expectation of each cell. If nothing was expected, one for each comparison, which passes if
/// the candidate is faster or the same.
pub fn checks(plan: &Plan, judged: &Judged, basis: Basis) -> Vec<Check> {
    if judged.gates.is_empty() {
        let comparisons = judged.comparisons.iter();
        return comparisons
            .map(|comparison| Check {
                name: format!("{}: {}", comparison.candidate, comparison.metric),
                verdict: runs::answer(comparison.word),
                evidence: sentence(plan, comparison, basis),
            })
            .collect();
    }
    let gates = judged.gates.iter();
    gates
        .map(|gate| {
            let expected = plan.judging.expect.get(gate.expectation);
            let expected = expected.map(|expected| bound(expected.metric, expected.bound));
            Check {
                name: format!("{}: {}", gate.cell, expected.unwrap_or_default()),
                verdict: gate.verdict,
                evidence: gate.evidence.clone(),
            }
        })
        .collect()
}
