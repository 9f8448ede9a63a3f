//! What goes wrong in a round.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams},
};
use perfrun_api::spec::PerfRun;
use perfrun_e2e::{
    Scene,
    lab::Lab,
    operators::{self, NAME, NODE_PROGRAM, cut_off, isolate, kill, kill_link_agent, processes},
};
use rand::{Rng, RngExt as _, seq::IndexedRandom};
use serde_json::json;
use strum::{Display, VariantArray};
use tokio::time::sleep;

/// Something that goes wrong, or that a user does.
#[derive(Clone, Copy, Debug, Display, Eq, PartialEq, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Fault {
    OperatorDeleted,
    OperatorKilled,
    OperatorPaused,
    OperatorCutOff,
    LeaseDeleted,
    NodePodDeleted,
    NodeKilled,
    NodePaused,
    NodeCutOff,
    LinkAgentKilled,
    ApiServerDown,
    KubeletDown,
    KubernetesNodeDown,
    RunCancelled,
    RunDeleted,
}

impl Fault {
    pub(crate) fn random(random: &mut impl Rng) -> Self {
        *Self::VARIANTS.choose(random).unwrap_or(&Self::OperatorDeleted)
    }

    /// Makes it happen. Returns what was hit, or `None` if there was nothing.
    pub(crate) async fn inject(
        self,
        scene: &Scene,
        lab: &Lab,
        runs: &[String],
        random: &mut impl Rng,
    ) -> Result<Option<String>> {
        let for_a_while = Duration::from_millis(random.random_range(500..20_000));
        let run = runs.choose(random).context("a round has runs")?;
        let operators = scene.operators();
        let pods = scene.pods(run).await?;
        let pod = pods.choose(random);
        match self {
            Self::OperatorDeleted | Self::LeaseDeleted => {
                let Ok(leader) = operators.holder().await else {
                    return Ok(None);
                };
                match self {
                    Self::OperatorDeleted => operators.delete_leader().await?,
                    _ => operators.delete_lease().await?,
                }
                Ok(Some(leader))
            }
            Self::OperatorKilled => {
                let Ok(leader) = operators.leader().await else {
                    return Ok(None);
                };
                Ok(hit(kill(&leader, NAME).await?, &leader))
            }
            // Longer than a lease holds, half of the times.
            Self::OperatorPaused | Self::OperatorCutOff => self.hold_operator(scene, 2 * for_a_while).await,
            Self::NodePodDeleted => {
                let Some(pod) = pod else { return Ok(None) };
                let immediately = DeleteParams::default().grace_period(0);
                let deleted = scene.api::<Pod>().delete(&pod.name_any(), &immediately).await;
                Ok(hit(deleted.is_ok(), pod))
            }
            Self::NodeKilled => {
                let Some(pod) = pod else { return Ok(None) };
                Ok(hit(kill(pod, NODE_PROGRAM).await?, pod))
            }
            Self::NodePaused | Self::NodeCutOff => {
                let Some(pod) = pod else { return Ok(None) };
                // Longer than a call to a node may take, half of the times.
                self.hold_node(pod, for_a_while).await
            }
            Self::LinkAgentKilled => {
                let Some(pod) = pod else { return Ok(None) };
                Ok(hit(kill_link_agent(pod).await?, pod))
            }
            Self::ApiServerDown => without(lab, "apiserver", for_a_while).await,
            Self::KubeletDown | Self::KubernetesNodeDown => {
                let Some(host) = pod.and_then(|pod| pod.spec.as_ref()?.node_name.clone()) else {
                    return Ok(None);
                };
                let part = match self {
                    Self::KubeletDown => format!("{host}/kubelet"),
                    _ => host,
                };
                without(lab, &part, for_a_while).await
            }
            Self::RunCancelled => {
                scene.change(run, json!({"cancel": true})).await?;
                Ok(Some(run.clone()))
            }
            Self::RunDeleted => {
                // With what it had, under the same name: a new run must not meet the old one's objects.
                let spec = scene.run(run).await?.spec;
                scene.delete(run).await?;
                let again = PerfRun::new(run, spec);
                scene.api().create(&PostParams::default(), &again).await?;
                Ok(Some(format!("{run}, created again")))
            }
        }
    }

    async fn hold_operator(self, scene: &Scene, time: Duration) -> Result<Option<String>> {
        let Ok(leader) = scene.operators().leader().await else {
            return Ok(None);
        };
        let Some(process) = processes(&leader, NAME)?.pop() else {
            return Ok(None);
        };
        let wait = async || pass(time).await;
        match self {
            Self::OperatorPaused => operators::without(&process, wait).await?,
            _ => cut_off(&process, wait).await?,
        }
        Ok(Some(format!("{} for {time:.1?}", leader.name_any())))
    }

    async fn hold_node(self, pod: &Pod, time: Duration) -> Result<Option<String>> {
        let Some(process) = processes(pod, NODE_PROGRAM)?.pop() else {
            return Ok(None);
        };
        let wait = async || pass(time).await;
        match self {
            Self::NodePaused => operators::without(&process, wait).await?,
            _ => isolate(&process, wait).await?,
        }
        Ok(Some(format!("{} for {time:.1?}", pod.name_any())))
    }
}

fn hit(is_hit: bool, pod: &Pod) -> Option<String> {
    is_hit.then(|| pod.name_any())
}

async fn without(lab: &Lab, part: &str, time: Duration) -> Result<Option<String>> {
    lab.without(part, async || pass(time).await).await?;
    Ok(Some(format!("{part} for {time:.1?}")))
}

async fn pass(time: Duration) -> Result<()> {
    sleep(time).await;
    Ok(())
}
