//! The nodes of a run as pods.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::DeleteParams};
use parking_lot::Mutex;
use perfrun_api::pod::PodState;
use perfrun_conductor::{
    AgentClient, NodeClient, NodeHandle, NodeProvider, ReplaceReason,
    client::{AnswerBudget, BoxError, Epoch},
};
use tokio::time::{Instant, sleep};

use super::{Job, Shared};
use crate::{
    access::PodAddress,
    api::{objects::delete, watched::WatchedPod},
    build::{LINK_PORT, control_port},
    pods::{self, NodePod, live_pod, ready_pod},
};

/// Pause between two checks of the watched pods.
const PAUSE: Duration = Duration::from_millis(50);

/// How long pods may be unready at the start: after an outage of the API server, until their Kubernetes nodes
/// report.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a node may take to restart in its pod. The digest of a large program takes seconds.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the API server may take to know that a container has ended.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two attempts to delete a pod that another replaces.
const DELETE_PAUSE: Duration = Duration::from_secs(2);

/// Gives the conductor the pods of its run. The reconciler creates a new pod when one is missing.
pub(super) struct PodNodes<'a> {
    job: &'a Job,
    epoch: Epoch,
    answer_budget: AnswerBudget,
    shared: Arc<Shared>,
    /// The indices of nodes in the plan.
    indices: HashMap<&'a str, usize>,
    snapshot: Mutex<Option<Arc<PodsSnapshot>>>,
    /// UIDs of the pods that the conductor has been given, by node.
    given: Mutex<BTreeMap<String, String>>,
}

impl<'a> PodNodes<'a> {
    pub(super) fn new(job: &'a Job, epoch: Epoch, shared: Arc<Shared>) -> Self {
        let nodes = job.plan.nodes.iter().enumerate();
        Self {
            job,
            epoch,
            answer_budget: job.services.answer_budget.of_run(),
            shared,
            indices: nodes.map(|(index, node)| (node.name.as_str(), index)).collect(),
            snapshot: Mutex::default(),
            given: Mutex::default(),
        }
    }

    /// Waits until all nodes of the plan, which have been ready before, are ready. The error names one that
    /// is not.
    pub(super) async fn wait_for_handles(&self) -> Result<BTreeMap<String, NodeHandle>, String> {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
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
        let (nodes, snapshot) = (&self.job.plan.nodes, self.snapshot());
        // Each handle has a client of its own: none is made before all nodes are ready.
        if let Some(node) = nodes.iter().find(|node| snapshot.ready(&node.name).is_none()) {
            return Err(format!("node {} is no longer ready", node.name));
        }
        let handles = nodes.iter().filter_map(|node| {
            let handle = self.find_ready(&snapshot, &node.name, "")?;
            Some(handle.map(|handle| (node.name.clone(), handle)))
        });
        handles.collect()
    }

    /// A ready pod of a node, except the one with the UID `except`.
    fn find_ready(
        &self,
        snapshot: &PodsSnapshot,
        name: &str,
        except: &str,
    ) -> Option<Result<NodeHandle, String>> {
        let (pod, ip) = snapshot.ready(name).filter(|(pod, _)| pod.uid != except)?;
        let index = *self.indices.get(name)?;
        let address = PodAddress {
            namespace: &self.job.run.namespace,
            name: &pod.name,
            ip,
        };
        self.given.lock().insert(name.to_owned(), pod.uid.clone());
        let handle = self.handle(&address, control_port(&self.job.spec, index));
        Some(handle.map_err(|error| format!("unable to reach pod {}: {error}", pod.name)))
    }

    fn handle(&self, pod: &PodAddress<'_>, port: u16) -> Result<NodeHandle, BoxError> {
        let (access, token) = (&self.job.services.access, &self.job.token());
        let has_agents = !self.job.plan.networks.is_empty();
        let agent = has_agents.then(|| access.requester(pod, LINK_PORT, token));
        let handle = NodeHandle {
            node: NodeClient::over(access.requester(pod, port, token)?),
            agent: agent.transpose()?.map(AgentClient::over),
        };
        Ok(handle
            .with_epoch(&self.epoch)
            .with_answer_budget(&self.answer_budget))
    }

    /// Why a node has no ready pod, if the API server or the pod says so.
    fn why_not_ready(&self, name: &str) -> Option<String> {
        let snapshot = self.snapshot();
        match snapshot.live(name).map(|pod| &pod.state) {
            Some(PodState::Stuck(cause)) => Some(cause.message.clone()),
            Some(_) => None,
            None => self.shared.lock().refused.clone(),
        }
    }

    /// The pods of the run, as the watch showed them less than [`PAUSE`] ago. All nodes share a snapshot, so
    /// that those that wait do not each search all pods.
    fn snapshot(&self) -> Arc<PodsSnapshot> {
        let mut last = self.snapshot.lock();
        let recent = last.take().filter(|snapshot| snapshot.taken.elapsed() < PAUSE);
        let snapshot = recent.unwrap_or_else(|| Arc::new(PodsSnapshot::new(self.job)));
        last.insert(snapshot).clone()
    }

    /// The Kubernetes nodes of the pods that the conductor has been given, by node.
    pub(super) fn kubernetes_nodes(&self) -> BTreeMap<String, String> {
        let (snapshot, given) = (self.snapshot(), self.given.lock());
        let host = |uid: &String| snapshot.by_uid.get(uid)?.host.clone();
        given
            .iter()
            .filter_map(|(name, uid)| Some((name.clone(), host(uid)?)))
            .collect()
    }

    /// Starts the program of a node again in its pod. `None` if the node needs another pod.
    async fn renew_in_place(&self, name: &str) -> Option<NodeHandle> {
        let handle = self.find_ready(&self.snapshot(), name, "")?.ok()?;
        match handle.node.renew(RENEWAL_TIMEOUT).await {
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
        let snapshot = self.snapshot();
        let Some(pod) = snapshot.by_uid.get(uid) else {
            return;
        };
        if let Some(host) = pod.host.as_ref().filter(|_| why == ReplaceReason::Lost) {
            self.shared.lock().lost_on.insert(name.to_owned(), host.clone());
        }
        let (namespace, client) = (&self.job.run.namespace, &self.job.services.client);
        // Without a grace period: the Kubernetes node may be lost as well, and would never confirm.
        let now = DeleteParams::default().grace_period(0);
        if let Err(error) = delete::<Pod>(namespace, &pod.name_any(), uid, now, client).await {
            tracing::debug!(pod = pod.name_any(), %error, "failed to delete a pod that another replaces");
        }
    }
}

/// The pods of a run at some moment.
struct PodsSnapshot {
    taken: Instant,
    /// By the plan's names of nodes.
    by_node: BTreeMap<String, Vec<NodePod>>,
    by_uid: BTreeMap<String, Arc<WatchedPod>>,
}

impl PodsSnapshot {
    fn new(job: &Job) -> Self {
        let mut snapshot = Self {
            taken: Instant::now(),
            by_node: BTreeMap::new(),
            by_uid: BTreeMap::new(),
        };
        let mut pods = job.services.pods.state();
        pods.retain(|pod| pods::is_of(pod, &job.run));
        for pod in pods {
            if let Some(node_pod) = NodePod::from_pod(&pod) {
                let of_node = snapshot.by_node.entry(node_pod.node.clone());
                of_node.or_default().push(node_pod);
            }
            if let Some(uid) = pod.uid() {
                snapshot.by_uid.insert(uid, pod);
            }
        }
        snapshot
    }

    /// The latest pod of a node, unless it is gone.
    fn live(&self, node: &str) -> Option<&NodePod> {
        live_pod(self.by_node.get(node)?, node)
    }

    /// The latest pod of a node and its address, if the pod is ready.
    fn ready(&self, node: &str) -> Option<(&NodePod, IpAddr)> {
        ready_pod(self.by_node.get(node)?, node)
    }
}

#[async_trait]
impl NodeProvider for PodNodes<'_> {
    async fn describe_end(&self, name: &str) -> Option<String> {
        let given = self.given.lock().get(name).cloned()?;
        let deadline = Instant::now() + KNOWN_TIMEOUT;
        loop {
            let snapshot = self.snapshot();
            match snapshot.by_uid.get(&given).map(|pod| &pod.state) {
                Some(PodState::Gone(cause)) => return Some(cause.message.clone()),
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
            if let Some(handle) = self.find_ready(&self.snapshot(), name, &given) {
                return handle;
            }
            if let Some(why) = self.shared.lock().given_up.get(name) {
                return Err(why.clone());
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

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher::Event};
    use serde_json::json;

    use super::*;
    use crate::{conduct::tests::job, test_server::TestServer};

    /// A ready pod of a node.
    fn pod(node: &str) -> WatchedPod {
        let labels = json!({"perfrun.io/run": "run", "perfrun.io/node": node, "perfrun.io/incarnation": "0"});
        let owner =
            json!([{"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "name": "run", "uid": "uid-1"}]);
        let pod = json!({"metadata": {"name": node, "namespace": "bench", "uid": node, "labels": labels,
            "ownerReferences": owner},
            "spec": {"nodeName": "worker", "containers": []},
            "status": {"phase": "Running", "podIP": "127.0.0.1",
                "conditions": [{"type": "Ready", "status": "True"}]}});
        serde_json::from_value(pod).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn all_nodes_share_one_snapshot_of_the_pods_in_each_pause() {
        let mut job = job(&TestServer::new());
        let (pods, mut watched) = reflector::store();
        Arc::make_mut(&mut job.services).pods = pods;
        let (last, others) = job.plan.nodes.split_last().unwrap();
        for node in others {
            watched.apply_watcher_event(&Event::Apply(pod(&node.name)));
        }
        let nodes = PodNodes::new(&job, Epoch::new(1), Arc::default());
        let snapshot = nodes.snapshot();
        let why = nodes.ready_handles().err().unwrap();
        assert_eq!(why, format!("node {} is no longer ready", last.name));
        assert!(
            nodes.given.lock().is_empty(),
            "no handle is made before all are ready"
        );
        assert!(
            Arc::ptr_eq(&snapshot, &nodes.snapshot()),
            "the pods were looked through again"
        );

        watched.apply_watcher_event(&Event::Apply(pod(&last.name)));
        sleep(PAUSE).await;
        let handles = nodes.ready_handles().unwrap();
        assert_eq!(handles.len(), nodes.indices.len());
        let hosts = nodes.kubernetes_nodes();
        assert!(
            hosts.len() > 1 && hosts.values().all(|host| host == "worker"),
            "{hosts:?}"
        );
    }
}
