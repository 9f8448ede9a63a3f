//! helm on the cluster of the tests.

use std::{env, ffi::OsString, path::PathBuf};

use anyhow::Result;
use tokio::process::Command;

use crate::{Cluster, program};

/// A version of helm, for one cluster.
#[derive(Clone)]
pub struct Helm {
    program: OsString,
    kubeconfig: PathBuf,
}

impl Helm {
    /// The current and the previous version of helm, or why they are missing.
    pub fn find(cluster: &Cluster) -> Result<[Self; 2], String> {
        let helm = |name: &str| match env::var_os(name) {
            Some(program) => Ok(Self {
                program,
                kubeconfig: cluster.kubeconfig().to_owned(),
            }),
            None => Err(format!("needs helm: {name} is not set")),
        };
        Ok([helm("PERFRUN_E2E_HELM")?, helm("PERFRUN_E2E_HELM_BEFORE")?])
    }

    /// Runs helm, and returns its standard output.
    pub async fn output(&self, args: &[&str]) -> Result<String> {
        let mut helm = Command::new(&self.program);
        helm.current_dir(program::repository());
        program::output(helm.env("KUBECONFIG", &self.kubeconfig).args(args)).await
    }
}
