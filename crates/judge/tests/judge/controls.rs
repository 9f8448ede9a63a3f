//! Controls: what they take back, and how seldom they do that without a reason.

use perfrun_contract::{compare::CONTROL_ALPHA, matrix::StackName};
use perfrun_judge::needs;

use super::*;

/// A run of pairs of cells with controls, whose candidate and control have these ratios to the baseline. The
/// controls are the last cells. The three trials of an iteration are in random order, and what the first of
/// them leaves behind slows the others.
fn controlled(ratios: &[[f64; 2]], iterations: u32, seed: u64) -> Run {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut run = Run::new(&vec![1.0; ratios.len()], 0);
    for (index, transport) in (0..ratios.len()).zip(TRANSPORTS) {
        run.plan.judging.cell_pairs[index].control = Some(run.plan.cells.len());
        let control = cell(Stack::Litep2p, "main_control", transport);
        run.plan.cells.push(control);
    }
    let cell_pairs = run.plan.judging.cell_pairs.clone();
    for iteration in 0..iterations {
        for (cell_pair, [candidate, control]) in cell_pairs.iter().zip(ratios) {
            let mut block: Vec<(usize, f64)> = cell_pair.cells().zip([1.0, *candidate, *control]).collect();
            block.shuffle(&mut random);
            for (place, (cell, ratio)) in block.into_iter().enumerate() {
                let noise: f64 = (0..4).map(|_| random.random_range(-0.04..0.04)).sum();
                let slowed = if place == 0 { 1.0 } else { 0.97 };
                run.measure(
                    &format!("c{cell}.i{iteration}"),
                    4.7e9 * ratio * slowed * noise.exp(),
                );
            }
        }
    }
    run
}

/// The same run without its controls.
fn without_controls(run: &Run) -> Run {
    let first = run
        .plan
        .judging
        .cell_pairs
        .first()
        .and_then(|cell_pair| cell_pair.control);
    let first = first.expect("the run has controls");
    let mut other = run.clone();
    other.plan.cells.truncate(first);
    other.plan.trials.retain(|trial| trial.cell < first);
    other.records.retain(|record| record.trial.cell < first);
    for cell_pair in &mut other.plan.judging.cell_pairs {
        cell_pair.control = None;
    }
    other
}

fn differs(judged: &Judged) -> bool {
    judged.controls.iter().any(|control| control.finding.differs())
}

#[test]
fn a_comparison_has_no_finding_if_its_control_differs() {
    let mut run = controlled(&[[0.8, 1.2]], 20, 1).allowing(0.05);
    run.expect(vec![0], Bound::Min(1e9));
    assert_eq!(without_controls(&run).judge().verdict, Some(Verdict::Fail));
    let judged = run.judge();
    let [control] = judged.controls.as_slice() else {
        panic!("{judged:?}")
    };
    assert_eq!(
        (&*control.baseline, &*control.candidate),
        (
            "main.main.tcp.upload-1s",
            "main_control.main_control.tcp.upload-1s"
        )
    );
    assert_eq!(
        (control.finding, control.pairs, control.excluded_pairs),
        (Better, 20, 0)
    );
    let [compared] = judged.comparisons.as_slice() else {
        panic!("{judged:?}")
    };
    assert_eq!(compared.candidate, "pr.pr.tcp.upload-1s");
    assert_eq!(
        (compared.finding, compared.reason),
        (NotComparable, Some(NoFinding::ControlDiffers))
    );
    assert_eq!(
        (compared.detectable_difference, compared.pairs_needed),
        (None, None)
    );
    let verdicts = judged.expectations.iter().map(|expectation| expectation.verdict);
    assert_eq!(
        verdicts.collect::<Vec<_>>(),
        [Verdict::Inconclusive, Verdict::Pass],
        "what is expected of the baseline's own values does not depend on the comparison"
    );
    assert_eq!(judged.verdict, Some(Verdict::Inconclusive));
    let evidence = &judged.expectations[0].evidence;
    assert!(
        evidence.ends_with("; but the control, the baseline once more, differs from it"),
        "{evidence}"
    );
}

#[test]
fn a_control_that_differs_is_the_first_finding() {
    let run = controlled(&[[0.8, 1.2]], 20, 1).allowing(0.05);
    let judged = run.judge();
    let found = sentences(&run.plan, &judged, Basis::Trials);
    assert_eq!(found[0].verdict, Verdict::Inconclusive);
    let said: Vec<&str> = found.iter().map(|finding| finding.text.as_str()).collect();
    assert!(
        said[0].starts_with("The control differs: upload over tcp, "),
        "{said:?}"
    );
    assert!(
        said[0].contains("nothing in this comparison can be believed"),
        "{said:?}"
    );
    assert_eq!(
        said[1],
        "Not comparable: upload over tcp: the control, the baseline once more, differs from it."
    );
    assert!(
        said.last().unwrap().starts_with("Verdict: Inconclusive · "),
        "{said:?}"
    );
}

#[test]
fn a_control_that_does_not_differ_reports_the_detectable_difference() {
    let run = controlled(&[[0.8, 1.0]], 20, 1).allowing(0.05);
    let judged = run.judge();
    let found = sentences(&run.plan, &judged, Basis::Trials);
    assert_eq!(found[0].verdict, Verdict::Pass);
    let start = "The control shows no difference in 1 of 1 comparisons with its baseline; differences from ";
    let seen = found[0].text.strip_prefix(start).unwrap();
    let seen: f64 = seen
        .strip_suffix(" % would be detected in four of five cases.")
        .unwrap()
        .parse()
        .unwrap();
    assert!((3.0..=12.0).contains(&seen), "{seen}");
    assert!(found[1].text.starts_with("Worse: upload over tcp, "), "{found:?}");
    assert_eq!(judged.verdict, Some(Verdict::Fail));
}

#[test]
fn a_control_that_does_not_differ_changes_nothing() {
    let mut equal = 0;
    for seed in 0..20 {
        let run = controlled(&[[0.9, 1.0], [1.0, 1.0], [1.03, 1.0]], 20, seed).allowing(0.05);
        let (with, without) = (run.judge(), without_controls(&run).judge());
        assert_eq!(without.controls, []);
        if differs(&with) {
            continue;
        }
        equal += 1;
        assert_eq!(with.comparisons, without.comparisons, "{seed}");
        assert_eq!(with.expectations, without.expectations, "{seed}");
        assert_eq!(with.overall, without.overall, "{seed}");
        assert_eq!(with.verdict, without.verdict, "{seed}");
    }
    assert!(equal >= 15, "{equal}");
}

#[test]
fn a_control_speaks_for_all_cells_of_its_comparison_and_for_no_other() {
    let mut run = controlled(&[[0.8, 1.2], [0.8, 1.0], [0.8, 1.0]], 20, 1).allowing(0.05);
    for (cell, name) in [(4, "old"), (5, "new")] {
        let name = StackName(name.to_owned());
        (run.plan.cells[cell].client, run.plan.cells[cell].server) = (name.clone(), name);
    }
    let judged = run.judge();
    let found = judged
        .comparisons
        .iter()
        .map(|found| (found.finding, found.reason));
    let void = (NotComparable, Some(NoFinding::ControlDiffers));
    assert_eq!(found.collect::<Vec<_>>(), [void, void, (Worse, None)]);
    let verdicts = judged.expectations.iter().map(|expectation| expectation.verdict);
    let (open, fail) = (Verdict::Inconclusive, Verdict::Fail);
    assert_eq!(verdicts.collect::<Vec<_>>(), [open, open, fail]);
}

#[test]
fn a_control_with_few_pairs_or_on_another_machine_has_no_finding() {
    let run = controlled(&[[1.0, 1.0]], 5, 1).allowing(0.05);
    let said = texts(&run.plan, &run.judge());
    assert_eq!(
        said[0],
        "The control says nothing of 1 of 1 comparisons with its baseline: only 5 pairs of trials count, and \
         a finding needs 10: increase `iterations`."
    );
    let mut run = controlled(&[[0.8, 1.2]], 20, 1).allowing(0.05);
    for cell in &mut run.plan.cells {
        cell.clients = Names::from(vec![format!("client-{}", cell.client)]);
    }
    let names = run.plan.cells.iter().flat_map(|cell| cell.nodes());
    let mut nodes: BTreeMap<String, Info> = names.map(|name| (name.clone(), info("one"))).collect();
    nodes.insert("client-main_control".to_owned(), info("another"));
    let judged = run.judge_on(&nodes);
    let control = &judged.controls[0];
    assert_eq!(
        (control.finding, control.reason),
        (NotComparable, Some(NoFinding::DifferentMachines))
    );
    assert_eq!(judged.verdict, Some(Verdict::Fail), "it takes nothing back");
}

#[test]
fn controls_that_could_not_detect_a_difference_are_reported() {
    let mut run = controlled(&[[1.0, 1.0]; 4], 10, 1).allowing(0.05);
    run.plan.judging.interim_checks = vec![8, 10];
    let found = sentences(&run.plan, &run.judge(), Basis::Trials);
    assert_eq!(
        (found[0].verdict, &*found[0].text),
        (
            Verdict::Inconclusive,
            "The control shows no difference in 4 of 4 comparisons with its baseline; 4 of them could show \
             none, for too few pairs or too many failures."
        )
    );
    let run = controlled(&[[1.0, 1.0]; 2], 20, 1)
        .allowing(0.05)
        .change(|record| {
            if record.trial.cell == 4 && record.trial.iteration % 7 == 0 {
                fail(record, Reason::Timeout);
            }
        });
    let found = sentences(&run.plan, &run.judge(), Basis::Trials);
    assert_eq!(found[0].verdict, Verdict::Inconclusive);
    let text = &found[0].text;
    assert!(
        text.starts_with(
            "The control shows no difference in 2 of 2 comparisons with its baseline; differences from "
        ),
        "{text}"
    );
    assert!(
        text.ends_with(
            " % would be detected in four of five cases; 1 of them could show none, for too few pairs or too many failures."
        ),
        "{text}"
    );
}

#[test]
fn each_reason_why_a_control_has_no_finding_is_reported() {
    let mut run = controlled(&[[1.0, 1.0]; 2], 20, 1)
        .allowing(0.05)
        .change(|record| {
            if record.trial.cell == 5 {
                disturb(record);
            }
        });
    run.records
        .retain(|record| record.trial.cell != 4 || record.trial.iteration < 5);
    assert_eq!(
        texts(&run.plan, &run.judge())[..2],
        [
            "The control says nothing of 1 of 2 comparisons with its baseline: more than half of the \
             pairs were disturbed by other work on the machine: stop it, and run with --wait-quiet 60s.",
            "The control says nothing of 1 of 2 comparisons with its baseline: only 5 pairs of trials count, and \
             a finding needs 10: measure the trials that are missing or failed, or increase `iterations`."
        ]
    );
}

#[test]
fn a_control_is_measured_as_long_as_its_pair_of_cells() {
    let mut run = controlled(&[[0.5, 1.0]], 40, 1).allowing(0.05);
    run.plan.judging.interim_checks = vec![10, 20, 40];
    assert_eq!(
        needs(&run.plan, &run.records).iterations,
        [20; 3],
        "after 10 iterations, a control cannot differ"
    );
    assert_eq!(run.judge().controls[0].pairs, 20);
    let without = without_controls(&run);
    assert_eq!(needs(&without.plan, &without.records).iterations, [10; 2]);
}

#[test]
fn the_last_interim_check_has_findings_even_if_no_control_can_differ() {
    let mut run = controlled(&[[0.5, 1.2]; 4], 10, 1).allowing(0.05);
    run.plan.judging.interim_checks = vec![8, 10];
    let needed = needs(&run.plan, &run.records);
    assert_eq!((needed.iterations, needed.not_needed), (vec![u32::MAX; 12], None));
    let judged = run.judge();
    assert!(!differs(&judged), "ten pairs are too few for four controls");
    assert!(
        judged.comparisons.iter().all(|found| found.finding == Worse),
        "{judged:?}"
    );
}

#[test]
fn a_large_difference_is_not_settled_before_its_control_can_differ() {
    let mut run = controlled(&[[0.5, 1.2]], 40, 1).allowing(0.05);
    run.plan.judging.interim_checks = vec![10, 20, 40];
    let iterations = needs(&run.plan, &run.records).iterations;
    assert_eq!(iterations, [20; 3]);
    run.records.retain(|record| record.trial.iteration < 20);
    let judged = run.judge();
    assert!(differs(&judged), "{judged:?}");
    assert_eq!(judged.comparisons[0].reason, Some(NoFinding::ControlDiffers));
    assert_eq!(judged.verdict, Some(Verdict::Inconclusive));
}

#[test]
fn runs_are_compared_without_their_controls() {
    let run = controlled(&[[1.0, 1.0]], 1, 1);
    let run = runs::Run {
        plan: &run.plan,
        records: &run.records,
    };
    let cells = runs::shared(&[run, run]).judging.cell_pairs;
    let cells: Vec<usize> = cells.iter().map(|cell_pair| cell_pair.candidate).collect();
    assert_eq!(cells, [0, 1]);
}

#[test]
fn controls_of_equal_programs_seldom_differ() {
    for (iterations, interim_checks, runs) in [(20, vec![], 1000), (40, vec![10, 20, 40], 300)] {
        let differ = (0..runs).filter(|seed| {
            let mut run = controlled(&[[1.0, 1.0]; 4], iterations, *seed).allowing(0.01);
            run.plan.judging.interim_checks = interim_checks.clone();
            let judged = run.judge();
            assert_eq!(judged.controls.len(), 4);
            differs(&judged)
        });
        let wrong = differ.count() as f64 / runs as f64;
        // Three standard errors.
        let error = 3.0 * (CONTROL_ALPHA * (1.0 - CONTROL_ALPHA) / runs as f64).sqrt();
        assert!(wrong <= CONTROL_ALPHA + error, "{iterations} iterations: {wrong}");
    }
}

#[test]
fn a_control_that_differs_is_found() {
    let found =
        (0..100).filter(|seed| differs(&controlled(&[[1.0, 0.88]], 20, *seed).allowing(0.05).judge()));
    assert!(found.count() >= 95);
}
