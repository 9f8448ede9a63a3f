//! Runs that are looked at: what is decided is measured no longer.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{Bound, Expectation, Judging, Twin, Verdict},
    plan::{Cell, Plan, Trial},
    record::{Metric, TrialRecord},
    run::RunState,
};
use perfrun_judge::judge;

use crate::bench::{Bench, bench};

/// The rounds of both looks. Seven trials are the fewest that give an interval at the first.
const LOOKS: [u32; 2] = [7, 14];

/// Two twins and a cell without one, in 14 rounds with a warm-up. What is expected of the first twin always
/// holds. What is expected of the second cannot be decided: no trial has that metric.
fn two_twins() -> Bench {
    let mut bench = bench();
    let first = bench.plan.cells[0].clone();
    let cell = |index| Cell {
        id: format!("cell-{index}"),
        ..first.clone()
    };
    let trial = |warmup: bool, iteration: u32| {
        move |cell| Trial {
            id: format!("c{cell}.{}{iteration}", if warmup { 'w' } else { 'i' }),
            cell,
            iteration,
            warmup,
        }
    };
    let rounds = (0..LOOKS[1]).map(|iteration| (false, iteration));
    let rounds = [(true, 0)].into_iter().chain(rounds);
    let twin = |baseline| Twin {
        baseline,
        candidate: baseline + 1,
        control: None,
    };
    let expected = |metric, cells, bound| Expectation { metric, cells, bound };
    bench.plan = Plan {
        cells: (0..5).map(cell).collect(),
        trials: rounds
            .flat_map(|(warmup, iteration)| (0..5).map(trial(warmup, iteration)))
            .collect(),
        judging: Judging {
            twins: vec![twin(0), twin(2)],
            expect: vec![
                expected(Metric::Failures, vec![0, 1], Bound::Max(1.0)),
                expected(Metric::UploadGoodput, vec![2, 3], Bound::Min(1e9)),
            ],
            looks: LOOKS.to_vec(),
            target_interval: None,
        },
        ..bench.plan
    };
    bench
}

/// The ids of the trials, in running order.
fn ids(records: &[TrialRecord]) -> Vec<&str> {
    records.iter().map(|record| record.trial.id.as_str()).collect()
}

/// What a run of [`two_twins`] measures.
fn needed() -> Vec<String> {
    let plan = two_twins().plan;
    let needed = plan
        .trials
        .into_iter()
        .filter(|trial| trial.cell > 1 || trial.iteration < LOOKS[0]);
    needed.map(|trial| trial.id).collect()
}

const SPARED: &str = "14 of 75 trials were not needed: decided after 7 of 14 rounds";

#[tokio::test]
async fn a_decided_twin_is_measured_no_longer_and_others_are() {
    let bench = two_twins();
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Complete);
    assert_eq!(ids(&out.records), needed());
    let place = out.events.iter().position(|event| event == SPARED);
    assert_eq!(
        place.map(|place| out.events[place - 1].as_str()),
        Some("c4.i6 completed"),
        "{:?}",
        out.events
    );
}

#[tokio::test]
async fn a_run_ends_when_nothing_is_left_to_decide() {
    let mut bench = two_twins();
    bench.plan.judging.twins.pop();
    bench.plan.judging.expect.pop();
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Complete);
    let rounds = out.records.iter().filter(|record| !record.trial.warmup);
    assert!(
        rounds.clone().all(|record| record.trial.iteration < LOOKS[0]),
        "cells without a twin, too"
    );
    assert_eq!(rounds.count(), 5 * 7);

    // The cell without a twin has something to decide.
    bench.plan.judging.expect.push(Expectation {
        metric: Metric::UploadGoodput,
        cells: vec![4],
        bound: Bound::Min(1e9),
    });
    let out = bench.run().await;
    let last = out
        .records
        .iter()
        .filter(|record| record.trial.iteration >= LOOKS[0]);
    let cells: Vec<usize> = last.map(|record| record.trial.cell).collect();
    assert_eq!(cells, [[2, 3, 4]; 7].concat());
}

#[tokio::test]
async fn a_run_that_was_stopped_between_looks_is_resumed_as_if_it_had_not_been() {
    let whole = two_twins().run().await;
    // In a round before the first look, right at it, and between the two.
    for stopped_after in [5 + 20, 5 + 35, 5 + 35 + 6] {
        let mut bench = two_twins();
        bench.room_for = stopped_after;
        let first = bench.run().await;
        assert_eq!(first.end.state, RunState::Failed);
        bench.room_for = usize::MAX;
        for is_reversed in [false, true] {
            bench.already = first.records.clone();
            if is_reversed {
                bench.already.reverse();
            }
            let rest = bench.run().await;
            assert_eq!(rest.end.state, RunState::Complete);
            assert_eq!(
                [ids(&first.records), ids(&rest.records)].concat(),
                ids(&whole.records),
                "{stopped_after}"
            );
            assert!(rest.events.iter().any(|event| event == SPARED), "{stopped_after}");
            let found = |records: &[TrialRecord]| {
                let judged = judge(&bench.plan, records, &BTreeMap::new());
                let verdicts: Vec<Verdict> = judged.gates.iter().map(|gate| gate.verdict).collect();
                (verdicts, judged.spared)
            };
            let both = [&first.records[..], &rest.records[..]].concat();
            assert_eq!(found(&both), found(&whole.records), "{stopped_after}");
        }
    }
}
