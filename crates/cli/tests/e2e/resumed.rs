//! `perfrun run --resume`.

use perfrun_contract::run::RunState;
use rustix::process::Signal;

use crate::{
    document,
    perfrun::{Mode, Place, Running, by_attempt, entries, results},
};

#[test]
fn a_run_is_gone_on_with_where_it_was_stopped_or_killed() {
    for mode in Mode::available() {
        let place = Place::new();
        let mut perfrun = place.start(mode, &document::steady("patchy", 300, 8));
        perfrun.says("[2/8]");
        perfrun.signal(Signal::INT);
        perfrun.ended().expect(130);
        let folder = place.only_run();
        let first = results(&folder);

        let resume = ["run", "--resume", folder.to_str().unwrap()];
        let mut perfrun = Running::start(place.perfrun(&resume));
        perfrun.says("[5/8]");
        // Two at the same time would write over each other.
        let second = place.call(&resume).expect(1);
        assert!(
            second.stderr.contains("another perfrun process is using it"),
            "{second}"
        );
        perfrun.signal(Signal::KILL);
        perfrun.ended();

        let ended = place.resume().expect(0);
        assert!(
            !ended.stderr.contains("[5/8]"),
            "that was measured before: {ended}"
        );
        assert!(ended.stderr.contains("[8/8]"), "{ended}");
        let last = results(&folder);
        assert_eq!((last.state, &last.reason), (RunState::Complete, &None));
        assert_eq!(by_attempt(&last).len(), 8);
        assert_eq!(last.trials[..first.trials.len()], first.trials, "as they were");
        assert!(
            last.trials.is_sorted_by_key(|record| record.at_seconds),
            "times go on"
        );
        assert!(last.environment.nodes.contains_key("client-0"));
        assert_eq!(entries(&folder).len(), 4);

        let again = place.resume().expect(0);
        assert!(again.stderr.contains("nothing left to run"), "{again}");
        assert!(again.stdout.contains("Round trips"), "{again}");
        assert_eq!(results(&folder).trials, last.trials);
    }
}

#[test]
fn a_run_is_gone_on_with_as_it_was_begun() {
    let place = Place::new();
    let mut perfrun = place.start(Mode::Loopback, &document::steady("loops", 300, 3));
    perfrun.says("[1/3]");
    perfrun.signal(Signal::INT);
    perfrun.ended().expect(130);
    // Without --loopback, and without a right to namespaces.
    let ended = place.resume().expect(0);
    assert!(ended.stderr.contains("all on one loopback interface"), "{ended}");

    if !Mode::available().any(|mode| mode == Mode::Namespaces) {
        return;
    }
    let place = Place::new();
    let mut perfrun = place.start(Mode::Namespaces, &document::steady("spaces", 300, 3));
    perfrun.says("[1/3]");
    perfrun.signal(Signal::INT);
    perfrun.ended().expect(130);
    let folder = place.only_run();
    let ended = place
        .call(&["run", "--loopback", "--resume", folder.to_str().unwrap()])
        .expect(1);
    assert!(ended.stderr.contains("resume it without --loopback"), "{ended}");
    place.resume().expect(0);
}

#[test]
fn something_else_than_a_run_is_refused() {
    let place = Place::new();
    for folder in [".", "nowhere"] {
        let ended = place.call(&["run", "--resume", folder]).expect(1);
        assert!(
            ended.stderr.contains("name the results folder of a run"),
            "{ended}"
        );
    }
    assert!(entries(place.path()).is_empty(), "nothing was made");
}
