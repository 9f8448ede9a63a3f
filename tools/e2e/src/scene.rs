//! A test's place: a namespace that goes when the test ends, however it ends.

use std::{
    mem,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{Mutex, MutexGuard, PoisonError, RwLock},
    thread,
};

use anyhow::{Context, Result};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
    core::NamespaceResourceScope,
};
use perfrun_api::spec::PerfRun;
use serde::de::DeserializeOwned;

use perfrun_test_kit::{Need, skip};

use crate::{Cluster, operators::Operators, program, seconds, until};

/// Label of namespaces of tests; `kubectl delete namespaces -l perfrun.io/e2e` removes what killed tests left.
const LABEL: &str = "perfrun.io/e2e";

/// Records of trials are one line each, and nobody reads all of that.
const LINE: usize = 400;

/// Held by a test that has the cluster to itself, and shared by those that need not.
static CLUSTER: RwLock<()> = RwLock::new(());

/// Namespaces that were deleted and may not be gone yet: waiting for each would take as long as the tests.
static REMOVED: Mutex<Vec<String>> = Mutex::new(vec![]);

fn removed() -> MutexGuard<'static, Vec<String>> {
    REMOVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A namespace of the test's own, and the cluster that it is on.
pub struct Scene {
    /// The cluster.
    pub cluster: Cluster,
    /// The namespace.
    pub namespace: String,
    /// Whether other tests run on the cluster meanwhile.
    pub(crate) is_shared: bool,
}

/// Runs a test of the operator on the cluster, in a namespace of its own, or says that it cannot run. No other test runs
/// meanwhile.
///
/// Fails if the test fails, and if anything of it cannot be removed. Then it prints what there was.
pub fn e2e(test: impl AsyncFnOnce(&Scene) -> Result<()>) {
    let _alone = CLUSTER.write().unwrap_or_else(PoisonError::into_inner);
    play(false, with_operators(test));
}

/// Like [`e2e`], but beside others of its kind: the test harms nothing outside of its namespace and measures nothing that
/// another run could change. The runs that it creates are not exclusive.
pub fn shared(test: impl AsyncFnOnce(&Scene) -> Result<()>) {
    let _beside_others = CLUSTER.read().unwrap_or_else(PoisonError::into_inner);
    play(true, with_operators(test));
}

/// Like [`shared`], for a test of the API server alone.
pub fn admission(test: impl AsyncFnOnce(&Scene) -> Result<()>) {
    let _beside_others = CLUSTER.read().unwrap_or_else(PoisonError::into_inner);
    play(true, test);
}

fn with_operators(test: impl AsyncFnOnce(&Scene) -> Result<()>) -> impl AsyncFnOnce(&Scene) -> Result<()> {
    async |scene: &Scene| {
        // Whatever an earlier test did to operators is over.
        scene.operators().await_ready().await?;
        test(scene).await
    }
}

#[expect(clippy::panic, reason = "this is how a test fails")]
fn play(is_shared: bool, test: impl AsyncFnOnce(&Scene) -> Result<()>) {
    let kubeconfig = match Cluster::kubeconfig() {
        Ok(kubeconfig) => kubeconfig,
        Err(reason) => return skip(Need::Cluster, "all of it", &reason),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let ended = runtime.expect("threads can be started").block_on(async {
        let scene = Scene::new(kubeconfig, is_shared).await?;
        let ended = AssertUnwindSafe(test(&scene)).catch_unwind().await;
        if !matches!(ended, Ok(Ok(()))) {
            // Before all else: of a long output people are shown the beginning.
            if let Ok(Err(error)) = &ended {
                eprintln!("--- what failed\n{error:#}");
            }
            scene.explain().await;
        }
        let earlier = mem::take(&mut *removed());
        let removed = scene.remove().await.and(scene.await_removed(earlier).await);
        match ended {
            Ok(result) => result.and(removed),
            Err(panic) => resume_unwind(panic),
        }
    });
    if let Err(error) = ended {
        panic!("{error:#}");
    }
}

impl Scene {
    async fn new(kubeconfig: std::path::PathBuf, is_shared: bool) -> Result<Self> {
        let cluster = Cluster::open(kubeconfig).await?;
        let scene = Self::open(&cluster, thread::current().name().unwrap_or("test")).await?;
        Ok(Self { is_shared, ..scene })
    }

    /// A namespace named after what is done in it. Whoever opens it removes it.
    pub async fn open(cluster: &Cluster, name: &str) -> Result<Self> {
        Ok(Self {
            namespace: create_namespace(&cluster.client, name, &[]).await?,
            cluster: cluster.clone(),
            is_shared: false,
        })
    }

    /// Another namespace for the same test, with labels.
    pub async fn another(&self, labels: &[(&str, &str)]) -> Result<Self> {
        let namespace = create_namespace(&self.cluster.client, &self.namespace, labels).await?;
        Ok(Self {
            cluster: self.cluster.clone(),
            namespace,
            is_shared: self.is_shared,
        })
    }

    /// To the API server.
    pub fn client(&self) -> Client {
        self.cluster.client.clone()
    }

    /// Objects of a kind in the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// The operators of the cluster.
    pub fn operators(&self) -> Operators {
        Operators::new(&self.cluster)
    }

    /// What kubectl prints, in the namespace.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut kubectl = self.cluster.kubectl();
        program::said(kubectl.args(["--namespace", &self.namespace]).args(args)).await
    }

    /// Removes the namespace. Runs go at once, so that they are in nobody's way; the rest is gone some seconds later.
    pub async fn remove(&self) -> Result<()> {
        let runs: Api<PerfRun> = self.api();
        let all = ListParams::default();
        runs.delete_collection(&DeleteParams::background(), &all)
            .await
            .with_context(|| format!("failed to delete the PerfRuns of {}", self.namespace))?;
        until("no PerfRun is left", seconds(30), async || {
            Ok(runs.list(&all).await?.items.is_empty().then_some(()))
        })
        .await?;
        let namespaces: Api<Namespace> = Api::all(self.client());
        let deleted = namespaces.delete(&self.namespace, &DeleteParams::default()).await;
        deleted.with_context(|| format!("failed to delete namespace {}", self.namespace))?;
        removed().push(self.namespace.clone());
        Ok(())
    }

    /// Waits until namespaces of earlier tests are gone: what stays behind has a finalizer that nobody serves.
    async fn await_removed(&self, earlier: Vec<String>) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client());
        for name in earlier {
            until(
                &format!("namespace {name} of an earlier test is gone"),
                seconds(90),
                async || {
                    let Some(found) = namespaces.get_opt(&name).await? else {
                        return Ok(Some(()));
                    };
                    let conditions = found.status.and_then(|status| status.conditions);
                    let left = conditions.into_iter().flatten().filter(|c| c.status == "True");
                    let left: Vec<_> = left.filter_map(|condition| condition.message).collect();
                    anyhow::ensure!(left.is_empty(), "it still has: {}", left.join("; "));
                    Ok(None)
                },
            )
            .await?;
        }
        Ok(())
    }

    /// Prints all that helps to understand a failure.
    pub async fn explain(&self) {
        for what in [
            &["get", "pods", "--output=wide"][..],
            &["get", "perfruns", "--output=yaml"],
            &["get", "events", "--sort-by=.lastTimestamp"],
            &["describe", "pods"],
            &[
                "logs",
                "--selector=app.kubernetes.io/name=perfrun-node",
                "--tail=30",
                "--prefix",
            ],
        ] {
            let said = self
                .kubectl(what)
                .await
                .unwrap_or_else(|error| format!("{error:#}"));
            eprintln!("--- kubectl {}", what.join(" "));
            for line in said.lines() {
                eprintln!("{}", line.chars().take(LINE).collect::<String>());
            }
        }
        eprintln!("--- operators\n{}", self.operators().explain().await);
    }
}

async fn create_namespace(client: &Client, test: &str, labels: &[(&str, &str)]) -> Result<String> {
    // A name has 63 characters at most.
    let test = test.rsplit("::").next().unwrap_or(test);
    let test = test.trim_start_matches("e2e-").replace('_', "-");
    let test: String = test.chars().take(40).collect();
    let random: u32 = rand::random();
    let name = format!("e2e-{}-{random:08x}", test.trim_matches('-'));
    let labels = labels.iter().chain(&[(LABEL, "true")]);
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(
                labels
                    .map(|(key, value)| (key.to_string(), value.to_string()))
                    .collect(),
            ),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let all: Api<Namespace> = Api::all(client.clone());
    let created = all.create(&PostParams::default(), &namespace).await;
    created.with_context(|| format!("failed to create namespace {name}"))?;
    Ok(name)
}
