//! `cargo xtask soak`: random documents on a cluster of their own, while random parts of it fail.

use std::{ffi::OsString, process::ExitCode};

use anyhow::{Result, bail};

use crate::{
    cluster::Cluster,
    e2e,
    image::{self, Image},
    install,
    shell::{self, Profile, Workspace},
};

/// The program that does it, of the crate `perfrun-e2e`.
const PROGRAM: &str = "perfrun-soak";

pub(crate) fn run(workspace: &Workspace, args: &[OsString]) -> Result<ExitCode> {
    if let Some(obstacle) = e2e::obstacle() {
        bail!(obstacle);
    }
    install::packages(workspace, install::BUILD)?;
    install::test(workspace)?;
    workspace.build(Profile::Dev, &["perfrun", "perfrun-node", PROGRAM])?;
    let mut soak = workspace.command(workspace.program(Profile::Dev, PROGRAM));
    soak.args(args);
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        return Err(shell::become_program(&mut soak));
    }
    let images = [Image::Node, Image::Operator].map(|image| image::build(workspace, image, Profile::Dev));
    let mut images = images.into_iter().collect::<Result<Vec<_>>>()?;
    images.push(image::hostile_node(workspace)?);
    soak.env("PERFRUN_E2E_HOSTILE_IMAGE", image::HOSTILE);
    Cluster::with(workspace, "soak", &images, image::tag(Profile::Dev), |cluster| {
        let status = shell::status(soak.envs(cluster.environment(Profile::Dev)?))?;
        Ok(if status.success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}
