//! Whole runs, judged: plans and records in, findings out.

mod controls;
mod interim;
mod pairs;
mod summarized;

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{
        Bound, CellPair, Comparison, Expectation,
        Finding::{self, Better, Inconclusive, NotComparable, Same, Worse},
        Judged, JudgedExpectation, NoFinding, Verdict,
    },
    matrix::{IpFamily, Stack, StackName, Transport},
    metric::Metric,
    newer::NewerName,
    node::{Info, Reason},
    plan::{Names, Plan},
    record::{Disturbance, Flag, TrialRecord},
};
use perfrun_judge::{
    judged,
    runs::{self, Basis},
    sentences, summary, texts,
};
use perfrun_test_kit::records::{completed, failed, info, retried, trial, upload_cell as cell};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus, seq::SliceRandom};

const TRANSPORTS: [Transport; 4] = [
    Transport::Tcp,
    Transport::QuicV1,
    Transport::Ws,
    Transport::TcpTls,
];

/// A run of pairs of cells: of pair i, cell 2i is the baseline and cell 2i + 1 the candidate. In odd
/// iterations candidates are first.
#[derive(Clone)]
struct Run {
    plan: Plan,
    records: Vec<TrialRecord>,
}

impl Run {
    /// A run of upload only, whose candidates have these ratios to their baselines, give or take some
    /// percent.
    fn new(ratios: &[f64], iterations: u32) -> Self {
        Self::seeded(ratios, iterations, 2)
    }

    fn seeded(ratios: &[f64], iterations: u32, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut run = Self {
            plan: Plan::default(),
            records: vec![],
        };
        for (index, transport) in (0..ratios.len()).zip(TRANSPORTS) {
            run.plan.cells.push(cell(Stack::Litep2p, "main", transport));
            run.plan.cells.push(cell(Stack::Litep2p, "pr", transport));
            run.plan.judging.cell_pairs.push(CellPair {
                baseline: 2 * index,
                candidate: 2 * index + 1,
                control: None,
            });
        }
        for iteration in 0..iterations {
            for (index, ratio) in ratios.iter().enumerate() {
                let mut pair = [(2 * index, 1.0), (2 * index + 1, *ratio)];
                if random.random() {
                    pair.swap(0, 1);
                }
                for (cell, ratio) in pair {
                    let noise: f64 = (0..4).map(|_| random.random_range(-0.04..0.04)).sum();
                    run.measure(&format!("c{cell}.i{iteration}"), 4.7e9 * ratio * noise.exp());
                }
            }
        }
        run
    }

    fn measure(&mut self, id: &str, value: f64) {
        self.plan.trials.push(trial(id));
        self.records.push(TrialRecord {
            metrics: BTreeMap::from([(Metric::UploadGoodput, value)]),
            at_seconds: self.records.len() as f64 * 1.5,
            ..completed(id)
        });
    }

    /// Only goodput is judged, unless something else is expected.
    fn allowing(mut self, share: f64) -> Self {
        let cells = self
            .plan
            .judging
            .cell_pairs
            .iter()
            .map(|cell_pair| cell_pair.candidate)
            .collect();
        self.expect(cells, Bound::MaxRegression(share));
        self
    }

    fn expect(&mut self, cells: Vec<usize>, bound: Bound) {
        self.plan.judging.expect.push(Expectation {
            metric: Metric::UploadGoodput,
            cells,
            bound,
        });
    }

    fn change(mut self, mut change: impl FnMut(&mut TrialRecord)) -> Self {
        self.records.iter_mut().for_each(&mut change);
        self
    }

    fn judge(&self) -> Judged {
        self.judge_on(&BTreeMap::new())
    }

    fn judge_on(&self, nodes: &BTreeMap<String, Info>) -> Judged {
        judged(&self.plan, &self.records, nodes).expect("a plan that compares or expects")
    }

    fn goodput(&self, cell_pair: usize) -> Comparison {
        let id = &self.plan.cells[2 * cell_pair + 1].id;
        let judged = self.judge();
        let mut found = judged.comparisons.into_iter();
        found
            .find(|found| found.metric == Metric::UploadGoodput && found.candidate == *id)
            .expect("the cell_pair is compared")
    }
}

fn fail(record: &mut TrialRecord, reason: Reason) {
    record.failure = failed(&record.trial.id, reason).failure;
    record.metrics.clear();
}

fn disturb(record: &mut TrialRecord) {
    record.disturbance = Some(Disturbance {
        steal: 0.06,
        ..Disturbance::default()
    });
}

fn is_candidate(record: &TrialRecord) -> bool {
    record.trial.cell % 2 == 1
}

#[test]
fn each_difference_has_its_finding() {
    let run = Run::new(&[0.9, 1.1, 1.0, 1.03], 40);
    let found: Vec<_> = (0..4).map(|cell_pair| run.goodput(cell_pair)).collect();
    let findings: Vec<Finding> = found.iter().map(|found| found.finding).collect();
    assert_eq!(findings, [Worse, Better, Same, Same]);
    for (found, truth) in found.iter().zip([0.9, 1.1, 1.0, 1.03]) {
        let ratio = found.ratio.unwrap();
        assert!((ratio.value - truth).abs() < 0.02, "{found:?}");
        assert!(
            ratio.low.unwrap() < truth && truth < ratio.high.unwrap(),
            "{found:?}"
        );
        assert_eq!((found.pairs, found.excluded_pairs, found.failed), (40, 0, [0, 0]));
    }
    let few = Run::new(&[1.06], 12).goodput(0);
    assert_eq!(few.finding, Inconclusive, "{few:?}");
    assert!(
        few.detectable_difference.unwrap() > 0.03 && few.pairs_needed.unwrap() > 12,
        "{few:?}"
    );
}

#[test]
fn costs_are_better_the_lower_they_are() {
    let costs = |run: Run| {
        run.change(|record| {
            let value = record.metrics.remove(&Metric::UploadGoodput).unwrap();
            record.metrics.insert(Metric::CpuSecondsPerGiB, value);
        })
    };
    let mut run = costs(Run::new(&[1.2], 20));
    let judged = run.judge();
    let cost = judged
        .comparisons
        .iter()
        .find(|found| found.metric == Metric::CpuSecondsPerGiB)
        .unwrap();
    assert_eq!(cost.finding, Worse);
    let ratio = cost.ratio.unwrap();
    assert!(ratio.low.unwrap() < 1.2 && 1.2 < ratio.high.unwrap(), "{ratio:?}");
    assert_eq!(run.goodput(0).reason, Some(NoFinding::NotMeasured));
    for (share, verdict) in [
        (0.1, Verdict::Fail),
        (0.19, Verdict::Inconclusive),
        (0.3, Verdict::Pass),
    ] {
        run.plan.judging.expect = vec![Expectation {
            metric: Metric::CpuSecondsPerGiB,
            cells: vec![1],
            bound: Bound::MaxRegression(share),
        }];
        assert_eq!(run.judge().verdict, Some(verdict), "{share}");
    }
}

#[test]
fn swapping_baseline_and_candidate_reverses_every_finding() {
    let run = Run::new(&[0.9, 1.1, 1.0], 20);
    let mut swapped = run.clone();
    for cell_pair in &mut swapped.plan.judging.cell_pairs {
        std::mem::swap(&mut cell_pair.baseline, &mut cell_pair.candidate);
    }
    for (found, turned) in run.judge().comparisons.iter().zip(&swapped.judge().comparisons) {
        let expected = match found.finding {
            Better => Worse,
            Worse => Better,
            finding => finding,
        };
        assert_eq!(turned.finding, expected);
        assert_eq!(
            (&turned.baseline, &turned.candidate),
            (&found.candidate, &found.baseline)
        );
        let Some((ratio, turned_ratio)) = found.ratio.zip(turned.ratio) else {
            assert_eq!(found.reason, Some(NoFinding::NotMeasured));
            continue;
        };
        let near = |a: f64, b: f64| (a * b - 1.0).abs() < 1e-9;
        assert!(near(ratio.value, turned_ratio.value));
        assert!(near(ratio.low.unwrap(), turned_ratio.high.unwrap()));
        assert!((found.p_adjusted.unwrap() - turned.p_adjusted.unwrap()).abs() < 1e-12);
    }
}

#[test]
fn units_do_not_matter() {
    let run = Run::new(&[0.9, 1.0], 20);
    let judged = run.judge();
    // A power of two, which rounding does not touch.
    let kibi = run.change(|record| {
        record.metrics.values_mut().for_each(|value| *value /= 1024.0);
    });
    let without_medians = |judged: Judged| -> Vec<Comparison> {
        let all = judged.comparisons.into_iter();
        all.map(|found| Comparison {
            medians: None,
            ..found
        })
        .collect()
    };
    assert_eq!(without_medians(kibi.judge()), without_medians(judged));
}

#[test]
fn the_order_of_records_does_not_matter() {
    let mut run = Run::new(&[0.9, 1.0], 20).allowing(0.1);
    let judged = run.judge();
    run.records.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(5));
    assert_eq!(run.judge(), judged);
}

#[test]
fn only_expected_metrics_are_judged_if_the_document_names_some() {
    let run = Run::new(&[0.9, 1.0], 20);
    let metrics = |run: &Run| -> Vec<(Metric, f64)> {
        run.judge()
            .comparisons
            .iter()
            .map(|found| (found.metric, found.tolerance))
            .collect()
    };
    let primary = [(Metric::UploadGoodput, 0.05), (Metric::CpuSecondsPerGiB, 0.05)];
    assert_eq!(metrics(&run), [primary, primary].concat());
    let run = run.allowing(0.1);
    assert_eq!(metrics(&run), [(Metric::UploadGoodput, 0.1); 2]);
    assert_eq!(run.judge().expectations.len(), 2);
}

#[test]
fn the_worst_verdict_is_that_of_the_run() {
    let none = Run::new(&[1.0], 20).judge();
    assert_eq!(none.verdict, None);
    let verdicts = |run: Run| -> (Vec<Verdict>, Verdict) {
        let judged = run.judge();
        (
            judged
                .expectations
                .iter()
                .map(|expectation| expectation.verdict)
                .collect(),
            judged.verdict.unwrap(),
        )
    };
    let (pass, open, fail) = (Verdict::Pass, Verdict::Inconclusive, Verdict::Fail);
    assert_eq!(
        verdicts(Run::new(&[1.0, 1.2], 20).allowing(0.1)),
        (vec![pass, pass], pass)
    );
    assert_eq!(
        verdicts(Run::new(&[1.0, 0.9], 20).allowing(0.1)),
        (vec![pass, open], open)
    );
    assert_eq!(
        verdicts(Run::new(&[0.9, 0.7, 1.0], 20).allowing(0.1)),
        (vec![open, fail, pass], fail)
    );
}

#[test]
fn bounds_of_values_hold_if_the_interval_of_the_median_lies_within() {
    for (bound, verdict) in [
        (Bound::Min(4e9), Verdict::Pass),
        (Bound::Min(4.7e9), Verdict::Inconclusive),
        (Bound::Min(5e9), Verdict::Fail),
        (Bound::Max(5e9), Verdict::Pass),
        (Bound::Max(4.7e9), Verdict::Inconclusive),
        (Bound::Max(4e9), Verdict::Fail),
    ] {
        let mut run = Run::new(&[1.0], 20);
        run.expect(vec![0], bound);
        assert_eq!(
            run.judge().verdict,
            Some(verdict),
            "{bound:?}: {:?}",
            run.judge().expectations
        );
        let run = Run {
            plan: run.plan,
            records: run.records[..10].to_vec(),
        };
        let judged = run.judge();
        assert_eq!(
            judged.verdict,
            Some(Verdict::Inconclusive),
            "five trials have no interval"
        );
        let evidence = &judged.expectations[0].evidence;
        assert!(
            evidence.ends_with(" is expected; a verdict needs 6 trials that count"),
            "{evidence}"
        );
    }
    let mut run = Run::new(&[1.0], 20);
    run.expect(vec![0], Bound::Min(1e9));
    let run = run.change(|record| {
        if record.trial.iteration % 5 != 0 {
            fail(record, Reason::Timeout);
        }
    });
    assert_eq!(run.judge().verdict, Some(Verdict::Fail), "most trials failed");
}

/// A run of a stack, cell 1, that has about half of the goodput of raw, cell 0.
fn beside_raw(iterations: u32) -> Run {
    let mut run = Run::new(&[1.0], 0);
    run.plan.judging.cell_pairs.clear();
    run.plan.cells[0] = cell(Stack::Raw, "raw", Transport::Tcp);
    for iteration in 0..iterations {
        // The machine drifts by more than the share varies.
        let machine = 1e9 * f64::from(20 + iteration);
        run.measure(&format!("c0.i{iteration}"), machine);
        run.measure(
            &format!("c1.i{iteration}"),
            machine * (0.5 + 0.001 * f64::from(iteration % 7)),
        );
    }
    run
}

#[test]
fn shares_of_raw_are_taken_in_each_iteration() {
    let mut run = beside_raw(20);
    for (share, verdict) in [
        (0.49, Verdict::Pass),
        (0.503, Verdict::Inconclusive),
        (0.52, Verdict::Fail),
    ] {
        run.plan.judging.expect.clear();
        run.expect(vec![1], Bound::MinShareOfRaw(share));
        let judged = run.judge();
        assert_eq!(judged.verdict, Some(verdict), "{:?}", judged.expectations);
        assert!(
            judged.expectations[0].evidence.starts_with("50.3 % ["),
            "{:?}",
            judged.expectations
        );
    }
    disturb(&mut run.records[0]);
    let evidence = run.judge().expectations[0].evidence.clone();
    assert!(
        evidence.contains(" of raw (19 iterations; not counted: 1 disturbed), where at least "),
        "{evidence}"
    );
}

#[test]
fn a_share_of_raw_needs_as_many_iterations_as_its_interval() {
    let outcome = |iterations: u32, interim_checks: Vec<u32>| {
        let mut run = beside_raw(iterations);
        run.plan.judging.interim_checks = interim_checks;
        run.expect(vec![1], Bound::MinShareOfRaw(0.4));
        let judged = run.judge();
        (judged.verdict.unwrap(), judged.expectations[0].evidence.clone())
    };
    let needs = |least: u32| format!(" of raw is expected; a verdict needs {least} iterations that count");
    for (iterations, interim_checks, verdict, end) in [
        (5, vec![], Verdict::Inconclusive, needs(6)),
        (6, vec![], Verdict::Pass, " of raw is expected".to_owned()),
        // The last of three checks has four sevenths of the error.
        (6, vec![6, 12, 24], Verdict::Inconclusive, needs(7)),
        (
            7,
            vec![6, 12, 24],
            Verdict::Pass,
            " of raw is expected".to_owned(),
        ),
    ] {
        let (found, evidence) = outcome(iterations, interim_checks);
        assert_eq!(found, verdict, "{iterations}: {evidence}");
        assert!(evidence.ends_with(&end), "{iterations}: {evidence}");
    }
}

#[test]
fn trials_that_do_not_count_are_named_with_the_reason() {
    let evidence = |iterations: u32, disturbed: u32, failing: u32, reason: Reason| {
        let mut run = Run::new(&[1.0], iterations);
        run.expect(vec![1], Bound::Min(4e9));
        let run = run.change(|record| {
            if record.trial.iteration < disturbed {
                disturb(record);
            } else if record.trial.iteration < disturbed + failing {
                fail(record, reason);
            }
        });
        run.judge().expectations[0].evidence.clone()
    };
    let expected = ", where at least 4.00 Gbit/s is expected";
    for (iterations, disturbed, failing, reason, found) in [
        (6, 6, 0, Reason::NodeLost, "all 6 trials were disturbed"),
        (1, 1, 0, Reason::NodeLost, "the only trial was disturbed"),
        (6, 0, 6, Reason::NodeLost, "all 6 trials failed"),
        (
            6,
            2,
            4,
            Reason::NodeLost,
            "no trial counts (2 disturbed, 4 failed)",
        ),
        (6, 0, 4, Reason::Timeout, "at least half failed (6 trials)"),
        (0, 0, 0, Reason::NodeLost, "no trial was measured"),
    ] {
        assert_eq!(
            evidence(iterations, disturbed, failing, reason),
            format!("{found}{expected}")
        );
    }
    let some = evidence(6, 1, 0, Reason::NodeLost);
    assert!(
        some.ends_with(&format!(
            " (5 trials; not counted: 1 disturbed){expected}; a verdict needs 6 trials that count"
        )),
        "{some}"
    );
}

#[test]
fn sentences_name_a_path_as_tables_do() {
    let mut run = Run::new(&[1.0, 1.0], 20);
    for cell in &mut run.plan.cells[2..] {
        cell.network = "lat10".to_owned();
        cell.ip_family = IpFamily::IPv6;
    }
    run.expect(vec![1, 3], Bound::Min(1e12));
    let found = summary(&run.plan, &run.judge(), Basis::Trials);
    for path in ["tcp", "quic-v1 over IPv6 on lat10"] {
        let sentence = format!("Not as expected: upload over {path}, ");
        assert!(
            found.iter().any(|found| found.starts_with(&sentence)),
            "{found:?}"
        );
    }
}

#[test]
fn a_run_that_was_stopped_early_says_how_few_pairs_it_has() {
    let stopped_after = |iterations: u32| {
        let mut run = Run::new(&[1.0], 20).allowing(0.05);
        run.records.retain(|record| record.trial.iteration < iterations);
        texts(&run.plan, &run.judge())
    };
    for (iterations, words) in [
        (0, "only 0 pairs of trials count, and a finding needs 10"),
        (0, "no pair of trials has values that count; 5 % worse is allowed"),
        (1, "only 1 pair of trials counts, and a finding needs 10"),
        (1, "(1 pair); 5 % worse is allowed"),
        (2, "(2 pairs); 5 % worse is allowed"),
    ] {
        let texts = stopped_after(iterations);
        assert!(
            texts.iter().any(|text| text.contains(words)),
            "{words}: {texts:?}"
        );
    }
}

#[test]
fn findings_are_sentences() {
    let mut run = Run::new(&[0.85, 1.0, 1.0, 0.98], 40).allowing(0.05);
    run.records.retain(|record| match record.trial.cell {
        0 | 1 => true,
        2 | 3 => record.trial.iteration < 32,
        4 | 5 => record.trial.iteration < 5,
        _ => record.trial.iteration < 20,
    });
    let run = run.change(|record| {
        if record.trial.id == "c1.i7" {
            fail(record, Reason::Timeout);
        }
    });
    let expected = [
        "Worse: upload over tcp, 4.71 → 3.96 Gbit/s, −16.2 % [−17.7, −14.6] (40 pairs), \
         failed trials 0 → 1.",
        "1 of 4 the same within 5 %.",
        "Inconclusive: upload over tcp-tls, 4.69 → 4.55 Gbit/s, −3.5 % [−6.7, −0.3] (20 pairs); \
         this comparison detects differences from 5.9 % in four of five cases; about 28 pairs would detect a difference of 5 %.",
        "Not comparable: upload over ws: only 5 pairs of trials count, and a finding needs 10: measure the trials that are missing or failed, or increase `iterations`.",
        "All 3 comparisons of upload together: −6.7 % [−8.9, −4.8] (20 iterations).",
        "Not as expected: upload over tcp, −16.2 % [−17.7, −14.6] (40 pairs), failed trials 0 \
         → 1; 5 % worse is allowed.",
        "Inconclusive: upload over ws, −1.7 % (5 pairs); 5 % worse is allowed.",
        "Inconclusive: upload over tcp-tls, −3.5 % [−6.7, −0.3] (20 pairs); 5 % worse is allowed.",
        "Verdict: Fail · 1 of 4 expectations does not hold",
    ];
    assert_eq!(texts(&run.plan, &run.judge()), expected);
    let summed_up = [
        "Not as expected: upload over tcp, −16.2 % [−17.7, −14.6] (40 pairs), failed trials 0 \
         → 1; 5 % worse is allowed.",
        "Inconclusive: upload over ws, −1.7 % (5 pairs); 5 % worse is allowed.",
        "Inconclusive: upload over tcp-tls, −3.5 % [−6.7, −0.3] (20 pairs); 5 % worse is allowed.",
        "1 of 4 the same within 5 %.",
        "Inconclusive: 1 of 4; differences from 5.9 % are detected in four of five cases; about 28 pairs would detect a \
         difference of 5 %.",
        "Not comparable: 1 of 4: only 5 pairs of trials count, and a finding needs 10: measure the trials that are missing or failed, or increase `iterations`.",
        "All 3 comparisons of upload together: −6.7 % [−8.9, −4.8] (20 iterations).",
    ];
    assert_eq!(summary(&run.plan, &run.judge(), Basis::Trials), summed_up);
    let nothing = Plan::default();
    assert_eq!(texts(&nothing, &Judged::default()), Vec::<String>::new());
}

#[test]
fn differences_without_an_expectation_are_in_the_summary() {
    let run = Run::new(&[0.85, 1.2], 40);
    let said = summary(&run.plan, &run.judge(), Basis::Trials);
    for (sentence, expected) in said
        .iter()
        .zip(["Worse: upload over tcp, ", "Better: upload over "])
    {
        assert!(sentence.starts_with(expected), "{said:?}");
    }
}

#[test]
fn external_stacks_are_named_since_they_may_be_two() {
    let mut run = Run::new(&[0.5], 20).allowing(0.1);
    for cell in &mut run.plan.cells {
        (cell.client_stack, cell.server_stack) = (Stack::External, Stack::External);
        assert!(cell.has_stacks_of(cell));
    }
    let said = texts(&run.plan, &run.judge());
    for sentence in [
        "Worse: upload over tcp, pr → pr against main → main, ",
        "Not as expected: upload over tcp, pr → pr against main → main, ",
    ] {
        assert!(said.iter().any(|said| said.starts_with(sentence)), "{said:?}");
    }
}

#[test]
fn only_pairs_of_cells_with_the_same_variants_have_an_average() {
    let mut run = Run::new(&[0.9, 0.9], 20);
    let averages = |run: &Run| run.judge().overall.len();
    assert_eq!(averages(&run), 1);
    // The other end may differ.
    for cell in &mut run.plan.cells[2..] {
        cell.server = StackName("other".to_owned());
    }
    assert_eq!(averages(&run), 1);
    run.plan.cells[3].client = StackName("next".to_owned());
    assert_eq!(averages(&run), 0);
}

#[test]
fn findings_of_a_newer_version_are_shown_and_decide_nothing() {
    let run = Run::new(&[0.85], 40).allowing(0.05);
    let mut judged = run.judge();
    let doubtful = NewerName::new("Doubtful").unwrap();
    judged.comparisons[0].finding = Finding::Newer(doubtful);
    judged.controls = judged.comparisons.clone();
    let inconclusive = JudgedExpectation {
        verdict: Verdict::Inconclusive,
        ..judged.expectations[0].clone()
    };
    judged.expectations[0].verdict = Verdict::Newer(doubtful);
    judged.expectations.push(inconclusive);
    judged.verdict = Some(Verdict::Newer(doubtful));
    let expected = [
        "The control says nothing of 1 of 1 comparisons with its baseline: a newer version of perfrun calls \
         them Doubtful.",
        "Doubtful: upload over tcp, ",
        "Inconclusive: upload over tcp, ",
        "Inconclusive: upload over tcp, ",
        "Verdict: Doubtful · 2 of 2 expectations are inconclusive",
    ];
    let sentences = sentences(&run.plan, &judged, Basis::Trials);
    assert_eq!(sentences.len(), expected.len());
    for (found, expected) in sentences.iter().zip(expected) {
        assert!(found.text.starts_with(expected), "{}", found.text);
        assert!(
            !matches!(found.verdict, Verdict::Pass | Verdict::Fail),
            "{}",
            found.text
        );
    }
    assert_eq!(runs::verdict(&judged), Verdict::Inconclusive);
}
