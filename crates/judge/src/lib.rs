//! Whether the difference between two cells of a run is real, and whether what was expected of the run holds.
//! Pure functions: a plan and records in, findings out. [`runs`] does the same for the results of several
//! runs.

#![warn(missing_docs)]

mod apart;
mod comparison;
mod controls;
mod family;
mod gates;
mod holm;
mod looks;
mod median;
mod overall;
mod pairs;
mod prediction;
pub mod runs;
mod sentences;
mod signed_rank;
#[cfg(test)]
mod simulations;
mod text;
mod words;

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{Comparison, Gate, Judged, Spared},
    node::Info,
    plan::Plan,
    record::TrialRecord,
};

use crate::looks::Known;

pub use self::{
    median::median_interval,
    sentences::{Finding, control_differs, findings, sentence, sentences},
    signed_rank::Location,
};

/// Judges the records of a run of this plan, which may still be in progress. A node that is not among
/// `nodes` is taken to share the machine of its twin. If a control differs, its comparison has no finding,
/// and what `maxRegression` expects of it is inconclusive.
pub fn judge(plan: &Plan, records: &[TrialRecord], nodes: &BTreeMap<String, Info>) -> Judged {
    let mut known = Known::of(plan, records);
    let controls = controls::check(plan, nodes, &mut known);
    apart::withdraw(plan, nodes, &mut known);
    let gate = |(ask, answer): (&gates::Ask, &gates::Answer)| Gate {
        expectation: ask.expectation,
        cell: plan
            .cells
            .get(ask.cell)
            .map(|cell| cell.id.clone())
            .unwrap_or_default(),
        verdict: answer.verdict,
        evidence: answer.evidence.clone(),
    };
    let gates: Vec<Gate> = known.asks.iter().zip(&known.answers).map(gate).collect();
    Judged {
        comparisons: comparisons(plan, &known),
        overall: overall::overall(plan, &known),
        controls,
        verdict: gates.iter().map(|gate| gate.verdict).max().unwrap_or_default(),
        gates,
        spared: known.spared(plan),
    }
}

/// What a run has to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Needs {
    /// Of each cell of the plan, the number of rounds that it is measured for.
    pub rounds: Vec<u32>,
    /// What that leaves out. None if nothing.
    pub spared: Option<Spared>,
}

/// What a run has to measure, as far as its records tell. The plan says after which rounds it is looked at.
/// At a look, once all trials that it wants have a record:
///
/// - a twin is measured no longer if everything about it is decided, and its control could differ,
/// - other cells are measured no longer if that is so of all twins, and of what is expected of other cells.
///
/// The records of the same run always give the same answer. More records do not take it back, and those of
/// rounds after a look do not change what it decided.
pub fn needs(plan: &Plan, records: &[TrialRecord]) -> Needs {
    if plan.judging.looks.is_empty() {
        return Needs {
            rounds: vec![u32::MAX; plan.cells.len()],
            spared: None,
        };
    }
    let known = Known::of(plan, records);
    Needs {
        rounds: known.rounds(plan),
        spared: known.spared(plan),
    }
}

fn comparisons(plan: &Plan, known: &Known<'_>) -> Vec<Comparison> {
    let members = known.family.iter().zip(&known.found);
    members
        .filter_map(|(member, found)| {
            let twin = plan.judging.twins[member.twin];
            let pairs = &known.twins[member.twin].pairs;
            Some(comparison::comparison(plan, twin, member, pairs, found.as_ref()?))
        })
        .collect()
}
