//! Findings as systems for continuous integration show them: one by one, each held or not.

use perfrun_contract::{
    compare::{Comparison, Judged, Verdict},
    plan::Plan,
};
use perfrun_judge::{
    control_differs,
    runs::{self, Basis},
    sentence,
};

use crate::tables::comparisons::bound;

/// An expectation, a comparison or a control that differs, and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What is expected or compared, of which cell.
    pub name: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// What that is based on.
    pub evidence: String,
}

/// One for each control that differs, which is inconclusive, and one for each expectation of each cell. If
/// nothing was expected, one for each comparison, which passes if the candidate is better or the same.
pub fn checks(plan: &Plan, judged: &Judged, basis: Basis) -> Vec<Check> {
    let differing = judged.controls.iter().filter(|control| control.finding.differs());
    let controls = differing.map(|control| Check {
        name: name(control),
        verdict: Verdict::Inconclusive,
        evidence: control_differs(plan, control, basis),
    });
    if judged.expectations.is_empty() {
        let comparisons = judged.comparisons.iter().map(|comparison| Check {
            name: name(comparison),
            verdict: runs::verdict_of(comparison.finding),
            evidence: sentence(plan, comparison, basis),
        });
        return controls.chain(comparisons).collect();
    }
    let expectations = judged.expectations.iter().map(|expectation| {
        let expected = plan.judging.expect.get(expectation.index);
        let expected = expected.map(|expected| bound(expected.metric, expected.bound));
        Check {
            name: format!("{}: {}", expectation.cell, expected.unwrap_or_default()),
            verdict: expectation.verdict,
            evidence: expectation.evidence.clone(),
        }
    });
    controls.chain(expectations).collect()
}

fn name(comparison: &Comparison) -> String {
    format!("{}: {}", comparison.candidate, comparison.metric)
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{
        compare::{Finding, JudgedExpectation},
        metric::Metric,
    };
    use perfrun_test_kit::records::comparison;

    use super::*;

    fn compared(candidate: &str, finding: Finding) -> Comparison {
        comparison(candidate, Metric::UploadGoodput, finding)
    }

    #[test]
    fn a_control_that_differs_is_an_inconclusive_check() {
        let mut judged = Judged {
            comparisons: vec![compared("pr", Finding::NotComparable)],
            controls: vec![
                compared("main_control", Finding::Worse),
                compared("old_control", Finding::Inconclusive),
            ],
            ..Judged::default()
        };
        let names = |judged: &Judged| -> Vec<String> {
            let checks = checks(&Plan::default(), judged, Basis::Trials);
            assert_eq!(checks[0].verdict, Verdict::Inconclusive);
            assert!(
                checks[0].evidence.starts_with("The control differs: upload, "),
                "{checks:?}"
            );
            checks.into_iter().map(|check| check.name).collect()
        };
        assert_eq!(
            names(&judged),
            ["main_control: uploadGoodput", "pr: uploadGoodput"]
        );
        judged.expectations.push(JudgedExpectation {
            index: 0,
            cell: "pr".to_owned(),
            verdict: Verdict::Inconclusive,
            evidence: String::new(),
        });
        assert_eq!(names(&judged), ["main_control: uploadGoodput", "pr: "]);
    }
}
