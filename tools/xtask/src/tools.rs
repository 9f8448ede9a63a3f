//! `cargo xtask tools`: installs packages and builds programs that checks need and that are not part of this
//! workspace.
//!
//! Each program is built once for each user. `cargo xtask test` starts this command beside the build of the
//! workspace, at a lower priority than the compiler.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, ExitCode, Stdio},
};

use anyhow::{Context, Result};

use crate::{
    e2e, image, install, programs,
    shell::{self, Workspace},
    step::Outcome,
};

/// A priority below that of everything a person waits for.
const NICE: [&str; 3] = ["nice", "-n", "19"];

/// The command. A tool that cannot be installed does not stop the others: the check that needs the tool
/// reports it.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let mut all: Vec<(&str, Result<()>)> = vec![
        ("some tests will be skipped", install::test(workspace)),
        (
            "some tests will be skipped",
            install::packages(workspace, install::BROWSER),
        ),
        (
            "some tests will be skipped",
            install::packages(workspace, install::PERF),
        ),
        (
            "the chart cannot be checked",
            install::helm(workspace).and_then(|_| install::kubernetes_validate(workspace).map(drop)),
        ),
    ];
    if e2e::obstacle().is_none() {
        all.push(("no cluster can be made", cluster(workspace)));
    }
    all.push((
        "dependencies cannot be checked",
        install::cargo_deny(workspace).map(drop),
    ));
    all.push((
        "workflows cannot be checked",
        install::actionlint(workspace).and_then(|_| install::zizmor(workspace).map(drop)),
    ));
    all.push((
        "the node of go-libp2p cannot be checked",
        install::staticcheck(workspace).map(drop),
    ));
    all.push((
        "texts cannot be checked",
        install::vale(workspace).and_then(|_| install::typos(workspace).map(drop)),
    ));
    let mut code = ExitCode::SUCCESS;
    for (consequence, installed) in all {
        if let Err(error) = installed {
            println!("==> {consequence}: {error:#}");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Installs what the end-to-end tests need.
fn cluster(workspace: &Workspace) -> Result<()> {
    install::lab(workspace)?;
    image::install_builder(workspace)?;
    programs::of_cluster(workspace)?;
    programs::prometheus(workspace)?;
    Ok(())
}

/// `cargo xtask tools` while it runs beside another step.
pub(crate) struct Tools {
    command: Child,
    log: PathBuf,
}

impl Tools {
    pub(crate) fn start(workspace: &Workspace) -> Result<Self> {
        let log = workspace.scratch()?.join("tools.log");
        let output = File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
        println!(
            "==> installing and building tools beside the build; progress is in {}",
            log.display()
        );
        let [nice, args @ ..] = NICE;
        let mut command = workspace.command(nice);
        command.args(args).arg(workspace.xtask()).arg("tools");
        command
            .stdout(output.try_clone()?)
            .stderr(output)
            .stdin(Stdio::null());
        let command = command
            .spawn()
            .with_context(|| format!("failed to start `{}`", shell::line(&command)))?;
        Ok(Self { command, log })
    }

    /// Waits for the command and prints which tools were installed and which are missing. The log has the
    /// details.
    pub(crate) fn wait(mut self) -> Result<Outcome> {
        let status = self.command.wait().context("failed to wait for the tools")?;
        let log = fs::read_to_string(&self.log)
            .with_context(|| format!("failed to read {}", self.log.display()))?;
        for line in log.lines().filter(|line| line.starts_with("==>")) {
            println!("{line}");
        }
        Ok(match status.success() {
            true => Outcome::Passed,
            false => Outcome::Skipped(format!(
                "some are missing, as listed above; {} says why",
                self.log.display()
            )),
        })
    }
}
