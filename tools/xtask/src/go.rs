//! `cargo xtask go`: the node of go-libp2p, which is a Go module beside the workspace.

use std::{ffi::OsString, process::ExitCode};

use anyhow::Result;

use crate::{
    install,
    shell::{self, Profile, Workspace},
    step::{self, Outcome},
};

/// The folder of the module.
const MODULE: &str = "node-image/go-libp2p";

/// The program.
pub(crate) const PROGRAM: &str = "perfrun-node-go";

/// Whether the module can be built here. The text says why not.
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
    let mut go = command(workspace, &["build", "-trimpath", "-buildvcs=false", "-ldflags"]);
    go.arg(concat!("-s -w -X main.version=", env!("CARGO_PKG_VERSION")));
    go.arg("-o").arg(workspace.program(profile, PROGRAM)).arg(".");
    shell::succeed(go.env("CGO_ENABLED", "0"))
}

/// Builds the program, and checks the module: formatting, vet, staticcheck, and tests with the race detector.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    build(workspace, Profile::Dev)?;
    let unformatted = shell::output(workspace.command("gofmt").args(["-l", MODULE]))?;
    if !unformatted.trim().is_empty() {
        return Ok(Outcome::Failed(format!(
            "run `gofmt -w {MODULE}`: {}",
            unformatted.trim()
        )));
    }
    let vetted = step::check(
        &mut command(workspace, &["vet", "./..."]),
        "mend what vet lists above",
    )?;
    let mut staticcheck = workspace.command(install::staticcheck(workspace)?);
    staticcheck.current_dir(workspace.root.join(MODULE)).arg("./...");
    let linted = step::check(&mut staticcheck, "mend what staticcheck lists above")?;
    let mut test = command(workspace, &["test", "-race", "./..."]);
    let tested = step::check(
        test.env("CGO_ENABLED", "1"),
        "repeat the failures above with `go test -race ./...` in node-image/go-libp2p",
    )?;
    Ok(vetted.and(linted).and(tested))
}

/// Measures the node against a bare loop over go-libp2p.
pub(crate) fn bench(workspace: &Workspace, options: &[OsString]) -> Result<ExitCode> {
    install::go()?;
    let mut bench = command(workspace, &["run", "./bench"]);
    Err(shell::become_program(bench.args(options)))
}

fn command(workspace: &Workspace, args: &[&str]) -> std::process::Command {
    let mut go = workspace.command("go");
    go.current_dir(workspace.root.join(MODULE))
        .env("GOFLAGS", "-mod=readonly")
        .args(args);
    go
}
