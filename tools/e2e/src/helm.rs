//! helm, and the release of the operator that tests run beside.

use std::{env, ffi::OsString, path::PathBuf};

use anyhow::Result;
use tokio::process::Command;

use crate::{Cluster, program};

/// A helm, on a cluster.
#[derive(Clone)]
pub struct Helm {
    program: OsString,
    kubeconfig: PathBuf,
}

impl Helm {
    /// The current helm and the one before, or why there are none.
    pub fn find(cluster: &Cluster) -> Result<[Self; 2], String> {
        let helm = |name: &str| match env::var_os(name) {
            Some(program) => Ok(Self {
                program,
                kubeconfig: cluster.file().to_owned(),
            }),
            None => Err(format!("needs helm: {name} is not set")),
        };
        Ok([helm("PERFRUN_E2E_HELM")?, helm("PERFRUN_E2E_HELM_BEFORE")?])
    }

    /// What it prints.
    pub async fn said(&self, args: &[&str]) -> Result<String> {
        let mut helm = Command::new(&self.program);
        helm.current_dir(program::repository());
        program::said(helm.env("KUBECONFIG", &self.kubeconfig).args(args)).await
    }
}
