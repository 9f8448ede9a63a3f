//! The cluster that tests run on.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use tokio::process::Command;

const KUBECONFIG: &str = "PERFRUN_E2E_KUBECONFIG";

/// A cluster, accessed as its administrator.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    kubeconfig: PathBuf,
    kubectl: OsString,
}

impl Cluster {
    /// The kubeconfig of the cluster, or why it is unavailable.
    pub fn find_kubeconfig() -> Result<PathBuf, String> {
        match env::var_os(KUBECONFIG) {
            Some(file) if Path::new(&file).is_file() => Ok(file.into()),
            Some(file) => Err(format!("{KUBECONFIG} is {}, which is not a file", file.display())),
            None => Err(format!("needs a cluster: {KUBECONFIG} is not set")),
        }
    }

    /// Reads the kubeconfig, without connecting yet.
    pub async fn open(kubeconfig: PathBuf) -> Result<Self> {
        Ok(Self {
            client: client(config(&kubeconfig).await?)?,
            kubeconfig,
            kubectl: env::var_os("PERFRUN_E2E_KUBECTL").unwrap_or_else(|| "kubectl".into()),
        })
    }

    /// Accesses the cluster with a token, and not as its administrator.
    pub(crate) async fn with_token(&self, token: String) -> Result<Client> {
        let mut config = config(&self.kubeconfig).await?;
        config.auth_info = AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        };
        client(config)
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// kubectl for running a plugin on this cluster: kubectl does not pass its own options to plugins.
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

async fn config(kubeconfig: &Path) -> Result<Config> {
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("failed to read {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    config.with_context(|| format!("unable to use {}", kubeconfig.display()))
}

fn client(config: Config) -> Result<Client> {
    // Together with the stacks under test, rustls has two cryptography providers and selects none. Only the
    // first call has an effect.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::try_from(config).context("failed to make a client")
}
