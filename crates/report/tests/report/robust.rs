//! Results that are empty, end early or contradict themselves still make a report.

use perfrun_api::results::Results;
use perfrun_contract::{compare::Verdict, metric::Metric, node::Reason, run::RunState};
use perfrun_judge::summarize;
use perfrun_report::{html, markdown, plots, samples_csv, summary_csv};

use perfrun_test_kit::results::run;

use crate::rendered::{COMPARED, shown};

const WORKLOADS: [&str; 6] = [
    "\n  workload: {bandwidth: {sizes: [1, 64Mi], directions: [upload, both]}}\n  iterations: 6\n",
    "\n  workload: {substreams: {counts: [1, 32]}}\n  matrix: {transports: [tcp, quic-v1]}\n",
    "\n  workload: {handshakes: {count: 10}}\n  iterations: 6\n",
    "\n  workload: {ping: {count: 10}}\n  iterations: 6\n",
    "\n  workload: {echo: {loads: [{preset: scenario-2}]}}\n  iterations: 6\n",
    "\n  workload: {messages: {modes: [serial, stream], count: 10}}\n  iterations: 6\n",
];

fn draw_all(results: &Results) {
    for width in [0, 79, 100_000] {
        assert!(!shown(results, width).is_empty());
    }
    assert!(markdown(&results.reported_run()).starts_with("# "));
    assert!(html(&results.reported_run()).ends_with("</body></html>"));
    assert!(samples_csv(&results.reported_run()).starts_with("trial,cell,"));
    assert!(summary_csv(&results.reported_run()).starts_with("cell,client,"));
    for (name, svg) in plots(&results.reported_run()) {
        assert!(name.ends_with(".svg") && svg.starts_with("<svg"), "{name}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
    }
}

#[test]
fn a_report_accepts_results_interrupted_after_any_trial() {
    for workload in WORKLOADS {
        let trials = run(workload).results().trials.len();
        for ended_after in [0, 1, trials / 11, trials / 11 + 1, trials - 1] {
            draw_all(&run(workload).interrupted_after(ended_after).results());
        }
    }
}

#[test]
fn a_report_of_a_run_without_a_completed_trial_says_so_once() {
    let results = run(COMPARED).interrupted_after(0).results();
    let line = "6 expectations are not decided, because no trial completed.";
    let rendered = shown(&results, 100);
    let blocks: Vec<&str> = rendered.trim_end().split("\n\n").collect();
    let [reason, found, outcome] = blocks[..] else {
        panic!("{rendered}");
    };
    assert!(reason.starts_with("WARNING: Cancelled: "), "{rendered}");
    assert_eq!(found, line);
    assert!(outcome.starts_with("Cancelled · 0 of "), "{rendered}");
    let pages = [markdown(&results.reported_run()), html(&results.reported_run())];
    for (page, heading) in pages.into_iter().zip(["\n## ", "<h2>"]) {
        assert!(page.contains(line), "{page}");
        assert_eq!(
            page.matches(heading).count(),
            1,
            "only the facts about the run: {page}"
        );
    }
}

#[test]
fn a_report_without_a_completed_trial_names_what_does_not_hold() {
    let mut results = run(COMPARED).interrupted_after(0).results();
    results.judged.as_mut().unwrap().expectations[0].verdict = Verdict::Fail;
    let rendered = shown(&results, 100);
    assert!(rendered.contains("Not as expected: "), "{rendered}");
}

#[test]
fn the_message_of_a_peer_in_a_report_cannot_control_a_terminal() {
    let said = "\x1b]52;c;AA\x07";
    let workload = "\n  workload: {ping: {count: 10}}\n  iterations: 1\n  warmup: 0\n";
    for results in [
        run(workload).failing("c0.i0", Reason::DialFailed, said).results(),
        Results {
            reason: Some(said.to_owned()),
            conclusion: None,
            ..run(workload).interrupted_after(0).results()
        },
    ] {
        let reported_run = results.reported_run();
        let svg = plots(&reported_run).into_iter().map(|(_, svg)| svg);
        let reports = [shown(&results, 79), markdown(&reported_run), html(&reported_run)];
        for report in reports.into_iter().chain(svg) {
            assert!(!report.contains(['\x1b', '\x07']), "{report}");
        }
    }
}

#[test]
fn a_report_accepts_a_plan_without_cells_or_nodes() {
    for workload in WORKLOADS {
        let mut results = run(workload).results();
        results.state = RunState::Failed;
        results.environment.nodes.clear();
        draw_all(&results);
        results.plan.cells.clear();
        draw_all(&results);
        results.summary.clear();
        results.plan.trials.clear();
        draw_all(&results);
        results.trials.clear();
        draw_all(&results);
        assert!(shown(&results, 100).contains("No trial completed."));
    }
}

#[test]
fn a_report_accepts_metrics_that_are_not_finite() {
    for workload in WORKLOADS {
        let measured = run(workload).results();
        for value in [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.0,
            -1.0,
            f64::MIN_POSITIVE,
            f64::MAX,
        ] {
            let mut results = measured.clone();
            for record in &mut results.trials {
                record.metrics.values_mut().for_each(|metric| *metric = value);
            }
            results.summary = summarize(&results.plan, &results.trials);
            assert!(
                results
                    .summary
                    .iter()
                    .all(|row| row.median.is_finite() && row.mean.is_finite())
            );
            draw_all(&results);
            for row in &mut results.summary {
                row.median = value;
                for other in [
                    &mut row.ci95_low,
                    &mut row.ci95_high,
                    &mut row.share_of_raw,
                    &mut row.share_of_raw_low,
                    &mut row.share_of_raw_high,
                ] {
                    *other = Some(value);
                }
            }
            draw_all(&results);
        }
    }
}

#[test]
fn a_summary_that_is_missing_is_made_again() {
    let mut results = run(WORKLOADS[0]).results();
    let rendered = markdown(&results.reported_run());
    results.summary.clear();
    assert_eq!(markdown(&results.reported_run()), rendered);
}

#[test]
fn a_reader_of_json_gets_the_same_report() {
    for workload in WORKLOADS {
        let results = run(workload).results();
        assert!(
            results
                .summary
                .iter()
                .any(|row| row.metric == Metric::ClientPeakRss)
        );
        let read: Results = serde_json::from_str(&serde_json::to_string(&results).unwrap()).unwrap();
        assert_eq!(read, results);
        assert_eq!(markdown(&read.reported_run()), markdown(&results.reported_run()));
    }
}
