//! The operators of the cluster: finding, killing and scaling them.

use std::{
    fs::{self, File},
    os::fd::AsRawFd,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    authentication::v1::{TokenRequest, TokenRequestSpec},
    coordination::v1::Lease,
    core::v1::{Pod, ServiceAccount},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::process::Command;

use crate::{Cluster, program, seconds, until};

/// The namespace of operators.
pub const NAMESPACE: &str = "perfrun-system";
/// The operator's program, Deployment, Lease and service account.
pub const NAME: &str = "perfrun-operator";
/// The program of nodes and of link agents.
pub const NODE_PROGRAM: &str = "perfrun-node";
const METRICS_PORT: u16 = 8080;
const SELECTOR: &str = "app.kubernetes.io/name=perfrun-operator";
/// Exit codes of a panic and of an abort.
const FAULTS: [i32; 2] = [101, 134];

/// The operators of a cluster.
pub struct Operators {
    cluster: Cluster,
    pods: Api<Pod>,
    leases: Api<Lease>,
    deployments: Api<Deployment>,
}

impl Operators {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self {
            cluster: cluster.clone(),
            pods: Api::namespaced(cluster.client.clone(), NAMESPACE),
            leases: Api::namespaced(cluster.client.clone(), NAMESPACE),
            deployments: Api::namespaced(cluster.client.clone(), NAMESPACE),
        }
    }

    /// Waits until all operators are ready and one of them leads.
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

    /// Accesses the cluster as operators do, with a token of their service account.
    pub async fn client(&self) -> Result<Client> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec::default()),
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(NAME, &PostParams::default(), &request)
            .await
            .with_context(|| format!("failed to request a token of {NAME} in {NAMESPACE}"))?;
        let token = answer.status.and_then(|status| status.token);
        self.cluster
            .with_token(token.context("the answer has no token")?)
            .await
    }

    pub async fn deployment(&self) -> Result<Deployment> {
        let deployment = self.deployments.get(NAME).await;
        deployment.with_context(|| format!("failed to get deployment {NAME} in {NAMESPACE}"))
    }

    /// The pod of the leader.
    pub async fn leader(&self) -> Result<Pod> {
        let holder = self.holder().await?;
        let pods = self.list().await?;
        let leader = pods
            .into_iter()
            .find(|pod| holder.starts_with(&pod.name_any()) && pod.metadata.deletion_timestamp.is_none());
        leader.with_context(|| format!("the lease is held by {holder:?}, which is not a pod of the operator"))
    }

    /// The holder of the Lease, which names a process, not only a pod.
    pub async fn holder(&self) -> Result<String> {
        let lease = self.leases.get(NAME).await.context("failed to get the lease")?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        holder
            .filter(|holder| !holder.is_empty())
            .context("nobody holds the lease")
    }

    /// Waits until the leader is not `before` any more.
    pub async fn await_another_than(&self, before: &str) -> Result<()> {
        until("another operator leads", seconds(60), async || {
            Ok((self.holder().await? != before).then_some(()))
        })
        .await
    }

    /// Deletes the leader's pod without a grace period.
    pub async fn delete_leader(&self) -> Result<()> {
        let leader = self.leader().await?;
        let immediately = DeleteParams::default().grace_period(0);
        self.pods
            .delete(&leader.name_any(), &immediately)
            .await
            .context("failed to delete the leader's pod")?;
        Ok(())
    }

    /// Deletes the Lease, so that another operator may lead immediately.
    pub async fn delete_lease(&self) -> Result<()> {
        let deleted = self.leases.delete(NAME, &DeleteParams::default()).await;
        deleted.context("failed to delete the lease")?;
        Ok(())
    }

    /// Kills the leader's process with SIGKILL. Returns false if the process is not on this computer.
    pub async fn kill_leader(&self) -> Result<bool> {
        let leader = self.leader().await?;
        kill(&leader, NAME).await
    }

    /// The process of the leader. `None` if it is not on this computer.
    pub async fn leader_process(&self) -> Result<Option<String>> {
        Ok(processes(&self.leader().await?, NAME)?.pop())
    }

    /// Scales the Deployment, and waits until all operators are ready.
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

    /// Scales the Deployment to nothing, does some work, and scales it back, even if the work failed.
    pub async fn without_any<T>(&self, work: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
        let replicas = self.deployment().await?.spec.replicas.unwrap_or(1);
        let done = async {
            self.scale(0).await?;
            work().await
        }
        .await;
        let restored = self.scale(replicas).await;
        let done = done?;
        restored?;
        Ok(done)
    }

    /// A metric without labels, as the leader exports it.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let pod = self.leader().await?.name_any();
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{METRICS_PORT}/proxy/metrics");
        let page = program::output(self.cluster.kubectl().args(["get", "--raw", &path])).await?;
        let mut lines = page.lines();
        // The library writes braces even without labels.
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix("{} "));
        let value = value.with_context(|| format!("the leader does not export {name}"))?;
        Ok(value.parse()?)
    }

    /// What the leader has logged.
    pub async fn log(&self) -> Result<String> {
        let pod = self.leader().await?.name_any();
        let log = self.pods.logs(&pod, &LogParams::default()).await;
        log.with_context(|| format!("failed to get the log of {pod}"))
    }

    /// The most memory that the process of an operator has had, in MiB. Processes that are not on this
    /// computer do not count.
    pub async fn most_memory(&self) -> Result<u64> {
        let mut most = 0;
        for pod in self.list().await? {
            for process in processes(&pod, NAME)? {
                most = most.max(peak_mebibytes(&process)?);
            }
        }
        Ok(most)
    }

    /// Fails if the last process of an operator ended because it lacked memory, or by a panic.
    pub async fn check_ends(&self) -> Result<()> {
        for pod in self.list().await? {
            let name = pod.name_any();
            let containers = pod.status.and_then(|status| status.container_statuses);
            let states = containers
                .into_iter()
                .flatten()
                .filter_map(|container| container.last_state);
            for ended in states.filter_map(|state| state.terminated) {
                ensure!(
                    ended.reason.as_deref() != Some("OOMKilled") && !FAULTS.contains(&ended.exit_code),
                    "operator {name} ended: {}",
                    json!(ended)
                );
            }
        }
        Ok(())
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

/// Kills the link agent of a pod with SIGKILL. Returns false if it is not on this computer.
pub async fn kill_link_agent(pod: &Pod) -> Result<bool> {
    kill_all(&processes_with(pod, NODE_PROGRAM, |arguments| {
        arguments.contains(&"link-agent")
    })?)
    .await
}

/// Kills a pod's processes of a program with SIGKILL. Returns false if none is on this computer.
pub async fn kill(pod: &Pod, program: &str) -> Result<bool> {
    kill_all(&processes(pod, program)?).await
}

async fn kill_all(processes: &[String]) -> Result<bool> {
    if processes.is_empty() {
        return Ok(false);
    }
    program::output(Command::new("kill").arg("-KILL").args(processes)).await?;
    Ok(true)
}

/// Stops a process, does some work, and lets the process continue, even if the work failed.
pub async fn without<T>(process: &str, work: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
    program::output(Command::new("kill").args(["-STOP", process])).await?;
    let done = work().await;
    let continued = program::output(Command::new("kill").args(["-CONT", process])).await;
    // It may have been killed in the meantime.
    if Path::new("/proc").join(process).exists() {
        continued?;
    }
    done
}

/// Cuts the pod of a process off from the API server, does some work, and connects it again, even if the work
/// failed.
pub async fn cut_off<T>(process: &str, work: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
    let environment = fs::read(format!("/proc/{process}/environ"))?;
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let mut variables = environment.split('\0');
    let server = variables.find_map(|variable| variable.strip_prefix("KUBERNETES_SERVICE_HOST="));
    let server = server.context("the process runs in a pod")?;
    with_in_network(process, "route", &["blackhole", server], work).await
}

/// Keeps all packets of IPv4 in the pod of a process while some work is done. Then connects the pod again,
/// even if the work failed.
pub async fn isolate<T>(process: &str, work: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
    // The rule comes before those of all routing tables but the local one.
    with_in_network(process, "rule", &["priority", "1", "blackhole"], work).await
}

/// Adds an object of `ip` to the network of a process, does some work, and deletes the object, even if the
/// work failed.
async fn with_in_network<T>(
    process: &str,
    object: &str,
    what: &[&str],
    work: impl AsyncFnOnce() -> Result<T>,
) -> Result<T> {
    // The network lasts while this file is open, and the process may end before.
    let network = File::open(format!("/proc/{process}/ns/net"))
        .with_context(|| format!("failed to open the network of process {process}"))?;
    let inside = format!("--net=/proc/{}/fd/{}", std::process::id(), network.as_raw_fd());
    let ip = async |verb: &str| {
        let mut ip = Command::new("nsenter");
        ip.args([inside.as_str(), "ip", object, verb]).args(what);
        program::output(&mut ip).await
    };
    ip("add").await?;
    let done = work().await;
    let ended = ip("delete").await;
    let done = done?;
    ended?;
    Ok(done)
}

/// The process ids of a program in a pod; empty if the pod is not on this computer.
pub fn processes(pod: &Pod, program: &str) -> Result<Vec<String>> {
    processes_with(pod, program, |_| true)
}

fn peak_mebibytes(process: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = peak.and_then(|peak| peak.split_whitespace().next());
    Ok(kibibytes
        .context("a process has memory")?
        .parse::<u64>()?
        .div_ceil(1024))
}

/// The id of a process in its own PID namespace.
pub fn number_inside(process: &str) -> Result<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let innermost = numbers.and_then(|all| all.split_whitespace().last());
    Ok(innermost.context("a process has a number")?.parse()?)
}

/// The process ids of a program in a pod whose arguments match.
fn processes_with(pod: &Pod, program: &str, have: impl Fn(&[&str]) -> bool) -> Result<Vec<String>> {
    let uid = pod.uid().context("a pod has a UID")?;
    let processes = fs::read_dir("/proc").context("failed to list processes")?;
    Ok(processes
        .flatten()
        .filter(|entry| belongs_to(&entry.path(), &uid, program, &have))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect())
}

/// Whether a process belongs to a pod. The kubelet names control groups by the pod's UID, with `-` or with
/// `_`.
fn belongs_to(process: &Path, uid: &str, program: &str, has: impl Fn(&[&str]) -> bool) -> bool {
    let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let command = fs::read(process.join("cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command);
    let words: Vec<&str> = command.split('\0').collect();
    (groups.contains(uid) || groups.contains(&uid.replace('-', "_")))
        && Path::new(words[0]).ends_with(program)
        && has(&words[1..])
}
