//! What a run found, as its status and its events state it.

use std::collections::BTreeMap;

use kube::runtime::events::Event;
use perfrun_api::cluster::condition::{Reason, Status};
use perfrun_contract::{
    compare::{Bound, Comparison, Finding, Judged, JudgedExpectation, Judging, Verdict},
    metric::Metric,
};

use crate::api::{conditions::ConditionValues, events::event};

/// The largest number of rows in `status.comparisons`.
const ROWS_MAX: usize = 64;
/// The largest number of expectations that have an event of their own.
const EVENTS_MAX: usize = 8;

/// An expectation of a run, without its cells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Expected {
    metric: Metric,
    /// The reason of the condition and of the event if the expectation does not hold.
    failure_reason: Reason,
}

impl Expected {
    /// What a plan expects. `None` if it neither compares nor expects anything.
    pub(crate) fn of(judging: &Judging) -> Option<Vec<Self>> {
        let expected = judging.expect.iter().map(|expectation| Self {
            metric: expectation.metric,
            failure_reason: match expectation.bound {
                Bound::MaxRegression(_) => Reason::Regressed,
                Bound::Min(_) => Reason::BelowMinimum,
                Bound::Max(_) => Reason::AboveMaximum,
                Bound::MinShareOfRaw(_) => Reason::BelowShareOfRaw,
            },
        });
        (!judging.is_empty()).then(|| expected.collect())
    }
}

/// Status, reason and message of the condition of a run that has ended.
pub(crate) fn condition(judged: &Judged, expected: &[Expected]) -> ConditionValues<'static> {
    let first = judged
        .expectations
        .iter()
        .find(|expectation| Some(expectation.verdict) == judged.verdict);
    let sentence = first
        .map(|expectation| sentence(expectation, expected))
        .unwrap_or_default();
    match judged.verdict {
        Some(Verdict::Pass) => {
            let message = match judged.expectations.len() {
                1 => "the only expectation holds".to_owned(),
                count => format!("all expectations hold, {count} in number"),
            };
            (Status::True, Reason::ExpectationsHold, message.into())
        }
        Some(Verdict::Fail) => {
            let expected = first.and_then(|expectation| expected.get(expectation.index));
            let reason = expected.map_or(Reason::ExpectationsFail, |expected| expected.failure_reason);
            (Status::False, reason, sentence.into())
        }
        Some(Verdict::Inconclusive | Verdict::Newer(_)) => {
            let reason = first.and_then(|expectation| reason_of_comparison(expectation, judged, expected));
            (
                Status::Unknown,
                reason.unwrap_or(Reason::NotPrecise),
                sentence.into(),
            )
        }
        None => (
            Status::Unknown,
            Reason::NothingExpected,
            count_findings(&judged.comparisons).into(),
        ),
    }
}

/// A warning for each expectation that does not hold, up to a limit, and one about the others.
pub(crate) fn warnings(judged: &Judged, expected: &[Expected]) -> Vec<Event> {
    // Events that differ in their notes only would be counted as one. So each has an action of its own.
    let warning = |reason: Reason, text: &str, action: &str| event(false, reason, text, action);
    let mut broken = expected.iter().enumerate().filter_map(|(index, one)| {
        let mut failed = judged
            .expectations
            .iter()
            .filter(|expectation| expectation.index == index && expectation.verdict == Verdict::Fail);
        let first = sentence(failed.next()?, expected);
        let text = match failed.count() {
            0 => first,
            1 => format!("{first}; and 1 other cell"),
            others => format!("{first}; and {others} other cells"),
        };
        Some(warning(one.failure_reason, &text, &format!("Expect{index}")))
    });
    let mut events: Vec<_> = broken.by_ref().take(EVENTS_MAX).collect();
    let others = broken.count();
    if others > 0 {
        let text = match others {
            1 => "and 1 more expectation does not hold".to_owned(),
            _ => format!("and {others} more expectations do not hold"),
        };
        events.push(warning(Reason::ExpectationsFail, &text, "Expect"));
    }
    events
}

/// The comparisons that fit. Those that are worse or inconclusive come first if not all fit.
pub(crate) fn comparisons_that_fit(comparisons: &[Comparison]) -> Vec<Comparison> {
    let mut rows: Vec<_> = comparisons.iter().collect();
    if rows.len() > ROWS_MAX {
        rows.sort_by_key(|row| matches!(row.finding, Finding::Better | Finding::Same));
    }
    rows.into_iter().take(ROWS_MAX).cloned().collect()
}

/// What a judged expectation is based on, and of what.
fn sentence(expectation: &JudgedExpectation, expected: &[Expected]) -> String {
    let JudgedExpectation { cell, evidence, .. } = expectation;
    match expected.get(expectation.index) {
        Some(Expected { metric, .. }) => format!("{metric} of {cell}: {evidence}"),
        None => format!("{cell}: {evidence}"),
    }
}

/// Why the comparison behind a judged expectation says nothing. `None` if its pairs do not show it, or if
/// there is none.
fn reason_of_comparison(
    expectation: &JudgedExpectation,
    judged: &Judged,
    expected: &[Expected],
) -> Option<Reason> {
    let metric = expected.get(expectation.index)?.metric;
    let is_behind = |row: &&Comparison| row.candidate == expectation.cell && row.metric == metric;
    let row = judged.comparisons.iter().find(is_behind)?;
    row.reason.map(Reason::from)
}

/// How many comparisons found what.
fn count_findings(comparisons: &[Comparison]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in comparisons {
        *counts.entry(row.finding.as_ref()).or_default() += 1;
    }
    let counts: Vec<_> = counts
        .iter()
        .map(|(finding, count)| format!("{count} {finding}"))
        .collect();
    format!("comparisons: {}", counts.join(", "))
}
