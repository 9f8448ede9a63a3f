//! A run that shows whether the installation works: the custom resource, the operator, its node image, and
//! the network between nodes.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use perfrun_api::{cluster::condition, document, spec::PerfRun};
use perfrun_contract::tally::EndReason;
use tokio::time::{Instant, sleep};

use crate::{api::call::find_cluster, args::SelfTest, process::signal::stop_signal};

/// One server, one client and 1 MiB, on any Kubernetes nodes: the number does not matter.
const DOCUMENT: &str = "
apiVersion: perfrun.io/v1alpha1
kind: PerfRun
metadata: {name: self-test}
spec:
  workload: {bandwidth: {sizes: [1Mi], directions: [upload]}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], rawReference: false}
  iterations: 1
  warmup: 0
  topology: {placement: Any}
  # A policy may allow short runs only.
  timeouts: {provision: 2m, run: 3m}
  # The self-test deletes the run. If it cannot, the operator does.
  cleanup: {ttlSecondsAfterSuccess: 60, ttlSecondsAfterFailure: 600}
";
const POLL_PAUSE: Duration = Duration::from_millis(500);

/// Runs the self-test, and prints the progress of the run.
pub async fn run(settings: &SelfTest) -> Result<()> {
    let runs: Api<PerfRun> = Api::namespaced(find_cluster().await?, &settings.namespace);
    let created = runs.create(&PostParams::default(), &test_run()?).await;
    let name = created
        .with_context(|| format!("failed to create a PerfRun in namespace {}", settings.namespace))?
        .name_any();
    let ended = tokio::select! {
        ended = wait_until_succeeded(&runs, &name, Duration::from_secs(settings.timeout_seconds)) => ended,
        () = stop_signal() => Err(anyhow::anyhow!("stopped")),
    };
    let removed = runs.delete(&name, &DeleteParams::background()).await;
    ended?;
    removed.with_context(|| format!("failed to delete PerfRun {name}"))?;
    println!("perfrun works");
    Ok(())
}

/// The run, under a name that the API server makes unique.
fn test_run() -> Result<PerfRun> {
    let mut run = document::parse(DOCUMENT)?.remove(0);
    run.metadata = ObjectMeta {
        generate_name: run.metadata.name.map(|name| name + "-"),
        ..ObjectMeta::default()
    };
    Ok(run)
}

/// Waits until a run has succeeded.
async fn wait_until_succeeded(runs: &Api<PerfRun>, name: &str, limit: Duration) -> Result<()> {
    let start = Instant::now();
    let mut last = String::new();
    loop {
        match runs.get(name).await {
            Ok(run) => {
                let (end, description) = progress(&run);
                if description != last {
                    println!("PerfRun {name}: {description}");
                    last = description;
                }
                match end {
                    Some(end) if end == EndReason::Succeeded.as_ref() => return Ok(()),
                    Some(_) => bail!("PerfRun {name} ended as {last}"),
                    None => {}
                }
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                bail!("somebody deleted PerfRun {name}")
            }
            Err(error) => tracing::warn!(%error, "failed to get the run"),
        }
        if start.elapsed() >= limit {
            bail!("PerfRun {name} had not ended after {limit:?}; its last state was: {last}");
        }
        sleep(POLL_PAUSE).await;
    }
}

/// The reason why a run has ended, if it has, and a description for people. An operator of another version
/// may give the phase another name.
fn progress(run: &PerfRun) -> (Option<&str>, String) {
    let Some(status) = &run.status else {
        return (
            None,
            "no operator that watches this namespace has reconciled it yet".to_owned(),
        );
    };
    let phase = status.phase.map_or_else(String::new, |phase| phase.to_string());
    let end = condition::end_condition(&status.conditions);
    let why = end.or_else(|| condition::explaining_condition(&status.conditions));
    let why = why.map(|why| format!(" ({}: {})", why.reason, why.message));
    (
        end.map(|end| end.reason.as_str()),
        phase + &why.unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use perfrun_api::cluster::condition::Type;
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::Policy;

    #[test]
    fn the_run_fits_a_policy_of_short_runs() {
        let shared = include_str!("../../charts/perfrun/ci/shared.yaml");
        let mut values: Value = serde_saphyr::from_str(shared).unwrap();
        values["policy"]["longestRun"] = json!("3m");
        let policy: Policy = serde_json::from_value(values["policy"].take()).unwrap();
        let timeouts = test_run().unwrap().spec.timeouts;
        for (timeout, longest) in [
            (timeouts.run, policy.longest_run),
            (timeouts.provision, policy.longest_provision),
        ] {
            assert!(
                Duration::from(timeout) <= Duration::from(longest),
                "{timeout} > {longest}"
            );
        }
    }

    #[test]
    fn the_run_is_valid_and_has_a_unique_name() {
        let run = test_run().unwrap();
        assert_eq!(run.metadata.name, None);
        assert_eq!(run.metadata.generate_name.as_deref(), Some("self-test-"));
        assert_eq!(perfrun_api::planning::plan(&run.spec).unwrap().trials.len(), 1);
    }

    #[test]
    fn a_run_that_no_operator_reconciles_is_described_as_such() {
        let run = test_run().unwrap();
        let (end, description) = progress(&run);
        assert_eq!(end, None);
        assert!(
            description.contains("no operator that watches this namespace"),
            "{description}"
        );
    }

    #[test]
    fn a_run_ends_by_its_condition_even_if_its_phase_is_unknown() {
        let mut run = test_run().unwrap();
        for (status, end) in [("False", None), ("True", Some("Succeeded"))] {
            let status = json!({"phase": "Hibernating", "conditions": [{"type": Type::Complete.to_string(), "status": status,
                "reason": "Succeeded", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
            run.status = serde_json::from_value(status).unwrap();
            assert_eq!(progress(&run).0, end);
        }
    }
}
