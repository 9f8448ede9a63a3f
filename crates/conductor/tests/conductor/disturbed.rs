//! Trials that are compared, while something else keeps a machine busy.

use perfrun_contract::{
    compare::{CellPair, Judging},
    plan::{Cell, Plan},
    record::Flag,
    run::RunState,
};
use perfrun_test_kit::records::trial;

use crate::{
    bench::{Bench, bench},
    node::Script,
};

/// Four iterations of a pair of cells, in which the client's machine is disturbed in these attempts.
fn cell_pairs(disturbed: &'static [&'static str]) -> Bench {
    let script = Script {
        disturbed,
        ..Script::default()
    };
    let mut bench = bench().node("client-0", script);
    let baseline = bench.plan.cells[0].clone();
    let candidate = Cell {
        id: "litep2p.litep2p.tcp.ping-3".into(),
        ..baseline.clone()
    };
    let cell_pair = CellPair {
        baseline: 0,
        candidate: 1,
        control: None,
    };
    bench.plan = Plan {
        cells: vec![baseline, candidate],
        trials: (0..4)
            .flat_map(|i| [i % 2, 1 - i % 2].map(|cell| trial(&format!("c{cell}.i{i}"))))
            .collect(),
        judging: Judging {
            cell_pairs: vec![cell_pair],
            ..Judging::default()
        },
        ..bench.plan
    };
    bench
}

#[tokio::test]
async fn a_disturbed_pair_is_measured_again_right_away() {
    let out = cell_pairs(&["r-c0.i1.a0", "r-c0.i2.a0"]).run().await;
    let expected = [
        "c0.i0.a0 completed",
        "c1.i0.a0 completed",
        "c1.i1.a0 completed",
        "c0.i1.a0 completed",
        "c1.i1.a1 completed",
        "c0.i1.a1 completed",
        // One pair of four is measured again, not two.
        "c0.i2.a0 completed",
        "c1.i2.a0 completed",
        "c1.i3.a0 completed",
        "c0.i3.a0 completed",
    ];
    assert_eq!(out.outline(), expected);
    assert_eq!(out.end.state, RunState::Complete);
    let flagged = |flag| -> Vec<String> {
        let records = out.records.iter().filter(|record| record.flags.contains(&flag));
        records
            .map(|record| format!("{}.a{}", record.trial.id, record.attempt))
            .collect()
    };
    assert_eq!(flagged(Flag::Disturbed), ["c0.i1.a0", "c0.i2.a0"]);
    assert_eq!(flagged(Flag::Retried), [""; 0], "no node was lost");
    let disturbance = out.records[3].disturbance.unwrap();
    assert!((disturbance.foreign - 0.49).abs() < 1e-9, "{disturbance:?}");
}

#[tokio::test]
async fn a_resumed_run_repeats_the_same_trials_as_an_uninterrupted_one() {
    let mut bench = cell_pairs(&["r-c0.i1.a0"]);
    bench.room_for = 5;
    let whole = bench.run().await;
    assert_eq!(whole.end.state, RunState::Failed);
    bench.room_for = usize::MAX;
    bench.already = whole.records;
    let rest = bench.run().await;
    assert_eq!(rest.events[0], "run of 8, 3 ended");
    assert_eq!(rest.outline()[..2], ["c0.i1.a1 completed", "c0.i2.a0 completed"]);
    assert!(rest.records.iter().all(|record| record.session == 1));
    assert!(bench.already.iter().all(|record| record.session == 0));
}
