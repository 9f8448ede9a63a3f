//! Changes to an existing PerfRun.

use perfrun_api::document::broken_rules_of_change;

use crate::fixtures::run;

const BEFORE: &str = "workload: {bandwidth: {sizes: [1Ki]}}\nstacks: [{name: next, stack: libp2p}]";

fn problems_of(after: &str) -> Vec<String> {
    let problems = broken_rules_of_change(&run(BEFORE), &run(after));
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn suspend_cancel_and_cleanup_may_change() {
    assert_eq!(problems_of(BEFORE), [""; 0]);
    for change in [
        "suspend: true",
        "cancel: true",
        "cleanup: {ttlSecondsAfterFailure: 60, keepPodsOnFailure: true}",
    ] {
        assert_eq!(problems_of(&format!("{BEFORE}\n{change}")), [""; 0], "{change}");
    }
}

#[test]
fn fields_other_than_suspend_cancel_and_cleanup_may_not_change() {
    let workload = BEFORE.replace("1Ki", "2Ki");
    let stacks = BEFORE.replace("next", "last");
    let added = |change: &str| format!("{BEFORE}\n{change}");
    for after in [
        workload,
        stacks,
        added("matrix: {transports: [quic-v1]}"),
        added("networks: [{name: far, delay: 1ms}]"),
        added("iterations: 11"),
        added("warmup: 0"),
        added("order: sequential"),
        added("topology: {clients: 2}"),
        added("template: {client: {runtimeClassName: gvisor}}"),
        added("timeouts: {trial: 5ms}"),
        added("results: {store: {volume: {claim: disk}}}"),
    ] {
        assert_eq!(
            problems_of(&after),
            ["spec: only suspend, cancel and cleanup can change: create a new PerfRun for everything else"],
            "{after}"
        );
    }
}

/// Earlier versions stored the default.
#[test]
fn an_echo_that_pauses_by_default_equals_one_with_that_pause() {
    let echo = |pace: &str| {
        run(&format!(
            "workload: {{echo: {{loads: [{{preset: scenario-1}}]{pace}}}}}"
        ))
    };
    let stored = echo(", pause: 500ms");
    for (pace, broken) in [
        ("", 0),
        (", pause: 500ms", 0),
        (", pause: 400ms", 1),
        (", period: 500ms", 1),
    ] {
        let problems = broken_rules_of_change(&stored, &echo(pace));
        assert_eq!(problems.len(), broken, "{pace}: {problems:?}");
        let problems = broken_rules_of_change(&echo(pace), &stored);
        assert_eq!(problems.len(), broken, "{pace}: {problems:?}");
    }
}

#[test]
fn a_changed_document_must_also_be_valid() {
    let mut new = run(BEFORE);
    new.spec.suspend = true;
    new.metadata.name = Some("Bad".into());
    let problems = broken_rules_of_change(&run(BEFORE), &new);
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].to_string().starts_with("metadata.name must be"),
        "{problems:?}"
    );
}
