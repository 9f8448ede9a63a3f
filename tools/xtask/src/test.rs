//! `cargo xtask test`: all checks in one run.
//!
//! Cargo compiles each crate once: the build also lints and documents ([`crate::compiler`]), and all later
//! steps select the whole workspace in the profile of the build. So no step sets `RUSTFLAGS` or builds in
//! release mode. Programs from outside of the workspace ([`crate::tools`]) are built at the same time. Tests
//! start when both builds are done, because many tests measure time.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::Path,
    process::{ExitCode, ExitStatus},
};

use anyhow::{Context, Result};

use crate::{
    build, chart, crds,
    dependencies::Cache,
    e2e, go, graph, install, pinned, prose, results,
    shell::{self, Workspace},
    site,
    stand_in::{self, StandIn},
    step::{self, Outcome, Steps},
    timed_tests,
    times::Times,
    tools::Tools,
    tutorials, workflows,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Neither use nor keep compiled dependencies of other clones
    #[arg(long)]
    cold: bool,
}

/// The variable that names the file to which skipped tests append `name: reason`.
const SKIP_LOG: &str = "PERFRUN_SKIP_LOG";

/// The variable that names the file to which failed tests on a cluster append `name: reason`. Their output
/// also has the state of the cluster, so that the reason is hard to find there.
const FAILURE_LOG: &str = "PERFRUN_FAILURE_LOG";

/// The timeout in seconds for fetching the advisory database. Without network access the fetch has none.
const FETCH_TIMEOUT: &str = "60";

/// The test that takes the longest. It boots a kernel and mostly waits.
const SLOW_KERNEL: &str = "netem_impairs_links_of_a_kernel_that_has_it";

/// Tests that run after [`SLOW_KERNEL`], beside the others. They take long, and use nothing that others use.
const SLOW: [&str; 3] = [
    "conformance::",
    "each_of_ten_thousand_streams_echoes",
    "every_stream_of_every_connection_echoes_whole_lines",
];

/// Tests that measure what the machine does to packets. No other test runs beside them.
const ALONE: [&str; 2] = ["kernel::", "userspace::"];

pub(crate) fn run(mut workspace: Workspace, args: &Args) -> Result<ExitCode> {
    install::packages(&workspace, install::BUILD)?;
    install::components(&workspace)?;
    let tools = Tools::start(&workspace)?;
    // Opened with the compiler that has built this program.
    let cache = if args.cold { None } else { Cache::open(&workspace) };
    timed_tests::install(&workspace)?;
    workspace.compile_with(stand_in::install(&workspace, StandIn::Checking)?);
    let workspace = &workspace;

    // Emptied now, so that everything in the logs at the end is of this run.
    let empty = |name| {
        let log = workspace.scratch()?.join(name);
        File::create(&log).with_context(|| format!("failed to empty {}", log.display()))?;
        anyhow::Ok(log)
    };
    let (skip_log, failure_log) = (empty("skipped-tests")?, empty("failed-tests")?);

    let mut steps = Steps::new(Times::of_step(workspace)?);
    steps.run("format", || {
        step::check(
            &mut workspace.cargo(["fmt", "--all", "--check"]),
            "run `cargo fmt --all`",
        )
    });
    steps.run("crates of the demo", || graph::check(workspace));
    let built = steps.run("build, clippy, rustdoc", || {
        build::check(workspace, cache.as_ref())
    });
    let build_failed = (!built).then_some("the build failed");
    steps.run_unless(build_failed, "generated files", || crds::check(workspace));
    steps.run_unless(build_failed, "results", || results::check(workspace));
    steps.run("tools", || tools.wait(workspace));
    steps.run_unless(go::obstacle(), "go node", || go::check(workspace));
    steps.run("charts", || chart::check(workspace));
    steps.run("workflows", || workflows::check(workspace));
    steps.run_unless(build_failed, "prose", || prose::check(workspace, &[]));
    steps.run("documentation", || site::check(workspace));
    steps.run_unless(build_failed, "tests", || run_tests(workspace, &skip_log));
    steps.run_unless(build_failed.or_else(e2e::obstacle), "cluster", || {
        let logs = [(SKIP_LOG, &*skip_log), (FAILURE_LOG, &*failure_log)];
        e2e::check(workspace, &[], &logs)
    });
    let obstacle = build_failed.or_else(|| tutorials::obstacle(workspace));
    steps.run_unless(obstacle, "tutorials", || tutorials::check(workspace));
    dependencies(&mut steps, workspace);

    println!("\nSteps:\n{}", steps.table());
    if built {
        let log = fs::read_to_string(&skip_log).unwrap_or_default();
        println!("{}\n", skipped_tests(&log, shell::is_root()));
    }
    let failed = fs::read_to_string(&failure_log).unwrap_or_default();
    if !failed.is_empty() {
        println!("Failed on a cluster:\n{failed}");
    }
    println!("{}", steps.counts());
    Ok(steps.exit_code())
}

/// Runs the tests of the workspace. Those that cannot run add a line to the log.
fn run_tests(workspace: &Workspace, skip_log: &Path) -> Result<Outcome> {
    let test = |workspace: &Workspace, args: &[&str]| {
        let mut test = timed_tests::command(workspace)?;
        test.arg("--no-fail-fast").args(args);
        step::check(
            test.env(SKIP_LOG, skip_log),
            "the failures are listed above; repeat one with `cargo test NAME`",
        )
    };
    // The cluster tests have their own step. If that step is skipped, each cluster test reports here by name
    // that it was skipped.
    let excluded: &[&str] = match e2e::obstacle() {
        None => &["--exclude", "perfrun-e2e"],
        Some(_) => &[],
    };
    let named =
        |targets: &[&'static str], names: &[&'static str]| [excluded, targets, &["--"], names].concat();
    // Without examples in documentation, which would be compiled again.
    let of_programs = ["--all-targets"];
    let skipped = [&[SLOW_KERNEL], &ALONE[..], &SLOW[..]].concat();
    let others = skipped
        .iter()
        .flat_map(|name| ["--skip", name])
        .collect::<Vec<_>>();
    let most = step::side_by_side(
        workspace,
        "slow tests",
        || test(workspace, &named(&[], &others)),
        |apart| {
            let kernel = test(apart, &["--test", "links", SLOW_KERNEL])?;
            Ok(kernel.and(test(apart, &named(&of_programs, &SLOW))?))
        },
    )?;
    Ok(most.and(test(workspace, &named(&of_programs, &ALONE))?))
}

/// The list of skipped tests for the summary.
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

/// Runs the steps about crates from outside of the workspace.
fn dependencies(steps: &mut Steps, workspace: &Workspace) {
    match &pinned::CARGO_DENY.install(workspace) {
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
    steps.run_unless(go::obstacle(), "go advisories", || go_advisories(workspace));
}

/// Checks advisories. This is a separate step because its database is not always available.
fn advisories(workspace: &Workspace, deny: &Path) -> Result<Outcome> {
    let (status, log) = within_limit(workspace, deny, &["--color", "never", "fetch", "db"])?;
    if !status.success() {
        return Ok(Outcome::Skipped(format!(
            "the advisory database could not be fetched: {}",
            last_cause(&log).unwrap_or("no answer in time")
        )));
    }
    let mut check = workspace.command(deny);
    step::check(
        check.args(["--offline", "check", "advisories"]),
        "update the crate, or list the advisory in deny.toml and say why it does not apply",
    )
}

/// Checks advisories about the node of go-libp2p. What its code reaches takes long to find out, and is needed
/// only if there is one about any version of its modules.
fn go_advisories(workspace: &Workspace) -> Result<Outcome> {
    let govulncheck = pinned::GOVULNCHECK.install(workspace)?;
    let (status, log) = within_limit(workspace, &govulncheck, &["-C", go::MODULE, "-scan", "module"])?;
    match go_database(status.code(), &log) {
        Database::NoAdvisory => Ok(Outcome::Passed),
        Database::Advisories => step::check(
            workspace.command(&govulncheck).args(["-C", go::MODULE, "./..."]),
            "update the modules that govulncheck names above",
        ),
        Database::Unreachable => Ok(Outcome::Skipped(format!(
            "the database of Go's advisories could not be read: {}",
            last_cause(&log).unwrap_or("no answer in time")
        ))),
        Database::Broken => Ok(Outcome::Failed(format!("govulncheck: {status}: {log}"))),
    }
}

/// What the database of Go's advisories says about modules.
#[derive(Debug, Eq, PartialEq)]
enum Database {
    NoAdvisory,
    Advisories,
    /// The database cannot be reached.
    Unreachable,
    /// The request was not made.
    Broken,
}

/// What the exit status and the output of govulncheck mean.
fn go_database(status: Option<i32>, log: &str) -> Database {
    /// The exit status of `timeout`.
    const TIMEOUT_EXIT_STATUS: i32 = 124;
    match status {
        Some(0) => Database::NoAdvisory,
        Some(3) => Database::Advisories,
        Some(TIMEOUT_EXIT_STATUS) => Database::Unreachable,
        _ if log.contains("https://vuln.go.dev/") => Database::Unreachable,
        _ => Database::Broken,
    }
}

/// How a command ended that fetches something, and what it printed. It ends at [`FETCH_TIMEOUT`].
fn within_limit(workspace: &Workspace, program: &Path, args: &[&str]) -> Result<(ExitStatus, String)> {
    let log = workspace.scratch()?.join("advisories.log");
    let output = File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
    let mut fetch = workspace.command("timeout");
    fetch.arg(FETCH_TIMEOUT).arg(program).args(args);
    fetch
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdout(output.try_clone()?)
        .stderr(output);
    let status = shell::status(&mut fetch)?;
    Ok((status, fs::read_to_string(&log).unwrap_or_default()))
}

/// The last line of an error chain, which is its innermost cause.
fn last_cause(log: &str) -> Option<&str> {
    log.lines().map(str::trim).rfind(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{Database, go_database, last_cause, skipped_tests};

    #[test]
    fn skipped_tests_are_listed_once_each_and_sorted() {
        let log = "netns::veth: needs root\n\nbarrier: needs two cores\nnetns::veth: needs root\n";
        let expected =
            "Tests ran not as root; 2 skipped:\n  barrier: needs two cores\n  netns::veth: needs root";
        assert_eq!(skipped_tests(log, false), expected);
    }

    #[test]
    fn an_empty_list_of_skipped_tests_is_reported() {
        assert_eq!(
            skipped_tests("", true),
            "Tests ran as root, tests that need it included; none was skipped."
        );
    }

    #[test]
    fn a_database_that_cannot_be_reached_differs_from_a_mistake() {
        let silent =
            "govulncheck: fetching vulnerabilities: Get \"https://vuln.go.dev/index/modules.json.gz\": EOF";
        for (status, log, expected) in [
            (Some(0), "No vulnerabilities found.", Database::NoAdvisory),
            (Some(3), "Vulnerability #1", Database::Advisories),
            (Some(1), silent, Database::Unreachable),
            (Some(124), "", Database::Unreachable),
            (Some(2), "flag provided but not defined", Database::Broken),
            (None, "", Database::Broken),
        ] {
            assert_eq!(go_database(status, log), expected, "{log}");
        }
    }

    #[test]
    fn the_reason_of_a_failed_fetch_is_its_innermost_cause() {
        let log = "[ERROR] failed to fetch database\nfatal: unable to resolve the host\n\n";
        assert_eq!(last_cause(log), Some("fatal: unable to resolve the host"));
        assert_eq!(last_cause(""), None);
    }
}
