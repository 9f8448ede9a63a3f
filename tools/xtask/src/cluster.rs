//! A lab for one command: started, given the operator, and removed when the command ends, successfully or
//! not.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{
    chart, install, lab, pinned, programs,
    shell::{self, Profile, Workspace},
};

/// Two nodes to measure between, and one that takes over pods when another node is lost.
const NODES: &str = "3";

/// The command that removes a lab, or what is left of it.
const DOWN: &str = "down";

/// Release and namespace of the operator. Tests rely on both names.
const RELEASE: &str = "perfrun";
const NAMESPACE: &str = "perfrun-system";

/// A lab as a cluster with the operator.
pub(crate) struct Cluster<'a> {
    workspace: &'a Workspace,
    lab: &'static str,
    /// The path of the program perfrun-lab.
    lab_program: PathBuf,
    /// The current helm and the one before.
    helms: [PathBuf; 2],
}

impl<'a> Cluster<'a> {
    /// Starts a lab with this name, loads the images, installs the chart with images of this tag, runs
    /// `work`, and removes the lab. Other labs are not affected.
    pub(crate) fn with<T>(
        workspace: &'a Workspace,
        lab: &'static str,
        images: &[PathBuf],
        tag: &str,
        work: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        let values = format!("image.tag={tag},nodeImages.rust.tag={tag},nodeImages.go.tag={tag}");
        Self::up(workspace, lab, NODES, |cluster| {
            shell::succeed(cluster.lab("load").args(images))?;
            cluster.install(&values, &["--wait", "--timeout=2m"])?;
            work(cluster)
        })
    }

    /// Like [`Self::with`], with one node, and without images: operators wait for a Kubernetes node that does
    /// not exist.
    pub(crate) fn without_operators<T>(
        workspace: &'a Workspace,
        lab: &'static str,
        work: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        Self::up(workspace, lab, "1", |cluster| {
            cluster.install("nodeSelector.perfrun=none", &[])?;
            work(cluster)
        })
    }

    fn up<T>(
        workspace: &'a Workspace,
        lab: &'static str,
        nodes: &str,
        work: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        let cluster = Self {
            workspace,
            lab,
            lab_program: lab::build(workspace)?,
            helms: pinned::helm(workspace)?,
        };
        // Removes what an interrupted run left.
        shell::succeed(&mut cluster.lab(DOWN))?;
        install::lab(workspace)?;
        let programs = programs::of_cluster(workspace)?;
        let mut up = cluster.lab(lab::UP);
        up.args(["--nodes", nodes]).args(programs);
        if Path::new("/proc/net/if_inet6").exists() {
            up.arg("--dual-stack");
        }
        shell::succeed(&mut up)?;
        let done = work(&cluster);
        shell::clean_up(&mut cluster.lab(DOWN))?;
        done
    }

    /// Installs the chart with these values, and with further options of helm.
    fn install(&self, values: &str, options: &[&str]) -> Result<()> {
        let mut helm = self.workspace.command(&self.helms[0]);
        helm.args(["install", RELEASE, chart::FOLDER, "--create-namespace"]);
        helm.args(["--namespace", NAMESPACE, "--set", values]);
        helm.args(options);
        shell::succeed(helm.env("KUBECONFIG", self.kubeconfig()?))
    }

    /// The environment in which the crate `perfrun-e2e` finds this cluster.
    pub(crate) fn environment(&self, profile: Profile) -> Result<[(&'static str, OsString); 7]> {
        let [helm, helm_before] = &self.helms;
        Ok([
            ("PERFRUN_E2E_HELM", helm.into()),
            ("PERFRUN_E2E_HELM_BEFORE", helm_before.into()),
            ("PERFRUN_E2E_KUBECONFIG", self.kubeconfig()?.into()),
            ("PERFRUN_E2E_KUBECTL", self.kubectl()?.into()),
            ("PERFRUN_E2E_LAB", self.lab.into()),
            (
                "PERFRUN_E2E_PERFRUN",
                self.workspace.program(profile, "perfrun").into(),
            ),
            ("PERFRUN_E2E_LAB_PROGRAM", self.lab_program.as_path().into()),
        ])
    }

    fn kubeconfig(&self) -> Result<PathBuf> {
        let path = shell::output(&mut self.lab("kubeconfig"))?;
        Ok(Path::new(&path).to_owned())
    }

    /// The kubectl of the cluster's version, which is beside the kubeconfig.
    fn kubectl(&self) -> Result<PathBuf> {
        Ok(self.kubeconfig()?.with_file_name("bin").join("kubectl"))
    }

    fn lab(&self, verb: &str) -> Command {
        let mut command = self.workspace.command(&self.lab_program);
        command.args(["--name", self.lab, verb]);
        command
    }
}
