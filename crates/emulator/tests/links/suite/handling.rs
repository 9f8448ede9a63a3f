//! Which peers a link impairs, how it is changed, inspected and removed, and what a killed emulator leaves.

use std::sync::atomic::{AtomicBool, Ordering};

use perfrun_test_kit::namespaces::ip;

use super::*;

fn route(peer: &str, impairment: Impairment) -> Route {
    Route {
        peers: vec![peer.parse().unwrap()],
        impairment,
    }
}

pub(crate) fn others_are_not_impaired(backend: Backend) {
    let Some(lab) = Lab::new(backend) else { return };
    let mut emulator = lab.emulator(&to_far(delay(50)));
    let few = Duration::from_millis(5);
    let times_to = |to: &str| {
        let echo = Echo::start(&lab, address(to));
        beside(|| round_trips(&lab, &echo, 20, few))
    };
    let other_is_unimpaired = |what| {
        eventually_if_fit(
            what,
            || {
                let (times, lateness) = times_to(FAR_UNIMPAIRED);
                let median = median(times);
                (median, lateness.allows_median(5.0, median))
            },
            |time| *time < 5.0,
        );
    };
    assert!(median(times_to(FAR).0) >= 50.0);
    other_is_unimpaired("round trip of somebody else");

    // Peers with their own links, and an address that is an exception.
    let link = OutgoingLinks::new(vec![
        route("10.77.0.0/24", delay(20)),
        route(FAR, delay(80)),
        route(FAR_UNIMPAIRED, delay(0)),
    ]);
    emulator.set(&link.unwrap()).unwrap();
    other_is_unimpaired("round trip of the exception");
    // With the link of the network, it would be 100 at least.
    eventually(
        "round trip of the peer",
        || median(times_to(FAR).0),
        |time| (80.0..100.0).contains(time),
    );
}

/// If address resolution were impaired, the first packet would pay twice.
pub(crate) fn neighbours_are_found_without_the_delay(backend: Backend) {
    let Some(lab) = Lab::new(backend) else { return };
    let _emulator = lab.emulator(&to_far(delay(200)));
    let mut families = vec![(FAR, "-4")];
    if lab.has_v6 {
        families.push((FAR_V6, "-6"));
    } else {
        skip(Need::Ipv6, "IPv6", "this kernel has none");
    }
    for (far, family) in families {
        let echo = Echo::start(&lab, address(far));
        // If the peer has forgotten this end, this end's reply could be impaired.
        for (forgets, whose) in [(&lab.near, "our"), (&lab.far, "the peer's")] {
            median(round_trips(&lab, &echo, 1, Duration::ZERO));
            eventually(
                &format!("first round trip to {far} after {whose} neighbours were forgotten"),
                || {
                    ip(forgets, &[family, "neigh", "flush", "dev", "eth0"]).unwrap();
                    median(round_trips(&lab, &echo, 1, Duration::ZERO))
                },
                |first| (200.0..300.0).contains(first),
            );
        }
    }
}

pub(crate) fn changing_a_link_loses_nothing(backend: Backend) {
    let Some(lab) = Lab::new(backend) else { return };
    let mut emulator = lab.emulator(&to_far(delay(10)));
    let echo = Echo::start(&lab, address(FAR));
    let is_changed = AtomicBool::new(false);
    let times = thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            let mut times = vec![];
            loop {
                times.extend(round_trips(&lab, &echo, 300, Duration::from_millis(1)));
                if is_changed.load(Ordering::Relaxed) {
                    return times;
                }
            }
        });
        let changed = [30, 20, 40].into_iter().try_for_each(|milliseconds| {
            thread::sleep(Duration::from_millis(150));
            emulator.set(&to_far(delay(milliseconds)))
        });
        is_changed.store(true, Ordering::Relaxed);
        changed.unwrap();
        measuring.join().unwrap()
    });
    assert!(
        times.iter().all(Option::is_some),
        "{} lost",
        times.iter().filter(|time| time.is_none()).count()
    );
    // The change is in effect when it returns. A pause of the machine makes round trips longer only.
    let last = median(round_trips(&lab, &echo, 50, Duration::from_millis(1)));
    assert!(last >= 40.0, "{last}");
    eventually(
        "round trip after the last change",
        || median(round_trips(&lab, &echo, 20, Duration::from_millis(5))),
        // With the previous link, it would be 60 at least.
        |time| (40.0..60.0).contains(time),
    );
}

pub(crate) fn counting_begins_anew(backend: Backend) {
    const PACKETS: u32 = 1000;
    let Some(lab) = Lab::new(backend) else { return };
    let mut emulator = lab.emulator(&to_far(Impairment {
        loss: lossy(20.0).loss,
        ..delay(5)
    }));
    // The packets that left, and those that were dropped.
    let counts = |emulator: &mut Emulator| match emulator.state().unwrap().traffic[0] {
        Traffic::Userspace(counts) => (counts.packets_out, counts.lost),
        Traffic::Kernel {
            packets_out, dropped, ..
        } => (packets_out, dropped),
    };
    assert_eq!(counts(&mut emulator), (0, 0));
    for _ in 0..2 {
        let arrived = stream(&lab, address(FAR), PACKETS, 200, 10).distinct() as u64;
        assert_eq!(counts(&mut emulator), (arrived, u64::from(PACKETS) - arrived));
        emulator.reset_counts().unwrap();
        assert_eq!(counts(&mut emulator), (0, 0));
        if let Some(worker) = emulator.state().unwrap().worker {
            assert_eq!((worker.lateness.frames, worker.lateness.max_ns), (0, 0));
        }
    }
    // The link itself has not changed.
    let echo = Echo::start(&lab, address(FAR));
    assert!(median(round_trips(&lab, &echo, 50, Duration::from_millis(2))) >= 5.0);
    // Setting a link also resets the counts.
    emulator.set(&to_far(lossy(1.0))).unwrap();
    assert_eq!(counts(&mut emulator), (0, 0));
}

pub(crate) fn other_processes_see_the_impairment(backend: Backend) {
    let Some(lab) = Lab::new(backend) else { return };
    let before = lab.traces();
    let inspect = || lab.near.run(|| perfrun_emulator::inspect("eth0")).unwrap();
    assert_eq!(inspect(), Inspection::Unimpaired);
    let queue = NonZeroU32::new(5000);
    let with_queue = |impairment| Impairment {
        limit_packets: queue,
        ..impairment
    };
    let routes = vec![
        route(FAR, with_queue(delay(30))),
        route("10.99.0.0/16", with_queue(lossy(1.0))),
        route("fd99::/32", with_queue(delay(40))),
    ];
    let link = OutgoingLinks::new(routes).unwrap();
    let mut emulator = lab.emulator(&link);
    let state = emulator.state().unwrap();
    if state.backend == ActiveBackend::Kernel {
        assert_eq!(inspect(), Inspection::Kernel(state));
        // Without the process, the link stays impaired and visible.
        assert!(emulator.leave().is_none());
        let Inspection::Kernel(state) = inspect() else {
            panic!("{:?}", inspect())
        };
        assert_eq!(state.link, link);
        let echo = Echo::start(&lab, address(FAR));
        assert!(median(round_trips(&lab, &echo, 10, Duration::from_millis(5))) >= 30.0);
        assert!(lab.near.run(|| perfrun_emulator::clear("eth0")).unwrap());
    } else {
        let peers = link.peers().into_iter().map(|(peer, _)| peer);
        let Inspection::Silent { peers: silent } = inspect() else {
            panic!("{:?}", inspect())
        };
        assert_eq!(
            silent.into_iter().collect::<HashSet<_>>(),
            peers.collect::<HashSet<_>>()
        );
        let emulator = Arc::new(Mutex::new(emulator));
        let served = Arc::clone(&emulator);
        let status = lab
            .near
            .run(|| Status::serve("eth0", move || served.lock().unwrap().state().ok()));
        let Inspection::Userspace { state, process } = inspect() else {
            panic!("{:?}", inspect())
        };
        assert_eq!((state.link, process), (link, Some(std::process::id())));
        drop(status);
        emulator.lock().unwrap().set(&OutgoingLinks::default()).unwrap();
        // The emulator is dropped with its last owner.
        eventually(
            "the emulator's owners",
            || {
                thread::sleep(Duration::from_millis(10));
                Arc::strong_count(&emulator)
            },
            |owners| *owners == 1,
        );
        drop(emulator);
    }
    assert_eq!(inspect(), Inspection::Unimpaired);
    assert_eq!(lab.traces(), before);
}

pub(crate) fn a_removed_or_dropped_emulator_leaves_no_trace(backend: Backend) {
    let Some(lab) = Lab::new(backend) else { return };
    let before = lab.traces();
    let mut emulator = lab.emulator(&to_far(lossy(50.0)));
    emulator.set(&to_far(delay(30))).unwrap();
    assert_ne!(lab.traces(), before);
    emulator.remove().unwrap();
    assert_eq!(lab.traces(), before);
    drop(lab.emulator(&to_far(delay(30))));
    assert_eq!(lab.traces(), before);
}

pub(crate) fn a_link_without_impairment_leaves_no_trace_and_no_delay(backend: Backend) {
    let Some(lab) = Lab::new(backend) else { return };
    let echo = Echo::start(&lab, address(FAR));
    let few = Duration::from_millis(5);
    // A TAP to which no filter leads may stay.
    let traces = || {
        let all = lab.traces();
        let kept = all.lines().filter(|line| !line.contains("perfrun0"));
        kept.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = traces();
    let mut emulator = lab.emulator(&to_far(Impairment::default()));
    for _ in 0..2 {
        assert_eq!(traces(), before);
        assert!(least(round_trips(&lab, &echo, 20, few)) < 30.0);
        assert!(!emulator.state().unwrap().link.impairs());
        emulator.set(&to_far(delay(30))).unwrap();
        assert_ne!(traces(), before);
        assert!(least(round_trips(&lab, &echo, 20, few)) >= 30.0);
        emulator.set(&to_far(Impairment::default())).unwrap();
    }
    emulator.set(&OutgoingLinks::default()).unwrap();
    assert_eq!(traces(), before);
}

/// `is_closed`: without an emulator nothing passes; otherwise the link stays impaired.
pub(crate) fn a_killed_emulator_is_succeeded(backend: Backend, is_closed: bool) {
    let Some(lab) = Lab::new(backend) else { return };
    let before = lab.traces();
    let echo = Echo::start(&lab, address(FAR));
    let few = Duration::from_millis(5);
    for _ in 0..2 {
        let mut killed = role::start_emulator(&lab, &to_far(delay(30)), backend);
        assert!(median(round_trips(&lab, &echo, 10, few)) >= 30.0);
        killed.kill().unwrap();
        killed.wait().unwrap();
        let alone = round_trips(&lab, &echo, 10, few);
        if is_closed {
            assert!(alone.iter().all(Option::is_none), "{alone:?}");
        } else {
            assert!(median(alone) >= 30.0);
        }
        // Other peers are not affected.
        let other = Echo::start(&lab, address(FAR_UNIMPAIRED));
        assert!(round_trips(&lab, &other, 5, few).iter().all(Option::is_some));
    }

    let successor = lab.emulator(&to_far(delay(15)));
    eventually_if_fit(
        "round trip",
        || {
            let (times, lateness) = beside(|| round_trips(&lab, &echo, 20, few));
            let median = median(times);
            (median, lateness.allows_median(2.0, (median - 15.0).abs()))
        },
        |time| (15.0..17.0).contains(time),
    );
    successor.remove().unwrap();
    assert_eq!(lab.traces(), before);

    let mut killed = role::start_emulator(&lab, &to_far(delay(30)), backend);
    killed.kill().unwrap();
    killed.wait().unwrap();
    match lab.near.run(|| perfrun_emulator::inspect("eth0")).unwrap() {
        Inspection::Closed { peers } => assert!(is_closed && peers.len() == 2, "{peers:?}"),
        Inspection::Kernel(state) => assert!(!is_closed && state.link.routes().len() == 1, "{state:?}"),
        other => panic!("{other:?}"),
    }
    assert!(lab.near.run(|| perfrun_emulator::clear("eth0")).unwrap());
    assert!(!lab.near.run(|| perfrun_emulator::clear("eth0")).unwrap());
    assert_eq!(lab.traces(), before);
}

/// Detected before the emulator starts, and left alone.
pub(crate) fn a_root_of_somebody_else_is_left_alone() {
    let Some(lab) = Lab::new(Backend::Kernel) else {
        return;
    };
    lab.tc("qdisc add dev eth0 root pfifo");
    let abilities = lab.near.run(|| perfrun_emulator::abilities::detect("eth0"));
    assert!(
        matches!(&abilities.kernel, Ability::Unavailable { reason: Obstacle::RootTaken, detail } if detail == "eth0 has pfifo"),
        "{abilities:?}"
    );
    let start = |backend| {
        let options = Options { backend, seed: None };
        lab.near
            .run(|| Emulator::start("eth0", &to_far(delay(20)), options))
    };
    let refused = error_reporter::Report::new(start(Backend::Kernel).unwrap_err()).to_string();
    assert!(refused.contains("`tc qdisc del dev eth0 root`"), "{refused}");
    let mut emulator = start(Backend::Auto).unwrap();
    assert_eq!(emulator.state().unwrap().backend, ActiveBackend::Userspace);
    drop(emulator);
    assert!(lab.tc("qdisc show dev eth0").starts_with("qdisc pfifo"));
}
