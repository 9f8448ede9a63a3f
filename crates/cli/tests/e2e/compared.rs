//! Two variants, compared.

use perfrun_contract::{
    compare::{Judged, Verdict},
    plan::Renew,
    record::Flag,
    tally::counting,
};
use serde_json::json;

use crate::{
    document::{self, Document},
    perfrun::{Mode, Scratch, node_program, results},
};

fn compared(name: &str) -> Document {
    document::run(name)
        .with("workload", json!({"ping": {"count": 20}}))
        .comparing()
        .with("iterations", json!(10))
}

#[test]
fn each_iteration_is_a_pair_of_neighbours_in_new_processes() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        scratch.run(mode, &compared("pairs"), &["--seed", "7"]).expect(0);
        let results = results(&scratch.only_run());
        assert_eq!(
            (results.plan.seed, results.plan.renew),
            (Some(7), Renew::Iteration)
        );
        let Judged {
            comparisons, verdict, ..
        } = results.judged.as_ref().unwrap();
        assert_eq!(*verdict, None);
        let [trips, cpu] = comparisons.as_slice() else {
            panic!("{comparisons:?}")
        };
        // A pair is left out only if it was disturbed.
        for comparison in [trips, cpu] {
            assert_eq!(comparison.pairs + comparison.excluded_pairs, 10, "{comparison:?}");
        }
        let disturbed = counting(&results.trials).filter(|record| record.flags.contains(&Flag::Disturbed));
        assert!(trips.excluded_pairs as usize <= disturbed.count(), "{trips:?}");
        let report = scratch.only_run().join("report.md");
        let report = std::fs::read_to_string(report).unwrap();
        assert!(report.contains("## Comparisons"), "{report}");
    }
}

#[test]
fn a_control_takes_part_in_each_iteration() {
    let Some(mode) = Mode::available().next() else {
        return;
    };
    let scratch = Scratch::new();
    let compare = json!([{"baseline": "main", "candidate": "pr", "control": true}]);
    let document = compared("control").with("compare", compare);
    scratch.run(mode, &document, &[]).expect(0);
    let results = results(&scratch.only_run());
    let ids: Vec<&str> = results.plan.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "main.main.tcp.ping-20",
            "pr.pr.tcp.ping-20",
            "main_control.main_control.tcp.ping-20"
        ]
    );
    let judged = results.judged.as_ref().unwrap();
    assert_eq!((judged.comparisons.len(), judged.controls.len()), (2, 2));
    for compared in judged.comparisons.iter().chain(&judged.controls) {
        assert_eq!(compared.pairs + compared.excluded_pairs, 10, "{compared:?}");
    }
    let report = std::fs::read_to_string(scratch.only_run().join("report.md")).unwrap();
    assert!(report.contains("The control "), "{report}");
}

#[test]
fn two_stacks_are_compared_on_the_transport_that_both_have() {
    let Some(mode) = Mode::available().next() else {
        return;
    };
    let scratch = Scratch::new();
    let document = compared("stacks")
        .with(
            "stacks",
            json!([{"name": "main", "stack": "libp2p"}, {"name": "pr", "stack": "litep2p"}]),
        )
        .with(
            "matrix",
            json!({"clients": ["main"], "servers": ["main"], "transports": ["tcp", "tcp-tls"], "rawReference": false}),
        );
    scratch.run(mode, &document, &[]).expect(0);
    let results = results(&scratch.only_run());
    let judged = results.judged.as_ref().unwrap();
    assert_eq!(judged.comparisons.len(), 2);
    for compared in &judged.comparisons {
        assert_eq!(compared.baseline, "main.main.tcp.ping-20");
        assert_eq!(compared.candidate, "pr.pr.tcp.ping-20");
        assert_eq!(compared.pairs + compared.excluded_pairs, 10, "{compared:?}");
    }
    let report = std::fs::read_to_string(scratch.only_run().join("report.md")).unwrap();
    for words in [
        "Baseline main → main, candidate pr → pr; medians",
        "litep2p secures TCP by Noise only, it has no TLS",
    ] {
        assert!(report.contains(words), "{words:?} is not in: {report}");
    }
}

#[test]
fn the_verdict_is_the_exit_status() {
    let Some(mode) = Mode::available().next() else {
        return;
    };
    for (limit, verdict, status) in [("1m", Verdict::Pass, 0), ("1us", Verdict::Fail, 3)] {
        let scratch = Scratch::new();
        let document = compared("verdict").with("expect", json!([{"metric": "roundTripP50", "max": limit}]));
        let ended = scratch.run(mode, &document, &[]);
        let results = results(&scratch.only_run());
        let found = results.judged.as_ref().unwrap().verdict.unwrap();
        // Six trials that other tests do not disturb are enough for an interval of the median.
        let undisturbed = |cell| {
            counting(&results.trials)
                .filter(|record| record.trial.cell == cell && !record.trial.warmup)
                .filter(|record| !record.flags.contains(&Flag::Disturbed))
                .count()
        };
        let (expected, status) = match (0..2).map(undisturbed).min() {
            Some(6..) => (verdict, status),
            _ if found == verdict => (verdict, status),
            _ => (Verdict::Inconclusive, 4),
        };
        assert_eq!(found, expected, "{limit}");
        ended.expect(status);
    }
}

#[test]
fn a_plan_lists_interim_checks() {
    let scratch = Scratch::new();
    let document = compared("interim").with("maxIterations", json!(40));
    scratch.write("interim.yaml", &document.text());
    let plan = scratch.call(&["plan", "interim.yaml"]).expect(0);
    for line in [
        "  compares pr → pr with main → main",
        "  2 cells, up to 80 trials: main → main, pr → pr; tcp; ping-20; each 40 × measured, 0 × warm-up",
        "  interim checks after 10, 20 and 40 iterations; settled comparisons stop early",
    ] {
        assert!(plan.stdout.lines().any(|found| found == line), "{line:?}: {plan}");
    }
}

#[test]
fn too_few_iterations_for_a_finding_are_mentioned_in_advance() {
    let scratch = Scratch::new();
    for iterations in [9, 10] {
        let document = compared("few").with("iterations", json!(iterations));
        scratch.write("few.yaml", &document.text());
        for command in ["plan", "validate"] {
            let ended = scratch.call(&[command, "few.yaml"]).expect(0);
            let is_mentioned = ended.stdout.contains("10 iterations or more, and this run has 9");
            assert_eq!(is_mentioned, iterations < 10, "{ended}");
        }
    }
}

#[test]
fn too_few_iterations_for_an_expectation_are_mentioned_in_advance() {
    let scratch = Scratch::new();
    for iterations in [5, 6] {
        let document = document::run("few")
            .with("workload", json!({"bandwidth": {"sizes": ["1Mi"]}}))
            .with(
                "matrix",
                json!({"clients": ["libp2p"], "servers": ["libp2p"], "transports": ["tcp"]}),
            )
            .with("iterations", json!(iterations))
            .with(
                "expect",
                json!([{"metric": "uploadGoodput", "minShareOfRaw": "1%"}]),
            );
        scratch.write("few.yaml", &document.text());
        for command in ["plan", "validate"] {
            let ended = scratch.call(&[command, "few.yaml"]).expect(0);
            let is_mentioned = ended.stdout.contains(
                "`min`, `max` and `minShareOfRaw` will be inconclusive: a verdict takes 6 iterations or more, and this \
                 run has 5; increase `iterations`",
            );
            assert_eq!(is_mentioned, iterations < 6, "{ended}");
        }
    }
}

#[test]
fn a_pair_of_cells_settled_at_an_interim_check_is_measured_no_longer() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let document = compared("interim")
            .with("expect", json!([{"metric": "roundTripP50", "max": "1m"}]))
            .with("maxIterations", json!(20));
        let ended = scratch.run(mode, &document, &[]);
        let results = results(&scratch.only_run());
        let iterations = |cell| {
            counting(&results.trials).filter(move |record| record.trial.cell == cell && !record.trial.warmup)
        };
        // Seven trials that other tests do not disturb have an interval at the first interim check.
        let undisturbed = |cell| {
            iterations(cell)
                .filter(|record| record.trial.iteration < 10 && !record.flags.contains(&Flag::Disturbed))
                .count()
        };
        let expected = match (0..2).map(undisturbed).min() {
            Some(7..) => 10,
            _ => 20,
        };
        assert_eq!(
            [iterations(0).count(), iterations(1).count()],
            [expected; 2],
            "{ended}"
        );
        let message = results.conclusion().message;
        if expected == 10 {
            let not_needed = "20 of 40 trials were not needed: those of comparisons that were settled after 10 of 20 iterations";
            assert!(ended.stderr.contains(not_needed), "{ended}");
            assert!(ended.stdout.contains(not_needed), "{ended}");
            assert_eq!(message, format!("20 trials were measured; {not_needed}"));
            ended.expect(0);
        } else {
            assert_eq!(message, "all 40 trials were measured");
        }
    }
}

/// Pings of one stack, which the document compares with nothing.
fn of_one_stack(name: &str) -> Document {
    document::run(name).with("workload", json!({"ping": {"count": 20}})).with(
        "matrix",
        json!({"clients": ["litep2p"], "servers": ["litep2p"], "transports": ["tcp"], "rawReference": false}),
    )
}

#[test]
fn a_program_is_compared_with_itself() {
    let Some(mode) = Mode::available().next() else {
        return;
    };
    let scratch = Scratch::new();
    scratch.run(mode, &of_one_stack("aa"), &["--aa"]).expect(0);
    let results = results(&scratch.only_run());
    let ids: Vec<&str> = results.plan.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(ids, ["base.base.tcp.ping-20", "candidate.candidate.tcp.ping-20"]);
    assert_eq!(results.judged.unwrap().comparisons.len(), 2);
}

#[test]
fn each_stack_is_compared_with_itself_and_raw_if_it_is_alone() {
    let scratch = Scratch::new();
    let two = json!({"clients": ["litep2p", "libp2p"], "servers": ["litep2p", "libp2p"], "transports": ["tcp"], "rawReference": false});
    scratch.write("two.yaml", &of_one_stack("two").with("matrix", two).text());
    scratch.write("raw.yaml", &document::run("raw").text());
    for (file, cells) in [
        (
            "two.yaml",
            &[
                "libp2p-base.libp2p-base.tcp.ping-20",
                "libp2p-candidate.libp2p-candidate.tcp.ping-20",
            ][..],
        ),
        (
            "raw.yaml",
            &["base.base.tcp.ping-1", "candidate.candidate.tcp.ping-1"],
        ),
    ] {
        let plan = scratch.call(&["plan", file, "--aa", "--all"]).expect(0);
        for cell in cells {
            assert!(plan.stdout.contains(cell), "{cell}: {plan}");
        }
    }
}

#[test]
fn a_regression_of_the_command_line_is_in_the_verdict() {
    let Some(mode) = Mode::available().next() else {
        return;
    };
    let node = node_program().canonicalize().unwrap();
    let candidate = ["--candidate", node.to_str().unwrap()];
    let regression = ["--max-regression", "roundTripP50=10%"];
    // One pair of trials decides nothing.
    for (args, verdict, status) in [
        (candidate.to_vec(), None, 0),
        ([candidate, regression].concat(), Some(Verdict::Inconclusive), 4),
    ] {
        let scratch = Scratch::new();
        scratch.run(mode, &of_one_stack("bound"), &args).expect(status);
        let results = results(&scratch.only_run());
        assert_eq!(results.judged.unwrap().verdict, verdict);
    }
}

#[test]
fn two_programs_are_compared_with_a_document_without_compare() {
    let Some(mode) = Mode::available().next() else {
        return;
    };
    let scratch = Scratch::new();
    let base = node_program().canonicalize().unwrap();
    let candidate = scratch
        .script("next-node", &format!("exec {} \"$@\"", base.display()))
        .canonicalize()
        .unwrap();
    let [base, candidate] = [base, candidate].map(|path| path.into_os_string().into_string().unwrap());
    let args = ["--base", &base, "--candidate", &candidate];
    scratch.run(mode, &of_one_stack("two"), &args).expect(0);
    let results = results(&scratch.only_run());
    let programs = &results.environment.programs;
    let named: Vec<(Option<&str>, &str)> = programs
        .iter()
        .map(|program| (program.variant.as_deref(), program.path.as_str()))
        .collect();
    assert_eq!(
        named,
        [
            (Some("base"), base.as_str()),
            (Some("candidate"), candidate.as_str())
        ]
    );
    assert_eq!(results.plan.judging.cell_pairs.len(), 1);
    assert_eq!(results.judged.unwrap().comparisons.len(), 2);
}
