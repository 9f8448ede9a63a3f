//! The operator as a program of its own, with the rights that the chart gives it.

use std::{fs, process::Stdio};

use anyhow::{Context, Result, ensure};
use perfrun_e2e::{
    Scene,
    operators::{NAME, NAMESPACE},
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;
use tokio::process::{Child, Command};

/// A running operator. It is killed when this is dropped.
pub(super) struct Operator {
    child: Child,
    _kubeconfig: NamedTempFile,
}

impl Operator {
    /// Starts the program beside this one.
    pub(super) async fn start(scene: &Scene, active: usize) -> Result<Self> {
        let kubeconfig = kubeconfig(scene).await?;
        let program = std::env::current_exe()?.with_file_name(NAME);
        let child = Command::new(&program)
            .args([
                "--node-access=direct",
                "--admin=127.0.0.1:0",
                "--probes=127.0.0.1:0",
                "--log=warn",
            ])
            .arg(format!("--max-concurrent-runs={active}"))
            .env("KUBECONFIG", kubeconfig.path())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("failed to start {}; is it built?", program.display()))?;
        Ok(Self {
            child,
            _kubeconfig: kubeconfig,
        })
    }

    /// The most resident memory so far, in MiB.
    pub(super) fn most_memory(&self) -> Result<f64> {
        let process = self.child.id().context("the operator has ended")?;
        crate::memory::mebibytes(process, "VmHWM:")
    }

    /// Stops it, and waits until another may lead.
    pub(super) async fn stop(mut self) -> Result<()> {
        let process = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        kill_process(process.context("the operator has ended")?, Signal::TERM)?;
        let status = self.child.wait().await?;
        ensure!(status.success(), "the operator ended with {status}");
        Ok(())
    }
}

/// Accesses the cluster as the operator's service account.
async fn kubeconfig(scene: &Scene) -> Result<NamedTempFile> {
    let file = NamedTempFile::new().context("failed to create a kubeconfig")?;
    fs::copy(scene.cluster.kubeconfig(), file.path()).context("failed to copy the kubeconfig")?;
    let kubectl = async |args: &[&str]| {
        let mut kubectl = scene.cluster.kubectl_plugin();
        let output = kubectl.env("KUBECONFIG", file.path()).args(args).output().await?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`kubectl {}` failed: {error}", args[0]);
        anyhow::Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let token = kubectl(&[
        "create",
        "token",
        NAME,
        "--namespace",
        NAMESPACE,
        "--duration=24h",
    ])
    .await?;
    kubectl(&["config", "set-credentials", NAME, "--token", &token]).await?;
    kubectl(&["config", "set-context", "--current", "--user", NAME]).await?;
    Ok(file)
}
