//! `perfrun link` as a process, on a link between two network namespaces.
//!
//! All tests need root, and are skipped by name elsewhere. The tests of `perfrun-emulator` cover the kernel's
//! backend, on kernels with netem.

// Helpers outside of `#[test]` functions fail a test by panicking, as those do; what they print is for its
// output.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod lab;

use perfrun_test_kit::{Need, skip};
use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use self::lab::{Ended, FAR, Lab, NEAR};

/// Long enough that a hundredth of it, the tolerance of a link, is more than what a busy machine adds.
const DELAY: [&str; 2] = ["--delay", "100ms"];

#[test]
fn a_link_in_user_space_is_impaired_while_the_command_runs() {
    let Some(lab) = Lab::new() else { return };
    assert_eq!(lab.show()["found"], "nothing");
    let mut set = lab.set(&[&DELAY[..], &["--loss", "1%"]].concat());
    let told = set.next_object();
    assert_eq!(told["found"], "userspace");
    assert_eq!(told["state"]["link"][0]["peers"][0], FAR);

    let right = lab.probe(&["--forward", "delay=100ms,loss=1%", "--json"]);
    let findings: Value = serde_json::from_str(&right.stdout).unwrap();
    assert_eq!(findings["asExpected"], right.success, "{right}");
    let milliseconds = lab::round_trip(&right).as_millis();
    assert!((100..120).contains(&milliseconds), "{right}");
    let wrong = lab.probe(&["--forward", "delay=5ms"]);
    assert!(
        !wrong.success && wrong.stdout.contains("not as configured"),
        "{wrong}"
    );

    let shown = lab.show();
    assert_eq!(shown["process"], set.id(), "{shown}");
    let packets = &shown["state"]["traffic"][0]["packetsIn"];
    assert!(packets.as_u64().unwrap() > 5000, "{shown}");
    let words = lab.perfrun(&["link", "show"]);
    assert!(words.stdout.contains("delay 100ms, loss 1%"), "{words}");
    assert!(words.stdout.contains(&format!("process {}", set.id())), "{words}");

    set.interrupt();
    assert_eq!(&set.next_object()["state"]["traffic"][0]["packetsIn"], packets);
    assert!(set.ended());
    assert_eq!(lab.show()["found"], "nothing");
    assert!(lab.is_open());
}

#[test]
fn a_killed_command_leaves_a_closed_link_that_is_shown_as_closed() {
    let Some(lab) = Lab::new() else { return };
    let mut set = lab.set(&DELAY);
    set.next_object();
    set.kill();
    let closed = lab.show();
    assert_eq!(
        (&closed["found"], &closed["peers"][0]),
        (&"closed".into(), &FAR.into())
    );
    let words = lab.perfrun(&["link", "show"]);
    assert!(words.success, "{words}");
    assert!(
        words.stdout.contains("has died, and none of them pass"),
        "{words}"
    );
    assert!(words.stdout.contains("`perfrun link clear`"), "{words}");

    let cleared = lab.perfrun(&["link", "clear"]);
    assert!(
        cleared.stdout.contains("the rules of a killed process"),
        "{cleared}"
    );
    assert_eq!(lab.show()["found"], "nothing");
    let again = lab.perfrun(&["link", "clear"]);
    assert!(
        again.success && again.stdout.contains("nothing to remove"),
        "{again}"
    );
    assert!(lab.is_open());

    // A successor takes the place of a dead one without help.
    let mut killed = lab.set(&DELAY);
    killed.next_object();
    killed.kill();
    let mut successor = lab.set(&["--delay", "150ms"]);
    successor.next_object();
    assert!(lab.has_impairment("delay=150ms"));
    successor.interrupt();
    assert!(successor.ended());
    assert_eq!(lab.show()["found"], "nothing");
}

#[test]
fn the_state_that_another_user_tells_is_not_shown() {
    let Some(lab) = Lab::new() else { return };
    let stranger = lab.socket_of_a_stranger("perfrun-link-eth0");
    let mut set = lab.set(&DELAY);
    let told = set.next_object()["state"].to_string();
    let telling = thread::spawn(move || {
        let (mut stream, _) = stranger.accept().unwrap();
        // Nobody may read it.
        let _ = stream.write_all(told.as_bytes());
    });
    let shown = lab.show();
    assert_eq!(
        (&shown["found"], &shown["peers"][0]),
        (&"silent".into(), &FAR.into())
    );
    telling.join().unwrap();
    set.interrupt();
    assert!(set.ended());
}

#[test]
fn a_link_can_be_cleared_under_a_command_that_runs() {
    let Some(lab) = Lab::new() else { return };
    let mut set = lab.set(&DELAY);
    set.next_object();
    let cleared = lab.perfrun(&["link", "clear"]);
    assert!(
        cleared.stdout.contains(&format!("process {}", set.id())),
        "{cleared}"
    );
    assert!(lab.is_open());
    // The impairment is already removed, which is not a failure.
    set.interrupt();
    assert!(set.ended());
    assert_eq!(lab.show()["found"], "nothing");
}

#[test]
fn rates_are_measured_both_ways_if_this_command_is_both_ends() {
    let Some(lab) = Lab::new() else { return };
    let mut set = lab.set(&["--rate", "20Mbit"]);
    set.next_object();
    let received = |ended: &Ended, rate: &str| {
        let object: Value = serde_json::from_str(&ended.stdout).unwrap();
        object.pointer(rate).unwrap()["receivedBitsPerSecond"]
            .as_f64()
            .unwrap()
    };
    lab::eventually(
        "bits per second on the way there",
        || {
            let there = lab.probe(&["--forward", "rate=20Mbit", "--json"]);
            received(&there, "/measurement/rate")
        },
        |rate| (19e6..21e6).contains(rate),
    );
    lab::eventually(
        "bits per second on the way back",
        || {
            let back = lab.probe_back(&["--backward", "rate=20Mbit", "--json"]);
            received(&back, "/rateBackward")
        },
        |rate| (19e6..21e6).contains(rate),
    );
}

#[test]
fn an_end_that_answers_is_found_by_its_port() {
    let Some(lab) = Lab::new() else { return };
    let mut serving = lab.serve();
    let begun = Instant::now();
    loop {
        let asked = lab.perfrun(&["link", "probe", "--to", FAR, "--time", "100ms", "--from", NEAR]);
        if asked.success {
            assert!(asked.stdout.starts_with("ROUND TRIP"), "{asked}");
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{asked}");
    }
    serving.interrupt();
    assert!(serving.ended());
}

#[test]
fn a_namespace_is_found_by_its_name_and_by_a_process_in_it() {
    let Some(lab) = Lab::new() else { return };
    let resident = lab.resident();
    let mut set = lab.set(&DELAY);
    let asked = set.next_object();
    for place in [["--netns", &resident.name], ["--pid", &resident.id()]] {
        let shown = lab::perfrun(&[&["link", "show", "--json"][..], &place].concat());
        let object: Value = serde_json::from_str(&shown.stdout).unwrap();
        assert_eq!(object["state"]["link"], asked["state"]["link"], "{shown}");
        assert_eq!(object["process"], set.id(), "{shown}");
    }
}

#[test]
fn a_user_without_rights_is_advised_how_to_remove_an_impairment() {
    let Some(lab) = Lab::new() else { return };
    let mut set = lab.set(&DELAY);
    set.next_object();
    let refused = lab.perfrun_without_rights(&["link", "clear"]);
    assert!(!refused.success, "{refused}");
    for words in ["run as root", "NET_ADMIN", "failed to remove"] {
        assert!(refused.stderr.contains(words), "{refused}");
    }
    assert_eq!(lab.show()["process"], set.id());
}

#[test]
fn a_peer_that_is_not_behind_the_interface_is_pointed_out() {
    let Some(lab) = Lab::new() else { return };
    let peers = ["link", "set", "--to", FAR, "--to", "203.0.113.9", "--to", NEAR];
    let refused = lab.perfrun(&[&peers, &DELAY[..]].concat());
    let own = format!("{NEAR} is an address of this network namespace");
    assert!(!refused.success && refused.stderr.contains(&own), "{refused}");
    let elsewhere = "packets to 203.0.113.9 do not leave through eth0, so nothing impairs them";
    assert!(refused.stderr.contains(elsewhere), "{refused}");
    assert!(!refused.stderr.contains(FAR), "{refused}");
}

#[test]
fn mistakes_of_link_commands_are_refused_with_advice() {
    let Some(lab) = Lab::new() else { return };
    for (arguments, words) in [
        (
            &["show", "-i", "eth7"][..],
            &["\"eth7\"", "eth0", "--interface"][..],
        ),
        (&["set", "--to", FAR], &["--delay", "perfrun link clear"]),
        (
            &["set", "--to", FAR, "--jitter", "5ms"],
            &["set a delay of at least as much"],
        ),
        (
            &["set", "--to", "0.0.0.0/0", "--delay", "5ms"],
            &["contains every address"],
        ),
        (&["set", "--to", FAR, "--delay", "5"], &["25ms"]),
    ] {
        let refused = lab.perfrun(&[&["link"], arguments].concat());
        assert!(!refused.success, "{refused}");
        for word in words {
            assert!(refused.stderr.contains(word), "{refused}");
        }
    }
    for (place, words) in [
        (
            ["--netns", "perfrun-nowhere"],
            "the network namespace \"perfrun-nowhere\" does not exist",
        ),
        (
            ["--netns", "/perfrun/nowhere"],
            "the network namespace file /perfrun/nowhere does not exist",
        ),
        (["--pid", "4194999"], "process 4194999 does not exist"),
    ] {
        let refused = lab::perfrun(&[&["link", "show"][..], &place].concat());
        assert!(!refused.success && refused.stderr.contains(words), "{refused}");
    }
}

/// Skipped unless this kernel has netem. The tests of `perfrun-emulator` cover it in user-mode-linux.
#[test]
fn a_link_in_the_kernel_stays_until_it_is_cleared() {
    let Some(lab) = Lab::new() else { return };
    let kernel = &lab.show()["capabilities"]["kernel"];
    if kernel["state"] != "available" {
        skip(
            Need::Netem,
            "in the kernel",
            kernel["detail"].as_str().unwrap_or_default(),
        );
        return;
    }
    let set = [&["link", "set", "--to", FAR, "--backend", "kernel"][..], &DELAY].concat();
    assert!(lab.perfrun(&set).success);
    assert_eq!(lab.show()["found"], "kernel");
    assert!(lab.has_impairment("delay=100ms"));
    let cleared = lab.perfrun(&["link", "clear"]);
    assert!(cleared.stdout.contains("removed netem"), "{cleared}");
    assert_eq!(lab.show()["found"], "nothing");
}
