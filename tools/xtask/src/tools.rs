//! `cargo xtask tools`: packages and programs that checks need, and that do not come from this workspace.
//!
//! Each is built at most once for a user. `cargo xtask test` starts this command beside the build of the workspace, with what
//! the compiler leaves of the processors.

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

/// Below everything that somebody waits for.
const NICE: [&str; 3] = ["nice", "-n", "19"];

/// The command. What is missing does not keep it from the rest: whatever needs it says so when it is looked for.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let mut all: Vec<(&str, Result<()>)> = vec![
        ("some tests will be skipped", install::test(workspace)),
        (
            "some tests will be skipped",
            install::packages(workspace, install::BROWSER),
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

/// What the end-to-end tests need.
fn cluster(workspace: &Workspace) -> Result<()> {
    install::lab(workspace)?;
    image::install_builder(workspace)?;
    programs::of_cluster(workspace)?;
    programs::prometheus(workspace)?;
    Ok(())
}

/// The command while it runs beside something else.
pub(crate) struct Tools {
    command: Child,
    log: PathBuf,
}

impl Tools {
    /// Starts the command.
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

    /// Waits for its end and shows what was installed and what is missing. The log has the rest.
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
