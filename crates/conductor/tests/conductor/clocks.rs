//! Nodes whose clocks stand apart.

use std::time::Duration;

use perfrun_test_kit::records::trial;

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
        // Clocks that are not compared are hours apart.
        assert!(record.start_skew_seconds.unwrap() < 60.0, "{record:?}");
        assert!(record.start_lateness_seconds.unwrap() < 60.0, "{record:?}");
        let uncertainty = record.clock_uncertainty_seconds.unwrap();
        assert!(uncertainty > 0.0 && uncertainty < 60.0, "{record:?}");
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
    bench.plan.trials = (0..20).map(|i| trial(&format!("c0.i{i}"))).collect();
    let out = bench.run().await;
    // By then, the clock is 250 ms ahead of where it was met, in each of these trials. A busy machine delays
    // some.
    let late = out.records.iter().filter(|record| record.at_seconds > 0.5);
    let skews: Vec<f64> = late.map(|record| record.start_skew_seconds.unwrap()).collect();
    assert!(skews.iter().any(|skew| *skew < 0.2), "{skews:?}");
}
