//! PerfSchedules: what is accepted, what is refused, and the runs that they create.

use jiff::Timestamp;
use perfrun_api::{
    cluster::SCHEDULE_LABEL,
    document::parse_schedules,
    schedule::{ConcurrencyPolicy, PerfSchedule},
};

fn text(fields: &str) -> String {
    format!(
        "apiVersion: perfrun.io/v1alpha1\nkind: PerfSchedule\nmetadata: {{name: nightly, namespace: bench, uid: u}}\n\
         spec: {{schedule: '@daily', runTemplate: {{spec: {{workload: {{ping: {{}}}}}}}}{fields}}}"
    )
}

fn schedule(fields: &str) -> PerfSchedule {
    parse_schedules(&text(fields)).unwrap().remove(0)
}

#[test]
fn an_omitted_field_of_a_schedule_has_the_default_of_a_cron_job() {
    let spec = schedule("").spec;
    assert_eq!(spec.concurrency_policy, ConcurrencyPolicy::Allow);
    assert_eq!((spec.time_zone, spec.starting_deadline_seconds), (None, None));
    assert!(!spec.suspend);
    assert_eq!(
        (spec.successful_runs_history_limit, spec.failed_runs_history_limit),
        (3, 1)
    );
    assert_eq!(spec.run_template.spec.iterations, 10, "as in a PerfRun");
}

#[test]
fn a_wrong_field_of_a_schedule_is_named_with_its_path() {
    for (from, to, words) in [
        ("'@daily'", "'0 3 * *'", "spec.schedule: must have five fields"),
        (
            "'@daily'",
            "'@daily', concurrencyPolicy: Never",
            "spec.concurrencyPolicy: must be Allow, Forbid or Replace, not",
        ),
        (
            "'@daily'",
            "'@daily', startingDeadlineSeconds: 0",
            "spec.startingDeadlineSeconds: must be a number from 1 to 2147483647",
        ),
        (
            "name: nightly,",
            "name: Nightly,",
            "metadata.name must be 1 to 52",
        ),
        (
            "workload: {ping: {}}",
            "workload: {}",
            "spec.runTemplate.spec.workload",
        ),
        (
            "runTemplate: {",
            "runTemplate: {metadata: {labels: {perfrun.io/run: a}}, ",
            "must not have keys that begin with perfrun.io/",
        ),
        (
            "kind: PerfSchedule",
            "kind: PerfRun",
            "it is a PerfRun of perfrun.io/v1alpha1",
        ),
    ] {
        let refused = parse_schedules(&text("").replace(from, to))
            .unwrap_err()
            .to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn a_run_is_that_of_the_template_and_belongs_to_its_schedule() {
    let mut schedule = schedule("");
    let labels = &mut schedule.spec.run_template.metadata.labels;
    labels.insert("team".to_owned(), "net".to_owned());
    let due: Timestamp = "2026-11-26T00:00:00Z".parse().unwrap();
    let run = schedule.run(due);
    let metadata = run.metadata;
    assert_eq!(metadata.name.as_deref(), Some("nightly-29927520"));
    assert_eq!(metadata.namespace.as_deref(), Some("bench"));
    let labels = metadata.labels.unwrap();
    assert_eq!(
        (labels["team"].as_str(), labels[SCHEDULE_LABEL].as_str()),
        ("net", "nightly")
    );
    let [owner] = &metadata.owner_references.unwrap()[..] else {
        panic!("one owner")
    };
    assert_eq!((owner.uid.as_str(), owner.controller), ("u", Some(true)));
    assert_eq!(run.spec, schedule.spec.run_template.spec);
}
