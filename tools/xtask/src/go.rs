//! `cargo xtask go`: the node of go-libp2p, which is a Go module beside the workspace.

mod licences;

use std::{
    ffi::OsString,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::Result;

use crate::{
    install, pinned,
    shell::{self, Profile, Workspace},
    step::{self, Outcome},
    times::{Item, Times},
};

/// The folder of the module.
pub(crate) const MODULE: &str = "node-image/go-libp2p";

/// The program.
pub(crate) const PROGRAM: &str = "perfrun-node-go";

/// Why the module cannot be built here; `None` if it can.
pub(crate) fn obstacle() -> Option<&'static str> {
    (!shell::on_path("go")).then_some("Go is not installed")
}

pub(crate) fn run(workspace: &Workspace, profile: Profile) -> Result<ExitCode> {
    build(workspace, profile)?;
    println!("==> {}", workspace.program(profile, PROGRAM).display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the program beside those of the workspace. It is static, so that an empty image can hold it.
pub(crate) fn build(workspace: &Workspace, profile: Profile) -> Result<()> {
    install::go()?;
    let mut flags = concat!("-s -w -X main.version=", env!("CARGO_PKG_VERSION")).to_owned();
    let commit = match profile {
        Profile::Dev => None,
        Profile::Release => workspace.commit(),
    };
    if let Some(commit) = commit {
        flags += &format!(" -X main.commit={commit}");
    }
    let mut go = command(workspace, &["build", "-trimpath", "-buildvcs=false", "-ldflags"]);
    go.arg(flags);
    go.arg("-o").arg(workspace.program(profile, PROGRAM)).arg(".");
    shell::succeed(go.env("CGO_ENABLED", "0"))
}

/// Builds the program, and checks the module: formatting, licences, vet, staticcheck, and tests with the race
/// detector.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    let times = Times::of_step(workspace)?;
    times.timed("build", || build(workspace, Profile::Dev))?;
    let unformatted = shell::output(workspace.command("gofmt").args(["-l", MODULE]))?;
    if !unformatted.trim().is_empty() {
        return Ok(Outcome::Failed(format!(
            "run `gofmt -w {MODULE}`: {}",
            unformatted.trim()
        )));
    }
    let licensed = times.timed("licences", || licences::check(workspace))?;
    let mut vet = command(workspace, &["vet", "./..."]);
    let vetted = times.timed("vet", || step::check(&mut vet, "mend what vet lists above"))?;
    let mut staticcheck = workspace.command(pinned::STATICCHECK.install(workspace)?);
    staticcheck.current_dir(workspace.root.join(MODULE)).arg("./...");
    let linted = times.timed("staticcheck", || {
        step::check(&mut staticcheck, "mend what staticcheck lists above")
    })?;
    let mut test = command(workspace, &["test", "-race", "./..."]);
    let (printed, status) = shell::shown(test.env("CGO_ENABLED", "1"))?;
    times.add(tested_packages(&printed))?;
    let advice = "repeat the failures above with `go test -race ./...` in node-image/go-libp2p";
    let tested = step::ended(&test, status, advice);
    Ok(licensed.and(vetted).and(linted).and(tested))
}

/// The packages in the output of `go test`, with the time of their tests.
fn tested_packages(printed: &str) -> Vec<Item> {
    let item = |line: &str| match line.split('\t').collect::<Vec<_>>()[..] {
        ["ok  " | "FAIL", package, took, ..] => {
            let seconds = took.strip_suffix('s')?.parse().ok()?;
            Some(Item {
                took: Duration::try_from_secs_f64(seconds).ok()?,
                name: format!("tests of {package}"),
            })
        }
        _ => None,
    };
    printed.lines().filter_map(item).collect()
}

/// The command that measures the node against a bare loop over go-libp2p.
pub(crate) fn bench(workspace: &Workspace, options: &[OsString]) -> Result<Command> {
    install::go()?;
    let mut bench = command(workspace, &["run", "./bench"]);
    bench.args(options);
    Ok(bench)
}

/// The fuzz targets of the module, each after its package.
pub(crate) fn fuzz_targets(workspace: &Workspace) -> Result<Vec<(String, String)>> {
    let listed = shell::output(&mut command(workspace, &["test", "-list", "^Fuzz", "./..."]))?;
    Ok(listed_targets(&listed))
}

/// Targets in the output of `go test -list`: names, and then their package.
fn listed_targets(listed: &str) -> Vec<(String, String)> {
    let (mut targets, mut names) = (vec![], vec![]);
    for line in listed.lines() {
        match line.split('\t').collect::<Vec<_>>()[..] {
            [name] if name.starts_with("Fuzz") => names.push(name.to_owned()),
            ["ok  ", package, ..] => targets.extend(names.drain(..).map(|name| (package.to_owned(), name))),
            _ => {}
        }
    }
    targets
}

/// Searches with a fuzz target for some seconds. New inputs are kept in Go's cache.
pub(crate) fn fuzz(workspace: &Workspace, package: &str, target: &str, seconds: u64) -> Command {
    let mut fuzzer = command(workspace, &["test", "-run", "^$", "-fuzz"]);
    fuzzer.arg(format!("^{target}$"));
    fuzzer.args(["-fuzztime", &format!("{seconds}s"), package]);
    fuzzer
}

fn command(workspace: &Workspace, args: &[&str]) -> Command {
    let mut go = workspace.command("go");
    go.current_dir(workspace.root.join(MODULE))
        .env("GOFLAGS", "-mod=readonly")
        .args(args);
    go
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_come_with_the_time_of_their_tests() {
        let printed = "?   \tperfrun/node-go\t[no test files]\nok  \tnode/wire\t1.250s\n\
            ok  \tnode/observe\t(cached)\nFAIL\tnode/echo\t0.500s\nFAIL\n";
        let item = |name: &str, millis| Item {
            took: Duration::from_millis(millis),
            name: name.to_owned(),
        };
        assert_eq!(
            tested_packages(printed),
            [item("tests of node/wire", 1_250), item("tests of node/echo", 500)]
        );
    }

    #[test]
    fn fuzz_targets_come_with_their_packages() {
        let listed = "?   \tperfrun/node-go\t[no test files]\nFuzzRequest\nok  \tnode/contract\t0.003s\n\
            ok  \tnode/observe\t0.002s\nFuzzEcho\nFuzzPing\nok  \tnode/wire\t0.010s\n";
        let targets = listed_targets(listed);
        let targets: Vec<_> = targets
            .iter()
            .map(|(package, name)| format!("{package} {name}"))
            .collect();
        assert_eq!(
            targets,
            [
                "node/contract FuzzRequest",
                "node/wire FuzzEcho",
                "node/wire FuzzPing"
            ]
        );
    }
}
