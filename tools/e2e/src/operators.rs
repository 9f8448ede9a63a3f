//! The operators of the cluster: which one leads, and killing it.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, LogParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::process::Command;

use crate::{Cluster, program, seconds, until};

/// The namespace of operators.
pub const NAMESPACE: &str = "perfrun-system";
/// The operator's program, Deployment, Lease and service account.
pub const NAME: &str = "perfrun-operator";
const SELECTOR: &str = "app.kubernetes.io/name=perfrun-operator";

/// The operators of a cluster.
pub struct Operators {
    pods: Api<Pod>,
    leases: Api<Lease>,
    deployments: Api<Deployment>,
}

impl Operators {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self {
            pods: Api::namespaced(cluster.client.clone(), NAMESPACE),
            leases: Api::namespaced(cluster.client.clone(), NAMESPACE),
            deployments: Api::namespaced(cluster.client.clone(), NAMESPACE),
        }
    }

    /// Waits until all that are asked for are ready, and one of them leads.
    pub async fn await_ready(&self) -> Result<()> {
        until(
            "all operators are ready and one leads",
            seconds(120),
            async || {
                let deployment = self.deployment().await?;
                let wanted = deployment.spec.replicas.unwrap_or(1);
                let status = deployment.status.unwrap_or_default();
                let ready = status.ready_replicas.unwrap_or(0);
                ensure!(
                    ready == wanted && status.replicas.unwrap_or(0) == wanted,
                    "{ready} of {wanted} operators are ready; is the chart installed?"
                );
                if wanted > 0 {
                    self.leader().await?;
                }
                Ok(Some(()))
            },
        )
        .await
    }

    /// The Deployment.
    pub async fn deployment(&self) -> Result<Deployment> {
        let found = self.deployments.get(NAME).await;
        found.with_context(|| format!("failed to get deployment {NAME} in {NAMESPACE}"))
    }

    /// The pod that leads.
    pub async fn leader(&self) -> Result<Pod> {
        let holder = self.holder().await?;
        let pods = self.list().await?;
        let leader = pods
            .into_iter()
            .find(|pod| holder.starts_with(&pod.name_any()) && pod.metadata.deletion_timestamp.is_none());
        leader.with_context(|| format!("the lease is held by {holder:?}, which is no pod of the operator"))
    }

    /// Who holds the Lease: a process, and not only a pod.
    pub async fn holder(&self) -> Result<String> {
        let lease = self.leases.get(NAME).await.context("failed to get the lease")?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        holder
            .filter(|holder| !holder.is_empty())
            .context("nobody holds the lease")
    }

    /// Waits until another than `before` leads.
    pub async fn await_another_than(&self, before: &str) -> Result<()> {
        until("another operator leads", seconds(60), async || {
            Ok((self.holder().await? != before).then_some(()))
        })
        .await
    }

    /// Deletes the leader's pod without any time to end in an orderly way.
    pub async fn delete_leader(&self) -> Result<()> {
        let leader = self.leader().await?;
        let at_once = DeleteParams::default().grace_period(0);
        self.pods
            .delete(&leader.name_any(), &at_once)
            .await
            .context("failed to delete the leader's pod")?;
        Ok(())
    }

    /// Kills the leader's process with SIGKILL, if the leader is on this computer; whether it was.
    pub async fn kill_leader(&self) -> Result<bool> {
        let leader = self.leader().await?;
        kill(&leader, NAME).await
    }

    /// Changes how many operators there are, and waits until it is so.
    pub async fn scale(&self, replicas: i32) -> Result<()> {
        let patch = json!({ "spec": { "replicas": replicas } });
        self.deployments
            .patch(NAME, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context("failed to scale the operator")?;
        until("the operator is scaled", seconds(60), async || {
            let pods = self.list().await?;
            Ok((i32::try_from(pods.len()) == Ok(replicas)).then_some(()))
        })
        .await?;
        self.await_ready().await
    }

    /// States and logs of all operators.
    pub(crate) async fn explain(&self) -> String {
        let holder = self
            .holder()
            .await
            .unwrap_or_else(|error| format!("unknown, {error:#}"));
        let mut text = format!("leader: {holder}\n");
        for pod in self.list().await.unwrap_or_default() {
            let name = pod.name_any();
            let containers = pod.status.and_then(|status| status.container_statuses);
            let states = containers.into_iter().flatten().map(|container| container.state);
            text += &format!("\n{name}: {}\n", json!(states.collect::<Vec<_>>()));
            for previous in [true, false] {
                let params = LogParams {
                    tail_lines: Some(60),
                    previous,
                    ..LogParams::default()
                };
                if let Ok(log) = self.pods.logs(&name, &params).await {
                    text += &log;
                }
            }
        }
        text
    }

    async fn list(&self) -> Result<Vec<Pod>> {
        let pods = self.pods.list(&ListParams::default().labels(SELECTOR)).await;
        Ok(pods.context("failed to list operators")?.items)
    }
}

/// Kills the process that impairs a pod's links with SIGKILL, if it is on this computer and ours to kill; whether it was.
pub async fn kill_link_agent(pod: &Pod) -> Result<bool> {
    kill_those(&processes_that(pod, "perfrun-node", |arguments| {
        arguments.contains(&"link-agent")
    })?)
    .await
}

/// Kills a pod's processes of a program with SIGKILL, if they are on this computer and ours to kill; whether they were.
pub async fn kill(pod: &Pod, program: &str) -> Result<bool> {
    kill_those(&processes(pod, program)?).await
}

async fn kill_those(processes: &[String]) -> Result<bool> {
    if processes.is_empty() {
        return Ok(false);
    }
    program::said(Command::new("kill").arg("-KILL").args(processes)).await?;
    Ok(true)
}

/// A pod's processes of a program, by number, if they are on this computer.
pub fn processes(pod: &Pod, program: &str) -> Result<Vec<String>> {
    processes_that(pod, program, |_| true)
}

/// A process' number among those that it can see itself.
pub fn number_inside(process: &str) -> Result<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let innermost = numbers.and_then(|all| all.split_whitespace().last());
    Ok(innermost.context("a process has a number")?.parse()?)
}

/// Those of them that have certain arguments.
fn processes_that(pod: &Pod, program: &str, have: impl Fn(&[&str]) -> bool) -> Result<Vec<String>> {
    let uid = pod.uid().context("a pod has a UID")?;
    let processes = fs::read_dir("/proc").context("failed to list processes")?;
    Ok(processes
        .flatten()
        .filter(|entry| is_of(&entry.path(), &uid, program, &have))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect())
}

/// Whether a process is of a pod: the kubelet names control groups by the pod's UID, with `-` or with `_`.
fn is_of(process: &Path, uid: &str, program: &str, has: impl Fn(&[&str]) -> bool) -> bool {
    let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let command = fs::read(process.join("cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command);
    let words: Vec<&str> = command.split('\0').collect();
    (groups.contains(uid) || groups.contains(&uid.replace('-', "_")))
        && Path::new(words[0]).ends_with(program)
        && has(&words[1..])
}
