//! A node in a pod. Calls reach it as those of `kubectl port-forward` do: through a port of this machine, and
//! a connection of its own for each of that port's. Nothing reads or changes the bytes, so that wrong calls
//! arrive as they were sent.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, anyhow};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::LogParams,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use perfrun_api::pod::{PodState, state};
use perfrun_conformance::nodes::RunningNode;
use tokio::{
    io::{DuplexStream, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

use super::{
    Suite,
    pod::{exited_before_the_kill, obstacle},
};
use crate::cluster::{
    access::{Cluster, open, post_params},
    error::Call,
};

/// Forwarded connections that are opened at the same time.
const OPENING_MAX: usize = 32;

/// How long a deleted pod may take until it is gone, beside its grace.
const GONE_TIMEOUT: Duration = Duration::from_secs(30);

/// Lines of a log in a message.
const LOG_LINES: i64 = 20;

/// A node in a pod.
pub(super) struct PodNode {
    cluster: Cluster,
    name: String,
    token: String,
    control: SocketAddr,
    seen_pod: watch::Receiver<SeenPod>,
    /// Tasks that watch the pod and forward connections, until the node is dropped.
    tasks: JoinSet<()>,
}

/// A pod as it was seen last.
struct SeenPod {
    pod: Pod,
    is_deleted: bool,
}

impl PodNode {
    /// Creates a pod, and waits until its node is ready and can be called.
    pub(super) async fn start(
        suite: &Suite,
        pod: &Pod,
        token: &str,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let cluster = &suite.cluster;
        let (name, pods) = (pod.name_any(), cluster.pods());
        let creation = Call::of("create", "pods", &name);
        let created = cluster.call(&creation, pods.create(&post_params(), pod)).await?;
        let (sender, seen_pod) = watch::channel(SeenPod {
            pod: created,
            is_deleted: false,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(watch_pod(pods.clone(), name.clone(), sender));
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.context("failed to listen on 127.0.0.1 for a forwarded port")?;
        let mut node = Self {
            cluster: cluster.clone(),
            name,
            token: token.to_owned(),
            control: listener.local_addr().context("the listener has no address")?,
            seen_pod,
            tasks,
        };
        node.until_ready(suite, limit).await?;
        // Where forwarding is not allowed, calls would only find connections that end immediately.
        let call = Call::of("create", "pods/portforward", &node.name);
        drop(cluster.call(&call, open(&pods, &node.name)).await?);
        node.tasks.spawn(forward(listener, pods, node.name.clone()));
        Ok(node)
    }

    async fn until_ready(&self, suite: &Suite, limit: Duration) -> anyhow::Result<()> {
        let mut seen_pod = self.seen_pod.clone();
        let mut announced = None;
        let ready = async {
            loop {
                match state(&seen_pod.borrow_and_update().pod) {
                    PodState::Ready(_) => return Ok(()),
                    PodState::Gone(cause) => return Err(anyhow!(cause.message)),
                    PodState::Stuck(cause) if announced != Some(cause.reason) => {
                        announced = Some(cause.reason);
                        suite.print_line(&cause.message);
                    }
                    PodState::Stuck(_) | PodState::Starting => {}
                }
                seen_pod
                    .changed()
                    .await
                    .context("the watch of the pod has ended")?;
            }
        };
        if let Ok(ready) = timeout(limit, ready).await {
            return ready;
        }
        let problem = obstacle(&self.seen_pod.borrow().pod);
        let log = self.log_tail().await;
        let log = if log.is_empty() {
            log
        } else {
            format!("; the end of its log:\n{log}")
        };
        Err(anyhow!(
            "{problem} (not ready within --provision-timeout, {limit:?}){log}"
        ))
    }

    /// Deletes the pod, and waits until it is gone.
    async fn end(&self, grace: Duration) {
        let seconds = u32::try_from(grace.as_secs()).unwrap_or(u32::MAX);
        if let Err(error) = self.cluster.delete_pod(&self.name, seconds).await {
            tracing::warn!(%error, "a pod is left until the end of the suite");
            return;
        }
        let mut seen_pod = self.seen_pod.clone();
        let gone = seen_pod.wait_for(|seen_pod| seen_pod.is_deleted);
        if timeout(grace + GONE_TIMEOUT, gone).await.is_err() {
            tracing::warn!(pod = self.name, "a deleted pod does not go");
        }
    }
}

#[async_trait]
impl RunningNode for PodNode {
    fn control_addr(&self) -> SocketAddr {
        self.control
    }

    fn token(&self) -> &str {
        &self.token
    }

    fn ended(&self) -> Option<String> {
        let seen_pod = self.seen_pod.borrow();
        match state(&seen_pod.pod) {
            PodState::Gone(cause) => Some(cause.message),
            _ if seen_pod.is_deleted => Some(format!("pod {} was deleted", self.name)),
            _ => None,
        }
    }

    async fn log_tail(&self) -> String {
        let params = LogParams {
            tail_lines: Some(LOG_LINES),
            ..LogParams::default()
        };
        let call = Call::of("get", "pods/log", &self.name);
        let pods = self.cluster.pods();
        let log = self.cluster.call(&call, pods.logs(&self.name, &params)).await;
        log.unwrap_or_default()
    }

    fn open_files(&self) -> Option<usize> {
        None
    }

    /// Ends the node by SIGKILL. Nobody but the kubelet can send a signal, and it sends SIGTERM first:
    /// SIGKILL follows two seconds later.
    async fn kill(&self) {
        self.end(Duration::from_secs(1)).await;
    }

    async fn stop(&self, grace: Duration) -> bool {
        self.end(grace).await;
        exited_before_the_kill(&self.seen_pod.borrow().pod)
    }
}

/// Follows a pod to its end, and beyond outages of the API server.
async fn watch_pod(pods: Api<Pod>, name: String, seen_pod: watch::Sender<SeenPod>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(pods, config).default_backoff().boxed();
    let mut is_listed = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                is_listed = true;
                seen_pod.send_modify(|seen_pod| seen_pod.pod = pod);
            }
            Ok(Event::Delete(pod)) => {
                let is_deleted = true;
                seen_pod.send_replace(SeenPod { pod, is_deleted });
            }
            Ok(Event::Init) => is_listed = false,
            Ok(Event::InitDone) if !is_listed => seen_pod.send_modify(|seen_pod| seen_pod.is_deleted = true),
            Ok(Event::InitDone) => {}
            Err(error) => tracing::debug!(%error, "the watch of a pod ended"),
        }
    }
}

/// Forwards every connection to a pod's control port.
async fn forward(listener: TcpListener, pods: Api<Pod>, name: String) {
    let mut connections = JoinSet::new();
    let accepted = stream::unfold(listener, |listener| async {
        let (here, _) = listener.accept().await.ok()?;
        Some((here, listener))
    });
    // In the order in which they were accepted: a call that follows 200 idle connections comes after them.
    let mut opened = accepted
        .map(async |here| (here, open(&pods, &name).await))
        .buffered(OPENING_MAX)
        .boxed();
    loop {
        tokio::select! {
            Some((here, there)) = opened.next() => match there {
                Ok(there) => drop(connections.spawn(join(here, there))),
                Err(error) => tracing::debug!(%error, "a connection was not forwarded"),
            },
            Some(_) = connections.join_next() => {}
            else => return,
        }
    }
}

async fn join(mut here: TcpStream, mut there: DuplexStream) {
    // A connection that breaks is what some checks are about.
    let _ = copy_bidirectional(&mut here, &mut there).await;
}
