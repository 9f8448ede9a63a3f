//! `cargo xtask test`: every check there is, in one run.
//!
//! Clippy, the build, the tests and the documentation share what cargo built before as long as the flags and
//! the profile are the same. So nothing here sets `RUSTFLAGS` or builds in release.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::shell::{self, Workspace};
use crate::step::{self, Outcome, Steps};
use crate::{crds, install};

/// Tests that cannot run here append `name: reason` to the file this variable names.
const SKIP_LOG: &str = "PERFRUN_SKIP_LOG";

/// Where nothing answers, the fetch has no limit of its own.
const FETCH_LIMIT: Duration = Duration::from_secs(60);

pub fn run(workspace: &Workspace) -> Result<ExitCode> {
    install::packages(workspace, install::BUILD)?;
    install::components(workspace)?;
    let deny = install::cargo_deny(workspace);

    let mut steps = Steps::default();
    steps.run("format", || {
        step::check(
            &mut workspace.cargo(["fmt", "--all", "--check"]),
            "run `cargo fmt --all`",
        )
    });
    steps.run("clippy", || {
        let mut clippy = workspace.cargo(["clippy", "--workspace", "--all-targets"]);
        step::check(
            clippy.args(["--", "-D", "warnings"]),
            "every warning is listed above with its remedy",
        )
    });
    // All that the tests start, above all perfrun-node beside perfrun, and the generator for the next step.
    let built = steps.run("build", || {
        let mut build = workspace.cargo(["build", "--workspace", "--all-targets"]);
        step::check(&mut build, "fix the errors listed above")
    });

    let skip_log = workspace.scratch()?.join("skipped-tests");
    if built {
        steps.run("generated files", || crds::check(workspace));
        steps.run("tests", || tests(workspace, &skip_log));
        steps.run("documentation", || {
            let mut doc = workspace.cargo(["doc", "--workspace", "--no-deps"]);
            step::check(
                doc.env("RUSTDOCFLAGS", "-D warnings"),
                "fix the links and blocks listed above",
            )
        });
    } else {
        for name in ["generated files", "tests", "documentation"] {
            steps.skip(name, "the build failed");
        }
    }

    match &deny {
        Ok(deny) => {
            steps.run("dependencies", || {
                let mut check = workspace.command(deny);
                step::check(
                    check.args(["check", "bans", "licenses", "sources"]),
                    "replace the crate, or extend deny.toml and say why there",
                )
            });
            steps.run("advisories", || advisories(workspace, deny));
        }
        Err(error) => {
            steps.run("dependencies", || {
                Ok(Outcome::Failed(format!("cargo-deny: {error:#}")))
            });
            steps.skip("advisories", "cargo-deny could not be installed");
        }
    }

    let skipped = fs::read_to_string(&skip_log).unwrap_or_default();
    println!(
        "\nSteps:\n{}\n{}\n\n{}",
        steps.table(),
        skipped_tests(&skipped, shell::is_root()),
        steps.counts()
    );
    Ok(steps.exit_code())
}

fn tests(workspace: &Workspace, skip_log: &Path) -> Result<Outcome> {
    // Also what proves to the summary that the list is of this run.
    File::create(skip_log).with_context(|| format!("failed to empty {}", skip_log.display()))?;
    let mut test = workspace.cargo(["test", "--workspace", "--no-fail-fast"]);
    test.env(SKIP_LOG, skip_log);
    step::check(
        &mut test,
        "the failures are listed above; repeat one with `cargo test NAME`",
    )
}

/// The list of tests that said they could not run, for the summary.
fn skipped_tests(log: &str, is_root: bool) -> String {
    let tests: BTreeSet<_> = log
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let user = if is_root {
        "as root, tests that need it included"
    } else {
        "not as root"
    };
    match tests.len() {
        0 => format!("Tests ran {user}; none was skipped."),
        count => {
            let list: String = tests.iter().map(|test| format!("\n  {test}")).collect();
            format!("Tests ran {user}; {count} skipped:{list}")
        }
    }
}

/// A step of its own, because it judges by a database that is not always within reach.
fn advisories(workspace: &Workspace, deny: &Path) -> Result<Outcome> {
    let log = workspace.scratch()?.join("advisories.log");
    let output = File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
    let mut fetch = workspace.command(deny);
    fetch
        .args(["--color", "never", "fetch", "db"])
        .stdout(output.try_clone()?)
        .stderr(output);
    if !succeeds_within(FETCH_LIMIT, &mut fetch)? {
        let reason = last_cause(&fs::read_to_string(&log).unwrap_or_default());
        return Ok(Outcome::Skipped(format!(
            "the advisory database could not be fetched: {reason}"
        )));
    }
    let mut check = workspace.command(deny);
    step::check(
        check.args(["check", "--disable-fetch", "advisories"]),
        "update the crate, or list the advisory in deny.toml and say why it does not apply",
    )
}

fn succeeds_within(limit: Duration, command: &mut Command) -> Result<bool> {
    let mut child = command
        .spawn()
        .with_context(|| format!("failed to start `{}`", shell::line(command)))?;
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait().context("failed to wait for cargo-deny")? {
            return Ok(status.success());
        }
        thread::sleep(Duration::from_millis(50));
    }
    child.kill().context("failed to stop cargo-deny")?;
    child.wait().context("failed to wait for cargo-deny")?;
    Ok(false)
}

/// The innermost cause is the last line of an error chain; silence means that the limit was reached.
fn last_cause(log: &str) -> &str {
    log.lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .unwrap_or("no answer in time")
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{last_cause, skipped_tests, succeeds_within};

    #[test]
    fn skipped_tests_are_listed_once_each_and_sorted() {
        let log = "netns::veth: needs root\n\nbarrier: needs two cores\nnetns::veth: needs root\n";
        let expected =
            "Tests ran not as root; 2 skipped:\n  barrier: needs two cores\n  netns::veth: needs root";
        assert_eq!(skipped_tests(log, false), expected);
    }

    #[test]
    fn an_empty_list_is_said_aloud() {
        assert_eq!(
            skipped_tests("", true),
            "Tests ran as root, tests that need it included; none was skipped."
        );
    }

    #[test]
    fn a_command_that_hangs_is_stopped() {
        assert!(!succeeds_within(Duration::from_millis(100), Command::new("sleep").arg("60")).unwrap());
        assert!(succeeds_within(Duration::from_secs(60), &mut Command::new("true")).unwrap());
    }

    #[test]
    fn the_reason_of_a_failed_fetch_is_its_innermost_cause() {
        assert_eq!(
            last_cause("error: failed to fetch\n  Caused by:\n    0: no route to host\n\n"),
            "0: no route to host"
        );
        assert_eq!(last_cause(""), "no answer in time");
    }
}
