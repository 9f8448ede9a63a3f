//! What else kept the machines of a trial busy, from what their nodes counted. Pure.

use std::collections::BTreeMap;

use perfrun_contract::{
    machine::MachineTime,
    node::{Info, Role},
    record::{Disturbance, Flag, LATE_START_SECONDS, NodeRecord, TrialRecord},
};

/// Adds to a record how much the trial was disturbed, and the flag if that is too much. `nodes` says what its
/// nodes are.
pub(crate) fn add_disturbance(record: &mut TrialRecord, nodes: &BTreeMap<&str, &Info>) {
    record.disturbance = disturbance(record, nodes);
    if record
        .disturbance
        .is_some_and(|disturbance| disturbance.is_too_much())
    {
        record.flags.push(Flag::Disturbed);
    }
}

fn disturbance(record: &TrialRecord, nodes: &BTreeMap<&str, &Info>) -> Option<Disturbance> {
    let known = || {
        let all = record.nodes.iter();
        all.filter_map(|(name, node)| Some((*nodes.get(name.as_str())?, node)))
    };
    let workload = known().map(|(_, node)| node.measured.seconds).fold(0.0, f64::max);
    // JSON has no infinity.
    let of_workload = |seconds: f64| match workload > 0.0 {
        true => (seconds / workload).min(f64::MAX),
        false => 0.0,
    };
    let throttled = known().filter_map(|(_, node)| node.measured.resources.throttled_seconds);
    let late = record
        .start_lateness_seconds
        .filter(|seconds| *seconds > LATE_START_SECONDS);
    let shares = known().filter_map(|(info, _)| {
        let here = || {
            known()
                .filter(|(other, _)| info.shares_machine_with(other))
                .map(|(_, node)| node)
        };
        let time = time_of_workload(here())?;
        Some((time.steal(), time.foreign(here().map(cpu_seconds).sum())))
    });
    let (steal, foreign) = shares.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))?;
    Some(Disturbance {
        steal,
        foreign,
        throttled: of_workload(throttled.fold(0.0, f64::max)),
        late: of_workload(late.unwrap_or(0.0)),
    })
}

/// The time of a machine while the workload ran, from the nodes on it. Of these, a client measures from the
/// start to the end of the workload; a server also while clients connect. The client that works longest sees
/// what all nodes use.
fn time_of_workload<'a>(nodes: impl Iterator<Item = &'a NodeRecord>) -> Option<MachineTime> {
    let times = nodes.filter_map(|node| Some((node.role == Role::Client, node.measured.resources.machine?)));
    let longest = times.max_by(|(a_is_client, a), (b_is_client, b)| {
        let by_role = a_is_client.cmp(b_is_client);
        by_role.then(a.total_seconds.total_cmp(&b.total_seconds))
    });
    longest.map(|(_, time)| time)
}

/// CPU time of a node and of the emulator of its link.
fn cpu_seconds(node: &NodeRecord) -> f64 {
    let used = &node.measured.resources;
    let emulator = node.link.as_ref().and_then(|link| link.worker);
    let emulator = emulator.map_or(0.0, |worker| worker.cpu_ns as f64 / 1e9);
    used.cpu_user_seconds + used.cpu_system_seconds + emulator
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{
        node::{Measured, Resources},
        record::LinkRecord,
    };
    use perfrun_link::{
        Kind, Scheduling,
        impairment::Mode,
        state::{Lateness, Worker},
    };
    use perfrun_test_kit::records::completed;

    use super::*;

    /// Two CPUs for two seconds, of which processes used this.
    fn busy(busy_seconds: f64) -> Option<MachineTime> {
        Some(MachineTime {
            cpus: 2,
            total_seconds: 4.0,
            busy_seconds,
            ..MachineTime::default()
        })
    }

    fn node(role: Role, cpu_seconds: f64, machine: Option<MachineTime>) -> NodeRecord {
        NodeRecord {
            role,
            measured: Measured {
                seconds: if role == Role::Client { 2.0 } else { 0.0 },
                resources: Resources {
                    cpu_user_seconds: cpu_seconds / 2.0,
                    cpu_system_seconds: cpu_seconds / 2.0,
                    machine,
                    ..Resources::default()
                },
                ..Measured::default()
            },
            link: None,
        }
    }

    fn info(host: &str, boot_id: Option<&str>) -> Info {
        let info = serde_json::json!({
            "version": "0", "stacks": {}, "profile": "release", "listenIp": "127.0.0.1", "host": host,
            "bootId": boot_id, "kernel": "6.1", "cpu": "abacus", "cpus": 2,
        });
        serde_json::from_value(info).unwrap()
    }

    /// The disturbance of a trial of these nodes.
    fn of<const N: usize>(nodes: [(&str, Info, NodeRecord); N]) -> Option<Disturbance> {
        of_late(nodes, None)
    }

    fn of_late<const N: usize>(
        nodes: [(&str, Info, NodeRecord); N],
        start_lateness_seconds: Option<f64>,
    ) -> Option<Disturbance> {
        let infos = nodes.iter().map(|(name, info, _)| (*name, info)).collect();
        let mut record = TrialRecord {
            start_lateness_seconds,
            nodes: nodes
                .iter()
                .map(|(name, _, node)| ((*name).to_owned(), node.clone()))
                .collect(),
            ..completed("c0.i0")
        };
        add_disturbance(&mut record, &infos);
        let is_flagged = record.flags.contains(&Flag::Disturbed);
        assert_eq!(
            is_flagged,
            record.disturbance.is_some_and(|found| found.is_too_much())
        );
        record.disturbance
    }

    fn foreign<const N: usize>(nodes: [(&str, Info, NodeRecord); N]) -> f64 {
        of(nodes).unwrap().foreign
    }

    fn is_near(share: f64, expected: f64) {
        assert!((share - expected).abs() < 1e-9, "{share}, not {expected}");
    }

    #[test]
    fn nodes_of_one_machine_are_not_foreign_to_each_other() {
        let pod = |name| info(name, Some("boot"));
        let server = node(Role::Server, 1.0, busy(2.0));
        let client = node(Role::Client, 1.0, busy(2.42));
        // 0.42 s are not theirs, of which 0.02 s may be chance.
        let found = foreign([("client-0", pod("a"), client), ("server-0", pod("b"), server)]);
        is_near(found, 0.1);
    }

    #[test]
    fn shares_of_no_time_are_finite() {
        let mut client = node(Role::Client, 0.0, busy(2.0));
        client.measured.seconds = f64::from_bits(1);
        client.measured.resources.throttled_seconds = Some(1.0);
        let machine = client.measured.resources.machine.as_mut().unwrap();
        machine.total_seconds = f64::from_bits(1);
        let found = of([("client-0", info("here", None), client)]).unwrap();
        assert!(found.throttled.is_finite(), "{found:?}");
        is_near(found.foreign, 1.0);
    }

    #[test]
    fn of_several_machines_the_most_disturbed_counts() {
        let server = node(Role::Server, 1.0, busy(2.02));
        let client = node(Role::Client, 1.0, busy(1.42));
        let apart = |a, b| foreign([("client-0", a, client.clone()), ("server-0", b, server.clone())]);
        is_near(apart(info("a", Some("one")), info("b", Some("two"))), 0.25);
        is_near(apart(info("here", Some("one")), info("here", Some("two"))), 0.25);
        is_near(apart(info("a", None), info("b", Some("two"))), 0.25);
        is_near(apart(info("here", None), info("here", Some("two"))), 0.0);
    }

    #[test]
    fn the_client_that_works_longest_says_what_the_machine_did() {
        let here = || info("here", Some("boot"));
        let long = MachineTime {
            total_seconds: 8.0,
            ..busy(3.0 + 0.82).unwrap()
        };
        let found = foreign([
            ("client-0", here(), node(Role::Client, 1.0, busy(1.0))),
            ("client-1", here(), node(Role::Client, 2.0, Some(long))),
            // While clients connected, too.
            (
                "server-0",
                here(),
                node(
                    Role::Server,
                    0.0,
                    Some(MachineTime {
                        busy_seconds: 9.0,
                        ..long
                    }),
                ),
            ),
        ]);
        is_near(found, 0.1);
    }

    #[test]
    fn emulators_of_links_belong_to_the_run() {
        let worker = Worker {
            scheduling: Scheduling::RealTime,
            lateness: Lateness::default(),
            overflowed: 0,
            unmatched: 0,
            refused: 0,
            cpu_ns: 400_000_000,
        };
        let link = LinkRecord {
            backend: Kind::Userspace,
            mode: Mode::SuperPackets,
            traffic: vec![],
            worker: Some(worker),
        };
        let mut client = node(Role::Client, 1.0, busy(1.42));
        is_near(foreign([("client-0", info("a", None), client.clone())]), 0.1);
        client.link = Some(link);
        is_near(foreign([("client-0", info("a", None), client)]), 0.0);
    }

    #[test]
    fn waiting_for_a_control_group_or_to_start_is_a_share_of_the_workload() {
        let alone = |throttled_seconds, lateness| {
            let mut client = node(Role::Client, 1.0, busy(1.0));
            client.measured.resources.throttled_seconds = throttled_seconds;
            of_late([("client-0", info("a", None), client)], lateness).unwrap()
        };
        is_near(alone(Some(0.02), None).throttled, 0.01);
        is_near(alone(None, Some(0.02)).late, 0.01);
        is_near(alone(None, Some(0.005)).late, 0.0);
        assert_eq!(alone(None, Some(-0.001)), Disturbance::default());
    }

    #[test]
    fn a_server_in_its_client_s_process_is_counted_once() {
        let client = node(Role::Client, 2.0, busy(2.52));
        let mut record = TrialRecord {
            nodes: BTreeMap::from([
                ("client-0".to_owned(), client),
                ("client-0.server".to_owned(), node(Role::Server, 0.0, None)),
            ]),
            ..completed("c0.i0")
        };
        let info = info("a", None);
        add_disturbance(&mut record, &BTreeMap::from([("client-0", &info)]));
        is_near(record.disturbance.unwrap().foreign, 0.125);
        assert_eq!(record.flags, [Flag::Disturbed]);
    }

    #[test]
    fn nodes_that_cannot_tell_say_nothing() {
        let client = node(Role::Client, 1.0, None);
        assert_eq!(of([("client-0", info("a", None), client)]), None);
        assert_eq!(of([]), None);
    }
}
