//! One account of a run: everything that shows a run gives the same reason and the same numbers. The
//! end-to-end tests of the operator run the same document and expect the same.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use perfrun_contract::{
    run::Phase,
    tally::{Counts, EndReason},
};
use perfrun_test_kit::documents::TIMES_OUT;

use crate::{
    document::Document,
    metrics::free_address,
    page::address,
    perfrun::{Mode, Running, Scratch, eventually, results},
};

#[test]
fn results_report_page_and_metrics_have_one_reason() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let metrics = free_address();
        let command = scratch.command(
            mode,
            &Document::parsed(TIMES_OUT),
            &["--ui", "--metrics-listen", &metrics],
        );
        let mut perfrun = Running::start(command);
        let url = address(&mut perfrun);
        let events = thread::spawn(move || {
            let page = url.strip_prefix("http://").unwrap().trim_end_matches('/');
            read(page, "/events").unwrap()
        });
        // perfrun waits for a last scrape by those who have scraped before.
        eventually("metrics of the run", || {
            read(&metrics, "/metrics")
                .ok()
                .filter(|page| page.contains("perfrun_run_info{"))
        });
        let exported = eventually("metrics of the end", || {
            let page = read(&metrics, "/metrics").ok()?;
            page.contains("phase=\"Failed\"").then_some(page)
        });
        let ended = perfrun.ended().expect(1);
        let events = events.join().unwrap();

        let folder = scratch.only_run();
        let results = results(&folder);
        let counts = Counts {
            planned: 2,
            completed: 1,
            failed: 1,
            not_needed: 0,
        };
        assert_eq!(results.tally().counts(), counts, "{ended}");
        let conclusion = results.conclusion.expect("a run that has ended has a conclusion");
        assert_eq!(
            (conclusion.phase, conclusion.reason),
            (Phase::Failed, EndReason::TrialTimeout)
        );
        assert!(
            conclusion
                .message
                .starts_with("1 of 2 trials failed; the first: "),
            "{}",
            conclusion.message
        );
        let reported_run = format!("TrialTimeout: {}.", conclusion.message);
        for report in ["report.md", "report.html"] {
            let report = fs::read_to_string(folder.join(report)).unwrap();
            assert!(report.contains(&reported_run), "{report}");
        }
        assert!(
            ended.stdout.contains("TrialTimeout: 1 of 2 trials failed"),
            "{ended}"
        );
        let info = exported
            .lines()
            .find(|line| line.starts_with("perfrun_run_info{"));
        assert!(info.unwrap().contains("reason=\"TrialTimeout\""), "{info:?}");
        counts_trials(&exported);
        assert!(
            events.contains(r#""conclusion":{"phase":"Failed","reason":"TrialTimeout""#),
            "{events}"
        );
        assert!(events.contains(r#""trials":2,"ended":2,"failed":1"#), "{events}");
    }
}

fn counts_trials(exported: &str) {
    for (state, count) in [("planned", 2), ("completed", 1), ("failed", 1)] {
        let sample = format!("state=\"{state}\"}} {count}");
        let is_there = |line: &str| line.starts_with("perfrun_run_trials{") && line.contains(&sample);
        assert!(exported.lines().any(is_there), "{sample} in {exported}");
    }
}

/// The answer to a GET request, until the server closes the connection.
fn read(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = vec![];
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
