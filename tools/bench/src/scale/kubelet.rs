//! What a thousand kubelets do: a pod that the scheduler has bound gets an address of the loopback network
//! and a real node that listens there, and is ready. A pod that is deleted is gone.

use std::{
    collections::BTreeMap,
    env, fs,
    net::Ipv4Addr,
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Error, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::watcher::{self, Event, watcher},
};
use perfrun_api::{
    cluster::{ROLE_LABEL, RUN_LABEL},
    pod::{CONTROL_PORT, NODE_CONTAINER, TOKEN_KEY},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{net::TcpStream, process::Command, task::JoinHandle, time::sleep};
use tokio_util::task::AbortOnDropHandle;

use super::{AT_ONCE, run_times::RunTimes};

/// Pause between two probes of a node that starts.
const PROBE_PAUSE: Duration = Duration::from_millis(5);

/// Creates Kubernetes nodes that are ready.
pub(super) async fn create_nodes(nodes: &Api<Node>, count: usize) -> Result<()> {
    let create = async |number: usize| {
        let name = format!("fake-{number:04}");
        let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
        let node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "allocatable": resources,
                "capacity": resources,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }))?;
        nodes.create(&PostParams::default(), &node).await?;
        // The API server gives new Kubernetes nodes the taint `not-ready`, which a controller removes.
        let ready = Patch::Merge(json!({"spec": {"taints": null}}));
        nodes.patch(&name, &PatchParams::default(), &ready).await?;
        anyhow::Ok(())
    };
    stream::iter(0..count)
        .map(create)
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |()| Ok(()))
        .await
        .context("failed to create Kubernetes nodes")
}

/// All kubelets.
pub(super) struct Kubelet {
    task: JoinHandle<()>,
}

impl Kubelet {
    pub(super) fn start(pods: Api<Pod>, secrets: Api<Secret>, run_times: RunTimes) -> Result<Self> {
        let tokens = tempfile::tempdir().context("failed to create a folder for tokens")?;
        let world = Arc::new(World {
            pods: pods.clone(),
            secrets,
            tokens,
            run_times,
        });
        let task = tokio::spawn(async move {
            // The tasks of pods, by UID.
            let mut running: BTreeMap<String, AbortOnDropHandle<()>> = BTreeMap::new();
            let mut started = 0_u16;
            let mut events = watcher(pods, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                let pod = match event {
                    Ok(Event::Apply(pod) | Event::InitApply(pod)) => pod,
                    Ok(_) => continue,
                    Err(error) => {
                        world.run_times.fail(&error.into());
                        continue;
                    }
                };
                let uid = pod.uid().unwrap_or_default();
                let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
                if pod.metadata.deletion_timestamp.is_some() {
                    running.remove(&uid);
                    tokio::spawn(world.clone().remove(pod));
                } else if is_bound && !running.contains_key(&uid) {
                    let [high, low] = started.to_be_bytes();
                    started += 1;
                    let run = world.clone().run(pod, Ipv4Addr::new(127, 1, high, low));
                    running.insert(uid, AbortOnDropHandle::new(tokio::spawn(run)));
                }
            }
        });
        Ok(Self { task })
    }

    pub(super) fn stop(self) {
        self.task.abort();
    }
}

/// What the kubelets know.
struct World {
    pods: Api<Pod>,
    secrets: Api<Secret>,
    /// The folder for tokens.
    tokens: TempDir,
    run_times: RunTimes,
}

impl World {
    async fn remove(self: Arc<Self>, pod: Pod) {
        let gone = DeleteParams::default().grace_period(0);
        match self.pods.delete(&pod.name_any(), &gone).await {
            Err(kube::Error::Api(answer)) if answer.is_not_found() => {}
            Err(error) => self
                .run_times
                .fail(&Error::new(error).context("failed to remove a pod")),
            Ok(_) => {}
        }
    }

    /// Runs the node of a pod until this future is dropped.
    async fn run(self: Arc<Self>, pod: Pod, ip: Ipv4Addr) {
        if let Err(error) = self.try_run(&pod, ip).await {
            self.run_times.fail(&error.context("failed to run a node"));
        }
    }

    async fn try_run(&self, pod: &Pod, ip: Ipv4Addr) -> Result<()> {
        let token = self.token(pod).await?;
        let mut node = Command::new(env::current_exe()?.with_file_name("perfrun-node"))
            .arg("control")
            .arg(format!("--control={ip}:{CONTROL_PORT}"))
            .arg(format!("--listen-ip={ip}"))
            .arg(format!("--role={}", pod.labels()[ROLE_LABEL]))
            .arg("--token-file")
            .arg(token)
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        while TcpStream::connect((ip, CONTROL_PORT)).await.is_err() {
            ensure!(node.try_wait()?.is_none(), "the node has ended");
            sleep(PROBE_PAUSE).await;
        }
        self.run_times
            .note_ready(&pod.labels()[RUN_LABEL], Instant::now());
        let status = Patch::Strategic(status(pod, ip));
        self.pods
            .patch_status(&pod.name_any(), &PatchParams::default(), &status)
            .await?;
        bail!("the node ended with {}", node.wait().await?)
    }

    /// The file with the token of a pod's Secret.
    async fn token(&self, pod: &Pod) -> Result<PathBuf> {
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
        let secret = volumes
            .unwrap_or_default()
            .iter()
            .find_map(|volume| volume.secret.as_ref());
        let secret = secret.and_then(|secret| secret.secret_name.as_deref());
        let secret = self
            .secrets
            .get(secret.context("a pod of a node has a token")?)
            .await?;
        let token = secret.data.and_then(|mut data| data.remove(TOKEN_KEY));
        let file = self.tokens.path().join(pod.name_any());
        fs::write(&file, token.context("the Secret has a token")?.0)?;
        Ok(file)
    }
}

fn status(pod: &Pod, ip: Ipv4Addr) -> serde_json::Value {
    let now = Timestamp::now();
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let image = containers
        .map(|container| container.image.as_deref())
        .next()
        .flatten();
    json!({ "status": {
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": now,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
        "containerStatuses": [{
            "name": NODE_CONTAINER,
            "image": image,
            "imageID": "",
            "ready": true,
            "started": true,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }],
    }})
}
