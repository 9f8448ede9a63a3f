//! `perfrun conformance --image`.

mod node;
mod pod;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, ListParams},
};
use perfrun_api::{cluster::RUN_LABEL, exit_status::INTERRUPTED};
use perfrun_conformance::nodes::{NodeStarter, Participant, RunningNode};
use tokio::time::{Instant, sleep};

use self::node::PodNode;
use super::{
    access::{Cluster, post_params},
    error::Call,
};
use crate::{args, output::write_line_to_stderr, signals::cancel_on_signal};

/// How long deleted pods may take until they are gone.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause between two looks at deleted pods.
const PAUSE: Duration = Duration::from_millis(200);

/// Prepares pods for the node of an image, and removes them once `check` has ended. Returns the exit status.
pub async fn conformance(
    args: &args::Conformance,
    check: impl AsyncFnOnce(Arc<dyn NodeStarter>) -> anyhow::Result<u8>,
) -> anyhow::Result<u8> {
    let stop = cancel_on_signal();
    let suite = Suite {
        cluster: Cluster::find(&args.target).await?,
        name: format!("conformance-{:08x}", rand::random::<u32>()),
    };
    let pods = Pods::prepare(&suite, args).await?;
    let status = tokio::select! {
        biased;
        () = stop.cancelled() => Ok(INTERRUPTED),
        status = check(Arc::new(pods)) => status,
    };
    if let Err(error) = suite.remove().await {
        suite.print_line(&format!(
            "failed to delete everything: {error:#}; what is left has the label {RUN_LABEL}={} in namespace {}",
            suite.name,
            suite.cluster.namespace()
        ));
    }
    status
}

/// What the objects of one command have in common.
#[derive(Clone)]
struct Suite {
    cluster: Cluster,
    /// Unique: the name of the Secret, and a label of all objects.
    name: String,
}

impl Suite {
    fn print_line(&self, text: &str) {
        write_line_to_stderr(format_args!("{}: {text}", self.name));
    }

    /// Deletes the Secret and all pods, and waits until the pods are gone. The Secret owns the pods, so that
    /// Kubernetes deletes one that was created too late to be seen here.
    async fn remove(&self) -> anyhow::Result<()> {
        let call = Call::of("delete", "secrets", &self.name);
        let secrets = self.cluster.secrets();
        let params = DeleteParams::default();
        let deleted = self.cluster.call(&call, secrets.delete(&self.name, &params));
        match deleted.await {
            Err(error) if !error.is_missing() => return Err(error.into()),
            _ => {}
        }
        let call = Call::all("list", "pods");
        let of_suite = ListParams::default().labels(&format!("{RUN_LABEL}={}", self.name));
        let until = Instant::now() + REMOVAL_TIMEOUT;
        loop {
            let pods = self.cluster.pods();
            let left = self.cluster.call(&call, pods.list(&of_suite)).await?.items;
            if left.is_empty() {
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "{} pods are still there after {REMOVAL_TIMEOUT:?}",
                left.len()
            );
            for pod in &left {
                if pod.metadata.deletion_timestamp.is_none() {
                    self.cluster.delete_pod(&pod.name_any(), 1).await?;
                }
            }
            sleep(PAUSE).await;
        }
    }
}

/// Starts nodes as pods.
struct Pods {
    suite: Suite,
    /// The node under test, and perfrun's own.
    images: [String; 2],
    limit: Duration,
    token: String,
    /// The Secret with the token.
    owner: OwnerReference,
    started: AtomicU32,
}

impl Pods {
    /// Creates the Secret.
    async fn prepare(suite: &Suite, args: &args::Conformance) -> anyhow::Result<Self> {
        let token = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
        let secret = pod::secret(&suite.name, &token);
        let call = Call::of("create", "secrets", &suite.name);
        let secrets = suite.cluster.secrets();
        let created = suite
            .cluster
            .call(&call, secrets.create(&post_params(), &secret))
            .await?;
        suite.print_line(&format!("pods in namespace {}", suite.cluster.namespace()));
        Ok(Self {
            suite: suite.clone(),
            images: [
                args.image.clone().context("name an image")?,
                args.reference_image.clone(),
            ],
            limit: args.provision_timeout,
            token,
            owner: created.owner_ref(&()).context("the new Secret has no UID")?,
            started: AtomicU32::new(0),
        })
    }
}

#[async_trait]
impl NodeStarter for Pods {
    async fn start(&self, who: Participant) -> Result<Box<dyn RunningNode>, String> {
        let image = match who {
            Participant::Tested | Participant::Second => &self.images[0],
            Participant::Reference => &self.images[1],
        };
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let Suite { cluster, name } = &self.suite;
        let pod = pod::pod(name, cluster.namespace(), who, number, image, &self.owner);
        let node = PodNode::start(&self.suite, &pod, &self.token, self.limit).await;
        node.map(|node| Box::new(node) as _)
            .map_err(|error| format!("{error:#}"))
    }
}
