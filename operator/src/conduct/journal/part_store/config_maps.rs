//! Parts in ConfigMaps of the run's namespace.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use perfrun_api::{
    cluster::{CONTINUES_ANNOTATION, MANAGER, PART_BYTES, Part, RUN_LABEL, SCHEMA_ANNOTATION, TRIALS_KEY},
    results::SCHEMA_VERSION,
};

use super::{Error, PartStore};
use crate::{
    api::call::within_timeout,
    build::{RunIdentity, part::part},
    conduct::Job,
    process::shared_memory_budget::SharedMemoryBudget,
};

/// How many ConfigMaps one request lists: each may have 256 KiB of annotations, by anyone who may write them.
const PAGE: u32 = 10;

pub(super) struct ConfigMaps {
    api: Api<ConfigMap>,
    run: RunIdentity,
    memory: SharedMemoryBudget,
}

impl ConfigMaps {
    pub(super) fn of(job: &Job) -> Self {
        Self {
            api: Api::namespaced(job.services.client.clone(), &job.run.namespace),
            run: job.run.clone(),
            memory: job.services.memory.clone(),
        }
    }
}

#[async_trait]
impl PartStore for ConfigMaps {
    fn part_bytes(&self) -> usize {
        PART_BYTES
    }

    fn is_prompt(&self) -> bool {
        true
    }

    async fn put(&self, name: &str, content: &Part, continues: Option<&str>) -> Result<bool, Error> {
        let object = part(
            &self.run,
            name.to_owned(),
            content.clone(),
            continues.map(str::to_owned),
        );
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        match within_timeout(self.api.create(&params, &object)).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_already_exists() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn list(&self) -> Result<Vec<(String, Option<String>)>, Error> {
        let mut all = vec![];
        let selector = format!("{RUN_LABEL}={}", self.run.name);
        let mut params = ListParams::default().labels(&selector).limit(PAGE);
        loop {
            let _room = self.memory.for_reading().await;
            let page = within_timeout(self.api.list_metadata(&params)).await?;
            let own = page.items.iter().filter(|object| {
                let mut owners = object.owner_references().iter();
                owners.any(|owner| owner.uid == self.run.uid)
            });
            all.extend(own.map(|object| {
                let continues = object.annotations().get(CONTINUES_ANNOTATION);
                (object.name_any(), continues.cloned())
            }));
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(all);
            }
        }
    }

    /// The API server keeps no ConfigMap of more than a MiB.
    async fn get(&self, name: &str, _: usize) -> Result<Result<Vec<u8>, String>, Error> {
        // The operator has no right to get ConfigMaps.
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let found = within_timeout(self.api.list(&params)).await?.items.pop();
        let schema = found
            .as_ref()
            .and_then(|object| object.annotations().get(SCHEMA_ANNOTATION));
        if let Some(schema) = schema.filter(|schema| **schema != SCHEMA_VERSION.to_string()) {
            let why = format!("{name} has schema version {schema}, and this operator reads {SCHEMA_VERSION}");
            return Ok(Err(why));
        }
        let data = found.and_then(|object| object.binary_data?.remove(TRIALS_KEY));
        Ok(data
            .map(|bytes| bytes.0)
            .ok_or_else(|| format!("{name} has no {TRIALS_KEY}")))
    }
}
