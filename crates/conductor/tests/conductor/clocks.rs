//! Nodes whose clocks stand apart.

use std::time::Duration;

use perfrun_contract::plan::Trial;

use crate::{bench::bench, node::Script};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn clocks_that_are_hours_apart_start_together() {
    let clock = |hours: u32| Script {
        clock: HOUR * hours,
        ..Script::default()
    };
    let out = bench()
        .node("client-0", clock(0))
        .node("client-1", clock(1))
        .node("client-2", clock(9))
        .run()
        .await;
    for record in &out.records {
        assert!(record.start_skew_seconds.unwrap() < 1.0, "{record:?}");
        assert!(record.start_lateness_seconds.unwrap() < 1.0, "{record:?}");
        let uncertainty = record.clock_uncertainty_seconds.unwrap();
        assert!(uncertainty > 0.0 && uncertainty < 1.0, "{record:?}");
    }
}

#[tokio::test]
async fn a_clock_that_drifts_is_followed() {
    let client = |drift_ppm| Script {
        drift_ppm,
        works_for: Duration::from_millis(40),
        ..Script::default()
    };
    let mut bench = bench()
        .node("client-0", client(0))
        .node("client-1", client(500_000));
    let first = bench.plan.trials[0].clone();
    bench.plan.trials = (0..15)
        .map(|i| Trial {
            id: format!("c0.i{i}"),
            iteration: i,
            ..first.clone()
        })
        .collect();
    let out = bench.run().await;
    let last = out.records.last().unwrap();
    assert!(
        last.at_seconds > 0.5,
        "by now the clock is 250 ms ahead of where it was met"
    );
    assert!(last.start_skew_seconds.unwrap() < 0.2, "{last:?}");
}
