//! A lab for one command: made, given the operator, and removed however that command ended.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::{Context, Result};
use signal_hook::{consts::TERM_SIGNALS, flag};

use crate::shell::{self, Profile, Workspace};

/// Two nodes to measure between, and one to go to when one of them is lost.
const NODES: &str = "3";

/// The cluster that is a lab.
pub struct Cluster<'a> {
    workspace: &'a Workspace,
    lab: &'static str,
}

impl<'a> Cluster<'a> {
    /// Makes a lab of this name, beside any other, with images, the CRD and the operator as `manifests` has it, which is
    /// the folder of a kustomization; does the work there; removes the lab.
    pub fn with<T>(
        workspace: &'a Workspace,
        lab: &'static str,
        images: &[PathBuf],
        manifests: &str,
        work: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        // Ctrl-C ends what is waited for, and not this, which has a lab to remove; the second one does.
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in TERM_SIGNALS {
            flag::register_conditional_shutdown(*signal, 130, Arc::clone(&interrupted))
                .and_then(|_| flag::register(*signal, Arc::clone(&interrupted)))
                .context("failed to watch for Ctrl-C")?;
        }
        let cluster = Self { workspace, lab };
        // What a run that was killed has left.
        cluster.down()?;
        shell::succeed(cluster.xtask("up").args(["--nodes", NODES]))?;
        let done = cluster.install(images, manifests).and_then(|()| work(&cluster));
        cluster.down()?;
        done
    }

    /// The images on every node, the CRD, and the operator.
    fn install(&self, images: &[PathBuf], manifests: &str) -> Result<()> {
        shell::succeed(self.xtask("load").args(images))?;
        for args in [
            ["apply", "--server-side", "--filename", "crds"],
            ["apply", "--server-side", "--kustomize", manifests],
        ] {
            let mut kubectl = self.workspace.command(self.kubectl()?);
            shell::succeed(kubectl.arg("--kubeconfig").arg(self.kubeconfig()?).args(args))?;
        }
        Ok(())
    }

    /// How the crate `perfrun-e2e` finds it.
    pub fn environment(&self, profile: Profile) -> Result<[(&'static str, OsString); 5]> {
        Ok([
            ("PERFRUN_E2E_KUBECONFIG", self.kubeconfig()?.into()),
            ("PERFRUN_E2E_KUBECTL", self.kubectl()?.into()),
            ("PERFRUN_E2E_LAB", self.lab.into()),
            (
                "PERFRUN_E2E_PERFRUN",
                self.workspace.program(profile, "perfrun").into(),
            ),
            ("PERFRUN_E2E_XTASK", self.workspace.xtask().into()),
        ])
    }

    fn down(&self) -> Result<()> {
        shell::succeed(&mut self.xtask("down"))
    }

    fn kubeconfig(&self) -> Result<PathBuf> {
        let path = shell::said(&mut self.xtask("kubeconfig"))?;
        Ok(Path::new(&path).to_owned())
    }

    /// Beside the kubeconfig: the one of the cluster's version.
    fn kubectl(&self) -> Result<PathBuf> {
        Ok(self.kubeconfig()?.with_file_name("bin").join("kubectl"))
    }

    fn xtask(&self, verb: &str) -> Command {
        let mut command = self.workspace.command(self.workspace.xtask());
        command.args(["lab", "--name", self.lab, verb]);
        command
    }
}
