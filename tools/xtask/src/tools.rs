//! `cargo xtask tools`: installs packages and builds programs that checks need and that are not part of this
//! workspace.
//!
//! Each program is built once for each user. `cargo xtask test` starts this command beside the build of the
//! workspace, at a lower priority than the compiler.

use std::{
    fs::File,
    panic::resume_unwind,
    path::PathBuf,
    process::{ExitCode, ExitStatus},
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result};

use crate::{
    e2e, files, image, install,
    pinned::{self, Pinned},
    programs,
    shell::{self, Workspace},
    step::Outcome,
    times::Times,
};

/// A priority below that of everything a person waits for.
const NICE: [&str; 3] = ["nice", "-n", "19"];

/// The command. A tool that cannot be installed does not stop the others: the check that needs the tool
/// reports it.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let times = Times::of_tools(workspace)?;
    times.take();
    let timed = |name: &str, install: &dyn Fn() -> Result<()>| times.timed(name, install);
    let packages = |tools| timed("packages", &|| install::packages(workspace, tools));
    let mut all: Vec<(&str, Result<()>)> = vec![
        (
            "some tests will be skipped",
            timed("packages", &|| install::test(workspace)),
        ),
        ("some tests will be skipped", packages(install::BROWSER)),
        ("some tests will be skipped", packages(install::PERF)),
        (
            "the chart cannot be checked",
            timed("helm", &|| pinned::helm(workspace).map(drop)).and_then(|()| {
                timed("kubernetes-validate", &|| {
                    pinned::kubernetes_validate(workspace).map(drop)
                })
            }),
        ),
    ];
    if e2e::obstacle().is_none() {
        all.push(("no cluster can be made", cluster(workspace, timed)));
    }
    for (consequence, programs) in [
        (
            "dependencies cannot be checked",
            &[("cargo-deny", pinned::CARGO_DENY)][..],
        ),
        (
            "workflows cannot be checked",
            &[("actionlint", pinned::ACTIONLINT), ("zizmor", pinned::ZIZMOR)][..],
        ),
        (
            "the node of go-libp2p cannot be checked",
            &[
                ("staticcheck", pinned::STATICCHECK),
                ("govulncheck", pinned::GOVULNCHECK),
            ][..],
        ),
        (
            "texts cannot be checked",
            &[("Vale", pinned::VALE), ("typos", pinned::TYPOS)][..],
        ),
        (
            "the documentation cannot be built",
            &[("mdBook", pinned::MDBOOK)][..],
        ),
    ] {
        let build = |(name, program): &(&str, Pinned)| timed(name, &|| program.install(workspace).map(drop));
        all.push((consequence, programs.iter().try_for_each(build)));
    }
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
fn cluster(workspace: &Workspace, timed: impl Fn(&str, &dyn Fn() -> Result<()>) -> Result<()>) -> Result<()> {
    timed("packages of the lab", &|| install::lab(workspace))?;
    timed("buildah", &|| image::install_builder(workspace))?;
    timed("programs of the lab", &|| {
        programs::of_cluster(workspace).map(drop)
    })?;
    timed("Prometheus", &|| programs::prometheus(workspace).map(drop))
}

/// `cargo xtask tools` while it runs beside another step.
pub(crate) struct Tools {
    /// Waits for the command.
    status: JoinHandle<Result<ExitStatus>>,
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
        command.stdout(output.try_clone()?).stderr(output);
        let status = thread::spawn(move || shell::status(&mut command));
        Ok(Self { status, log })
    }

    /// Waits for the command and prints which tools were installed and which are missing. The log has the
    /// details.
    pub(crate) fn wait(self, workspace: &Workspace) -> Result<Outcome> {
        let status = self.status.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        let installed = Times::of_tools(workspace)?.take();
        Times::of_step(workspace)?.add(installed)?;
        for line in files::read(&self.log)?
            .lines()
            .filter(|line| line.starts_with("==>"))
        {
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
