//! A run that says whether the installation works: the custom resource, the operator, its image of nodes, and the way
//! between nodes.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use perfrun_api::{cluster::condition::COMPLETE, document, spec::PerfRun};
use perfrun_contract::run::Phase;
use tokio::time::{Instant, sleep};

use crate::{args::SelfTest, operator::stop_signal, status};

/// One server, one client and a Mebibyte, on any Kubernetes nodes: it is about the installation, not about the number.
const DOCUMENT: &str = "
apiVersion: perfrun.io/v1alpha1
kind: PerfRun
metadata: {name: self-test}
spec:
  workload: {bandwidth: {sizes: [1Mi], directions: [upload]}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], rawBaseline: false}
  iterations: 1
  warmup: 0
  topology: {placement: Any}
  # It is removed at the end. Should that not be reached, its operator does it.
  cleanup: {ttlSecondsAfterSuccess: 60, ttlSecondsAfterFailure: 600}
";
const TICK: Duration = Duration::from_millis(500);

/// Does it, and says on the way where the run stands.
pub async fn run(asked: &SelfTest) -> Result<()> {
    let client = Client::try_default()
        .await
        .context("unable to find a cluster: set KUBECONFIG, or run in a pod with a service account")?;
    let runs: Api<PerfRun> = Api::namespaced(client, &asked.namespace);
    let created = runs.create(&PostParams::default(), &tiny()?).await;
    let name = created
        .with_context(|| format!("failed to create a PerfRun in namespace {}", asked.namespace))?
        .name_any();
    let ended = tokio::select! {
        ended = ended(&runs, &name, Duration::from_secs(asked.timeout_seconds)) => ended,
        () = stop_signal() => Err(anyhow::anyhow!("stopped")),
    };
    let removed = runs.delete(&name, &DeleteParams::background()).await;
    ended?;
    removed.with_context(|| format!("failed to delete PerfRun {name}"))?;
    println!("perfrun works");
    Ok(())
}

/// The run, under a name that no other has.
fn tiny() -> Result<PerfRun> {
    let mut run = document::parse(DOCUMENT)?.remove(0);
    run.metadata = ObjectMeta {
        generate_name: run.metadata.name.map(|name| name + "-"),
        ..ObjectMeta::default()
    };
    Ok(run)
}

/// Waits until a run has ended well.
async fn ended(runs: &Api<PerfRun>, name: &str, limit: Duration) -> Result<()> {
    let start = Instant::now();
    let mut last = String::new();
    loop {
        match runs.get(name).await {
            Ok(run) => {
                let (phase, told) = stands(&run);
                if told != last {
                    println!("PerfRun {name}: {told}");
                    last = told;
                }
                match phase {
                    Some(Phase::Succeeded) => return Ok(()),
                    Some(Phase::Failed | Phase::Cancelled) => bail!("PerfRun {name} ended as {last}"),
                    _ => {}
                }
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                bail!("somebody deleted PerfRun {name}")
            }
            Err(error) => tracing::warn!(%error, "failed to ask for the run"),
        }
        if start.elapsed() >= limit {
            bail!("PerfRun {name} had not ended after {limit:?}; it was last: {last}");
        }
        sleep(TICK).await;
    }
}

/// Where a run stands, and the same for people.
fn stands(run: &PerfRun) -> (Option<Phase>, String) {
    let Some(status) = &run.status else {
        return (
            None,
            "not looked at yet by an operator that watches this namespace".to_owned(),
        );
    };
    let phase = status.phase.map_or_else(String::new, |phase| phase.to_string());
    // Until it is over, the first condition that is not true says why.
    let ended = status::has_ended(status);
    let why = status.conditions.iter().find(|condition| match ended {
        true => condition.type_ == COMPLETE,
        false => condition.status != "True",
    });
    let why = why.map(|why| format!(" ({}: {})", why.reason, why.message));
    (status.phase, phase + &why.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_is_one_that_the_api_server_takes_under_a_name_of_its_own() {
        let run = tiny().unwrap();
        assert_eq!(run.metadata.name, None);
        assert_eq!(run.metadata.generate_name.as_deref(), Some("self-test-"));
        assert_eq!(perfrun_api::planning::plan(&run.spec).unwrap().trials.len(), 1);
    }

    #[test]
    fn a_run_that_nobody_looks_at_says_so() {
        let (phase, told) = stands(&tiny().unwrap());
        assert_eq!(phase, None);
        assert!(told.contains("an operator that watches this namespace"), "{told}");
    }
}
