//! Decisions at fixed times.

use kube::runtime::events::EventType;
use perfrun_api::document::parse_schedules;

use super::*;

/// A schedule, its status and its runs, at a time that the test sets.
struct Scene {
    schedule: PerfSchedule,
    status: PerfScheduleStatus,
    runs: Vec<OwnedRun>,
    now: Timestamp,
}

impl Scene {
    /// Created one second after 00:00 on 26 November 2026, with these fields.
    fn new(fields: &str) -> Self {
        let text = format!(
            "apiVersion: perfrun.io/v1alpha1\nkind: PerfSchedule\n\
             metadata: {{name: nightly, namespace: bench, uid: u, generation: 1, creationTimestamp: '2026-11-26T00:00:01Z'}}\n\
             spec: {{{fields}, runTemplate: {{spec: {{workload: {{ping: {{}}}}}}}}}}"
        );
        Self {
            schedule: parse_schedules(&text).unwrap().remove(0),
            status: PerfScheduleStatus::default(),
            runs: vec![],
            now: at("2026-11-26T00:00:01Z"),
        }
    }

    fn decide(&self) -> Decision {
        decide(&self.inputs())
    }

    fn inputs(&self) -> Inputs<'_> {
        let Self {
            schedule,
            status,
            runs,
            now,
        } = self;
        Inputs {
            schedule,
            status,
            runs,
            is_paused: false,
            now: *now,
        }
    }

    /// Reconciles at this time, and succeeds. Returns when the created run was due.
    fn reconcile(&mut self, now: &str) -> Option<String> {
        self.now = at(now);
        let Decision {
            replace,
            create,
            status,
            expire,
            ..
        } = self.decide();
        self.runs
            .retain(|run| !replace.contains(run) && !expire.contains(run));
        if let Some(due) = create {
            let name = run_name("nightly", due);
            self.runs.push(OwnedRun {
                uid: format!("uid-of-{name}"),
                name,
                deleting: false,
                ended: None,
            });
        }
        self.status = status;
        create.map(|due| due.to_string())
    }

    /// The active run ends.
    fn end(&mut self, phase: Phase, verdict: Option<Verdict>) {
        let run = self.runs.iter_mut().find(|run| run.ended.is_none()).unwrap();
        run.ended = Some(EndedRun {
            name: run.name.clone(),
            schedule_time: Time(perfrun_api::schedule::due("nightly", &run.name).unwrap()),
            completion_time: Some(Time(self.now)),
            phase,
            verdict,
            seed: Some(7),
            message: "20 of 20 trials completed".to_owned(),
        });
    }

    /// Status, reason and message of a condition.
    fn condition(&self, type_: Type) -> (&str, &str, &str) {
        let condition = find_condition(&self.status, type_).unwrap();
        (&condition.status, &condition.reason, &condition.message)
    }

    /// Reconciles every minute, and returns when the created runs were due.
    fn simulate(&mut self, from: &str, minutes: i64) -> Vec<String> {
        let from = at(from);
        self.schedule.metadata.creation_timestamp = Some(Time(from));
        let times = (0..minutes).map(|minute| from + SignedDuration::from_mins(minute));
        times
            .filter_map(|time| self.reconcile(&time.to_string()))
            .collect()
    }
}

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn reasons(previous: &PerfScheduleStatus, decision: &Decision) -> Vec<String> {
    let events = events(previous, decision);
    events.into_iter().map(|event| event.reason).collect()
}

#[test]
fn a_run_is_created_when_it_is_due_and_once() {
    let mut scene = Scene::new("schedule: '30 3 * * *'");
    assert_eq!(scene.reconcile("2026-11-26T00:00:01Z"), None);
    assert_eq!(
        scene.condition(Type::Accepted),
        ("True", "Valid", "the next run is due at 2026-11-26 03:30 UTC")
    );
    assert_eq!(scene.condition(Type::Scheduled).0, "Unknown");
    assert_eq!(scene.reconcile("2026-11-26T03:29:59Z"), None);
    assert_eq!(scene.decide().wake, Some(Duration::from_secs(1)));
    assert_eq!(
        scene.reconcile("2026-11-26T03:30:00Z").as_deref(),
        Some("2026-11-26T03:30:00Z")
    );
    assert_eq!(scene.reconcile("2026-11-26T03:30:01Z"), None);
    let active: Vec<_> = scene
        .status
        .active
        .iter()
        .filter_map(|run| run.name.as_deref())
        .collect();
    assert_eq!(active, ["nightly-29927730"]);
    assert_eq!(
        scene.status.last_schedule_time,
        Some(Time(at("2026-11-26T03:30:00Z")))
    );
    assert_eq!(scene.decide().wake, Some(WAKE_MAX), "clocks are set");
}

#[test]
fn a_run_whose_creation_was_not_recorded_is_not_created_again() {
    let mut scene = Scene::new("schedule: '@hourly'");
    let before = scene.status.clone();
    scene.reconcile("2026-11-26T01:00:00Z").unwrap();
    scene.status = before;
    assert_eq!(scene.reconcile("2026-11-26T01:00:02Z"), None);
    assert_eq!(
        scene.status.last_schedule_time,
        Some(Time(at("2026-11-26T01:00:00Z")))
    );
    assert_eq!(scene.condition(Type::Scheduled).1, "RunCreated");
}

#[test]
fn of_runs_that_were_missed_only_the_last_is_created() {
    let mut scene = Scene::new("schedule: '@hourly'");
    scene.now = at("2026-11-30T04:30:00Z");
    let decision = scene.decide();
    assert_eq!(decision.create, Some(at("2026-11-30T04:00:00Z")));
    assert_eq!(
        reasons(&scene.status, &decision),
        ["RunCreated"],
        "100 were missed"
    );
    scene.now = at("2026-11-30T05:30:00Z");
    let decision = scene.decide();
    assert_eq!(decision.create, Some(at("2026-11-30T05:00:00Z")));
    assert_eq!(
        reasons(&scene.status, &decision),
        ["TooManyMissedTimes", "RunCreated"]
    );
}

#[test]
fn a_run_is_missed_when_its_deadline_is_over() {
    let mut scene = Scene::new("schedule: '@hourly', startingDeadlineSeconds: 60");
    assert_eq!(scene.reconcile("2026-11-26T01:01:01Z"), None);
    let (status, reason, message) = scene.condition(Type::Scheduled);
    assert_eq!((status, reason), ("False", "DeadlineMissed"));
    assert_eq!(scene.status.reason.as_deref(), Some(reason));
    assert!(
        message.contains("due at 2026-11-26 01:00 UTC is missed"),
        "{message}"
    );
    assert_eq!(
        reasons(&PerfScheduleStatus::default(), &scene.decide()),
        ["DeadlineMissed"]
    );
    assert!(
        reasons(&scene.status, &scene.decide()).is_empty(),
        "it is reported once"
    );
    assert_eq!(
        scene.reconcile("2026-11-26T02:01:00Z").as_deref(),
        Some("2026-11-26T02:00:00Z")
    );
    scene.now = at("2026-12-26T02:00:10Z");
    assert_eq!(
        reasons(&scene.status, &scene.decide()),
        ["RunCreated"],
        "what the deadline excludes is not counted as missed"
    );
}

#[test]
fn a_change_of_the_clock_neither_loses_nor_repeats_a_run() {
    let nightly = "schedule: '30 2 * * *', timeZone: Europe/Berlin";
    let spring = Scene::new(nightly).simulate("2026-03-27T22:00:00Z", 3 * 24 * 60);
    assert_eq!(
        spring,
        [
            "2026-03-28T01:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-30T00:30:00Z"
        ],
        "at 03:00 instead of 02:30, which does not exist"
    );
    let autumn = Scene::new(nightly).simulate("2026-10-24T12:00:00Z", 2 * 24 * 60);
    assert_eq!(
        autumn,
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        "02:30 exists twice"
    );
}

#[test]
fn a_suspended_schedule_creates_nothing_until_it_continues() {
    let mut scene = Scene::new("schedule: '@hourly', suspend: true");
    assert_eq!(scene.reconcile("2026-11-26T02:10:00Z"), None);
    assert_eq!(scene.condition(Type::Accepted).1, "Suspended");
    assert_eq!(scene.status.reason.as_deref(), Some("Suspended"));
    scene.schedule.spec.suspend = false;
    assert_eq!(
        scene.reconcile("2026-11-26T02:11:00Z").as_deref(),
        Some("2026-11-26T02:00:00Z")
    );
}

#[test]
fn a_run_beside_another_depends_on_the_policy() {
    let mut scene = Scene::new("schedule: '@hourly'");
    scene.reconcile("2026-11-26T01:00:00Z").unwrap();
    scene.reconcile("2026-11-26T02:00:00Z").unwrap();
    assert_eq!(scene.runs.len(), 2);

    let mut scene = Scene::new("schedule: '@hourly', concurrencyPolicy: Replace");
    scene.reconcile("2026-11-26T01:00:00Z").unwrap();
    scene.reconcile("2026-11-26T02:00:00Z").unwrap();
    let names: Vec<_> = scene.runs.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names, ["nightly-29927640"]);
    let (_, _, message) = scene.condition(Type::Scheduled);
    assert!(
        message.ends_with("in place of nightly-29927580, which had not ended"),
        "{message}"
    );

    let mut scene = Scene::new("schedule: '@hourly', concurrencyPolicy: Forbid");
    scene.reconcile("2026-11-26T01:00:00Z").unwrap();
    assert_eq!(scene.reconcile("2026-11-26T02:00:00Z"), None);
    let (status, reason, message) = scene.condition(Type::Scheduled);
    assert_eq!((status, reason), ("False", "RunActive"));
    assert!(
        message.contains("waits until nightly-29927580 has ended"),
        "{message}"
    );
    scene.end(Phase::Succeeded, None);
    assert_eq!(
        scene.reconcile("2026-11-26T02:20:00Z").as_deref(),
        Some("2026-11-26T02:00:00Z")
    );
}

#[test]
fn at_most_three_runs_of_a_schedule_wait() {
    let mut scene = Scene::new("schedule: '@hourly'");
    for hour in 1..=3 {
        assert!(scene.reconcile(&format!("2026-11-26T0{hour}:00:00Z")).is_some());
    }
    assert_eq!(scene.reconcile("2026-11-26T04:00:00Z"), None);
    let (status, reason, message) = scene.condition(Type::Scheduled);
    assert_eq!((status, reason), ("False", "RunActive"));
    assert!(
        message.ends_with("waits until nightly-29927580 or another of 3 runs has ended"),
        "{message}"
    );
    scene.end(Phase::Succeeded, None);
    assert_eq!(
        scene.reconcile("2026-11-26T05:20:00Z").as_deref(),
        Some("2026-11-26T05:00:00Z"),
        "of those that waited, the last"
    );
}

#[test]
fn at_most_three_runs_that_are_replaced_are_left() {
    let mut scene = Scene::new("schedule: '@hourly', concurrencyPolicy: Replace");
    for hour in 1..=3 {
        assert!(scene.reconcile(&format!("2026-11-26T0{hour}:00:00Z")).is_some());
        // Something keeps it, for example a finalizer.
        let kept = OwnedRun {
            name: format!("nightly-{hour}"),
            uid: format!("uid-{hour}"),
            deleting: true,
            ended: None,
        };
        scene.runs.insert(0, kept);
    }
    assert_eq!(scene.reconcile("2026-11-26T04:00:00Z"), None);
    assert_eq!(scene.condition(Type::Scheduled).1, "RunActive");
    scene.runs.remove(0);
    assert!(scene.reconcile("2026-11-26T04:00:01Z").is_some());
}

#[test]
fn many_runs_are_replaced_a_few_at_a_time() {
    let mut scene = Scene::new("schedule: '@hourly', concurrencyPolicy: Replace");
    let earlier = (0..20).map(|number| OwnedRun {
        name: format!("nightly-{number}"),
        uid: format!("uid-{number}"),
        deleting: false,
        ended: None,
    });
    scene.runs = earlier.collect();
    let mut reconcile = || {
        (
            scene.reconcile("2026-11-26T01:00:00Z").is_some(),
            scene.runs.len(),
        )
    };
    assert_eq!(
        [reconcile(), reconcile(), reconcile()],
        [(false, 12), (false, 4), (true, 1)]
    );
    assert_eq!(scene.condition(Type::Scheduled).1, "RunCreated");
}

#[test]
fn at_most_three_ended_runs_that_something_keeps_are_left() {
    let mut scene = Scene::new("schedule: '@hourly', successfulRunsHistoryLimit: 0");
    for hour in 1..=3 {
        scene.reconcile(&format!("2026-11-26T0{hour}:00:00Z")).unwrap();
        scene.end(Phase::Succeeded, None);
        // A finalizer keeps it.
        scene.runs.last_mut().unwrap().deleting = true;
    }
    assert_eq!(scene.reconcile("2026-11-26T04:00:00Z"), None);
    assert_eq!(
        scene.condition(Type::Scheduled),
        (
            "False",
            "RunsNotDeleted",
            "the run that was due at 2026-11-26 04:00 UTC waits until earlier runs are deleted"
        )
    );
    scene.runs.remove(0);
    assert!(scene.reconcile("2026-11-26T04:00:01Z").is_some());
}

#[test]
fn a_clock_that_goes_back_creates_no_run_twice_and_does_not_stop_the_schedule() {
    let mut scene = Scene::new("schedule: '@hourly'");
    scene.reconcile("2026-11-26T02:00:00Z").unwrap();
    assert_eq!(scene.reconcile("2026-11-26T01:59:00Z"), None);
    assert_eq!(scene.reconcile("2026-11-26T02:00:00Z"), None, "it exists");
    // Once the clock was a year ahead.
    scene.status.last_schedule_time = Some(Time(at("2027-11-26T02:00:00Z")));
    assert_eq!(scene.reconcile("2026-11-26T02:30:00Z"), None);
    scene.now = at("2026-11-26T02:59:59Z");
    assert_eq!(scene.decide().wake, Some(Duration::from_secs(1)));
}

#[test]
fn the_history_keeps_what_a_newer_version_has_written_of_a_run() {
    let mut scene = Scene::new("schedule: '@hourly'");
    scene.reconcile("2026-11-26T01:00:00Z").unwrap();
    scene.end(Phase::Succeeded, Some(Verdict::Pass));
    scene.reconcile("2026-11-26T01:05:00Z");
    scene.status.history[0].message = "all trials completed, and nothing was too hot".to_owned();
    let written = scene.status.history.clone();
    scene.reconcile("2026-11-26T01:10:00Z");
    assert_eq!(scene.status.history, written);
}

#[test]
fn verdicts_of_runs_outlive_them_in_the_status_of_their_schedule() {
    let mut scene =
        Scene::new("schedule: '@hourly', successfulRunsHistoryLimit: 2, failedRunsHistoryLimit: 1");
    let ends = [
        (Phase::Succeeded, Some(Verdict::Pass)),
        (Phase::Succeeded, Some(Verdict::Fail)),
        (Phase::Succeeded, Some(Verdict::Inconclusive)),
        (Phase::Failed, None),
        (Phase::Succeeded, Some(Verdict::Pass)),
    ];
    for (hour, (phase, verdict)) in (1..).zip(ends) {
        scene.reconcile(&format!("2026-11-26T0{hour}:00:00Z")).unwrap();
        scene.end(phase, verdict);
        scene.reconcile(&format!("2026-11-26T0{hour}:05:00Z"));
    }
    let kept: Vec<_> = scene.runs.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(kept, ["nightly-29927700", "nightly-29927760", "nightly-29927820"]);
    let verdicts: Vec<_> = scene
        .status
        .history
        .iter()
        .map(|run| (run.phase, run.verdict))
        .collect();
    assert_eq!(
        verdicts,
        ends.into_iter().rev().collect::<Vec<_>>(),
        "newest first"
    );
    assert_eq!(
        scene.status.last_successful_time,
        Some(Time(at("2026-11-26T05:00:00Z"))),
        "when the last one ended that counts as successful"
    );
}

#[test]
fn the_history_is_bounded() {
    let mut scene = Scene::new("schedule: '* * * * *', successfulRunsHistoryLimit: 60");
    for minute in 1..60 {
        scene
            .reconcile(&format!("2026-11-26T00:{minute:02}:00Z"))
            .unwrap();
        scene.end(Phase::Succeeded, None);
    }
    scene.reconcile("2026-11-26T00:59:30Z");
    assert_eq!(scene.runs.len(), 59);
    assert_eq!(scene.status.history.len(), HISTORY_MAX);
    assert_eq!(
        scene.status.history[0].schedule_time,
        Time(at("2026-11-26T00:59:00Z"))
    );
}

#[test]
fn the_end_of_a_run_is_an_event_that_warns_of_failures() {
    let mut scene = Scene::new("schedule: '@hourly'");
    scene.reconcile("2026-11-26T01:00:00Z").unwrap();
    scene.end(Phase::Succeeded, Some(Verdict::Fail));
    let events = events(&scene.status, &scene.decide());
    let [event] = &events[..] else { panic!("one event") };
    assert!(matches!(event.type_, EventType::Warning));
    assert_eq!(
        event.note.as_deref(),
        Some("nightly-29927580 ended as Succeeded, Fail: 20 of 20 trials completed")
    );
}

#[test]
fn an_invalid_schedule_creates_nothing_and_reports_the_reason() {
    for (fields, reason, words) in [
        ("schedule: '0 25 * * *'", "InvalidSchedule", "write minute, hour"),
        ("schedule: '0 3 31 4 *'", "InvalidSchedule", "never comes"),
        (
            "schedule: '@daily', timeZone: CEST2",
            "UnknownTimeZone",
            "write a name such as Europe/Berlin",
        ),
    ] {
        let mut scene = Scene::new(fields);
        assert_eq!(scene.reconcile("2026-11-28T00:00:00Z"), None);
        let (status, stated, message) = scene.condition(Type::Accepted);
        assert_eq!((status, stated), ("False", reason));
        assert!(message.contains(words), "{message}");
        assert_eq!(reasons(&PerfScheduleStatus::default(), &scene.decide()), [reason]);
    }
}

#[test]
fn a_template_without_a_plan_is_refused_until_it_changes() {
    let mut scene = Scene::new("schedule: '@daily'");
    let iterations = scene.schedule.spec.run_template.spec.iterations;
    scene.schedule.spec.run_template.spec.iterations = u32::MAX;
    assert_eq!(scene.reconcile("2026-11-28T00:00:00Z"), None);
    let (status, reason, message) = scene.condition(Type::Accepted);
    assert_eq!((status, reason), ("False", "InvalidTemplate"));
    assert!(
        message.starts_with("spec.runTemplate.spec: too many trials"),
        "{message}"
    );
    scene.schedule.spec.run_template.spec.iterations = iterations;
    scene.schedule.metadata.generation = Some(2);
    assert!(scene.reconcile("2026-11-28T00:00:01Z").is_some());
}

#[test]
fn a_run_that_was_refused_stays_due_and_is_not_requested_before_the_pause_is_over() {
    let mut scene = Scene::new("schedule: '@hourly'");
    scene.now = at("2026-11-26T01:00:00Z");
    let cause = Cause::new(Reason::ApiServerRefuses, "exceeded quota: small".to_owned());
    let decision = after_failure(scene.decide(), cause, &scene.inputs());
    assert_eq!(reasons(&scene.status, &decision), ["APIServerRefuses"]);
    scene.status = decision.status;
    assert_eq!(
        scene.condition(Type::Scheduled),
        ("False", "APIServerRefuses", "exceeded quota: small")
    );
    let paused = decide(&Inputs {
        is_paused: true,
        ..scene.inputs()
    });
    assert_eq!((paused.create, &paused.status), (None, &scene.status));
    assert_eq!(
        scene.reconcile("2026-11-26T01:00:02Z").as_deref(),
        Some("2026-11-26T01:00:00Z")
    );
}
