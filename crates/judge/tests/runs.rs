//! Several runs, compared.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{Comparison, Finding, Judged, NoFinding, Verdict},
    matrix::{Stack, Transport},
    metric::Metric,
    node::Reason,
    plan::Plan,
    record::{Disturbance, Flag, TrialRecord},
};
use perfrun_judge::{
    runs::{Basis, Run, of_history, of_pairs, of_two, shared, verdict},
    sentence,
};
use perfrun_test_kit::records::{completed, failed, upload_cell as cell};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

const TRIALS: u32 = 11;

/// A run of uploads over TCP and QUIC, on a machine with a speed of its own.
struct Kept {
    plan: Plan,
    records: Vec<TrialRecord>,
}

impl Kept {
    fn of(speed: f64, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let cells = [Transport::Tcp, Transport::QuicV1].map(|over| cell(Stack::Litep2p, "litep2p", over));
        let mut records = vec![];
        for iteration in 0..TRIALS {
            for place in 0..cells.len() {
                let noise: f64 = random.random_range(-0.05..0.05);
                records.push(TrialRecord {
                    metrics: BTreeMap::from([
                        (Metric::UploadGoodput, 4.7e9 * speed * noise.exp()),
                        (Metric::CpuSecondsPerGiB, 0.8 / speed * noise.exp()),
                    ]),
                    at_seconds: records.len() as f64,
                    ..completed(&format!("c{place}.i{iteration}"))
                });
            }
        }
        let plan = Plan {
            cells: cells.to_vec(),
            ..Plan::default()
        };
        Self { plan, records }
    }

    /// Some runs of one program, on a machine that differs by up to 4 % from run to run.
    fn several(count: usize, speed: f64, seed: u64) -> Vec<Self> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut run = |number: usize| {
            let machine: f64 = random.random_range(-0.02..0.02);
            Self::of(speed * machine.exp(), seed + number as u64)
        };
        (0..count).map(&mut run).collect()
    }

    fn run(&self) -> Run<'_> {
        Run {
            plan: &self.plan,
            records: &self.records,
        }
    }

    fn change(mut self, change: impl FnMut(&mut TrialRecord)) -> Self {
        self.records.iter_mut().for_each(change);
        self
    }
}

fn all(kept: &[Kept]) -> Vec<Run<'_>> {
    kept.iter().map(Kept::run).collect()
}

fn two(a: &Kept, b: &Kept) -> Judged {
    of_two(&shared(&[a.run(), b.run()]), a.run(), b.run())
}

fn pairs(a: &[Kept], b: &[Kept]) -> Judged {
    let (a, b) = (all(a), all(b));
    of_pairs(&shared(&[&a[..], &b].concat()), &a, &b)
}

fn history(earlier: &[Kept], new: &Kept) -> Judged {
    let earlier = all(earlier);
    let plan = shared(&[&earlier[..], &[new.run()]].concat());
    of_history(&plan, &earlier, new.run())
}

fn findings(judged: &Judged) -> Vec<Finding> {
    judged
        .comparisons
        .iter()
        .map(|comparison| comparison.finding)
        .collect()
}

fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-9
}

/// That comparing the other way round gives the inverse ratio, with the ends of its interval in turn.
fn is_inverse(a: &Comparison, b: &Comparison) -> bool {
    let [a, b] = [a, b].map(|found| found.ratio.expect("both sides have values"));
    let ends = a.low.zip(b.high).into_iter().chain(a.high.zip(b.low));
    near(a.value * b.value, 1.0) && ends.into_iter().all(|(a, b)| near(a * b, 1.0))
}

#[test]
fn two_runs_never_decide() {
    let judged = two(&Kept::of(1.0, 1), &Kept::of(0.5, 2));
    assert_eq!(findings(&judged), [Finding::Inconclusive; 4]);
    assert_eq!(verdict(&judged), Verdict::Inconclusive);
    let goodput = &judged.comparisons[0];
    let ratio = goodput.ratio.unwrap();
    assert!(ratio.low.unwrap() < 0.5 && 0.5 < ratio.high.unwrap(), "{ratio:?}");
    let text = sentence(&shared(&[Kept::of(1.0, 1).run()]), goodput, Basis::TwoRuns);
    assert!(
        text.starts_with("Inconclusive: upload over tcp, ") && text.ends_with("(one run each)."),
        "{text}"
    );
}

#[test]
fn the_interval_of_two_runs_is_that_of_both_medians_together() {
    let values = |record: &mut TrialRecord, factor: f64| {
        let value = f64::from(record.trial.iteration + 10) * factor;
        record.metrics = BTreeMap::from([(Metric::UploadGoodput, value)]);
    };
    let [a, b] = [1.0, 3.0].map(|factor| Kept::of(1.0, 1).change(|record| values(record, factor)));
    let ratio = two(&a, &b).comparisons[0].ratio.unwrap();
    // The medians are 15 and 45. Of 11 values, the levels of the depths 2 and 3 are 2024/2048 and 1914/2048,
    // with 0.975 between them.
    let (outer, inner) = (2024.0 / 2048.0, 1914.0 / 2048.0);
    let share = (outer - 0.975) / (outer - inner);
    let weight = 9.0 * share / (2.0 + 7.0 * share);
    let (low, high) = (11.0 + weight, 19.0 - weight);
    let found = [ratio.value, ratio.low.unwrap(), ratio.high.unwrap()];
    let expected = [3.0, 3.0 * low / high, 3.0 * high / low];
    assert!(
        found.iter().zip(expected).all(|(a, b)| near(*a, b)),
        "{found:?} {expected:?}"
    );
}

#[test]
fn pairs_of_runs_find_differences_and_equal_metrics() {
    let main = Kept::several(12, 1.0, 10);
    let slower = pairs(&main, &Kept::several(12, 0.85, 40));
    assert_eq!(findings(&slower), [Finding::Worse; 4]);
    assert_eq!(
        (slower.comparisons[0].pairs, verdict(&slower)),
        (12, Verdict::Fail)
    );
    let faster = pairs(&main, &Kept::several(12, 1.2, 70));
    assert_eq!(
        (findings(&faster), verdict(&faster)),
        (vec![Finding::Better; 4], Verdict::Pass)
    );
    let same = pairs(&main, &Kept::several(12, 1.0, 100));
    assert_eq!(
        (findings(&same), verdict(&same)),
        (vec![Finding::Same; 4], Verdict::Pass)
    );
}

#[test]
fn five_pairs_of_runs_are_not_comparable() {
    let [main, pr] = [(1.0, 10), (0.5, 40)].map(|(speed, seed)| Kept::several(5, speed, seed));
    let judged = pairs(&main, &pr);
    assert_eq!(findings(&judged), [Finding::NotComparable; 4]);
    assert_eq!(judged.comparisons[0].reason, Some(NoFinding::TooFewPairs));
    let text = sentence(&shared(&all(&main)), &judged.comparisons[0], Basis::PairsOfRuns);
    assert_eq!(
        text,
        "Not comparable: upload over tcp: only 5 pairs of runs count, and a finding needs 6: measure more runs."
    );
}

#[test]
fn six_pairs_of_runs_cannot_decide_four_comparisons() {
    let [main, pr] = [(1.0, 10), (0.5, 40)].map(|(speed, seed)| Kept::several(6, speed, seed));
    let judged = pairs(&main, &pr);
    assert_eq!(findings(&judged), [Finding::Inconclusive; 4]);
    // 4 × 2 ÷ 2⁸ is the first that is at most 5 %.
    let found = &judged.comparisons[0];
    assert_eq!((found.detectable_difference, found.pairs_needed), (None, Some(8)));
}

#[test]
fn a_new_run_is_compared_with_the_prediction_of_earlier_runs() {
    let earlier = Kept::several(8, 1.0, 10);
    for (speed, finding) in [
        (0.7, Finding::Worse),
        (1.0, Finding::Inconclusive),
        (1.4, Finding::Better),
    ] {
        let judged = history(&earlier, &Kept::of(speed, 99));
        assert_eq!(findings(&judged), [finding; 4], "{speed}");
        for comparison in &judged.comparisons {
            let ratio = comparison.ratio.unwrap();
            let has_1 = ratio.low.unwrap() < 1.0 && 1.0 < ratio.high.unwrap();
            assert_eq!(has_1, finding == Finding::Inconclusive, "{comparison:?}");
            assert_eq!(comparison.pairs, 8);
        }
    }
    let four = history(&earlier[..4], &Kept::of(0.7, 99));
    assert_eq!(findings(&four), [Finding::NotComparable; 4]);
}

#[test]
fn swapping_sides_inverts_ratios_and_findings() {
    let [main, pr] = [(1.0, 10), (0.9, 40)].map(|(speed, seed)| Kept::several(9, speed, seed));
    let there = [two(&main[0], &pr[0]), pairs(&main, &pr)];
    let back = [two(&pr[0], &main[0]), pairs(&pr, &main)];
    for (there, back) in there.iter().zip(&back) {
        for (a, b) in there.comparisons.iter().zip(&back.comparisons) {
            assert!(is_inverse(a, b), "{a:?} {b:?}");
            let inverse = match a.finding {
                Finding::Worse => Finding::Better,
                Finding::Better => Finding::Worse,
                finding => finding,
            };
            assert_eq!(b.finding, inverse);
            assert_eq!(a.medians.map(|[a, b]| [b, a]), b.medians);
        }
    }
}

#[test]
fn units_and_the_order_of_records_do_not_matter() {
    let earlier = Kept::several(6, 1.0, 10);
    let judged = history(&earlier, &Kept::of(0.9, 99));
    let in_kibi = |kept: Kept| {
        let mut kept = kept.change(|record| {
            record.metrics.values_mut().for_each(|value| *value /= 1024.0);
        });
        kept.records.reverse();
        kept
    };
    let earlier: Vec<Kept> = earlier.into_iter().map(in_kibi).collect();
    let again = history(&earlier, &in_kibi(Kept::of(0.9, 99)));
    for (a, b) in judged.comparisons.iter().zip(&again.comparisons) {
        assert!(near(a.ratio.unwrap().value, b.ratio.unwrap().value));
        assert!(near(a.p_adjusted.unwrap(), b.p_adjusted.unwrap()));
    }
}

#[test]
fn failures_are_worse_than_any_value() {
    let fails = |record: &mut TrialRecord| {
        *record = failed(&record.trial.id.clone(), Reason::Timeout);
    };
    let main = Kept::several(9, 1.0, 10);
    let broken: Vec<Kept> = Kept::several(9, 1.0, 40)
        .into_iter()
        .map(|kept| kept.change(fails))
        .collect();
    let judged = pairs(&main, &broken);
    assert_eq!(findings(&judged), [Finding::Worse; 4]);
    assert_eq!(judged.comparisons[0].failed, [0, 9 * TRIALS]);
    assert_eq!(findings(&history(&main, &broken[0])), [Finding::Worse; 4]);
    assert_eq!(findings(&two(&main[0], &broken[0])), [Finding::Inconclusive; 4]);
    let both = pairs(&broken, &broken);
    assert_eq!(
        both.comparisons[0].reason,
        Some(NoFinding::TooFewPairs),
        "neither is worse"
    );
    // What is not the stack's doing leaves nothing.
    let lost = |record: &mut TrialRecord| *record = failed(&record.trial.id.clone(), Reason::NodeLost);
    let judged = history(&main, &Kept::of(1.0, 99).change(lost));
    assert_eq!(judged.comparisons[0].reason, Some(NoFinding::NotMeasured));
}

#[test]
fn runs_with_unusable_values_are_not_comparable() {
    let main = Kept::several(6, 1.0, 10);
    let disturbance = Disturbance {
        steal: 0.5,
        ..Disturbance::default()
    };
    type Change = fn(&mut TrialRecord);
    let nan: Change = |record| record.metrics.values_mut().for_each(|value| *value = f64::NAN);
    let infinite: Change = |record| {
        record
            .metrics
            .values_mut()
            .for_each(|value| *value = f64::INFINITY);
    };
    let zero: Change = |record| record.metrics.values_mut().for_each(|value| *value = 0.0);
    let debug: Change = |record| record.flags.push(Flag::DebugBuild);
    let nothing: Change = |record| record.metrics.clear();
    for (change, why) in [
        (nan, NoFinding::NotMeasured),
        (infinite, NoFinding::NotMeasured),
        (zero, NoFinding::NotMeasured),
        (nothing, NoFinding::NotMeasured),
        (debug, NoFinding::DebugBuild),
    ] {
        let judged = history(&main, &Kept::of(1.0, 99).change(change));
        assert_eq!(findings(&judged), [Finding::NotComparable; 4], "{why}");
        assert_eq!(judged.comparisons[0].reason, Some(why));
        assert_eq!(verdict(&judged), Verdict::Inconclusive);
    }
    let disturbed: Vec<Kept> = (Kept::several(6, 1.0, 40).into_iter())
        .map(|kept| kept.change(|record| record.disturbance = Some(disturbance)))
        .collect();
    assert_eq!(
        pairs(&disturbed, &disturbed).comparisons[0].reason,
        Some(NoFinding::Disturbed)
    );
}

#[test]
fn only_cells_that_all_runs_have_are_compared() {
    let mut other = Kept::of(1.0, 2);
    other.plan.cells[0].id = "another".to_owned();
    other.plan.cells.push(cell(Stack::Raw, "raw", Transport::Tcp));
    let mut one = Kept::of(1.0, 1);
    one.plan.cells.push(cell(Stack::Raw, "raw", Transport::Tcp));
    let plan = shared(&[one.run(), other.run()]);
    let ids: Vec<&str> = (plan.judging.cell_pairs.iter())
        .map(|cell_pair| plan.cells[cell_pair.candidate].id.as_str())
        .collect();
    assert_eq!(ids, ["litep2p.litep2p.quic-v1.upload-1s"]);
    assert_eq!(shared(&[]), Plan::default());
}
