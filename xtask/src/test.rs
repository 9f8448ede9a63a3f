//! `cargo xtask test`: every check there is, in one run.
//!
//! Clippy, the build, the tests and the documentation share what cargo built before as long as the flags and
//! the profile are the same. So nothing here sets `RUSTFLAGS` or builds in release.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{
    chart, crds, e2e, install,
    shell::{self, Workspace},
    step::{self, Outcome, Steps},
};

/// Tests that cannot run here append `name: reason` to the file this variable names.
const SKIP_LOG: &str = "PERFRUN_SKIP_LOG";

/// Seconds; where nothing answers, fetching has no limit of its own.
const FETCH_LIMIT: &str = "60";

pub fn run(workspace: &Workspace) -> Result<ExitCode> {
    install::packages(workspace, install::BUILD)?;
    install::components(workspace)?;
    for installed in [
        install::test(workspace),
        install::packages(workspace, install::BROWSER),
    ] {
        if let Err(error) = installed {
            println!("==> some tests will be skipped: {error:#}");
        }
    }
    let deny = install::cargo_deny(workspace);

    // Emptied at once, so that whatever is in it at the end is of this run.
    let skip_log = workspace.scratch()?.join("skipped-tests");
    File::create(&skip_log).with_context(|| format!("failed to empty {}", skip_log.display()))?;

    let mut steps = Steps::default();
    steps.run("format", || {
        step::check(
            &mut workspace.cargo(["fmt", "--all", "--check"]),
            "run `cargo fmt --all`",
        )
    });
    steps.run("charts", || chart::check(workspace));
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

    if built {
        steps.run("generated files", || crds::check(workspace));
        steps.run("tests", || {
            let mut test = workspace.cargo(["test", "--workspace", "--no-fail-fast"]);
            if e2e::obstacle().is_none() {
                // In a step of their own. Where that is skipped each test says so here, by its name.
                test.args(["--exclude", "perfrun-e2e"]);
            }
            step::check(
                test.env(SKIP_LOG, &skip_log),
                "the failures are listed above; repeat one with `cargo test NAME`",
            )
        });
        steps.run("documentation", || {
            // There are no examples. But as with clippy, what tests ask of dependencies counts then, and these are not checked again.
            let mut doc = workspace.cargo(["doc", "--workspace", "--no-deps", "--lib", "--examples"]);
            let metadata =
                shell::said(&mut workspace.cargo(["metadata", "--no-deps", "--format-version=1"]))?;
            for program in documented_programs(&metadata)? {
                doc.args(["--bin", &program]);
            }
            step::check(
                doc.env("RUSTDOCFLAGS", "-D warnings"),
                "fix the links and blocks listed above",
            )
        });
        if let Some(obstacle) = e2e::obstacle() {
            steps.skip("cluster", obstacle);
        } else {
            steps.run("cluster", || {
                e2e::check(workspace, &[], Some((SKIP_LOG, &skip_log)))
            });
        }
    } else {
        for name in ["generated files", "tests", "documentation", "cluster"] {
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

    println!("\nSteps:\n{}", steps.table());
    if built {
        let log = fs::read_to_string(&skip_log).unwrap_or_default();
        println!("{}\n", skipped_tests(&log, shell::is_root()));
    }
    println!("{}", steps.counts());
    Ok(steps.exit_code())
}

/// The programs that cargo would document, too, if it were not told what to select: all whose pages would not overwrite those
/// of a library of the same name.
fn documented_programs(metadata: &str) -> Result<Vec<String>> {
    let metadata: Metadata =
        serde_json::from_str(metadata).context("failed to read what cargo says of the workspace")?;
    let targets: Vec<_> = metadata
        .packages
        .into_iter()
        .flat_map(|package| package.targets)
        .collect();
    let is = |target: &Target, kind: &str| target.kind.iter().any(|of| of == kind);
    let is_taken = |name: &str| {
        let mut libraries = targets.iter().filter(|target| is(target, "lib"));
        libraries.any(|library| library.name == name.replace('-', "_"))
    };
    let programs = targets
        .iter()
        .filter(|target| is(target, "bin") && !is_taken(&target.name));
    Ok(programs.map(|program| program.name.clone()).collect())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
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
    let mut fetch = workspace.command("timeout");
    fetch
        .arg(FETCH_LIMIT)
        .arg(deny)
        .args(["--color", "never", "fetch", "db"]);
    fetch
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdout(output.try_clone()?)
        .stderr(output);
    if !shell::status(&mut fetch)?.success() {
        let output = fs::read_to_string(&log).unwrap_or_default();
        return Ok(Outcome::Skipped(format!(
            "the advisory database could not be fetched: {}",
            last_cause(&output).unwrap_or("no answer in time")
        )));
    }
    let mut check = workspace.command(deny);
    step::check(
        check.args(["--offline", "check", "advisories"]),
        "update the crate, or list the advisory in deny.toml and say why it does not apply",
    )
}

/// The innermost cause is the last line of an error chain.
fn last_cause(log: &str) -> Option<&str> {
    log.lines().map(str::trim).rfind(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{documented_programs, last_cause, skipped_tests};

    #[test]
    fn a_program_is_documented_unless_a_library_has_its_name() {
        let metadata = r#"{"packages": [
            {"targets": [{"kind": ["lib"], "name": "a_node"}, {"kind": ["bin"], "name": "a-node"}]},
            {"targets": [{"kind": ["bin"], "name": "tool"}, {"kind": ["test"], "name": "links"}]}
        ]}"#;
        assert_eq!(documented_programs(metadata).unwrap(), ["tool"]);
    }

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
    fn the_reason_of_a_failed_fetch_is_its_innermost_cause() {
        let log = "[ERROR] failed to fetch database\nfatal: unable to resolve the host\n\n";
        assert_eq!(last_cause(log), Some("fatal: unable to resolve the host"));
        assert_eq!(last_cause(""), None);
    }
}
