//! The nodes of a run as pods.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::DeleteParams};
use parking_lot::Mutex;
use perfrun_api::pod::{PodState, state};
use perfrun_conductor::{
    NodeHandle, NodeProvider, ReplaceReason,
    client::{BoxError, Epoch},
};
use tokio::time::{Instant, sleep};

use super::{Job, Shared};
use crate::{
    access::Address,
    api::objects::delete,
    build::{LINK_PORT, control_port},
    pods::{self, NodePod, live_pod},
};

/// Pause between two checks of the watched pods.
const PAUSE: Duration = Duration::from_millis(50);

/// How long pods may be unready at the start: after an outage of the API server, until their Kubernetes nodes
/// report.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);

/// How long a node may take to restart in its pod. The digest of a large program takes seconds.
const RENEWED_WITHIN: Duration = Duration::from_secs(30);

/// How long the API server may take to know that a container has ended.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);

/// Pause between two attempts to delete a lost pod.
const DELETE_PAUSE: Duration = Duration::from_secs(2);

/// Gives the conductor the pods of its run. The reconciler creates a new pod when one is missing.
pub(super) struct PodNodes<'a> {
    job: &'a Job,
    epoch: Epoch,
    shared: Arc<Shared>,
    /// UIDs of the pods that the conductor has been given, by node.
    given: Mutex<BTreeMap<String, String>>,
}

impl<'a> PodNodes<'a> {
    pub(super) fn new(job: &'a Job, epoch: Epoch, shared: Arc<Shared>) -> Self {
        Self {
            job,
            epoch,
            shared,
            given: Mutex::default(),
        }
    }

    /// Waits until all nodes of the plan, which have been ready before, are ready. The error names one that
    /// is not.
    pub(super) async fn wait_for_handles(&self) -> Result<BTreeMap<String, NodeHandle>, String> {
        let deadline = Instant::now() + SETTLES_WITHIN;
        loop {
            match self.ready_handles() {
                Err(why) if Instant::now() < deadline => {
                    tracing::debug!(run = self.job.run.label(), why, "waiting for the nodes");
                }
                all => return all,
            }
            sleep(PAUSE).await;
        }
    }

    fn ready_handles(&self) -> Result<BTreeMap<String, NodeHandle>, String> {
        let nodes = &self.job.plan.nodes;
        nodes
            .iter()
            .map(|node| {
                let handle = self.find_ready(&node.name, "");
                let handle = handle.ok_or_else(|| format!("node {} is no longer ready", node.name))??;
                Ok((node.name.clone(), handle))
            })
            .collect()
    }

    /// A ready pod of a node, except the one with the UID `except`.
    fn find_ready(&self, name: &str, except: &str) -> Option<Result<NodeHandle, String>> {
        let job = self.job;
        let pods = self.pods();
        let node_pods: Vec<_> = pods.iter().filter_map(|pod| NodePod::from_pod(pod)).collect();
        let pod = live_pod(&node_pods, name)?;
        let PodState::Ready(ip) = pod.state else {
            return None;
        };
        if pod.uid == except {
            return None;
        }
        let index = job.plan.nodes.iter().position(|node| node.name == name)?;
        let address = Address {
            namespace: &job.run.namespace,
            name: &pod.name,
            ip,
        };
        self.given.lock().insert(name.to_owned(), pod.uid.clone());
        let handle = self.handle(&address, control_port(&job.spec, index));
        Some(handle.map_err(|error| format!("unable to reach pod {}: {error}", pod.name)))
    }

    fn handle(&self, pod: &Address<'_>, port: u16) -> Result<NodeHandle, BoxError> {
        let (access, token) = (&self.job.services.access, &self.job.token());
        let has_agents = !self.job.plan.networks.is_empty();
        let agent = has_agents.then(|| access.agent(pod, LINK_PORT, token));
        let agent = agent.transpose()?;
        Ok(NodeHandle {
            node: access.node(pod, port, token)?.with_epoch(self.epoch.clone()),
            agent: agent.map(|agent| agent.with_epoch(self.epoch.clone())),
        })
    }

    /// Why a node has no ready pod, if the API server or the pod says so.
    fn why_not_ready(&self, name: &str) -> Option<String> {
        let pods = self.pods();
        let node_pods: Vec<_> = pods.iter().filter_map(|pod| NodePod::from_pod(pod)).collect();
        match live_pod(&node_pods, name).map(|pod| &pod.state) {
            Some(PodState::Stuck(trouble)) => Some(trouble.message.clone()),
            Some(_) => None,
            None => self.shared.lock().refused.clone(),
        }
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        let run = &self.job.run;
        let mut pods = self.job.services.pods.state();
        pods.retain(|pod| pods::is_of(pod, &run.namespace, &run.name, &run.uid));
        pods
    }

    /// The Kubernetes nodes of the pods that the conductor has been given, by node.
    pub(super) fn kubernetes_nodes(&self) -> BTreeMap<String, String> {
        let (pods, given) = (self.pods(), self.given.lock());
        let host = |uid: &String| {
            let pod = pods.iter().find(|pod| pod.uid().as_ref() == Some(uid))?;
            pod.spec.as_ref()?.node_name.clone()
        };
        given
            .iter()
            .filter_map(|(name, uid)| Some((name.clone(), host(uid)?)))
            .collect()
    }

    /// Starts the program of a node again in its pod. `None` if the node needs another pod.
    async fn renew_in_place(&self, name: &str) -> Option<NodeHandle> {
        let handle = self.find_ready(name, "")?.ok()?;
        match handle.node.renew(RENEWED_WITHIN).await {
            Ok(true) => Some(handle),
            Ok(false) => None,
            Err(error) => {
                let (run, why) = (self.job.run.label(), error.describe());
                tracing::warn!(
                    run,
                    node = name,
                    why,
                    "the node did not start again, and gets another pod"
                );
                None
            }
        }
    }

    /// Deletes the pod with this UID if it still exists, so that the reconciler creates another.
    async fn delete(&self, name: &str, uid: &str, why: ReplaceReason) {
        let Some(pod) = self
            .pods()
            .into_iter()
            .find(|pod| pod.uid().as_deref() == Some(uid))
        else {
            return;
        };
        let host = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        if let Some(host) = host.filter(|_| why == ReplaceReason::Lost) {
            self.shared.lock().lost_on.insert(name.to_owned(), host);
        }
        let api: Api<Pod> = Api::namespaced(self.job.services.client.clone(), &self.job.run.namespace);
        // Without a grace period: the Kubernetes node may be lost as well, and would never confirm.
        let now = DeleteParams::default().grace_period(0);
        if let Err(error) = delete(&api, &pod.name_any(), uid, now).await {
            tracing::debug!(pod = pod.name_any(), %error, "failed to delete a lost pod");
        }
    }
}

#[async_trait]
impl NodeProvider for PodNodes<'_> {
    async fn describe_end(&self, name: &str) -> Option<String> {
        let given = self.given.lock().get(name).cloned()?;
        let deadline = Instant::now() + KNOWN_WITHIN;
        loop {
            let pods = self.pods();
            let pod = pods.iter().find(|pod| pod.uid().as_ref() == Some(&given));
            match pod.map(|pod| state(pod)) {
                Some(PodState::Gone(trouble)) => return Some(trouble.message),
                None => return Some("its pod no longer exists".to_owned()),
                Some(_) if Instant::now() >= deadline => return None,
                Some(_) => sleep(PAUSE).await,
            }
        }
    }

    async fn replace(&self, name: &str, why: ReplaceReason) -> Result<NodeHandle, String> {
        if why == ReplaceReason::Renewed
            && let Some(handle) = self.renew_in_place(name).await
        {
            return Ok(handle);
        }
        let given = self.given.lock().get(name).cloned().unwrap_or_default();
        let limit = Duration::from(self.job.spec.timeouts.provision);
        let deadline = Instant::now() + limit;
        let mut deleted: Option<Instant> = None;
        loop {
            if let Some(handle) = self.find_ready(name, &given) {
                return handle;
            }
            // Repeatedly, because the API server may be unreachable.
            if deleted.is_none_or(|at| at.elapsed() >= DELETE_PAUSE) {
                self.delete(name, &given, why).await;
                deleted = Some(Instant::now());
                (self.job.wake)();
            }
            if Instant::now() >= deadline {
                let why = self.why_not_ready(name).map(|why| format!(": {why}"));
                let why = why.unwrap_or_default();
                return Err(format!(
                    "no other pod was ready within timeouts.provision, {limit:?}{why}"
                ));
            }
            sleep(PAUSE).await;
        }
    }
}
