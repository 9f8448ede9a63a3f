//! The user-space backend.

use std::time::Duration;

use perfrun_emulator::{Emulator, Options};
use perfrun_link::{Backend, Impairment, Mode, state::Traffic};

use crate::{
    lab::{FAR, Lab, address, to_far},
    suite,
    traffic::{stream, tcp_bytes_per_second},
};

suite::tests!(Backend::Userspace);

#[test]
fn a_killed_emulator_leaves_the_link_closed_and_is_succeeded() {
    suite::a_killed_emulator_is_succeeded(Backend::Userspace, true);
}

#[test]
fn other_packets_are_lost_when_a_link_is_set_again() {
    let Some(lab) = Lab::new(Backend::Userspace) else {
        return;
    };
    let options = Options {
        backend: Backend::Userspace,
        seed: None,
    };
    let link = to_far(suite::lossy(5.0));
    let started = lab.near.run(|| Emulator::start("eth0", &link, options));
    let mut emulator = started.unwrap();
    let mut arrived = || {
        emulator.set(&link).unwrap();
        stream(&lab, address(FAR), 2000, 200, 20).numbers
    };
    assert_ne!(arrived(), arrived());
}

/// A super-packet has up to 45 packets of TCP.
#[test]
fn super_packets_stay_merged_where_nothing_decides_about_packets() {
    let Some(lab) = Lab::new(Backend::Userspace) else {
        return;
    };
    let packets_per_frame = |impairment: Impairment, mode| {
        let mut emulator = lab.emulator(&to_far(impairment));
        tcp_bytes_per_second(
            &lab,
            address(FAR),
            Duration::from_millis(200),
            Duration::from_millis(300),
        );
        let state = emulator.state().unwrap();
        assert_eq!(state.mode, mode);
        let Traffic::Userspace(counts) = state.traffic[0] else {
            panic!("{state:?}")
        };
        counts.packets_out as f64 / state.worker.unwrap().lateness.frames as f64
    };
    let merged = packets_per_frame(suite::delay(1), Mode::SuperPackets);
    assert!(merged > 5.0, "{merged}");
    let deciding = Impairment {
        loss: suite::lossy(0.001).loss,
        ..suite::delay(1)
    };
    let single = packets_per_frame(deciding, Mode::PerPacket);
    assert!((0.99..=1.01).contains(&single), "{single}");
}
