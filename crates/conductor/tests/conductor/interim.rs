//! Runs with interim checks: what is settled is measured no longer.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{Bound, CellPair, Expectation, Judging, Verdict},
    metric::Metric,
    plan::{Cell, Plan},
    record::TrialRecord,
    run::RunState,
};
use perfrun_judge::judged;
use perfrun_test_kit::records;

use crate::bench::{Bench, bench};

/// The iterations of both interim checks. Seven trials are the fewest that give an interval at the first.
const INTERIM_CHECKS: [u32; 2] = [7, 14];

/// Two pairs of cells and a cell that is in none, in 14 iterations with a warm-up. What is expected of the
/// first pair of cells always holds. What is expected of the second cannot be settled: no trial has that
/// metric.
fn two_pairs_of_cells() -> Bench {
    let mut bench = bench();
    let first = bench.plan.cells[0].clone();
    let cell = |index| Cell {
        id: format!("cell-{index}"),
        ..first.clone()
    };
    let trial = |warmup: bool, iteration: u32| {
        move |cell| records::trial(&format!("c{cell}.{}{iteration}", if warmup { 'w' } else { 'i' }))
    };
    let iterations = (0..INTERIM_CHECKS[1]).map(|iteration| (false, iteration));
    let iterations = [(true, 0)].into_iter().chain(iterations);
    let cell_pair = |baseline| CellPair {
        baseline,
        candidate: baseline + 1,
        control: None,
    };
    let expected = |metric, cells, bound| Expectation { metric, cells, bound };
    bench.plan = Plan {
        cells: (0..5).map(cell).collect(),
        trials: iterations
            .flat_map(|(warmup, iteration)| (0..5).map(trial(warmup, iteration)))
            .collect(),
        judging: Judging {
            cell_pairs: vec![cell_pair(0), cell_pair(2)],
            expect: vec![
                expected(Metric::Failures, vec![0, 1], Bound::Max(1.0)),
                expected(Metric::UploadGoodput, vec![2, 3], Bound::Min(1e9)),
            ],
            interim_checks: INTERIM_CHECKS.to_vec(),
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

/// What a run of [`two_pairs_of_cells`] measures.
fn needed() -> Vec<String> {
    let plan = two_pairs_of_cells().plan;
    let needed = plan
        .trials
        .into_iter()
        .filter(|trial| trial.cell > 1 || trial.iteration < INTERIM_CHECKS[0]);
    needed.map(|trial| trial.id).collect()
}

const NOT_NEEDED: &str =
    "14 of 75 trials were not needed: those of comparisons that were settled after 7 of 14 iterations";

#[tokio::test]
async fn a_settled_pair_of_cells_is_measured_no_longer_and_others_are() {
    let bench = two_pairs_of_cells();
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Complete);
    assert_eq!(ids(&out.records), needed());
    let place = out.events.iter().position(|event| event == NOT_NEEDED);
    assert_eq!(
        place.map(|place| out.events[place - 1].as_str()),
        Some("c4.i6 completed"),
        "{:?}",
        out.events
    );
}

#[tokio::test]
async fn a_run_ends_when_every_pair_of_cells_is_settled() {
    let mut bench = two_pairs_of_cells();
    bench.plan.judging.cell_pairs.pop();
    bench.plan.judging.expect.pop();
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Complete);
    let iterations = out.records.iter().filter(|record| !record.trial.warmup);
    assert!(
        iterations
            .clone()
            .all(|record| record.trial.iteration < INTERIM_CHECKS[0]),
        "cells that are in no pair of cells, too"
    );
    assert_eq!(iterations.count(), 5 * 7);

    // The cell that is in no pair of cells has something to decide.
    bench.plan.judging.expect.push(Expectation {
        metric: Metric::UploadGoodput,
        cells: vec![4],
        bound: Bound::Min(1e9),
    });
    let out = bench.run().await;
    let last = out
        .records
        .iter()
        .filter(|record| record.trial.iteration >= INTERIM_CHECKS[0]);
    let cells: Vec<usize> = last.map(|record| record.trial.cell).collect();
    assert_eq!(cells, [[2, 3, 4]; 7].concat());
}

#[tokio::test]
async fn a_run_that_was_stopped_between_interim_checks_is_resumed_as_if_it_had_not_been() {
    let whole = two_pairs_of_cells().run().await;
    // In an iteration before the first interim check, right at it, and between the two.
    for stopped_after in [5 + 20, 5 + 35, 5 + 35 + 6] {
        let mut bench = two_pairs_of_cells();
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
            assert!(
                rest.events.iter().any(|event| event == NOT_NEEDED),
                "{stopped_after}"
            );
            let found = |records: &[TrialRecord]| {
                let judged = judged(&bench.plan, records, &BTreeMap::new()).unwrap();
                let verdicts: Vec<Verdict> = judged
                    .expectations
                    .iter()
                    .map(|expectation| expectation.verdict)
                    .collect();
                (verdicts, judged.not_needed)
            };
            let both = [&first.records[..], &rest.records[..]].concat();
            assert_eq!(found(&both), found(&whole.records), "{stopped_after}");
        }
    }
}
