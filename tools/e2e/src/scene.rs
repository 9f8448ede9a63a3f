//! The namespace of a test, which is deleted when the test ends, whether it passes, fails or panics.

use std::{
    mem,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{Mutex, MutexGuard, PoisonError, RwLock},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use futures::FutureExt;
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    events::v1::Event,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
    core::NamespaceResourceScope,
};
use perfrun_api::{schedule::PerfSchedule, spec::PerfRun};
use perfrun_test_kit::{Need, fails, skip};
use serde::de::DeserializeOwned;

use crate::{Cluster, operators::Operators, program, seconds, until};

/// How long objects may remain after their owner or namespace is deleted. After an outage of the API server,
/// controllers and kubelets watch again after up to 60 s: client-go waits 30 s, plus a random time as long.
/// The kubelet stops a pod only after the controller has deleted it, so two such waits can follow each other.
pub(crate) const COLLECTION_TIMEOUT: Duration = seconds(180);

/// Label of the namespaces of tests. `kubectl delete namespaces -l perfrun.io/e2e` deletes those of killed
/// tests.
const LABEL: &str = "perfrun.io/e2e";

/// Most characters of a printed line: the record of a trial is one line, which nobody reads as a whole.
const LINE: usize = 400;

/// Held exclusively by a test that needs the cluster for itself, and shared by the others.
static CLUSTER: RwLock<()> = RwLock::new(());

/// Namespaces whose deletion may be in progress. Waiting for each one would take as long as the tests.
static REMOVED: Mutex<Vec<String>> = Mutex::new(vec![]);

fn removed() -> MutexGuard<'static, Vec<String>> {
    REMOVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The namespace of a test, and its cluster.
pub struct Scene {
    pub cluster: Cluster,
    pub namespace: String,
    /// Whether other tests run on the cluster at the same time.
    pub(crate) is_shared: bool,
}

/// Runs a test of the operator on the cluster, in its own namespace, while no other test runs. Skips it
/// without a cluster.
///
/// Fails if the test fails, or if its namespace cannot be deleted, and prints the state of the cluster.
pub fn e2e(test: impl AsyncFnOnce(&Scene) -> Result<()>) {
    let _alone = CLUSTER.write().unwrap_or_else(PoisonError::into_inner);
    run_test(false, with_operators(test));
}

/// Like [`e2e`], but in parallel with other tests. The test changes nothing outside its namespace, and
/// measures nothing that another run could affect. The runs that it creates are not exclusive.
pub fn shared(test: impl AsyncFnOnce(&Scene) -> Result<()>) {
    let _beside_others = CLUSTER.read().unwrap_or_else(PoisonError::into_inner);
    run_test(true, with_operators(test));
}

/// Like [`shared`], for a test of the API server alone.
pub fn admission(test: impl AsyncFnOnce(&Scene) -> Result<()>) {
    let _beside_others = CLUSTER.read().unwrap_or_else(PoisonError::into_inner);
    run_test(true, test);
}

fn with_operators(test: impl AsyncFnOnce(&Scene) -> Result<()>) -> impl AsyncFnOnce(&Scene) -> Result<()> {
    async |scene: &Scene| {
        // An earlier test may have killed operators.
        scene.operators().await_ready().await?;
        test(scene).await
    }
}

#[expect(clippy::panic, reason = "a test fails by panicking")]
fn run_test(is_shared: bool, test: impl AsyncFnOnce(&Scene) -> Result<()>) {
    let kubeconfig = match Cluster::find_kubeconfig() {
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
            // First, because only the beginning of a long output is shown.
            if let Ok(Err(error)) = &ended {
                eprintln!("--- failure\n{error:#}");
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
        let reason = format!("{error:#}");
        fails(&reason);
        panic!("{reason}");
    }
}

impl Scene {
    async fn new(kubeconfig: std::path::PathBuf, is_shared: bool) -> Result<Self> {
        let cluster = Cluster::open(kubeconfig).await?;
        let scene = Self::open(&cluster, thread::current().name().unwrap_or("test")).await?;
        Ok(Self { is_shared, ..scene })
    }

    /// A namespace named after the test. The caller removes it.
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

    pub fn client(&self) -> Client {
        self.cluster.client.clone()
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    pub fn operators(&self) -> Operators {
        Operators::new(&self.cluster)
    }

    /// Runs kubectl in the namespace, and returns its output.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut kubectl = self.cluster.kubectl();
        program::output(kubectl.args(["--namespace", &self.namespace]).args(args)).await
    }

    /// The events about runs, as soon as one has this reason. The operator publishes events after the status
    /// that they report.
    pub async fn events_with(&self, reason: &str) -> Result<Vec<Event>> {
        let events: Api<Event> = self.api();
        until(&format!("an event reports {reason}"), seconds(30), async || {
            let mut of_runs = events.list(&ListParams::default()).await?.items;
            of_runs.retain(|event| {
                event.regarding.as_ref().and_then(|about| about.kind.as_deref()) == Some("PerfRun")
            });
            let is_reported = of_runs
                .iter()
                .any(|event| event.reason.as_deref() == Some(reason));
            Ok(is_reported.then_some(of_runs))
        })
        .await
    }

    /// Deletes the namespace. Waits only for its runs, which would affect other tests; the rest takes some
    /// seconds.
    pub async fn remove(&self) -> Result<()> {
        let runs: Api<PerfRun> = self.api();
        let all = ListParams::default();
        // Before the runs: a schedule creates more.
        let schedules: Api<PerfSchedule> = self.api();
        schedules
            .delete_collection(&DeleteParams::background(), &all)
            .await
            .with_context(|| format!("failed to delete the PerfSchedules of {}", self.namespace))?;
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

    /// Waits until the namespaces of earlier tests are gone. One that remains has an object with a stuck
    /// finalizer.
    async fn await_removed(&self, earlier: Vec<String>) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client());
        for name in earlier {
            until(
                &format!("namespace {name} of an earlier test is gone"),
                COLLECTION_TIMEOUT,
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

    /// Prints the state of the cluster, to explain a failure.
    pub async fn explain(&self) {
        for what in [
            &["get", "pods", "--output=wide"][..],
            &["get", "perfruns,perfschedules", "--output=yaml"],
            &["get", "events", "--sort-by=.lastTimestamp"],
            &["describe", "pods"],
            &[
                "logs",
                "--selector=app.kubernetes.io/name=perfrun-node",
                "--tail=30",
                "--prefix",
            ],
        ] {
            let output = self
                .kubectl(what)
                .await
                .unwrap_or_else(|error| format!("{error:#}"));
            eprintln!("--- kubectl {}", what.join(" "));
            for line in output.lines() {
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
    // Without it, no pod can be created. After an outage of the API server, the controller that makes it may
    // be late by half a minute, which must not count against the timeouts of a run.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &name);
    until("the namespace has its service account", seconds(90), async || {
        Ok(accounts.get_opt("default").await?)
    })
    .await?;
    Ok(name)
}
