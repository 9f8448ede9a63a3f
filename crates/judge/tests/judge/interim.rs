//! Interim checks of runs: what they decide, and what is measured no longer.

use perfrun_contract::compare::ALPHA;
use perfrun_judge::needs;

use super::*;

/// The iterations of a cell of which something is not settled.
const OPEN: u32 = u32::MAX;

#[test]
fn comparisons_are_settled_at_interim_checks_only_and_for_good() {
    let mut run = Run::new(&[0.8, 0.95], 40);
    run.plan.judging.interim_checks = vec![10, 20, 40];
    // Goodput is all that is measured here.
    run.plan.judging.expect = vec![];
    let run = run.allowing(0.05);
    let mut last = vec![OPEN; 4];
    for count in 0..=run.records.len() {
        let now = needs(&run.plan, &run.records[..count]).iterations;
        assert!(
            last.iter().zip(&now).all(|(before, now)| before >= now),
            "{count}"
        );
        let is_check = [40, 80, 160].contains(&count);
        assert!(now == last || is_check, "{count}: {last:?} {now:?}");
        last = now;
    }
    let first = Run {
        plan: run.plan.clone(),
        records: run.records[..40].to_vec(),
    };
    let first_needs = needs(&first.plan, &first.records);
    assert_eq!(first_needs.iterations, [10, 10, OPEN, OPEN]);
    let not_needed = first_needs.not_needed.unwrap();
    assert_eq!((not_needed.trials, not_needed.of_trials), (60, 160));
    assert_eq!((not_needed.iterations, not_needed.of_iterations), ([10, 10], 40));
    assert_eq!(first.judge().not_needed, Some(not_needed));
    let said = texts(&first.plan, &first.judge());
    let expected =
        "60 of 160 trials were not needed: those of comparisons that were settled after 10 of 40 iterations.";
    assert!(said.iter().any(|sentence| sentence == expected), "{said:?}");
    // What was settled at the first interim check is not judged again by what came later.
    assert_eq!(
        (first.goodput(0).pairs, run.goodput(0).pairs, run.goodput(1).pairs),
        (10, 10, 40)
    );
    assert_eq!(first.goodput(0), run.goodput(0));

    // The conductor measures only what is not settled.
    let mut not_needed = run.clone();
    not_needed
        .records
        .retain(|record| record.trial.cell > 1 || record.trial.iteration < 10);
    assert_eq!(not_needed.judge().comparisons, run.judge().comparisons);
    assert_eq!(
        needs(&not_needed.plan, &not_needed.records).iterations,
        needs(&run.plan, &run.records).iterations
    );
    assert_eq!(run.judge().not_needed, None, "all of them were measured");
}

#[test]
fn without_interim_checks_no_pair_of_cells_is_settled_before_the_end() {
    let run = Run::new(&[0.8], 20).allowing(0.05);
    for count in [39, 40] {
        let needs = needs(&run.plan, &run.records[..count]);
        assert_eq!((needs.iterations, needs.not_needed), (vec![OPEN; 2], None));
    }
}

#[test]
fn later_records_do_not_change_earlier_interim_checks() {
    for seed in 0..30 {
        let mut run = Run::seeded(&[0.8, 1.0, 0.93, 1.05], 40, seed).allowing(0.06);
        run.plan.judging.interim_checks = vec![10, 20, 40];
        let whole = needs(&run.plan, &run.records).iterations;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for _ in 0..10 {
            let iterations = random.random_range(0..=40);
            let mut records = run.records.clone();
            records.retain(|record| record.trial.iteration < iterations);
            records.shuffle(&mut random);
            let checked = [10, 20, 40].into_iter().filter(|check| *check <= iterations);
            let checked = checked.max().unwrap_or(0);
            let so_far = whole.iter().map(|iterations| match *iterations <= checked {
                true => *iterations,
                false => OPEN,
            });
            let so_far: Vec<u32> = so_far.collect();
            assert_eq!(
                needs(&run.plan, &records).iterations,
                so_far,
                "seed {seed}, {iterations} iterations"
            );
        }
        // What is settled is not measured, and what that leaves decides the same.
        run.records
            .retain(|record| record.trial.iteration < whole[record.trial.cell]);
        assert_eq!(needs(&run.plan, &run.records).iterations, whole, "seed {seed}");
    }
}

#[test]
fn a_run_cancelled_between_interim_checks_is_judged_by_its_pairs_so_far() {
    let mut whole = Run::new(&[0.8, 0.95], 40).allowing(0.05);
    whole.plan.judging.interim_checks = vec![10, 20, 40];
    // The first pair of cells is settled at the first interim check.
    let cancelled_after = |iterations: u32| {
        let is_measured = |record: &&TrialRecord| {
            let iteration = record.trial.iteration;
            iteration < iterations && (record.trial.cell > 1 || iteration < 10)
        };
        Run {
            plan: whole.plan.clone(),
            records: whole.records.iter().filter(is_measured).cloned().collect(),
        }
    };
    let early = cancelled_after(7);
    assert_eq!(
        [0, 1].map(|cell_pair| early.goodput(cell_pair).reason),
        [Some(NoFinding::TooFewPairs); 2]
    );
    assert_eq!(early.judge().verdict, Some(Verdict::Inconclusive));

    let late = cancelled_after(14);
    assert_eq!([0, 1].map(|cell_pair| late.goodput(cell_pair).pairs), [10, 14]);
    let verdicts: Vec<Verdict> = late
        .judge()
        .expectations
        .iter()
        .map(|expectation| expectation.verdict)
        .collect();
    assert_eq!(verdicts, [Verdict::Fail, Verdict::Inconclusive]);
    // It has the share of the error of the interim check that comes next, and not all of it.
    let mut planned = cancelled_after(14);
    planned.plan.judging.interim_checks = vec![14];
    let width = |run: &Run| {
        let ratio = run.goodput(1).ratio.unwrap();
        ratio.high.unwrap() / ratio.low.unwrap()
    };
    assert!(width(&late) > width(&planned));
}

#[test]
fn cells_in_no_pair_of_cells_are_measured_until_all_is_settled() {
    let mut run = Run::new(&[0.8, 0.8], 40).allowing(0.05);
    run.plan.judging.interim_checks = vec![10, 20, 40];
    // The second pair of cells is one no longer: what is expected of its cells is a bound.
    run.plan.judging.cell_pairs.pop();
    run.plan.judging.expect[0].cells.pop();
    let iterations = |run: &Run| needs(&run.plan, &run.records).iterations;
    assert_eq!(iterations(&run), [10; 4]);
    run.expect(vec![2], Bound::Min(1e9));
    assert_eq!(iterations(&run), [10; 4], "it holds");
    run.plan.judging.expect.pop();
    run.expect(vec![2], Bound::Min(4.7e9));
    assert_eq!(iterations(&run), [10, 10, OPEN, OPEN], "nobody knows");

    // The interim check waits for their trials.
    let last = run.records.iter().position(|record| record.trial.id == "c2.i9");
    run.records.remove(last.unwrap());
    assert_eq!(iterations(&run), [OPEN; 4]);
}

#[test]
fn a_pair_of_cells_that_is_measured_precisely_enough_is_settled() {
    let iterations = |target: Option<f64>| {
        // Worse by about what is allowed: 40 pairs do not decide that.
        let mut run = Run::new(&[0.95], 40).allowing(0.05);
        run.plan.judging.interim_checks = vec![10, 20, 40];
        run.plan.judging.target_interval = target;
        let iterations = needs(&run.plan, &run.records).iterations[0];
        let judged = run.judge();
        let ratio = judged.comparisons[0].ratio.unwrap();
        let half = (ratio.high.unwrap() / ratio.low.unwrap()).sqrt() - 1.0;
        (iterations, half, judged.verdict)
    };
    let (_, widest, _) = iterations(Some(1.0));
    let (all, narrowest, verdict) = iterations(None);
    assert_eq!((all, verdict), (OPEN, Some(Verdict::Inconclusive)));
    for (target, expected) in [
        (widest * 1.001, 10),
        (widest * 0.999, 20),
        (narrowest * 0.999, OPEN),
    ] {
        let (settled_after, half, verdict) = iterations(Some(target));
        assert_eq!(settled_after, expected, "{target}");
        assert!(half <= target || settled_after == OPEN, "{half} {target}");
        assert_eq!(verdict, Some(Verdict::Inconclusive), "nothing was proved");
    }
}

#[test]
fn interim_checks_of_runs_without_a_difference_are_seldom_wrong() {
    let runs = 400;
    let wrong = (0..runs)
        .filter(|seed| {
            let mut run = Run::seeded(&[1.0; 4], 40, *seed).allowing(0.03);
            run.plan.judging.interim_checks = vec![10, 20, 40];
            let found = run.judge().comparisons;
            assert_eq!(found.len(), 4);
            found.iter().any(|found| found.finding.differs())
        })
        .count();
    // Three standard errors above 5 %.
    assert!(
        (wrong as f64) <= f64::from(runs as u32) * (ALPHA + 0.033),
        "{wrong}"
    );
}
