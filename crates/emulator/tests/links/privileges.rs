//! Which backends work with which privileges, and the reasons given where they do not.

use std::{
    env, fs,
    io::ErrorKind,
    process::{Command, Stdio},
    time::Duration,
};

use perfrun_emulator::{Emulator, Options, abilities::detect};
use perfrun_link::{Abilities, Ability, Backend, Impairment, Obstacle};
use perfrun_test_kit::{Need, namespaces::ip, skip};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use crate::{
    lab::{FAR, Lab, address, to_far},
    role::{ARGUMENT, ROLE},
    traffic::{Echo, round_trips},
};

/// Gives up all other capabilities, for the calling thread and those that it starts.
fn keep_only(capabilities: CapabilitySet) {
    let sets = CapabilitySets {
        effective: capabilities,
        permitted: capabilities,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).unwrap();
}

fn reason(ability: &Ability) -> Option<Obstacle> {
    match ability {
        Ability::Available => None,
        Ability::Unavailable { reason, .. } => Some(*reason),
    }
}

#[test]
fn net_admin_is_the_only_capability_that_an_emulator_needs() {
    let Some(lab) = Lab::new(Backend::Userspace) else {
        return;
    };
    let link = to_far(Impairment {
        delay: Duration::from_millis(20),
        ..Impairment::default()
    });
    let (abilities, emulator) = lab.near.run(|| {
        keep_only(CapabilitySet::NET_ADMIN);
        let options = Options {
            backend: Backend::Userspace,
            seed: None,
        };
        (detect("eth0"), Emulator::start("eth0", &link, options).unwrap())
    });
    assert_eq!(abilities.userspace, Ability::Available);
    // Where RLIMIT_RTPRIO does not permit it.
    assert_eq!(reason(&abilities.real_time), Some(Obstacle::NoRealTime));
    let echo = Echo::start(&lab, address(FAR));
    let times = round_trips(&lab, &echo, 10, Duration::from_millis(5));
    assert!(
        times.iter().all(|time| time.is_some_and(|time| time >= 20.0)),
        "{times:?}"
    );
    drop(emulator);
}

#[test]
fn without_net_admin_the_missing_capability_is_the_reason() {
    let Some(lab) = Lab::new(Backend::Userspace) else {
        return;
    };
    let abilities = lab.near.run(|| {
        keep_only(CapabilitySet::NET_RAW);
        detect("eth0")
    });
    assert_eq!(
        reason(&abilities.kernel),
        Some(Obstacle::NotPermitted),
        "{abilities:?}"
    );
    assert_eq!(
        reason(&abilities.userspace),
        Some(Obstacle::NotPermitted),
        "{abilities:?}"
    );
    let unsupported = abilities.choose(&to_far(Impairment::default())).unwrap_err();
    assert!(unsupported.to_string().contains("NET_ADMIN"), "{unsupported}");
}

#[test]
fn probing_the_abilities_leaves_the_interface_unchanged() {
    let Some(lab) = Lab::new(Backend::Userspace) else {
        return;
    };
    let links = || ip(&lab.near, &["-o", "link"]).unwrap();
    let before = (lab.traces(), links());
    lab.near.run(|| detect("eth0"));
    assert_eq!((lab.traces(), links()), before);
}

#[test]
fn a_missing_interface_is_not_taken_for_a_refusal_of_the_kernel() {
    let Some(lab) = Lab::new(Backend::Userspace) else {
        return;
    };
    let abilities = lab.near.run(|| detect("eth7"));
    for ability in [&abilities.kernel, &abilities.userspace] {
        assert_eq!(reason(ability), Some(Obstacle::NoInterface), "{abilities:?}");
    }
}

#[test]
fn an_emulator_runs_in_namespaces_of_an_ordinary_user() {
    let binary = env::current_exe().unwrap();
    let told = Command::new(binary)
        .env(ROLE, "abilities")
        .env(ARGUMENT, "")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    if !told.status.success() {
        skip(Need::Namespaces, "user namespace", "it cannot be made here");
        return;
    }
    let abilities: Abilities = serde_json::from_str(&text).unwrap();
    assert_eq!(reason(&abilities.real_time), Some(Obstacle::NoRealTime));
    let device = fs::File::options().read(true).write(true).open("/dev/net/tun");
    if device.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        assert_eq!(reason(&abilities.userspace), Some(Obstacle::TunForbidden));
        skip(Need::Links, "user space", "/dev/net/tun is root's alone here");
        return;
    }
    assert_eq!(abilities.userspace, Ability::Available);
}
