//! Deleting a run, and what it leaves.

use std::fmt::Debug;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Pod, Secret},
    networking::v1::NetworkPolicy,
};
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, ListParams},
    core::NamespaceResourceScope,
};
use perfrun_api::{cluster::RUN_LABEL, spec::PerfRun};
use serde::de::DeserializeOwned;

use crate::{Scene, scene::COLLECTION_TIMEOUT, until};

impl Scene {
    /// Deletes a run, and waits until it and all objects that it had are gone.
    pub async fn delete(&self, run: &str) -> Result<()> {
        let runs = self.api::<PerfRun>();
        let deleted = runs.delete(run, &DeleteParams::background()).await;
        deleted.with_context(|| format!("failed to delete PerfRun {run}"))?;
        self.await_nothing_left(run).await
    }

    /// Waits until a deleted run and all objects that it had are gone.
    pub async fn await_nothing_left(&self, run: &str) -> Result<()> {
        until(
            "the run and all that it made are gone",
            COLLECTION_TIMEOUT,
            async || {
                let mut left = vec![];
                if self.api::<PerfRun>().get_opt(run).await?.is_some() {
                    left.push(format!("perfrun {run}"));
                }
                left.extend(self.of_run::<Pod>(run).await?);
                left.extend(self.of_run::<ConfigMap>(run).await?);
                left.extend(self.of_run::<Secret>(run).await?);
                left.extend(self.of_run::<NetworkPolicy>(run).await?);
                ensure!(left.is_empty(), "objects remain: {}", left.join(", "));
                Ok(Some(()))
            },
        )
        .await
    }

    async fn of_run<K>(&self, run: &str) -> Result<Vec<String>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let ours = ListParams::default().labels(&format!("{RUN_LABEL}={run}"));
        let all = self.api::<K>().list(&ours).await?;
        Ok(all
            .iter()
            .map(|object| format!("{} {}", K::kind(&()).to_lowercase(), object.name_any()))
            .collect())
    }
}
