//! A scripted API server, and an operator whose watches the test moves.

use std::collections::BTreeMap;

use kube::runtime::{
    reflector::{self, ObjectRef, store::Writer},
    watcher::Event,
};
use perfrun_api::cluster::{NODE_LABEL, RUN_LABEL};
use tokio::{
    sync::{
        SetOnce,
        mpsc::{self, UnboundedReceiver},
        watch,
    },
    task::JoinHandle,
    time::Instant,
};

use super::*;
use crate::{
    access::Access,
    api::watched::WatchedPod,
    args::Args,
    build::PodDefaults,
    conduct::{Conductors, Progress, RunOutcome},
    names,
    operator::Process,
    policy::Policy,
    process::{clock::TimeSource, fence::Term},
    run::{plans::Plans, times::Times, turns::Turns},
    test_server::{TestServer, paused_clock, wake},
};

pub(super) struct Scene {
    pub(super) server: TestServer,
    pub(super) context: Arc<Context>,
    runs: Writer<WatchedRun>,
    pods: Writer<WatchedPod>,
    term: Option<watch::Sender<Instant>>,
    woken: UnboundedReceiver<ObjectRef<WatchedRun>>,
}

impl Scene {
    pub(super) async fn new() -> Self {
        Self::beside(&TestServer::new()).await
    }

    /// A run `a` has just got its pods.
    pub(super) async fn starting() -> Self {
        let mut scene = Self::new().await;
        scene.create("a", json!({}));
        scene.reconcile("a").await.unwrap();
        scene
    }

    /// A run `a` has pods that were not ready in time.
    pub(super) async fn overdue() -> Self {
        let scene = Self::starting().await;
        scene.later(61).await;
        scene
    }

    /// An operator of this API server, perhaps beside another.
    pub(super) async fn beside(server: &TestServer) -> Self {
        Self::begin(server, paused_clock()).await
    }

    /// An operator that takes over from this one, which has ended.
    pub(super) async fn successor(&self) -> Self {
        let mut scene = Self::begin(&self.server, self.context.services.clock.clone()).await;
        scene.sync();
        scene
    }

    async fn begin(server: &TestServer, clock: TimeSource) -> Self {
        let server = server.clone();
        // It lasts as long as no test ends it.
        let (sender, term) = Term::begin(7, Instant::now() + Duration::from_secs(1 << 30));
        let (runs, runs_writer) = reflector::store();
        let (pods, pods_writer) = reflector::store();
        let (wake, woken) = mpsc::unbounded_channel();
        let services = Services {
            client: term.fenced(&server.client()),
            clock,
            term,
            access: Access::Proxy(server.client()),
            key: server.key().await,
            pods: pods.clone(),
            ..server.services()
        };
        let context = Context {
            services: Arc::new(services),
            turns: Turns::new(Policy::default(), 10, runs, pods, wake),
            plans: Plans::default(),
            times: Times::default(),
            conductors: Conductors::default(),
            are_runs_listed: SetOnce::new_with(Some(())),
            are_pods_listed: SetOnce::new_with(Some(())),
        };
        Self {
            server,
            context: Arc::new(context),
            runs: runs_writer,
            pods: pods_writer,
            term: Some(sender),
            woken,
        }
    }

    pub(super) fn path(name: &str) -> String {
        Self::path_in("bench", name)
    }

    pub(super) fn path_in(namespace: &str, name: &str) -> String {
        format!("/apis/perfrun.io/v1alpha1/namespaces/{namespace}/perfruns/{name}")
    }

    /// Another operator begins with this policy.
    pub(super) fn allow(&mut self, policy: Policy) {
        Arc::get_mut(&mut self.context).unwrap().turns.policy = policy;
    }

    /// Creates a run that has a minute to provision, and with these fields of its spec.
    pub(super) fn create(&self, name: &str, fields: Value) {
        self.create_in("bench", name, fields);
    }

    /// Creates a run in another namespace.
    pub(super) fn create_in(&self, namespace: &str, name: &str, fields: Value) {
        let mut spec = json!({
            "workload": {"ping": {}},
            "matrix": {"clients": ["libp2p"], "servers": ["libp2p"], "rawReference": false},
            "timeouts": {"provision": "1m", "run": "10m"},
        });
        let all = spec.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        let metadata = json!({"name": name, "namespace": namespace, "uid": format!("uid-of-{name}"), "generation": 1,
            "creationTimestamp": (self.context.services.clock)()});
        let run = json!({"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "metadata": metadata, "spec": spec});
        self.server.put(&Self::path_in(namespace, name), run);
    }

    pub(super) fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.server.change(&Self::path(name), change);
    }

    /// The operator no longer leads.
    pub(super) fn depose(&mut self) {
        self.term = None;
    }

    /// The operator renews its Lease so that its term lasts for
    /// [`GIVE_UP_AFTER`](crate::process::fence::GIVE_UP_AFTER) and this.
    pub(super) fn renew(&self, lasts: Duration) {
        let term = self.term.as_ref().unwrap();
        term.send_replace(Instant::now() + lasts);
    }

    /// Time passes.
    pub(super) async fn later(&self, seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    /// The watches catch up.
    pub(super) fn sync(&mut self) {
        self.sync_runs();
        self.sync_pods();
    }

    /// The watch of runs catches up.
    pub(super) fn sync_runs(&mut self) {
        refill(&mut self.runs, self.server.objects("/perfruns"));
    }

    /// The watch of pods catches up.
    pub(super) fn sync_pods(&mut self) {
        refill(&mut self.pods, self.server.objects("/pods"));
    }

    /// The watches show some of the changes since the last time. The operator learns what no longer exists,
    /// as a whole one does.
    pub(super) fn sync_some(&mut self, mut shows: impl FnMut() -> bool) {
        for run in show_some(&mut self.runs, self.server.objects("/perfruns"), &mut shows) {
            self.context.remove(&run.uid().unwrap());
        }
        for pod in show_some(&mut self.pods, self.server.objects("/pods"), &mut shows) {
            self.context.turns.remove_pod(&pod);
        }
    }

    /// The run, as the watch shows it.
    pub(super) fn watched(&self, name: &str) -> Arc<WatchedRun> {
        let runs = &self.context.turns.runs;
        runs.find(|run| run.name_any() == name).unwrap()
    }

    /// Reconciles by watches that have caught up.
    pub(super) async fn reconcile(&mut self, name: &str) -> Result<Action, Error> {
        self.sync();
        self.reconcile_by_old_objects(name).await
    }

    /// Reconciles by what the watches have shown before. The first one shows the run.
    pub(super) async fn reconcile_by_old_objects(&mut self, name: &str) -> Result<Action, Error> {
        if self.context.turns.runs.state().is_empty() {
            self.sync();
        }
        reconcile(self.watched(name), self.context.clone()).await
    }

    pub(super) fn status(&self, name: &str) -> Value {
        self.server.object(&Self::path(name)).unwrap()["status"].clone()
    }

    pub(super) fn phase(&self, name: &str) -> String {
        self.status(name)["phase"].as_str().unwrap_or_default().to_owned()
    }

    /// Status, reason and message of a condition.
    pub(super) fn condition(&self, name: &str, type_: Type) -> (String, String, String) {
        let status = self.status(name);
        let conditions = status["conditions"].as_array().unwrap();
        let condition = conditions
            .iter()
            .find(|condition| condition["type"].as_str() == Some(type_.as_ref()))
            .unwrap();
        let text = |key: &str| condition[key].as_str().unwrap().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    pub(super) fn pod_name(&self, run: &str, node: &str, incarnation: u32) -> String {
        names::pod(run, &format!("uid-of-{run}"), node, incarnation)
    }

    pub(super) fn pod_paths(&self) -> Vec<String> {
        let pods = self.server.objects("/pods");
        let path = |pod: &Value| {
            let part = |key: &str| pod["metadata"][key].as_str();
            let (namespace, name) = (part("namespace").unwrap_or("bench"), part("name").unwrap());
            format!("/api/v1/namespaces/{namespace}/pods/{name}")
        };
        pods.iter().map(path).collect()
    }

    /// The number of pods, and of those that are being deleted.
    pub(super) fn pods_and_deleted(&self) -> (usize, usize) {
        let pods = self.server.objects("/pods");
        let deleted = pods
            .iter()
            .filter(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
        (pods.len(), deleted.count())
    }

    /// The kubelets report all pods as ready.
    pub(super) fn pods_are_ready(&self) {
        for path in self.pod_paths() {
            self.server.change(&path, |pod| {
                pod["status"] = json!({"phase": "Running", "podIP": "127.0.0.1",
                    "conditions": [{"type": "Ready", "status": "True"}]});
            });
        }
    }

    /// All pods stop, and no longer exist.
    pub(super) fn pods_stop(&self) {
        for path in self.pod_paths() {
            self.server.remove(&path);
        }
    }

    /// The conductor of a run panics.
    pub(super) async fn panic(&self, name: &str) {
        self.conduct(name, async { panic!("out of order") }).await;
    }

    /// The conductor of a run does this, and ends.
    pub(super) async fn conduct(
        &self,
        name: &str,
        conduct: impl Future<Output = RunOutcome> + Send + 'static,
    ) {
        let run = self.watched(name);
        let run = crate::build::RunIdentity::of(run.readable().unwrap()).unwrap();
        let (wake, mut wakes) = wake();
        let conductors = &self.context.conductors;
        conductors.spawn(&run, Progress::default(), wake, |_, _| conduct);
        wakes.recv().await.unwrap();
    }

    /// The names of runs that were woken since the last time.
    pub(super) fn woken(&mut self) -> Vec<String> {
        let woken = std::iter::from_fn(|| self.woken.try_recv().ok());
        woken.map(|run| run.name).collect()
    }

    /// A whole operator with watches of its own.
    pub(super) fn operate(&self) -> JoinHandle<()> {
        let args = <Args as clap::Parser>::parse_from(["perfrun-operator", "--node-access=direct"]);
        let client = self.server.client();
        let Services {
            key, metrics, term, ..
        } = Services::clone(&self.context.services);
        tokio::spawn(async move {
            let process = Process {
                args: &args,
                client,
                key,
                pod_defaults: PodDefaults::fixed(),
                metrics,
                health: Arc::default(),
            };
            process.reconcile_all(&term).await;
        })
    }
}

/// Waits until the run has all its pods.
pub(super) async fn wait_for_pods(server: &TestServer, run: &str) {
    let has_pods = || {
        let pods = server.objects("/pods");
        let own = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"][RUN_LABEL] == run);
        own.filter(|pod| !pod["metadata"]["labels"][NODE_LABEL].is_null())
            .count()
            == 2
    };
    tokio::time::timeout(Duration::from_secs(600), async {
        while !has_pods() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{run} has no pods"));
}

fn refill<K>(writer: &mut Writer<K>, objects: Vec<Value>)
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned,
{
    writer.apply_watcher_event(&Event::Init);
    for object in objects {
        let object = serde_json::from_value(object).unwrap();
        writer.apply_watcher_event(&Event::InitApply(object));
    }
    writer.apply_watcher_event(&Event::InitDone);
}

/// Shows some of the objects that the watch has not shown as they are. Returns those that the watch showed
/// and that no longer exist, as far as it shows that.
fn show_some<K>(writer: &mut Writer<K>, objects: Vec<Value>, shows: &mut impl FnMut() -> bool) -> Vec<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + 'static,
{
    let shown = writer.as_reader().state();
    let mut shown: BTreeMap<_, _> = shown.into_iter().map(|object| (object.uid(), object)).collect();
    for object in objects {
        let part = |key: &str| object["metadata"][key].as_str().map(str::to_owned);
        let before = shown.remove(&part("uid"));
        let is_known = before.is_some_and(|before| before.resource_version() == part("resourceVersion"));
        if !is_known && shows() {
            let object = serde_json::from_value(object).unwrap();
            writer.apply_watcher_event(&Event::Apply(object));
        }
    }
    let gone: Vec<_> = shown.into_values().filter(|_| shows()).collect();
    for object in &gone {
        writer.apply_watcher_event(&Event::Delete(K::clone(object)));
    }
    gone
}
