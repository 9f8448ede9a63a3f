//! Reconciliations against a scripted API server.

use std::time::Duration;

use http::Method;
use kube::runtime::{reflector::store::Writer, watcher::Event as Watched};
use perfrun_api::cluster::SCHEDULE_LABEL;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::*;
use crate::test_server::{Answer, TestServer};

const SCHEDULES: &str = "/apis/perfrun.io/v1alpha1/namespaces/bench/perfschedules";
const SCHEDULE: &str = "/apis/perfrun.io/v1alpha1/namespaces/bench/perfschedules/often";
const RUNS: &str = "/apis/perfrun.io/v1alpha1/namespaces/bench/perfruns";
/// The runs of the first minutes of 2026.
const FIRST: &str = "often-29453761";
const SECOND: &str = "often-29453762";

struct Scene {
    server: TestServer,
    context: Arc<Context>,
    runs: Writer<WatchedRun>,
}

impl Scene {
    /// A schedule of every minute, created at the beginning of 2026, with these fields.
    fn new(fields: Value) -> Self {
        let server = TestServer::new();
        Self::create(&server, "often", fields);
        Self::on(server)
    }

    /// Creates a schedule of this name.
    fn create(server: &TestServer, name: &str, fields: Value) {
        let mut spec = json!({"schedule": "* * * * *", "runTemplate": {"spec": {"workload": {"ping": {}}}}});
        spec.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let metadata = json!({"name": name, "namespace": "bench", "uid": format!("uid-of-{name}"), "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z"});
        server.put(
            &format!("{SCHEDULES}/{name}"),
            json!({"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfSchedule", "metadata": metadata, "spec": spec}),
        );
    }

    /// An operator that has just started.
    fn on(server: TestServer) -> Self {
        let (runs, writer) = reflector::store();
        let context = Context {
            services: Arc::new(server.services()),
            runs,
            pauses: Pauses::default(),
        };
        Self {
            server,
            context: Arc::new(context),
            runs: writer,
        }
    }

    /// A whole controller of schedules, with a watch of its own. There is no run yet.
    fn operate(mut self) -> JoinHandle<()> {
        self.runs.apply_watcher_event(&Watched::Init);
        self.runs.apply_watcher_event(&Watched::InitDone);
        let context = Arc::into_inner(self.context).unwrap();
        tokio::spawn(async move {
            // Nothing wakes schedules from elsewhere.
            let (_wake, woken) = mpsc::unbounded_channel();
            reconcile_schedules(context, &[], woken).await;
        })
    }

    async fn later(&self, seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    /// Reconciles by a watch that has caught up.
    async fn reconcile(&mut self) -> Result<Action, publish::Error> {
        self.runs.apply_watcher_event(&Watched::Init);
        for run in self.server.objects("/perfruns") {
            let run = serde_json::from_value(run).unwrap();
            self.runs.apply_watcher_event(&Watched::InitApply(run));
        }
        self.runs.apply_watcher_event(&Watched::InitDone);
        reconcile(self.schedule(), self.context.clone()).await
    }

    /// The schedule, as a watch that has caught up shows it.
    fn schedule(&self) -> Arc<WatchedSchedule> {
        let schedule = self.server.object(SCHEDULE).unwrap();
        Arc::new(serde_json::from_value(schedule).unwrap())
    }

    /// How many runs were requested since the last time.
    fn requests(&self) -> usize {
        let changes = self.server.take_changes();
        changes.iter().filter(|call| call.method == Method::POST).count()
    }

    fn names(&self) -> Vec<String> {
        let runs = self.server.objects("/perfruns");
        let names = runs.iter().map(|run| run["metadata"]["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }

    fn status(&self) -> Value {
        self.server.object(SCHEDULE).unwrap()["status"].clone()
    }

    /// All runs end with a verdict.
    fn end_all(&self, verdict: &str) {
        self.names().iter().for_each(|run| self.end(run, verdict));
    }

    /// A run ends with a verdict.
    fn end(&self, run: &str, verdict: &str) {
        let condition = |type_: &str, reason: &str, message: &str| {
            json!({"type": type_, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:01:30Z"})
        };
        self.server.change(&format!("{RUNS}/{run}"), |run| {
            run["status"] = json!({"phase": "Succeeded", "verdict": verdict, "completionTime": "2026-01-01T00:01:30Z",
                "trials": {"total": 0, "completed": 0, "failed": 0, "skipped": 0, "progress": ""},
                "conditions": [condition("Verdict", "ExpectationsHold", "all expectations hold, 3 in number"),
                    condition("Complete", "Succeeded", "all trials completed")]});
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_created_when_it_is_due_and_belongs_to_the_schedule() {
    let mut scene = Scene::new(json!({}));
    assert_eq!(
        scene.reconcile().await.unwrap(),
        Action::requeue(Duration::from_secs(60))
    );
    assert!(scene.names().is_empty());
    scene.later(60).await;
    scene.server.take_changes();
    scene.reconcile().await.unwrap();
    let changes = scene.server.take_changes();
    let made: Vec<_> = changes
        .iter()
        .map(|call| (call.method.as_str(), call.path.rsplit('/').next().unwrap()))
        .collect();
    assert_eq!(made, [("POST", "perfruns"), ("PATCH", "status")]);
    let run = scene.server.object(&format!("{RUNS}/{FIRST}")).unwrap();
    let owner = &run["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["uid"], &owner["controller"]),
        (&json!("uid-of-often"), &json!(true))
    );
    assert_eq!(run["metadata"]["labels"][SCHEDULE_LABEL], "often");
    assert_eq!(scene.server.event_reasons(), ["RunCreated"]);
    scene.reconcile().await.unwrap();
    assert_eq!(scene.status()["active"][0]["name"], FIRST);
    scene.server.take_changes();
    scene.reconcile().await.unwrap();
    assert!(
        scene.server.take_changes().is_empty(),
        "another reconciliation is harmless"
    );
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_died_before_it_wrote_the_status_creates_no_second_run() {
    let mut scene = Scene::new(json!({}));
    scene.later(60).await;
    scene
        .server
        .script_times(1, Method::PATCH, "/status", Answer::Refuse(500, "etcd is away"));
    scene.reconcile().await.unwrap_err();
    let Scene { server, context, .. } = scene;
    let mut scene = Scene::on(server);
    let services = &mut Arc::get_mut(&mut scene.context).unwrap().services;
    Arc::make_mut(services).clock = context.services.clock.clone();
    // The watch of the new operator shows no run yet.
    scene.runs.apply_watcher_event(&Watched::Init);
    scene.runs.apply_watcher_event(&Watched::InitDone);
    reconcile(scene.schedule(), scene.context.clone()).await.unwrap();
    assert_eq!(scene.names(), [FIRST]);
    assert_eq!(scene.status()["lastScheduleTime"], "2026-01-01T00:01:00Z");
    scene.reconcile().await.unwrap();
    assert_eq!(scene.names(), [FIRST]);
}

#[tokio::test(start_paused = true)]
async fn the_verdict_of_a_run_is_kept_when_the_run_is_deleted() {
    let mut scene = Scene::new(json!({"successfulRunsHistoryLimit": 0}));
    scene.later(60).await;
    scene.reconcile().await.unwrap();
    scene.end(FIRST, "Pass");
    scene.server.take_changes();
    scene.reconcile().await.unwrap();
    scene.reconcile().await.unwrap();
    let changes = scene.server.take_changes();
    let made: Vec<_> = changes.iter().map(|call| call.method.as_str()).collect();
    assert_eq!(made, ["PATCH", "DELETE"], "it is kept before the run is deleted");
    assert!(scene.names().is_empty());
    scene.reconcile().await.unwrap();
    let status = scene.status();
    let ended = &status["history"][0];
    assert_eq!(
        (&ended["name"], &ended["phase"], &ended["verdict"]),
        (&json!(FIRST), &json!("Succeeded"), &json!("Pass"))
    );
    assert_eq!(ended["scheduleTime"], "2026-01-01T00:01:00Z");
    assert_eq!(ended["message"], "all expectations hold, 3 in number");
    assert!(ended["seed"].is_u64(), "{ended}");
    assert_eq!(status["lastSuccessfulTime"], "2026-01-01T00:01:30Z");
    assert_eq!(status["active"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_continues_and_keeps_what_a_newer_version_has_written() {
    let mut scene = Scene::new(json!({"successfulRunsHistoryLimit": 0, "failedRunsHistoryLimit": 0}));
    scene.later(60).await;
    scene.reconcile().await.unwrap();
    scene.end(FIRST, "Pass");
    let newer = json!({"name": "often-1", "scheduleTime": "2025-12-31T00:00:00Z", "phase": "Hibernating",
        "verdict": "Doubtful", "message": "all trials completed"});
    scene.server.change(&format!("{RUNS}/{FIRST}"), |run| {
        run["status"]["phase"] = "Hibernating".into();
    });
    scene.server.change(SCHEDULE, |schedule| {
        schedule["status"]["history"] = json!([newer]);
    });
    scene.reconcile().await.unwrap();
    assert_eq!(scene.names(), [FIRST], "whether it has succeeded is not known");
    let status = scene.status();
    let history = &status["history"];
    assert_eq!(
        (&history[0]["name"], &history[0]["phase"]),
        (&json!(FIRST), &json!("Hibernating"))
    );
    assert_eq!(history[1], newer);
    scene.later(60).await;
    scene.reconcile().await.unwrap();
    assert_eq!(scene.names(), [FIRST, SECOND]);
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_verdict_of_a_newer_version_is_kept_and_is_not_counted_as_a_success() {
    let mut scene = Scene::new(json!({"successfulRunsHistoryLimit": 0, "failedRunsHistoryLimit": 0}));
    scene.later(60).await;
    scene.reconcile().await.unwrap();
    scene.end(FIRST, "Doubtful");
    scene.reconcile().await.unwrap();
    assert_eq!(scene.names(), [FIRST], "whether it has succeeded is not known");
    let status = scene.status();
    assert_eq!(status["history"][0]["verdict"], "Doubtful");
    assert_eq!(status["lastSuccessfulTime"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_not_deleted_before_the_status_has_its_verdict() {
    let mut scene = Scene::new(json!({"successfulRunsHistoryLimit": 0}));
    scene.later(60).await;
    scene.reconcile().await.unwrap();
    scene.end(FIRST, "Pass");
    let refused = Answer::Refuse(500, "etcd is away");
    scene.server.script_times(1, Method::PATCH, "/status", refused);
    scene.reconcile().await.unwrap_err();
    scene.reconcile().await.unwrap();
    assert_eq!(scene.names(), [FIRST]);
    scene.reconcile().await.unwrap();
    assert!(scene.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_verdict_is_kept_is_deleted_although_the_status_is_refused() {
    let mut scene = Scene::new(json!({"successfulRunsHistoryLimit": 1}));
    scene.later(60).await;
    scene.reconcile().await.unwrap();
    scene.end_all("Pass");
    scene.reconcile().await.unwrap();
    let refused = Answer::Refuse(500, "etcd is away");
    scene.server.script(Method::PATCH, "/status", refused);
    scene.later(60).await;
    scene.reconcile().await.unwrap_err();
    assert_eq!(scene.names(), [FIRST, SECOND]);
    scene.end_all("Pass");
    scene.reconcile().await.unwrap_err();
    assert_eq!(
        scene.names(),
        [SECOND],
        "the verdict of the second is not kept yet"
    );
}

#[tokio::test(start_paused = true)]
async fn a_schedule_whose_status_is_refused_creates_no_more_than_its_limits() {
    let mut scene = Scene::new(json!({"successfulRunsHistoryLimit": 3}));
    let refused = Answer::Refuse(422, "the status has an unknown field");
    scene.server.script_times(20, Method::PATCH, "/status", refused);
    for _ in 0..20 {
        scene.later(300).await;
        let error = scene.reconcile().await.unwrap_err();
        after_error(scene.schedule(), &error, scene.context.clone());
        scene.end_all("Pass");
    }
    assert_eq!(scene.names().len(), 6, "three to keep, and three to delete");
    scene.later(300).await;
    let mut names = vec![];
    for _ in 0..3 {
        scene.reconcile().await.unwrap();
        names.push(scene.names().len());
    }
    assert_eq!(names, [6, 3, 4], "the status, the deletions, the next run");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_whose_runs_cannot_be_deleted_creates_few_and_shows_the_reason() {
    let mut scene = Scene::new(json!({"successfulRunsHistoryLimit": 0}));
    let refused = Answer::Refuse(403, "this run is held");
    scene.server.script(Method::DELETE, "/perfruns", refused);
    for _ in 0..10 {
        scene.later(300).await;
        scene.reconcile().await.unwrap();
        scene.end_all("Pass");
        scene.reconcile().await.unwrap();
    }
    assert_eq!(scene.names().len(), 3);
    let text = scene.status().to_string();
    assert!(
        text.contains("APIServerRefuses") && text.contains("failed to delete the run"),
        "{text}"
    );
    scene.server.take_changes();
    scene.reconcile().await.unwrap();
    let changes = scene.server.take_changes();
    assert!(changes.is_empty(), "whatever wakes the schedule: {changes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reconciliation_deletes_a_few_runs_and_takes_no_longer_than_one_call() {
    let mut scene = Scene::new(json!({"successfulRunsHistoryLimit": 100}));
    for _ in 0..20 {
        scene.later(60).await;
        scene.reconcile().await.unwrap();
        scene.end_all("Pass");
    }
    scene.reconcile().await.unwrap();
    scene.server.change(SCHEDULE, |schedule| {
        schedule["spec"]["successfulRunsHistoryLimit"] = 0.into();
    });
    scene.server.script(Method::DELETE, "/perfruns", Answer::Silence);
    scene.server.take_changes();
    let start = Instant::now();
    scene.reconcile().await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 30);
    let changes = scene.server.take_changes();
    let deletions = changes.iter().filter(|call| call.method == Method::DELETE);
    assert_eq!(deletions.count(), 8);
}

#[tokio::test(start_paused = true)]
async fn the_next_run_replaces_an_active_one() {
    let mut scene = Scene::new(json!({"concurrencyPolicy": "Replace"}));
    scene.later(60).await;
    scene.reconcile().await.unwrap();
    scene.later(60).await;
    scene.reconcile().await.unwrap();
    assert_eq!(scene.names(), [SECOND]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_the_api_server_refuses_shows_in_the_status_and_is_created_later() {
    let mut scene = Scene::new(json!({}));
    scene.later(60).await;
    let refused = Answer::Refuse(403, "exceeded quota: small");
    scene.server.script_times(1, Method::POST, "/perfruns", refused);
    assert_eq!(
        scene.reconcile().await.unwrap(),
        Action::requeue(Duration::from_secs(2))
    );
    let text = scene.status().to_string();
    assert!(
        text.contains("APIServerRefuses") && text.contains("exceeded quota: small"),
        "{text}"
    );
    scene.later(2).await;
    scene.reconcile().await.unwrap();
    assert_eq!(scene.names(), [FIRST]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_run_is_requested_less_and_less_often() {
    let mut scene = Scene::new(json!({"schedule": "1 0 * * *"}));
    let refused = Answer::Refuse(403, "exceeded quota: none");
    scene.server.script_times(11, Method::POST, "/perfruns", refused);
    scene.later(60).await;
    for pause in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        let action = scene.reconcile().await.unwrap();
        assert_eq!(action, Action::requeue(Duration::from_secs(pause)));
        assert_eq!(scene.requests(), 1);
        scene.later(pause - 1).await;
        scene.reconcile().await.unwrap();
        assert_eq!(scene.requests(), 0, "whatever wakes the schedule");
        scene.later(1).await;
    }
    scene.server.change(SCHEDULE, |schedule| {
        schedule["metadata"]["generation"] = 2.into();
    });
    let action = scene.reconcile().await.unwrap();
    assert_eq!(
        (action, scene.requests()),
        (Action::requeue(Duration::from_secs(2)), 1),
        "the document has changed"
    );
    scene.later(2).await;
    scene.reconcile().await.unwrap();
    assert_eq!(scene.names(), [FIRST]);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_refused_is_written_less_and_less_often() {
    let mut scene = Scene::new(json!({}));
    let refused = Answer::Refuse(500, "etcd is away");
    scene.server.script_times(3, Method::PATCH, "/status", refused);
    for pause in [2, 4, 8] {
        let error = scene.reconcile().await.unwrap_err();
        let action = after_error(scene.schedule(), &error, scene.context.clone());
        assert_eq!(action, Action::requeue(Duration::from_secs(pause)));
        scene.later(pause).await;
    }
    scene.reconcile().await.unwrap();
    scene
        .server
        .script_times(1, Method::PATCH, "/status", Answer::Refuse(500, "again"));
    scene.later(60).await;
    let error = scene.reconcile().await.unwrap_err();
    let action = after_error(scene.schedule(), &error, scene.context.clone());
    assert_eq!(
        action,
        Action::requeue(Duration::from_secs(2)),
        "it has succeeded"
    );
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_no_longer_exists_leaves_no_pause() {
    let scene = Scene::new(json!({}));
    let (server, pauses, schedule) = (
        scene.server.clone(),
        scene.context.pauses.clone(),
        scene.schedule(),
    );
    server.script(
        Method::POST,
        "/perfruns",
        Answer::Refuse(403, "exceeded quota: none"),
    );
    let operator = scene.operate();
    sleep(Duration::from_secs(80)).await;
    assert!(pauses.remaining(schedule.meta()).is_some());
    server.remove(SCHEDULE);
    sleep(Duration::from_secs(90)).await;
    assert_eq!(
        pauses.begin(schedule.meta()),
        Duration::from_secs(2),
        "it was forgotten"
    );
    operator.abort();
}

#[tokio::test(start_paused = true)]
async fn a_run_of_another_owner_is_left_alone() {
    let mut scene = Scene::new(json!({}));
    scene.server.put(
        &format!("{RUNS}/{FIRST}"),
        json!({"metadata": {"name": FIRST, "namespace": "bench"}, "spec": {"workload": {"ping": {}}}}),
    );
    scene.later(60).await;
    scene.reconcile().await.unwrap();
    let text = scene.status().to_string();
    assert!(
        text.contains("NameConflict") && text.contains("does not belong to this schedule"),
        "{text}"
    );
    scene.later(60).await;
    scene.reconcile().await.unwrap();
    assert_eq!(scene.names(), [FIRST, SECOND]);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_whose_spec_is_not_kept_is_read_again() {
    let template = json!({"client": {"nodeSelector": {"disk": "fast"}}});
    let run = json!({"spec": {"workload": {"ping": {}}, "template": template}});
    let mut scene = Scene::new(json!({"runTemplate": run}));
    scene.reconcile().await.unwrap();
    scene.later(60).await;
    let mut unkept = WatchedSchedule::clone(&scene.schedule());
    unkept.keep_within(|_| None);
    assert!(!format!("{unkept:?}").contains("fast"));
    let reconciled = reconcile(Arc::new(unkept), scene.context.clone()).await;
    reconciled.unwrap();
    let run = scene.server.object(&format!("{RUNS}/{FIRST}")).unwrap();
    assert_eq!(run["spec"]["template"]["client"]["nodeSelector"]["disk"], "fast");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_schedule_creates_nothing_and_has_an_event() {
    let mut scene = Scene::new(json!({"concurrencyPolicy": "Sometimes"}));
    scene.later(60).await;
    assert_eq!(scene.reconcile().await.unwrap(), Action::await_change());
    assert!(scene.server.take_changes().is_empty());
    assert_eq!(scene.server.event_reasons(), ["Unreadable"]);
}

#[tokio::test(start_paused = true)]
async fn many_schedules_are_reconciled_eight_at_a_time() {
    let server = TestServer::new();
    for number in 0..20 {
        Scene::create(&server, &format!("schedule-{number}"), json!({}));
    }
    server.script(Method::PATCH, "/status", Answer::DoLate(1));
    let operator = Scene::on(server.clone()).operate();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(server.take_changes().len(), 8);
    sleep(Duration::from_secs(10)).await;
    let schedules = server.objects("/perfschedules");
    let are_reported = schedules.iter().all(|schedule| !schedule["status"].is_null());
    assert!(schedules.len() == 20 && are_reported, "{schedules:?}");
    operator.abort();
}
