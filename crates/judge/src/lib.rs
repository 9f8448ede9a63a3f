//! What the records of a run show: statistics of its trials, whether the difference between two cells is
//! real, and whether what was expected of the run holds. Pure functions: a plan and records in, statistics
//! and findings out. [`runs`] does the same for the results of several runs.

#![warn(missing_docs)]

mod analysis;
mod check;
mod comparison;
mod controls;
mod expectations;
mod family;
mod holm;
mod hypothesis_tests;
mod machines;
mod median;
mod overall;
mod pairs;
mod prediction;
pub mod runs;
mod sentences;
mod signed_rank;
#[cfg(test)]
mod simulations;
mod statistics;
mod summary;
mod text;

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{Comparison, Judged, JudgedExpectation, NotNeeded},
    node::Info,
    plan::Plan,
    record::TrialRecord,
};

use crate::analysis::{Analysis, ComparisonState, ExpectationState};

pub use self::{
    sentences::{
        Sentence, control_differs, phrase, sentence, sentences, summary, texts, verdict_text,
        verdict_text_of_whole_run,
    },
    signed_rank::Location,
    statistics::{Statistics, VALUES_MIN},
    summary::{is_measured, measured, share, summarize},
};

/// What was found in the records of a run of this plan, which may still be in progress. `None` if the plan
/// compares and expects nothing. A node that is not among `nodes` is taken to share the machine of its pair
/// of cells. If a control differs, its comparison has no finding, and what `maxRegression` expects of it is
/// inconclusive.
pub fn judged(plan: &Plan, records: &[TrialRecord], nodes: &BTreeMap<String, Info>) -> Option<Judged> {
    if plan.judging.is_empty() {
        return None;
    }
    let mut analysis = Analysis::of(plan, records);
    let controls = controls::check(plan, nodes, &mut analysis);
    machines::withdraw(plan, nodes, &mut analysis);
    let judge = |ExpectationState {
                     expectation,
                     evaluation,
                     ..
                 }: &ExpectationState| JudgedExpectation {
        index: expectation.index,
        cell: comparison::cell_id(plan, expectation.cell),
        verdict: evaluation.verdict,
        evidence: evaluation.evidence.clone(),
    };
    let expectations: Vec<JudgedExpectation> = analysis.expectations.iter().map(judge).collect();
    Some(Judged {
        comparisons: comparisons(plan, &analysis),
        overall: overall::overall(plan, &analysis),
        controls,
        verdict: expectations.iter().map(|expectation| expectation.verdict).max(),
        expectations,
        not_needed: analysis.not_needed(),
    })
}

/// What a run has to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Needs {
    /// The number of iterations that each cell of the plan is measured for.
    pub iterations: Vec<u32>,
    /// The trials that are left out. `None` if all are needed.
    pub not_needed: Option<NotNeeded>,
}

/// What a run has to measure, as far as its records tell. The plan says after which iterations it is checked.
/// At an interim check, once all trials that it wants have a record:
///
/// - a pair of cells is measured no longer if everything about it is settled, and its control could differ,
/// - other cells are measured no longer if that is so of all pairs of cells, and of what is expected of other
///   cells.
///
/// The records of the same run always give the same answer. More records do not take the answer back, and
/// those of iterations after an interim check do not change what the check settled.
pub fn needs(plan: &Plan, records: &[TrialRecord]) -> Needs {
    if plan.judging.interim_checks.is_empty() {
        return Needs {
            iterations: vec![u32::MAX; plan.cells.len()],
            not_needed: None,
        };
    }
    let analysis = Analysis::of(plan, records);
    Needs {
        iterations: analysis.iterations(),
        not_needed: analysis.not_needed(),
    }
}

fn comparisons(plan: &Plan, analysis: &Analysis<'_>) -> Vec<Comparison> {
    let states = analysis.comparisons.iter();
    states
        .filter_map(|ComparisonState { hypothesis, found }| {
            let cell_pair = plan.judging.cell_pairs[hypothesis.cell_pair];
            let pairs = &analysis.cell_pairs[hypothesis.cell_pair].pairs;
            Some(comparison::comparison(
                plan,
                cell_pair,
                hypothesis,
                pairs,
                found.as_ref()?,
            ))
        })
        .collect()
}
