//! What a report says of trials that something outside the stack disturbed.

use perfrun_contract::record::{Flag, Standstill, TrialRecord};
use perfrun_report::markdown;
use perfrun_test_kit::results::run;

use super::rendered::{QUICKSTART, shown};

#[test]
fn disturbed_trials_are_mentioned_first_and_below_their_numbers() {
    let results = run(QUICKSTART)
        .flagged("/c1.i2", Flag::Disturbed)
        .flagged("/c1.i7", Flag::Disturbed)
        .results();
    let rendered = markdown(&results.reported_run());
    let note = "Up to half of the trials: other processes or the hypervisor kept the machine busy";
    assert!(rendered.contains(note), "{rendered}");
    let warning = "other work disturbed 2 of 200 trials";
    assert!(rendered.contains(warning), "{rendered}");
    let first = shown(&results, 100);
    assert!(first.starts_with("WARNING: The machine was busy: "), "{first}");
}

#[test]
fn where_all_trials_were_disturbed_only_the_first_warning_mentions_it() {
    let rendered = markdown(
        &run(QUICKSTART)
            .flagged("", Flag::Disturbed)
            .results()
            .reported_run(),
    );
    assert!(
        rendered.contains("other work disturbed all 200 trials that count"),
        "{rendered}"
    );
    assert!(!rendered.contains("kept the machine busy"), "{rendered}");
}

#[test]
fn late_and_lost_packets_have_two_notes_and_none_where_the_warning_says_it_of_all() {
    for (flag, words) in [
        (Flag::ImpairmentLate, "packets left an impaired link later"),
        (Flag::ImpairmentDrops, "an impaired link lost packets"),
    ] {
        let some = run(QUICKSTART)
            .flagged("/c1.i2", flag)
            .flagged("/c2.i1", flag)
            .flagged("/c2.i7", flag)
            .flagged("/c3.", flag);
        let rendered = markdown(&some.results().reported_run());
        for note in ["Up to half of the trials", "More than half of the trials"] {
            assert!(rendered.contains(&format!("{note}: {words}")), "{rendered}");
        }
        assert!(
            !rendered.contains(&format!(" of 10 trials: {words}")),
            "{rendered}"
        );

        let rendered = markdown(&run(QUICKSTART).flagged("", flag).results().reported_run());
        assert_eq!(rendered.matches(words).count(), 1, "{rendered}");
    }
}

#[test]
fn a_flag_of_no_trial_that_counts_has_no_footnote() {
    let mut results = run(QUICKSTART).results();
    for row in &mut results.summary {
        row.flags.insert(Flag::Disturbed, 0);
    }
    let rendered = markdown(&results.reported_run());
    assert!(
        !rendered.contains("0 of 10 trials") && !rendered.contains("kept the machine busy"),
        "{rendered}"
    );
}

#[test]
fn a_node_that_stood_still_is_named() {
    let spec = "
  workload: {ping: {count: 10}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], rawReference: false}
  iterations: 5
";
    let busy = "other processes or the hypervisor kept the machine busy";
    let disturbed = ["c0.i0", "c0.i1", "c0.i2", "c0.i3"];
    let run = disturbed
        .into_iter()
        .fold(run(spec), |run, trial| run.flagged(trial, Flag::Disturbed));
    let mut results = run.results();
    let mut still = |trial: &str, node: &str, seconds| {
        let of_trial = |record: &&mut TrialRecord| record.trial.id == trial;
        let record = results.trials.iter_mut().find(of_trial).unwrap();
        record.standstill = Some(Standstill {
            node: node.to_owned(),
            seconds,
        });
        markdown(&results.reported_run())
    };
    let rendered = still("c0.i1", "client-0", 4.12);
    assert!(
        rendered.contains("1 of 5 trials: client-0 stood still for 4.1 s"),
        "{rendered}"
    );
    assert!(
        rendered.contains(&format!("More than half of the trials: {busy}")),
        "{rendered}"
    );
    let rendered = still("c0.i0", "server-0", 5.3);
    let worst = "2 of 5 trials: a node stood still; in the worst, server-0 stood still for 5.3 s";
    assert!(rendered.contains(worst), "{rendered}");
    still("c0.i2", "server-0", 1.2);
    let rendered = still("c0.i3", "server-0", 1.3);
    assert!(
        rendered.contains("4 of 5 trials: a node stood still"),
        "{rendered}"
    );
    assert!(!rendered.contains(busy), "{rendered}");
}
