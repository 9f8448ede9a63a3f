//! `perfrun run --profile`.

use std::{env, fs, process::Command};

use perfrun_test_kit::{Need, skip};
use serde_json::json;

use crate::{
    document::{self, Document},
    perfrun::{Mode, Running, Scratch, entries, results},
};

/// Enough bytes for a few hundred samples on any machine.
fn busy(name: &str) -> Document {
    document::run(name).with(
        "workload",
        json!({ "bandwidth": { "sizes": ["512Mi"], "directions": ["upload"] } }),
    )
}

/// Whether `perf` may sample processes here. A test that runs without it reports that.
fn has_perf() -> bool {
    let pid = std::process::id().to_string();
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "--quiet",
        "--pid",
        &pid,
        "--output",
        "/dev/null",
        "--",
        "true",
    ]);
    let obstacle = match perf.output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    skip(Need::Perf, "with perf", &obstacle);
    false
}

#[test]
fn a_profile_leaves_flame_graphs_that_the_report_links() {
    if !has_perf() {
        return;
    }
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let ended = scratch.run(mode, &busy("profiled"), &["--profile"]).expect(0);
        assert!(
            ended.stderr.contains("profiling raw.raw.tcp.upload-512Mi"),
            "{ended}"
        );
        assert!(!ended.stderr.contains("no profile"), "{ended}");
        assert!(
            ended.stdout.contains("Functions with the most CPU time"),
            "{ended}"
        );

        let folder = scratch.only_run();
        let results = results(&folder);
        assert_eq!(
            results.trials.len(),
            1,
            "the results leave out the trial of the profile"
        );
        let report = fs::read_to_string(folder.join("report.html")).unwrap();
        let [client, server] = ["client", "server"].map(|role| {
            let graph = format!("profiles/raw.raw.tcp.upload-512Mi.{role}.svg");
            assert!(report.contains(&format!("<a href=\"{graph}\">")), "{graph}");
            let svg = fs::read_to_string(folder.join(&graph)).unwrap();
            assert!(svg.contains("</svg>") && svg.contains("samples"), "{graph}");
            let folded = graph.replace(".svg", ".folded");
            fs::read_to_string(folder.join(folded)).unwrap()
        });
        // Each node has stacks of its own.
        assert!(client.contains("perfrun_node::") && server.contains("perfrun_node::"));
        assert_ne!(client, server);
        assert_eq!(entries(&folder.join("profiles")).len(), 4, "no recording is left");

        // The profiles are there already.
        let flags = ["run", "--profile", "--resume", folder.to_str().unwrap()];
        let again = scratch.call(&flags).expect(0);
        assert!(again.stderr.contains("nothing left to run"), "{again}");
        assert!(again.stdout.contains("Profiles"), "{again}");
        let shown = scratch.call(&["report", folder.to_str().unwrap()]).expect(0);
        assert!(
            shown.stdout.contains("Functions with the most CPU time"),
            "{shown}"
        );
    }
}

#[test]
fn a_complete_run_can_be_profiled_later() {
    if !has_perf() {
        return;
    }
    let scratch = Scratch::new();
    scratch.run(Mode::Loopback, &busy("later"), &[]).expect(0);
    let folder = scratch.only_run();
    let before = results(&folder).trials;
    let flags = ["run", "--profile=fp", "--resume", folder.to_str().unwrap()];
    let ended = scratch.call(&flags).expect(0);
    assert!(
        ended.stderr.contains("profiling raw.raw.tcp.upload-512Mi"),
        "{ended}"
    );
    assert_eq!(results(&folder).trials, before);
    assert_eq!(entries(&folder.join("profiles")).len(), 4);
}

#[test]
fn a_trial_without_samples_does_not_spoil_the_run() {
    let scratch = Scratch::new();
    // As if perf recorded and then found nothing.
    let perf = scratch.script(
        "perf",
        "case \"$1\" in script) exit 0;; esac\nfor last; do true; done\n[ \"$last\" = true ] && exit 0\n\
         echo x >\"$last\"; exec sleep 600",
    );
    let path = format!(
        "{}:{}",
        perf.parent().unwrap().display(),
        env::var("PATH").unwrap()
    );
    let mut command = scratch.command(Mode::Loopback, &document::run("idle"), &["--profile"]);
    command.env("PATH", path);
    let ended = Running::start(command).ended().expect(0);
    assert!(
        ended
            .stderr
            .contains("no profile of raw.raw.tcp.ping-1: server nodes: perf took no sample"),
        "{ended}"
    );
    assert_eq!(results(&scratch.only_run()).trials.len(), 1);
}

#[test]
fn without_perf_a_profiled_run_is_refused_before_any_trial() {
    let scratch = Scratch::new();
    for (lines, sentence) in [
        (None, "there is no `perf` on PATH; install it"),
        (
            Some("echo Error: >&2; echo 'No permission to enable events.' >&2; exit 255"),
            "`perf` may not sample processes here (No permission to enable events.); run as root",
        ),
    ] {
        if let Some(lines) = lines {
            scratch.script("perf", lines);
        }
        let mut command = scratch.command(Mode::Loopback, &document::run("unprofiled"), &["--profile"]);
        command.env("PATH", scratch.path());
        let ended = Running::start(command).ended().expect(1);
        assert!(ended.stderr.contains(sentence), "{ended}");
        assert_eq!(ended.stderr.lines().count(), 1, "a sentence: {ended}");
        assert!(!scratch.results().exists(), "nothing was made");
    }
}
