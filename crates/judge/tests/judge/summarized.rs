//! Which trials count, and against what.

use perfrun_contract::{
    metric::Metric,
    node::Reason,
    record::{Flag, TrialRecord},
    summary::SummaryRow,
};
use perfrun_judge::summarize;

use perfrun_test_kit::results::run;

const SPEC: &str = "
  workload:
    bandwidth: {sizes: [64Mi], directions: [upload]}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp, tcp-tls]}
";

/// Ten trials of the cell with the values 1 to 10 and a warm-up trial far off.
fn with_known_values(trials: &mut [TrialRecord], cell: usize, metric: Metric) {
    for record in trials.iter_mut().filter(|r| r.trial.cell == cell) {
        let value = if record.trial.warmup {
            1e6
        } else {
            f64::from(record.trial.iteration + 1)
        };
        record.metrics = [(metric, value)].into();
    }
}

fn row<'a>(rows: &'a [SummaryRow], cell: &str, metric: Metric) -> &'a SummaryRow {
    rows.iter()
        .find(|row| row.cell == cell && row.metric == metric)
        .expect("a row of the summary")
}

#[test]
fn warm_up_does_not_count() {
    let mut results = run(SPEC).results();
    with_known_values(&mut results.trials, 0, Metric::UploadGoodput);
    let rows = summarize(&results.plan, &results.trials);
    let raw = row(&rows, "raw.raw.tcp.upload-64Mi", Metric::UploadGoodput);
    assert_eq!(
        (raw.count, raw.median, raw.mean, raw.min, raw.max),
        (10, 5.5, 5.5, 1.0, 10.0)
    );
    let (low, high) = raw.interval().unwrap();
    assert!(2.0 < low && low < 3.0 && 8.0 < high && high < 9.0, "{low} {high}");
    assert_eq!(raw.share_of_raw, None);
}

#[test]
fn shares_compare_with_the_raw_reference_of_the_same_link() {
    let mut results = run(SPEC).results();
    for (cell, metric) in [
        (0, Metric::UploadGoodput),
        (1, Metric::UploadGoodput),
        (2, Metric::UploadSeconds),
    ] {
        with_known_values(&mut results.trials, cell, metric);
    }
    for record in results.trials.iter_mut().filter(|r| r.trial.cell == 0) {
        record.metrics.insert(Metric::UploadGoodput, 11.0);
    }
    let rows = summarize(&results.plan, &results.trials);
    let share = |cell: &str, metric| row(&rows, cell, metric).share_of_raw;
    let tcp = row(&rows, "libp2p.libp2p.tcp.upload-64Mi", Metric::UploadGoodput);
    // Of the geometric means of all pairs of 1/11 to 10/11, the middle one and the ninth from either end.
    let mut averages: Vec<f64> = (1..=10)
        .flat_map(|i| (i..=10).map(move |j| f64::from(i * j).sqrt() / 11.0))
        .collect();
    averages.sort_by(f64::total_cmp);
    let close = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-12;
    assert!(close(tcp.share_of_raw, averages[27]), "{tcp:?}");
    assert!(close(tcp.share_of_raw_low, averages[8]), "{tcp:?}");
    assert!(close(tcp.share_of_raw_high, averages[46]), "{tcp:?}");
    assert_eq!(
        share("libp2p.libp2p.tcp-tls.upload-64Mi", Metric::UploadSeconds),
        None,
        "times have no share"
    );

    let rows = run(SPEC).results().summary;
    let tls = row(&rows, "libp2p.libp2p.tcp-tls.upload-64Mi", Metric::UploadGoodput);
    assert!(
        tls.share_of_raw.is_some(),
        "plain tcp is the reference of tcp-tls"
    );
}

#[test]
fn a_machine_that_slows_down_leaves_shares_as_they_are() {
    let mut results = run(SPEC).failing("/c1.i7", Reason::Timeout, "late").results();
    for record in results.trials.iter_mut().filter(|r| r.failure.is_none()) {
        let raw = 100.0 / f64::from(record.trial.iteration + 1);
        let share = if record.trial.cell == 0 { 1.0 } else { 0.25 };
        record.metrics = [(Metric::UploadGoodput, raw * share)].into();
    }
    let rows = summarize(&results.plan, &results.trials);
    let tcp = row(&rows, "libp2p.libp2p.tcp.upload-64Mi", Metric::UploadGoodput);
    let shares = [tcp.share_of_raw, tcp.share_of_raw_low, tcp.share_of_raw_high];
    assert!(
        shares.iter().all(|share| (share.unwrap() - 0.25).abs() < 1e-12),
        "{tcp:?}"
    );
    // What the medians of both give: the trial that failed has no part in one of them.
    let raw = row(&rows, "raw.raw.tcp.upload-64Mi", Metric::UploadGoodput);
    assert!((tcp.median / raw.median - 0.25).abs() > 0.01);
}

#[test]
fn rows_follow_the_plan_then_the_metrics() {
    let results = run(SPEC).results();
    let mut reversed = results.trials.clone();
    reversed.reverse();
    let rows = summarize(&results.plan, &results.trials);
    let strip = |rows: &[SummaryRow]| {
        rows.iter()
            .map(|r| (r.cell.clone(), r.metric, r.median))
            .collect::<Vec<_>>()
    };
    assert_eq!(strip(&rows), strip(&summarize(&results.plan, &reversed)));
    let cells: Vec<&str> = rows.iter().map(|row| row.cell.as_str()).collect();
    let mut distinct = cells.clone();
    distinct.dedup();
    assert_eq!(
        distinct,
        results
            .plan
            .cells
            .iter()
            .map(|cell| cell.id.as_str())
            .collect::<Vec<_>>()
    );
    assert!(
        rows.windows(2)
            .all(|two| two[0].cell != two[1].cell || two[0].metric < two[1].metric)
    );
}

#[test]
fn the_completed_attempt_counts_once() {
    let results = run(SPEC)
        .lost_once("/c1.i4")
        .flagged("/c1.i2", Flag::Throttled)
        .results();
    let row = row(
        &results.summary,
        "libp2p.libp2p.tcp.upload-64Mi",
        Metric::UploadGoodput,
    );
    assert_eq!(
        (row.count, &row.flags),
        (10, &[(Flag::Throttled, 1), (Flag::Retried, 1)].into())
    );
}

#[test]
fn a_flag_that_only_a_repeated_trial_has_counts_none() {
    let mut results = run(SPEC).flagged("/c1.i2", Flag::Disturbed).results();
    let disturbed = results
        .trials
        .iter()
        .find(|record| !record.flags.is_empty())
        .unwrap();
    let repeated = TrialRecord {
        attempt: 1,
        flags: vec![],
        ..disturbed.clone()
    };
    results.trials.push(repeated);
    let rows = summarize(&results.plan, &results.trials);
    let row = row(&rows, "libp2p.libp2p.tcp.upload-64Mi", Metric::UploadGoodput);
    assert_eq!((row.count, &row.flags), (10, &[(Flag::Disturbed, 0)].into()));
}

#[test]
fn a_cell_without_a_completed_trial_has_no_row() {
    let results = run(SPEC)
        .failing("libp2p.libp2p.tcp.", Reason::DialFailed, "refused")
        .results();
    assert!(
        results
            .summary
            .iter()
            .all(|row| row.cell != "libp2p.libp2p.tcp.upload-64Mi")
    );
    assert!(!results.summary.is_empty());
}

#[test]
fn fewer_than_six_trials_have_no_interval() {
    let results = run(SPEC)
        .failing("/c1.i1", Reason::Timeout, "late")
        .interrupted_after(3 * 7)
        .results();
    let row = row(
        &results.summary,
        "libp2p.libp2p.tcp.upload-64Mi",
        Metric::UploadGoodput,
    );
    assert_eq!((row.count, row.ci95_low, row.ci95_high), (5, None, None));
}
