//! What may happen to runs, in a random order, and what holds after each step.
//!
//! `PERFRUN_STEPS` makes the test longer. `PERFRUN_SEED` is the seed to begin with, which a test that fails
//! prints with its last steps.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    env,
};

use futures::future::join_all;
use perfrun_api::cluster::RUN_LABEL;
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use tokio::time::{Instant, advance, sleep};

use super::*;

/// How many steps the test takes unless `PERFRUN_STEPS` says so.
const STEPS: u64 = 4_000;
/// How many of them one seed has. Then everything begins afresh, because the server keeps all objects.
const STEPS_OF_SEED: u64 = 800;
/// How many steps a failure shows.
const SHOWN: usize = 30;

const NAMESPACES: [&str; 3] = ["bench", "others", "more"];
const RUNS_MAX: usize = 6;

/// The longest time between two reconciliations of a run.
const RECONCILED_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest turn: 1 minute to provision, 2 to run, 10 to keep results, and 5 each in which the end of
/// provisioning and that of the run could not be written. The rest is for reconciliations that come late.
const TURN_MAX: Duration = Duration::from_secs(3600);
/// Most pods of a node in [`WINDOW`]: one in 4 seconds if some of them are lost and some are never ready, and
/// a few more at the start.
const PODS_MAX: usize = 20;
const WINDOW: Duration = Duration::from_secs(60);

/// How far the clock moves between two looks of conductors. They wait for seconds, and look 20 times in each.
const TICK: Duration = Duration::from_secs(2);

/// Requests that fail.
const REQUESTS: [(Method, &str); 9] = [
    (Method::POST, SECRETS),
    (Method::POST, POLICIES),
    (Method::POST, PODS),
    (Method::GET, "/pods/"),
    (Method::DELETE, "/pods/"),
    (Method::PATCH, STATUS),
    (Method::PATCH, "/bench/perfruns/"),
    (Method::POST, "/events"),
    (Method::POST, "/configmaps"),
];
/// How they fail.
const ANSWERS: [Answer; 9] = [
    Answer::Refuse(409, "the object has been modified"),
    Answer::Refuse(413, "the object is too large"),
    Answer::Refuse(422, "spec: Invalid value"),
    Answer::Refuse(429, "slow down"),
    Answer::Refuse(500, "etcdserver: request is too large"),
    Answer::Refuse(503, "etcd is away"),
    Answer::Silence,
    Answer::DoSilently,
    Answer::DoLate(12),
];

#[test]
fn whatever_happens_turns_end_and_exclusive_runs_are_alone() {
    let setting =
        |name: &str, default: u64| env::var(name).map_or(default, |text| text.parse::<u64>().unwrap());
    let (steps, first) = (setting("PERFRUN_STEPS", STEPS), setting("PERFRUN_SEED", 48));
    let mut turns = 0;
    for number in 0..steps.div_ceil(STEPS_OF_SEED) {
        // Ends all that the seed has begun, so that a million steps take no more memory than some.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let steps = STEPS_OF_SEED.min(steps - number * STEPS_OF_SEED);
        turns += runtime.block_on(turns_of(first + number, steps));
    }
    assert!(turns > 0, "no run had a turn");
    println!("{steps} steps, first seed {first}: the rules hold, and runs had {turns} turns");
}

/// The number of turns that runs have had in the steps of a seed.
async fn turns_of(seed: u64, steps: u64) -> usize {
    let mut world = World::new(seed).await;
    for _ in 0..steps {
        world.step().await;
    }
    world.turns
}

/// A run, as the test knows it.
struct Known {
    namespace: &'static str,
    is_exclusive: bool,
    /// When it was reconciled last.
    reconciled: Instant,
    /// Since when it has had a turn. `None` if it has none.
    active: Option<Instant>,
}

struct World {
    seed: u64,
    random: Xoshiro256PlusPlus,
    scene: Scene,
    runs: BTreeMap<String, Known>,
    /// How many runs there have been.
    created: usize,
    /// How many turns there have been.
    turns: usize,
    /// Names of the pods that the present operator has created.
    pods: BTreeSet<String>,
    /// When it created the last pods of nodes, by what their names begin with.
    starts: BTreeMap<String, VecDeque<Instant>>,
    /// Runs that were in progress when the present operator began. If one of them had stood back for another,
    /// no operator but the one before can know it.
    in_progress: BTreeSet<String>,
    steps: usize,
    last: VecDeque<String>,
}

impl World {
    async fn new(seed: u64) -> Self {
        let scene = Scene::new().await;
        scene.server.set_clock(scene.context.services.clock.clone());
        let mut world = Self {
            seed,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            scene,
            runs: BTreeMap::new(),
            created: 0,
            turns: 0,
            pods: BTreeSet::new(),
            starts: BTreeMap::new(),
            in_progress: BTreeSet::new(),
            steps: 0,
            last: VecDeque::new(),
        };
        world.repair();
        for _ in 0..3 {
            world.create();
        }
        world.scene.sync();
        world
    }

    async fn step(&mut self) {
        self.steps += 1;
        match self.random.random_range(0..100) {
            0..28 => {
                let name = self.pick_run();
                self.reconcile(name.into_iter().collect()).await;
            }
            28..44 => self.show(1.0),
            44..52 => self.show(0.5),
            52..72 => self.pass_time().await,
            72..76 => self.disturb(),
            76..79 => self.repair(),
            79..90 => self.change_pods(),
            90..94 => self.change_run(),
            94..99 => self.create(),
            _ => self.take_over().await,
        }
        self.reconcile_overdue().await;
        self.check();
    }

    fn note(&mut self, what: String) {
        let since_start = (self.scene.context.services.clock)();
        self.last
            .push_back(format!("step {} at {since_start}: {what}", self.steps));
        if self.last.len() > SHOWN {
            self.last.pop_front();
        }
    }

    fn pick<T>(&mut self, mut all: Vec<T>) -> Option<T> {
        if all.is_empty() {
            return None;
        }
        let place = self.random.random_range(0..all.len());
        Some(all.swap_remove(place))
    }

    fn pick_run(&mut self) -> Option<String> {
        let names: Vec<_> = self.runs.keys().cloned().collect();
        self.pick(names)
    }

    /// Reconciles runs at the same time, as far as the watch shows them.
    async fn reconcile(&mut self, names: Vec<String>) {
        let context = self.scene.context.clone();
        let all = names.iter().filter_map(|name| {
            let run = context.turns.runs.find(|run| run.name_any() == *name)?;
            Some(reconcile(run, context.clone()))
        });
        let all: Vec<_> = all.collect();
        if all.is_empty() {
            return;
        }
        self.note(format!("reconcile {}", names.join(", ")));
        for result in join_all(all).await {
            let result = result.map_err(|error| Report::new(error).to_string());
            self.note(format!("… {result:?}"));
        }
        for name in names {
            if let Some(known) = self.runs.get_mut(&name) {
                known.reconciled = Instant::now();
            }
        }
    }

    /// The controller wakes runs, because of their pods or after a pause.
    async fn reconcile_overdue(&mut self) {
        let overdue = self
            .runs
            .iter()
            .filter(|(_, known)| known.reconciled.elapsed() > RECONCILED_TIMEOUT);
        let overdue = overdue.map(|(name, _)| name.clone()).collect();
        self.reconcile(overdue).await;
    }

    /// The watches show each change with this probability.
    fn show(&mut self, probability: f64) {
        self.note(format!("the watches show {probability} of all changes"));
        let Self { scene, random, .. } = self;
        scene.sync_some(|| random.random_bool(probability));
    }

    async fn pass_time(&mut self) {
        let most = if self.random.random_bool(0.5) {
            5_000
        } else {
            120_000
        };
        let time = Duration::from_millis(self.random.random_range(100..most));
        self.note(format!("{time:?} pass"));
        let end = Instant::now() + time;
        while Instant::now() < end {
            advance(TICK.min(end - Instant::now())).await;
            // Conductors act.
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// The API server fails, once or until it is repaired.
    fn disturb(&mut self) {
        let Some(((method, path), answer)) = self.pick(REQUESTS.to_vec()).zip(self.pick(ANSWERS.to_vec()))
        else {
            return;
        };
        let answer = match answer {
            // Nobody can know whether such a pod was created and has vanished.
            Answer::DoSilently if path == PODS => Answer::Silence,
            answer => answer,
        };
        let times = if self.random.random_bool(0.7) {
            1
        } else {
            usize::MAX
        };
        self.note(format!("{method} {path} gets {answer:?}, {times} times"));
        self.scene.server.script_times(times, method, path, answer);
    }

    /// The API server works. Nodes never answer.
    fn repair(&mut self) {
        self.note("the API server is repaired".to_owned());
        let server = &self.scene.server;
        server.end_script();
        for method in [Method::GET, Method::PUT, Method::POST, Method::DELETE] {
            server.script(method, "/proxy/", Answer::Silence);
        }
    }

    /// The kubelets act, and Kubernetes deletes the pods of runs that no longer exist.
    fn change_pods(&mut self) {
        let paths = self.scene.pod_paths();
        let what = self.random.random_range(0..100);
        match what {
            0..35 => {
                self.note("pods become ready".to_owned());
                for path in &paths {
                    self.change_pod(path, |pod| {
                        if pod["status"].is_null() {
                            pod["status"] = json!({"phase": "Running", "podIP": "127.0.0.1",
                                "conditions": [{"type": "Ready", "status": "True"}]});
                        }
                    });
                }
            }
            35..65 => {
                self.note("pods stop".to_owned());
                for path in &paths {
                    self.stop(path);
                }
            }
            _ => {
                let Some(path) = self.pick(paths) else {
                    return;
                };
                self.note(format!("{path} ends as {what}"));
                match what {
                    65..77 => self.change_pod(&path, |pod| pod["status"] = json!({"phase": "Failed"})),
                    77..88 => self.change_pod(&path, |pod| {
                        pod["status"] = json!({"phase": "Failed", "containerStatuses": [{"name": "node",
                            "image": "", "imageID": "", "ready": false, "restartCount": 0,
                            "state": {"terminated": {"exitCode": 1}}}]});
                    }),
                    _ => self.scene.server.remove(&path),
                }
            }
        }
    }

    fn change_pod(&self, path: &str, change: impl FnOnce(&mut Value)) {
        self.scene.server.change(path, change);
    }

    /// A pod that is being deleted no longer exists. One whose run does not exist is being deleted.
    fn stop(&self, path: &str) {
        let server = &self.scene.server;
        let pod = server.object(path).unwrap();
        let part = |value: &Value| value.as_str().unwrap().to_owned();
        let run = Scene::path_in(
            &part(&pod["metadata"]["namespace"]),
            &part(&pod["metadata"]["labels"][RUN_LABEL]),
        );
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            server.remove(path);
        } else if server.object(&run).is_none() {
            self.change_pod(path, |pod| {
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            });
        }
    }

    /// Somebody changes a run.
    fn change_run(&mut self) {
        let Some(name) = self.pick_run() else {
            return;
        };
        let path = Scene::path_in(self.runs[&name].namespace, &name);
        let server = self.scene.server.clone();
        if server.object(&path).is_none() {
            return;
        }
        let what = self.random.random_range(0..100);
        self.note(format!("{name} is changed as {what}"));
        // Its pods are deleted for no fault of theirs.
        self.starts
            .retain(|node, _| !node.starts_with(&format!("{name}-")));
        let edit = |field: &str, value: Value| {
            server.change(&path, |run| {
                run["spec"][field] = value;
                let generation = run["metadata"]["generation"].as_i64().unwrap();
                run["metadata"]["generation"] = (generation + 1).into();
            });
        };
        match what {
            0..25 => edit("suspend", true.into()),
            25..60 => edit("suspend", false.into()),
            60..70 => edit("cancel", true.into()),
            70..85 => server.change(&path, |run| {
                run["metadata"]["annotations"] = json!({"at": "once"});
            }),
            _ => server.remove(&path),
        }
    }

    /// Somebody creates a run. If there are many, one that has ended is deleted.
    fn create(&mut self) {
        let runs = self.scene.server.objects("/perfruns");
        if runs.len() >= RUNS_MAX {
            let Some(ended) = runs.iter().find(|run| !run["status"]["completionTime"].is_null()) else {
                return;
            };
            let part = |key: &str| ended["metadata"][key].as_str().unwrap();
            let path = Scene::path_in(part("namespace"), part("name"));
            self.scene.server.remove(&path);
        }
        self.created += 1;
        let name = format!("run-{}", self.created);
        let namespace = NAMESPACES[self.random.random_range(0..NAMESPACES.len())];
        let is_exclusive = self.random.random_bool(0.7);
        self.note(format!(
            "{name} is created in {namespace}, exclusive: {is_exclusive}"
        ));
        let fields = json!({
            "workload": {"ping": {"count": 1, "interval": "1s"}},
            "topology": {"exclusive": is_exclusive},
            "timeouts": {"provision": "1m", "run": "2m"},
            "cleanup": {"keepPodsOnFailure": self.random.random_bool(0.2)},
        });
        self.scene.create_in(namespace, &name, fields);
        let known = Known {
            namespace,
            is_exclusive,
            reconciled: Instant::now(),
            active: None,
        };
        self.runs.insert(name, known);
    }

    /// Another operator takes over.
    async fn take_over(&mut self) {
        self.note("another operator begins".to_owned());
        self.scene = self.scene.successor().await;
        self.pods.clear();
        self.starts.clear();
        let runs = self.scene.server.objects("/perfruns");
        let in_progress = runs.iter().filter(|run| run["status"]["phase"] == "Running");
        let names = in_progress.map(|run| run["metadata"]["name"].as_str().unwrap().to_owned());
        self.in_progress = names.collect();
        for known in self.runs.values_mut() {
            known.active = None;
        }
    }

    fn check(&mut self) {
        self.scene.server.take_changes();
        self.scene.woken();
        self.check_pods();
        self.check_turns();
        self.check_exclusive_runs();
        self.forget();
    }

    fn check_pods(&mut self) {
        let now = Instant::now();
        for pod in self.scene.server.take_pods() {
            let (node, _) = pod.rsplit_once('-').unwrap();
            let starts = self.starts.entry(node.to_owned()).or_default();
            starts.push_back(now);
            while starts.front().is_some_and(|at| now - *at > WINDOW) {
                starts.pop_front();
            }
            assert!(
                starts.len() <= PODS_MAX,
                "{node} has had {} pods in a minute",
                starts.len()
            );
            assert!(self.pods.insert(pod.clone()), "{pod} was created twice");
        }
    }

    fn check_turns(&mut self) {
        let now = Instant::now();
        for (name, known) in &mut self.runs {
            if !self.scene.context.turns.is_active(&format!("uid-of-{name}")) {
                known.active = None;
                continue;
            }
            self.turns += usize::from(known.active.is_none());
            let time = now - *known.active.get_or_insert(now);
            assert!(time <= TURN_MAX, "{name} has had its turn for {time:?}");
        }
    }

    fn check_exclusive_runs(&self) {
        let active = self.runs.iter().filter(|(_, known)| known.active.is_some());
        let active: Vec<_> = active.collect();
        for (name, known) in &active {
            let mut others = active
                .iter()
                .map(|(other, _)| *other)
                .filter(|other| other != name);
            let disturbs =
                |other: &&String| !(self.in_progress.contains(*other) && self.in_progress.contains(*name));
            let other = others.find(disturbs);
            assert!(
                !known.is_exclusive || other.is_none(),
                "{name} and {other:?} are active together"
            );
        }
    }

    /// Forgets the runs that no longer exist, as the watch shows, too.
    fn forget(&mut self) {
        let Self { scene, runs, .. } = self;
        let shown = scene.context.turns.runs.state();
        let is_shown = |name: &String| shown.iter().any(|run| run.name_any() == *name);
        runs.retain(|name, known| {
            scene
                .server
                .object(&Scene::path_in(known.namespace, name))
                .is_some()
                || is_shown(name)
        });
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "PERFRUN_SEED={} fails in step {}. The last steps:",
                self.seed, self.steps
            );
            for step in &self.last {
                eprintln!("{step}");
            }
        }
    }
}
