//! What else kept the machines of a trial busy, and nodes that stood still, from what the nodes counted.
//! Pure.

use std::collections::BTreeMap;

use perfrun_contract::{
    machine::MachineTime,
    node::{Info, Sample},
    record::{Disturbance, Flag, LATE_START_SECONDS, NodeRecord, Standstill, TrialRecord},
    role::Role,
};

/// Adds to a record how much the trial was disturbed, and the flag if that is too much. `nodes` says what its
/// nodes are.
pub(crate) fn add_disturbance(record: &mut TrialRecord, nodes: &BTreeMap<&str, &Info>) {
    record.disturbance = disturbance(record, nodes);
    record.standstill = standstill(record, nodes);
    if record.is_disturbed() {
        record.flags.push(Flag::Disturbed);
    }
}

/// A standstill that is longer than this is noticed, in seconds: ten of the intervals in which nodes sample.
/// A node that waits for a CPU, or whose runtime is busy, takes its samples up to a few intervals late.
const STANDSTILL_MIN: f64 = 1.0;

/// A node that stands still uses less of a CPU than this. One that is only slow uses more, and that is what a
/// trial measures: its stack may be the reason.
const CPU_MAX: f64 = 0.05;

fn standstill(record: &TrialRecord, nodes: &BTreeMap<&str, &Info>) -> Option<Standstill> {
    // A server in its client's process has no CPU time of its own, and stands still with it.
    let processes = record
        .nodes
        .iter()
        .filter(|(name, _)| nodes.contains_key(name.as_str()));
    let found = processes.filter_map(|(name, node)| {
        let seconds = longest_standstill(&node.measured.samples)?;
        Some(Standstill {
            node: name.clone(),
            seconds,
        })
    });
    found.max_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

/// By how much a sample of a node is longer than its other ones, though the node did no more in it. Samples
/// of a long trial are merged, so the difference counts, and not how many times longer the sample is.
fn longest_standstill(samples: &[Sample]) -> Option<f64> {
    let lower_median = |of: fn(&Sample) -> f64| {
        let mut all: Vec<f64> = samples.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len().checked_sub(1)? / 2).copied()
    };
    let usual = lower_median(|sample| sample.interval_seconds)?;
    let usual_cpu = lower_median(|sample| sample.cpu_seconds)?;
    let last = samples.len() - 1;
    let found = samples.iter().enumerate().filter_map(|(i, sample)| {
        // What remains at the end, up to half an interval, is part of the last sample.
        let expected = if i == last { 1.5 * usual } else { usual };
        let seconds = sample.interval_seconds - expected;
        let stood_still = sample.cpu_seconds - usual_cpu < CPU_MAX * seconds;
        (seconds > STANDSTILL_MIN && stood_still).then_some(seconds)
    });
    found.reduce(f64::max)
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
        ActiveBackend, Scheduling,
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
        assert_eq!(record.flags.contains(&Flag::Disturbed), record.is_disturbed());
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
    fn the_disturbance_of_a_machine_is_from_its_longest_client() {
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
            backend: ActiveBackend::Userspace,
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
    fn nodes_without_machine_counts_give_no_disturbance() {
        let client = node(Role::Client, 1.0, None);
        assert_eq!(of([("client-0", info("a", None), client)]), None);
        assert_eq!(of([]), None);
    }

    /// Samples with these intervals, each with CPU time for that share of its first tenth of a second.
    fn sampled(intervals: &[f64], cpu: f64) -> Vec<Sample> {
        let sample = |interval_seconds: &f64| Sample {
            interval_seconds: *interval_seconds,
            cpu_seconds: cpu * interval_seconds.min(0.1),
            ..Sample::default()
        };
        intervals.iter().map(sample).collect()
    }

    #[test]
    fn a_node_that_was_stopped_shows_it_in_its_samples() {
        for cpu in [0.0, 2.0] {
            let of = |intervals: &[f64]| longest_standstill(&sampled(intervals, cpu));
            let is = |found: Option<f64>, seconds| is_near(found.unwrap(), seconds);
            is(of(&[0.1, 0.1, 4.1, 0.1]), 4.0);
            is(of(&[4.1, 0.1, 2.1, 0.1]), 4.0);
            // The end of a trial.
            is(of(&[0.1, 4.15]), 4.0);
            // Of a long trial, merged.
            is(of(&[12.8, 16.8, 12.8, 12.8]), 4.0);
            assert_eq!(of(&[0.1, 1.0, 0.1]), None, "nine intervals are not enough");
            assert_eq!(of(&[12.8, 12.8, 12.8, 19.2]), None, "what remains at the end");
            assert_eq!(of(&[4.1]), None, "one sample says nothing");
            assert_eq!(of(&[]), None);
        }
    }

    #[test]
    fn a_node_that_works_slowly_does_not_stand_still() {
        let mut samples = sampled(&[0.1, 0.1, 4.1, 0.1], 0.5);
        // A twentieth of a CPU in the four seconds, besides what an interval takes.
        samples[2].cpu_seconds = 0.05 + 0.205;
        assert_eq!(longest_standstill(&samples), None);
        samples[2].cpu_seconds -= 0.01;
        assert!(longest_standstill(&samples).is_some());
    }

    #[test]
    fn a_trial_names_the_node_that_stood_still_for_longest() {
        let with = |role, intervals: &[f64]| {
            // Whose machine cannot tell how busy it was.
            let mut node = node(role, 1.0, None);
            node.measured.samples = sampled(intervals, 0.1);
            node
        };
        let mut record = TrialRecord {
            nodes: BTreeMap::from([
                ("client-0".to_owned(), with(Role::Client, &[0.1, 2.1, 0.1])),
                ("client-0.server".to_owned(), with(Role::Server, &[0.1, 9.1, 0.1])),
                ("server-0".to_owned(), with(Role::Server, &[0.1, 4.21, 0.1])),
            ]),
            ..completed("c0.i0")
        };
        let info = info("a", None);
        let nodes = BTreeMap::from([("client-0", &info), ("server-0", &info)]);
        add_disturbance(&mut record, &nodes);
        let found = record.standstill.as_ref().unwrap();
        assert_eq!(found.to_string(), "server-0 stood still for 4.1 s");
        assert_eq!(
            (record.disturbance, &record.flags[..]),
            (None, &[Flag::Disturbed][..])
        );
        assert!(record.brief().is_disturbed());
    }
}
