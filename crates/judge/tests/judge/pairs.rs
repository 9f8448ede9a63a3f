//! Which trials make a pair, and what a failed or disturbed one does to it.

use std::num::NonZeroU64;

use perfrun_contract::{
    matrix::Protocol,
    network::NetworkImpairments,
    parameters::{Amount, Bandwidth, Parameters},
    workload::Direction,
};

use super::*;

#[test]
fn a_resumed_run_is_judged_like_an_uninterrupted_one() {
    let run = Run::new(&[0.9, 1.0], 20);
    let judged = run.judge();
    // Between two iterations, and in the middle of a pair.
    for (interrupted_at, lost) in [(40, 0), (41, 1)] {
        let mut resumed = run.clone();
        for record in &mut resumed.records[interrupted_at..] {
            record.session = 1;
            record.at_seconds -= 50.0;
        }
        let found = resumed.judge();
        let pairs: Vec<u32> = found.comparisons.iter().map(|found| found.pairs).collect();
        assert_eq!(
            pairs,
            [20 - lost, 0, 20, 0],
            "goodput and CPU time, which is not measured"
        );
        assert!(lost > 0 || found == judged);
    }
}

#[test]
fn the_last_attempt_counts_and_warm_up_does_not() {
    let run = Run::new(&[0.9], 20);
    let judged = run.judge();
    let mut more = Run {
        plan: run.plan.clone(),
        records: vec![],
    };
    for id in ["c0.w0", "c1.w0"] {
        more.measure(id, 1.0);
    }
    for mut record in run.records {
        record.at_seconds += 10.0;
        if record.trial.id == "c1.i4" {
            more.records.push(TrialRecord {
                at_seconds: record.at_seconds - 1.0,
                ..failed("c1.i4", Reason::NodeLost)
            });
            record = retried(record);
        }
        more.records.push(record);
    }
    assert_eq!(more.judge(), judged);
}

#[test]
fn only_neighbours_are_pairs() {
    let mut run = Run::new(&[0.9, 1.0], 20);
    // Iteration 3: the second trial begins too late. Iteration 5: another trial is in between.
    run.records[13].at_seconds += 61.5;
    for record in &mut run.records[14..] {
        record.at_seconds += 61.5;
    }
    run.records.swap(21, 22);
    let times: Vec<f64> = run.records.iter().map(|record| record.at_seconds).collect();
    run.records[21].at_seconds = times[22];
    run.records[22].at_seconds = times[21];
    let counts = |cell_pair| {
        (
            run.goodput(cell_pair).pairs,
            run.goodput(cell_pair).excluded_pairs,
        )
    };
    assert_eq!((counts(0), counts(1)), ((18, 2), (19, 1)));
}

#[test]
fn long_trials_over_a_slow_network_are_pairs() {
    let mut run = Run::new(&[0.9], 20);
    for (place, record) in run.records.iter_mut().enumerate() {
        record.at_seconds = place as f64 * 600.0;
    }
    assert_eq!(run.goodput(0).pairs, 0, "the pauses are too long");
    // 75 MB at 1 Mbit/s.
    let mut slow = NetworkImpairments {
        name: "slow".to_owned(),
        ..NetworkImpairments::default()
    };
    slow.to_server.rate_bits_per_second = NonZeroU64::new(1_000_000);
    for cell in &mut run.plan.cells {
        cell.network.clone_from(&slow.name);
        let upload = Bandwidth::new(Protocol::Perf, Direction::Upload, Amount::Count(75_000_000));
        cell.parameters = Parameters::Bandwidth(upload);
    }
    run.plan.networks.push(slow);
    assert_eq!(run.goodput(0).pairs, 20);
}

#[test]
fn a_failure_of_the_stack_is_worse_than_any_value() {
    let run = Run::new(&[1.0], 40).allowing(0.1).change(|record| {
        if is_candidate(record) && record.trial.iteration % 4 == 0 {
            fail(record, Reason::Timeout);
        }
    });
    let found = run.goodput(0);
    assert_eq!((found.pairs, found.failed), (40, [0, 10]));
    let ratio = found.ratio.unwrap();
    assert!(
        ratio.value < 1.0 && ratio.low.is_none() && ratio.high.is_some(),
        "{found:?}"
    );
    let judged = run.judge();
    assert_eq!(judged.verdict, Some(Verdict::Fail));
    assert!(
        judged.expectations[0].evidence.contains("failed trials 0 → 10"),
        "{judged:?}"
    );

    let always = Run::new(&[1.0], 20).allowing(0.1).change(|record| {
        if is_candidate(record) {
            fail(record, Reason::DialFailed);
        }
    });
    let found = always.goodput(0);
    assert_eq!((found.finding, found.ratio), (Worse, None));
    assert_eq!(always.judge().verdict, Some(Verdict::Fail));
}

#[test]
fn a_pair_is_excluded_if_both_trials_fail_or_a_failure_is_not_of_the_stack() {
    let run = Run::new(&[1.0], 30).change(|record| match record.trial.iteration {
        0..4 => fail(record, Reason::StreamFailed),
        4..9 if is_candidate(record) => fail(record, Reason::NodeLost),
        9..11 if !is_candidate(record) => fail(record, Reason::ImpairmentNotEffective),
        _ => {}
    });
    let found = run.goodput(0);
    assert_eq!(
        (found.pairs, found.excluded_pairs, found.failed),
        (19, 11, [4, 4])
    );
}

#[test]
fn a_run_whose_trials_all_failed_shows_no_difference_and_reaches_no_bound() {
    let mut run = Run::new(&[1.0], 20)
        .allowing(0.1)
        .change(|record| fail(record, Reason::Timeout));
    let found = run.goodput(0);
    assert_eq!(
        (found.finding, found.reason),
        (NotComparable, Some(NoFinding::TooFewPairs)),
        "{found:?}"
    );
    assert_eq!(
        (found.pairs, found.excluded_pairs, found.failed),
        (0, 20, [20, 20])
    );
    assert_eq!((found.ratio, found.medians, found.p_adjusted), (None, None, None));
    assert_eq!(run.judge().verdict, Some(Verdict::Inconclusive));
    for bound in [Bound::Min(1.0), Bound::Max(1e12)] {
        run.plan.judging.expect.clear();
        run.expect(vec![0], bound);
        assert_eq!(run.judge().verdict, Some(Verdict::Fail), "{bound:?}");
    }
}

#[test]
fn values_without_a_ratio_make_no_pair() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0] {
        let with_value = |iterations: u32| {
            Run::new(&[0.9], 20).allowing(0.1).change(move |record| {
                if is_candidate(record) && record.trial.iteration < iterations {
                    record.metrics.insert(Metric::UploadGoodput, value);
                }
            })
        };
        let some = with_value(5).goodput(0);
        assert_eq!(
            (some.pairs, some.excluded_pairs, some.finding),
            (15, 5, Worse),
            "{value}: {some:?}"
        );
        let all = with_value(20);
        assert_eq!(all.goodput(0).reason, Some(NoFinding::NotMeasured), "{value}");
        assert_eq!(all.judge().verdict, Some(Verdict::Inconclusive), "{value}");
    }
}

#[test]
fn counts_may_be_zero() {
    let lost = |candidate: f64| {
        let mut run = Run::new(&[1.0], 12).change(|record| {
            let lost = if is_candidate(record) { candidate } else { 0.0 };
            record.metrics.insert(Metric::MessagesLost, lost);
        });
        run.expect(vec![1], Bound::MaxRegression(0.1));
        run.plan.judging.expect[0].metric = Metric::MessagesLost;
        run.judge()
    };
    let none = lost(0.0);
    assert_eq!(
        (none.comparisons[0].finding, none.verdict),
        (Same, Some(Verdict::Pass))
    );
    let some = lost(7.0);
    assert_eq!(
        (some.comparisons[0].finding, some.verdict),
        (Worse, Some(Verdict::Fail))
    );
    assert_eq!(some.comparisons[0].medians, Some([0.0, 7.0]));
    assert!(
        some.expectations[0]
            .evidence
            .contains("infinitely worse (12 pairs)"),
        "{some:?}"
    );
}

#[test]
fn disturbed_pairs_do_not_count_and_many_of_them_prevent_a_finding() {
    let disturbed = |iterations: u32| {
        Run::new(&[0.9], 30).change(move |record| {
            if is_candidate(record) && record.trial.iteration < iterations {
                disturb(record);
            }
        })
    };
    let found = disturbed(15).goodput(0);
    assert_eq!(
        (found.pairs, found.excluded_pairs, found.finding),
        (15, 15, Worse)
    );
    let found = disturbed(16).goodput(0);
    assert_eq!(
        (found.finding, found.reason),
        (NotComparable, Some(NoFinding::Disturbed))
    );
    let found = Run::new(&[0.5], 9).goodput(0);
    assert_eq!(
        (found.finding, found.reason),
        (NotComparable, Some(NoFinding::TooFewPairs))
    );
    let debug = Run::new(&[0.9], 20)
        .allowing(0.01)
        .change(|record| record.flags.push(Flag::DebugBuild));
    assert_eq!(debug.goodput(0).reason, Some(NoFinding::DebugBuild));
    assert_eq!(debug.judge().verdict, Some(Verdict::Inconclusive));
    let window = Run::new(&[0.9], 20).change(|record| record.flags.push(Flag::WindowLimited));
    assert_eq!(window.goodput(0).reason, Some(NoFinding::WindowLimited));
}

#[test]
fn a_pair_of_cells_on_different_machines_is_not_comparable() {
    let mut run = Run::new(&[0.5, 0.5], 20).allowing(0.1);
    run.expect(vec![1], Bound::Min(1e9));
    for cell in &mut run.plan.cells {
        let name = |role: &str| Names::from(vec![format!("{role}-{}-{}", cell.client, cell.transport)]);
        (cell.clients, cell.servers) = (name("client"), name("server"));
    }
    assert_eq!(
        run.judge().verdict,
        Some(Verdict::Fail),
        "no node says where it is"
    );
    let nodes = run.plan.cells.iter().flat_map(|cell| cell.nodes());
    let mut nodes: BTreeMap<String, Info> = nodes.map(|name| (name.clone(), info("one"))).collect();
    let judged = run.judge_on(&nodes);
    assert_eq!(judged.verdict, Some(Verdict::Fail), "all are on one machine");
    nodes.insert("server-pr-tcp".to_owned(), info("another"));
    let judged = run.judge_on(&nodes);
    let [apart, together] = judged.comparisons.as_slice() else {
        panic!("{judged:?}")
    };
    assert_eq!(
        (apart.finding, apart.reason),
        (NotComparable, Some(NoFinding::DifferentMachines))
    );
    assert_eq!(together.finding, Worse);
    let verdicts: Vec<Verdict> = judged
        .expectations
        .iter()
        .map(|expectation| expectation.verdict)
        .collect();
    assert_eq!(verdicts, [Verdict::Inconclusive, Verdict::Fail, Verdict::Pass]);
    assert_eq!(judged.overall, [], "a single comparison has no average");
}
