//! The cluster that tests run on.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::process::Command;

const KUBECONFIG: &str = "PERFRUN_E2E_KUBECONFIG";

/// A cluster, as its administrator.
#[derive(Clone)]
pub struct Cluster {
    /// To the API server.
    pub client: Client,
    kubeconfig: PathBuf,
    kubectl: OsString,
}

impl Cluster {
    /// The file that names the cluster, or why there is none.
    pub fn kubeconfig() -> Result<PathBuf, String> {
        match env::var_os(KUBECONFIG) {
            Some(file) if Path::new(&file).is_file() => Ok(file.into()),
            Some(file) => Err(format!("{KUBECONFIG} is {}, which is no file", file.display())),
            None => Err(format!("needs a cluster: {KUBECONFIG} is not set")),
        }
    }

    /// Reads the file; nothing is connected yet.
    pub async fn open(kubeconfig: PathBuf) -> Result<Self> {
        let file = Kubeconfig::read_from(&kubeconfig)
            .with_context(|| format!("failed to read {}", kubeconfig.display()))?;
        // Built with the stacks under test rustls has two, and does not choose. Only the first call counts.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .with_context(|| format!("unable to use {}", kubeconfig.display()))?;
        Ok(Self {
            client: Client::try_from(config).context("failed to make a client")?,
            kubeconfig,
            kubectl: env::var_os("PERFRUN_E2E_KUBECTL").unwrap_or_else(|| "kubectl".into()),
        })
    }

    /// The file that names the cluster.
    pub fn file(&self) -> &Path {
        &self.kubeconfig
    }

    /// kubectl, to run a plugin on this cluster: it hands no options of its own to plugins.
    pub fn kubectl_plugin(&self) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// kubectl on this cluster.
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .env_remove("KUBECONFIG")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig);
        command
    }
}
