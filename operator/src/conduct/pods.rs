//! The nodes of a run as pods.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use perfrun_conductor::{Contact, Nodes, client::BoxError};
use tokio::time::{Instant, sleep};

use super::{Job, Shared};
use crate::{
    access::Address,
    build::{LINK_PORT, control_port},
    decide::alive,
    observe::{self, NodePod, PodState},
};

/// Between two looks at the pods, which are watched anyway.
const PAUSE: Duration = Duration::from_millis(50);

/// After the API server was away, pods count as not ready until their Kubernetes nodes have reported again.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);

/// Between two attempts to delete a lost pod.
const DELETE_PAUSE: Duration = Duration::from_secs(2);

/// Gives the conductor the pods of its run. New ones are made by the reconciler, which sees that one is missing.
pub struct PodNodes<'a> {
    job: &'a Job,
    shared: Arc<Shared>,
    /// UIDs of the pods that the conductor was given, by node.
    given: Mutex<BTreeMap<String, String>>,
}

impl<'a> PodNodes<'a> {
    /// Of a run.
    pub fn new(job: &'a Job, shared: Arc<Shared>) -> Self {
        Self {
            job,
            shared,
            given: Mutex::default(),
        }
    }

    /// All nodes of the plan, which were ready before. The error says which is not there.
    pub async fn clients(&self) -> Result<BTreeMap<String, Contact>, String> {
        let deadline = Instant::now() + SETTLES_WITHIN;
        loop {
            match self.all() {
                Err(why) if Instant::now() < deadline => {
                    tracing::debug!(run = self.job.run.label(), why, "waiting");
                }
                all => return all,
            }
            sleep(PAUSE).await;
        }
    }

    fn all(&self) -> Result<BTreeMap<String, Contact>, String> {
        let nodes = &self.job.plan.nodes;
        nodes
            .iter()
            .map(|node| {
                let found = self.find(&node.name, "");
                let client = found.ok_or_else(|| format!("node {} is not ready any more", node.name))??;
                Ok((node.name.clone(), client))
            })
            .collect()
    }

    /// A ready pod for a node, another than the one with this UID.
    fn find(&self, name: &str, not: &str) -> Option<Result<Contact, String>> {
        let job = self.job;
        let pods = self.pods();
        let looks: Vec<NodePod> = pods.iter().filter_map(|pod| observe::look(pod)).collect();
        let pod = alive(&looks, name)?;
        let PodState::Ready(ip) = pod.state else {
            return None;
        };
        let uid = pods.iter().find(|other| other.name_any() == pod.name)?.uid()?;
        if uid == not {
            return None;
        }
        let index = job.plan.nodes.iter().position(|node| node.name == name)?;
        let address = Address {
            namespace: &job.run.namespace,
            name: &pod.name,
            ip,
        };
        self.given
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned(), uid);
        let contact = self.contact(&address, control_port(&job.spec, index));
        Some(contact.map_err(|error| format!("unable to reach pod {}: {error}", pod.name)))
    }

    fn contact(&self, pod: &Address<'_>, port: u16) -> Result<Contact, BoxError> {
        let Job {
            access, token, plan, ..
        } = self.job;
        let agent = (!plan.networks.is_empty()).then(|| access.agent(pod, LINK_PORT, token));
        Ok(Contact {
            node: access.node(pod, port, token)?,
            agent: agent.transpose()?,
        })
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        let run = &self.job.run;
        let mut pods = self.job.pods.state();
        pods.retain(|pod| observe::is_of(pod, &run.namespace, &run.name, &run.uid));
        pods
    }

    /// Deletes the pod with this UID, if it is still there, so that the reconciler makes another.
    async fn delete(&self, name: &str, uid: &str) {
        let Some(pod) = self
            .pods()
            .into_iter()
            .find(|pod| pod.uid().as_deref() == Some(uid))
        else {
            return;
        };
        if let Some(host) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
            self.shared.state().lost_on.insert(name.to_owned(), host);
        }
        let api: Api<Pod> = Api::namespaced(self.job.client.clone(), &self.job.run.namespace);
        // At once: its Kubernetes node may be gone, too, and would never confirm.
        let params = DeleteParams::default()
            .grace_period(0)
            .preconditions(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            });
        if let Err(error) = api.delete(&pod.name_any(), &params).await {
            tracing::debug!(pod = pod.name_any(), %error, "failed to delete a lost pod");
        }
    }
}

#[async_trait]
impl Nodes for PodNodes<'_> {
    async fn replace(&self, name: &str) -> Result<Contact, String> {
        let given = self
            .given
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned();
        let given = given.unwrap_or_default();
        let limit = Duration::from(self.job.spec.timeouts.provision);
        let deadline = Instant::now() + limit;
        let mut deleted: Option<Instant> = None;
        loop {
            if let Some(client) = self.find(name, &given) {
                return client;
            }
            // Again and again: the API server may be away.
            if deleted.is_none_or(|at| at.elapsed() >= DELETE_PAUSE) {
                self.delete(name, &given).await;
                deleted = Some(Instant::now());
                (self.job.wake)();
            }
            if Instant::now() >= deadline {
                let looks: Vec<_> = self.pods().iter().filter_map(|pod| observe::look(pod)).collect();
                let why = alive(&looks, name).and_then(|pod| match &pod.state {
                    PodState::Stuck(trouble) => Some(format!(": {}", trouble.message)),
                    _ => None,
                });
                let why = why.unwrap_or_default();
                return Err(format!(
                    "no other pod was ready within timeouts.provision, {limit:?}{why}"
                ));
            }
            sleep(PAUSE).await;
        }
    }
}
