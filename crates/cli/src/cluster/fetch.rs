//! The complete results of a run, from the ConfigMaps or the store that keeps them.

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use perfrun_api::{
    cluster::{Part, RESULTS_KEY, TRIALS_KEY, results_within},
    memory_budget::MemoryBudget,
    results::{Results, SCHEMA_VERSION},
    spec::PerfRun,
};
use tokio_util::sync::CancellationToken;

use super::{
    access::Cluster,
    error::{Call, Error},
    follow::retry_until_answered,
    reader::{Reader, hold},
};
use crate::ui::Screen;

/// The results of a run that has ended. `None` if the run has none, or at `stop`. Waits until the API server
/// is available.
pub(super) async fn fetch(
    cluster: &Cluster,
    run: &PerfRun,
    memory: &MemoryBudget,
    screen: &Screen,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Results>> {
    let status = run.status.as_ref();
    let names = status.map_or(&[][..], |status| &status.results);
    let stored = run
        .spec
        .store()
        .zip(status.and_then(|status| status.store.as_ref()));
    let parts = match stored {
        Some((store, stored)) if !names.is_empty() => {
            Reader { run, store, stored }
                .parts(cluster, names, memory, screen, stop)
                .await?
        }
        _ => stop
            .run_until_cancelled(config_maps(cluster, names, memory, screen))
            .await
            .transpose()?,
    };
    let Some(parts) = parts else {
        return Ok(None);
    };
    let results = results_within(&parts, memory)
        .with_context(|| format!("unable to assemble the results from {}", names.join(", ")))?;
    if let Some(Results { schema_version, .. }) = results
        && schema_version != SCHEMA_VERSION
    {
        bail!(
            "the results have schema version {schema_version}, and this perfrun reads {SCHEMA_VERSION}: use the perfrun \
             that belongs to the cluster's operator"
        );
    }
    if let Some(results) = &results {
        results
            .check_names()
            .context("the results in the cluster are not those of an operator")?;
    }
    Ok(results)
}

async fn config_maps(
    cluster: &Cluster,
    names: &[String],
    memory: &MemoryBudget,
    screen: &Screen,
) -> anyhow::Result<Vec<Part>> {
    let mut parts = vec![];
    for name in names {
        let Some(config_map) = retry_until_answered(Some(screen), || config_map(cluster, name)).await? else {
            bail!(
                "configmap {name} with a part of the results no longer exists; it is deleted together with its run, \
                 see spec.cleanup"
            );
        };
        for part in parts_of(config_map) {
            hold(&part, memory)?;
            parts.push(part);
        }
    }
    Ok(parts)
}

async fn config_map(cluster: &Cluster, name: &str) -> Result<Option<ConfigMap>, Error> {
    let call = Call::of("get", "configmaps", name);
    match cluster.call(&call, cluster.config_maps().get_opt(name)).await {
        Err(error) if error.is_missing() => Ok(None),
        answer => answer,
    }
}

/// The parts of results in a ConfigMap. Other keys are ignored.
fn parts_of(config_map: ConfigMap) -> Vec<Part> {
    let mut data = config_map.binary_data.unwrap_or_default();
    [TRIALS_KEY, RESULTS_KEY]
        .into_iter()
        .filter_map(|key| Some((key, data.remove(key)?.0)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_results_are_parts() {
        let config_map: ConfigMap = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "tcp-results-0"},
            "data": {"results.json.gz": "text is none"},
            "binaryData": {"trials.jsonl.gz": "AAEC", "notes": "AAEC"},
        }))
        .unwrap();
        assert_eq!(parts_of(config_map), [(TRIALS_KEY, vec![0, 1, 2])]);
        assert!(parts_of(ConfigMap::default()).is_empty());
    }
}
