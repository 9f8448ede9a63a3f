//! Links between trials.

use std::{collections::BTreeSet, time::Duration};

use perfrun_api::network::preset;
use perfrun_contract::{
    network::NetworkImpairments,
    node::{LinkRequest, Reason, TrialState},
    plan::{Cell, Names, Trial},
    record::Flag,
    run::RunState,
    tally::EndReason,
};
use perfrun_link::{Backend, OutgoingLinks, Ratio, impairment::Loss};
use perfrun_test_kit::records::trial;

use crate::{
    agent::Fault,
    bench::{Bench, bench},
    node::Script,
    resume::{ID, TEST_TIMEOUT, start_and_die},
};

fn at(last: u8) -> Script {
    Script {
        ip: [10, 0, 0, last].into(),
        ..Script::default()
    }
}

/// A server and a client, and two iterations of a cell on each of the networks.
fn on(networks: &[&str], server: Fault, client: Fault) -> Bench {
    let bench = bench()
        .node("server-0", at(1))
        .node("client-0", at(2))
        .agent("server-0", server)
        .agent("client-0", client);
    over(networks, bench)
}

/// Two iterations of a cell on each of the networks.
fn over(networks: &[&str], mut bench: Bench) -> Bench {
    let impairments = |name: &&str| preset(name).unwrap().impairments().unwrap();
    bench.plan.networks = networks
        .iter()
        .map(impairments)
        .collect::<Vec<NetworkImpairments>>();
    let cell = bench.plan.cells.remove(0);
    bench.plan.cells = networks
        .iter()
        .map(|name| Cell {
            network: (*name).to_owned(),
            ..cell.clone()
        })
        .collect();
    let trials = (0..2)
        .flat_map(|iteration| (0..networks.len()).map(move |cell| trial(&format!("c{cell}.i{iteration}"))));
    bench.plan.trials = trials.collect();
    bench
}

#[tokio::test]
async fn links_are_set_and_measured_whenever_the_network_changes() {
    let bench = on(&["none", "lat10"], Fault::None, Fault::None);
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Complete, "{:?}", out.end.message);
    // Round trips and loss, and what the link carries, both ways.
    let measured = [
        "client-0 probes server-0",
        "client-0 fills server-0",
        "server-0 fills client-0",
    ];
    let expected = [
        &["client-0 probes server-0"][..], // without any impairment
        &measured,                         // none
        &["client-0 10ms"],
        &measured,
        &["client-0 0ns"],
        &measured,
        &["client-0 10ms"],
        &measured,
    ];
    assert_eq!(bench.world.calls(), expected.concat());
    let checks: Vec<_> = out
        .records
        .iter()
        .map(|record| record.links.as_ref().unwrap())
        .collect();
    let networks: Vec<_> = checks.iter().map(|check| check.network.as_str()).collect();
    assert_eq!(networks, ["none", "lat10", "none", "lat10"]);
    assert!(checks.iter().all(|check| check.is_effective()));
    let leg = &checks[1].legs[0];
    assert_eq!(
        (leg.client.as_str(), leg.server.as_str(), leg.attempts),
        ("client-0", "server-0", 1)
    );
    assert_eq!(leg.base_round_trip_seconds, 0.0001);
    assert_eq!(leg.measured.round_trip.unwrap().p50_ns, 10_100_000);
    let rates = [leg.measured.rate.unwrap(), leg.rate_to_client.unwrap()];
    assert!(
        rates
            .iter()
            .all(|rate| rate.received_bits_per_second == 2_000_000_000 && !rate.is_limit())
    );
    // Only what the client sends is impaired, and its record says by whom.
    assert!(out.records[1].nodes["client-0"].link.is_some());
    assert!(out.records[1].nodes["server-0"].link.is_none());
    assert!(out.records[0].nodes["client-0"].link.is_none());
}

#[tokio::test]
async fn links_are_measured_within_an_ip_family() {
    let v6 = |last: u16| Script {
        ip: [0xfd00, 0, 0, 0, 0, 0, 0, last].into(),
        ..Script::default()
    };
    let bench = bench()
        .node("server-0", at(1))
        .node("client-0", at(2))
        .node("server6-0", v6(1))
        .node("client6-0", v6(2))
        .agent("server-0", Fault::None)
        .agent("client-0", Fault::None)
        .agent("server6-0", Fault::None)
        .agent("client6-0", Fault::None);
    let bench = over(&["lat10"], bench);
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Complete, "{:?}", out.end.message);
    let calls = bench.world.calls();
    let probed: BTreeSet<_> = calls.iter().filter(|call| call.contains(" probes ")).collect();
    assert_eq!(
        Vec::from_iter(probed),
        ["client-0 probes server-0", "client6-0 probes server6-0"]
    );
    let legs = &out.records[0].links.as_ref().unwrap().legs;
    assert_eq!(legs.len(), 2);
}

#[tokio::test]
async fn links_that_stay_are_measured_once() {
    let bench = on(&["lat10"], Fault::None, Fault::None);
    let out = bench.run().await;
    assert!(out.records[0].links.is_some() && out.records[1].links.is_none());
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
}

#[tokio::test]
async fn rates_are_measured_in_both_directions() {
    let out = on(&["dsl"], Fault::None, Fault::None).run().await;
    let leg = &out.records[0].links.as_ref().unwrap().legs[0];
    assert!(leg.measured.rate.unwrap().is_limit());
    assert_eq!(leg.measured.rate.unwrap().received_bits_per_second, 20_000_000);
    assert_eq!(leg.rate_to_client.unwrap().received_bits_per_second, 100_000_000);
    assert_eq!(leg.attempts, 1);
    let quantities: Vec<_> = leg
        .findings
        .iter()
        .map(|finding| finding.quantity.to_string())
        .collect();
    assert_eq!(quantities.len(), 5, "{quantities:?}");
}

#[tokio::test]
async fn slow_links_of_a_run_are_filled_in_both_directions_simultaneously() {
    let mut bench = on(&["satellite"], Fault::None, Fault::None);
    // Which scripted agents cannot do.
    let impairments = &mut bench.plan.networks[0];
    (impairments.to_server.jitter, impairments.to_client.jitter) = (None, None);
    let out = bench.run().await;
    let check = out.records[0].links.as_ref().unwrap();
    let expected = [
        "client-0 probes server-0", // without any impairment
        "client-0 300ms",
        "server-0 300ms",
        "client-0 probes server-0",
        "server-0 fills client-0",
    ];
    assert_eq!(bench.world.calls(), expected);
    // Behind the last echo of a second, which takes 300 ms, however soon the agent answers.
    assert!(check.probe_seconds > 1.3, "{}", check.probe_seconds);
}

#[tokio::test]
async fn correct_links_are_used_even_if_their_capacity_is_unknown() {
    let out = on(&["lat10"], Fault::Overfull, Fault::None).run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    let check = out.records[0].links.as_ref().unwrap();
    assert!(check.is_effective());
    let leg = &check.legs[0];
    assert_eq!(leg.measured.rate, None);
    assert!(leg.rate_to_client.is_some());
}

#[tokio::test]
async fn the_capacity_of_equal_links_is_measured_on_one_of_them() {
    let bench = on(&["lat10"], Fault::None, Fault::None)
        .node("client-1", at(3))
        .agent("client-1", Fault::None);
    let out = over(&["lat10"], bench).run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    let legs = &out.records[0].links.as_ref().unwrap().legs;
    let filled: Vec<bool> = legs
        .iter()
        .map(|leg| leg.measured.rate.is_some() && leg.rate_to_client.is_some())
        .collect();
    assert_eq!(filled, [true, false]);
}

#[tokio::test]
async fn links_that_are_not_as_configured_are_not_filled() {
    let bench = on(&["lat10"], Fault::None, Fault::Lies);
    bench.run().await;
    let calls = bench.world.calls();
    assert!(calls.iter().all(|call| !call.contains("fills")), "{calls:?}");
}

#[tokio::test]
async fn an_unavailable_backend_is_reported_before_any_trial() {
    let bench = on(&["lat10"], Fault::None, Fault::Incapable);
    let out = bench.run().await;
    assert_eq!(out.end.reason, Some(EndReason::ImpairmentUnsupported));
    let message = out.end.message.unwrap();
    assert!(
        message.starts_with("network lat10 on client-0: links cannot be impaired here"),
        "{message}"
    );
    assert!(message.contains("modprobe sch_netem"), "{message}");
    assert!(out.records.is_empty() && bench.world.calls().is_empty());
}

#[tokio::test]
async fn trials_of_an_iteration_have_the_same_seeds() {
    let mut bench = on(&["lat10", "lat10"], Fault::None, Fault::None);
    bench.plan.seed = Some(7);
    bench.run().await;
    let (client, server) = (bench.world.seeds("client-0"), bench.world.seeds("server-0"));
    for seeds in [&client, &server] {
        assert_eq!(seeds.len(), bench.plan.trials.len());
        assert_eq!((seeds[0], seeds[2]), (seeds[1], seeds[3]));
    }
    let different = BTreeSet::from([client[0], client[2], server[0], server[2]]);
    assert_eq!(different.len(), 4);
}

#[tokio::test]
async fn a_node_without_an_agent_cannot_impair() {
    let mut bench = on(&["lat10"], Fault::None, Fault::None);
    bench.agents.clear();
    let out = bench.run().await;
    assert_eq!(out.end.reason, Some(EndReason::ImpairmentUnsupported));
    assert!(out.end.message.unwrap().contains("has no link agent"));
}

#[tokio::test]
async fn trials_on_links_that_are_not_as_requested_fail_and_others_do_not() {
    let out = on(&["none", "lat10"], Fault::None, Fault::Lies).run().await;
    assert_eq!(out.end.state, RunState::Complete);
    assert_eq!(
        out.outline(),
        [
            "c0.i0.a0 completed",
            "c1.i0.a0 nobody ImpairmentNotEffective",
            "c0.i1.a0 completed",
            "c1.i1.a0 nobody ImpairmentNotEffective",
        ]
    );
    let failed = &out.records[1];
    assert!(failed.metrics.is_empty() && failed.nodes.is_empty());
    let check = failed.links.as_ref().unwrap();
    assert_eq!(check.legs[0].attempts, 3);
    let message = &failed.failure.as_ref().unwrap().message;
    let words = "network lat10, client-0 to server-0: median round trip (ms): 0.100, expected 9.8";
    assert!(message.starts_with(words), "{message}");
}

#[tokio::test]
async fn a_link_that_cannot_be_measured_because_of_its_loss_fails_with_this_reason() {
    let failed = "client-0: failed to measure the link to server-0: the node refused the call with status 422: nobody \
                  answers";
    let named =
        "network lat10 loses 95 % of packets, so too few datagrams of a probe arrived: lower its loss";
    for (percent, message) in [(40.0, failed.to_owned()), (95.0, format!("{named} ({failed})"))] {
        let mut bench = on(&["lat10"], Fault::Lossy, Fault::None);
        bench.plan.networks[0].to_client.loss = Some(Loss::Random {
            ratio: Ratio::from_percent(percent).unwrap(),
            correlation: Ratio::ZERO,
        });
        let out = bench.run().await;
        let failure = out.records[0].failure.as_ref().unwrap();
        assert_eq!(failure.reason, Reason::ImpairmentNotEffective);
        assert_eq!(failure.message, message);
    }
}

#[tokio::test]
async fn a_link_of_a_busy_machine_is_measured_again_when_the_machine_may_be_quieter() {
    let out = on(&["lat10"], Fault::None, Fault::Slow(3)).run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    let leg = &out.records[0].links.as_ref().unwrap().legs[0];
    assert_eq!(leg.attempts, 4);
    assert_eq!(leg.measured.round_trip.unwrap().p50_ns, 10_100_000);
}

#[tokio::test]
async fn a_path_that_was_slow_while_it_was_measured_is_measured_again() {
    let bench = on(&["lat10"], Fault::None, Fault::SlowBefore(2));
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    let leg = &out.records[0].links.as_ref().unwrap().legs[0];
    assert_eq!((leg.base_round_trip_seconds, leg.attempts), (0.0001, 1));
    let calls = bench.world.calls();
    let is_base = |at: usize| at == 0 || calls[at - 1] == "client-0 0ns";
    let bases = (0..calls.len()).filter(|at| calls[*at] == "client-0 probes server-0" && is_base(*at));
    assert_eq!(bases.count(), 3);
}

#[tokio::test]
async fn a_path_that_stays_slow_while_it_is_measured_is_given_up_and_measured_with_the_next_trial() {
    let out = on(&["lat10"], Fault::None, Fault::SlowBefore(3)).run().await;
    assert_eq!(
        out.outline(),
        ["c0.i0.a0 nobody ImpairmentNotEffective", "c0.i1.a0 completed"]
    );
    let message = &out.records[0].failure.as_ref().unwrap().message;
    let words = "median round trip (ms): 10.100, expected 16.8";
    assert!(message.contains(words), "{message}");
}

#[tokio::test]
async fn a_network_waits_once_for_a_machine_that_stays_busy() {
    let bench = on(&["lat10"], Fault::None, Fault::Slow(u32::MAX))
        .node("client-1", at(3))
        .agent("client-1", Fault::Slow(u32::MAX));
    let out = over(&["lat10"], bench).run().await;
    let attempts = |at: usize| -> Vec<u32> {
        let legs = &out.records[at].links.as_ref().unwrap().legs;
        legs.iter().map(|leg| leg.attempts).collect()
    };
    assert_eq!((attempts(0), attempts(1)), (vec![6, 3], vec![3, 3]));
    let message = &out.records[0].failure.as_ref().unwrap().message;
    assert!(
        message.contains("in 6 measurements: is the machine busy"),
        "{message}"
    );
}

#[tokio::test]
async fn a_failed_measurement_holds_for_its_iteration_and_is_repeated_in_the_next() {
    let mut bench = on(&["lat10"], Fault::None, Fault::Lies);
    // Two cells on the network.
    bench.plan.cells.push(bench.plan.cells[0].clone());
    let again = |trial: &Trial| Trial {
        id: trial.id.replace("c0", "c1"),
        cell: 1,
        ..trial.clone()
    };
    let trials = bench
        .plan
        .trials
        .iter()
        .flat_map(|trial| [trial.clone(), again(trial)]);
    bench.plan.trials = trials.collect();
    let out = bench.run().await;
    let measured: Vec<bool> = out.records.iter().map(|record| record.links.is_some()).collect();
    assert_eq!(measured, [true, false, true, false]);
    assert!(out.records.iter().all(|record| record.failure.is_some()));
}

#[tokio::test]
async fn a_trial_whose_link_agent_restarted_is_repeated_over_links_measured_again() {
    let out = on(&["lat10"], Fault::None, Fault::Restarts).run().await;
    assert_eq!(
        out.outline(),
        [
            "c0.i0.a0 client-0 NodeLost",
            "c0.i0.a1 completed",
            "c0.i1.a0 completed"
        ]
    );
    let failed = &out.records[0];
    let message = &failed.failure.as_ref().unwrap().message;
    assert!(
        message.contains("link agent of client-0, or what impairs in it, was started again"),
        "{message}"
    );
    assert!(failed.metrics.is_empty());
    assert!(out.records[1].links.as_ref().unwrap().is_effective());
    assert!(out.records[2].links.is_none());
}

#[tokio::test]
async fn links_of_an_agent_that_restarted_before_a_trial_are_measured_again() {
    let bench = on(&["lat10"], Fault::None, Fault::RestartsBefore);
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    let probes = bench.world.calls();
    let probes = probes.iter().filter(|call| call.contains("probes")).count();
    assert_eq!(probes, 3, "without impairment, and twice with it");
}

#[tokio::test]
async fn agents_that_restart_all_the_time_fail_trials_but_not_the_run() {
    let out = on(&["lat10"], Fault::None, Fault::Flaps).run().await;
    assert_eq!(out.end.state, RunState::Complete);
    assert_eq!(
        out.outline(),
        [
            "c0.i0.a0 nobody ImpairmentNotEffective",
            "c0.i1.a0 nobody ImpairmentNotEffective"
        ]
    );
}

#[tokio::test]
async fn late_packets_are_flagged() {
    let out = on(&["lat10"], Fault::None, Fault::Late).run().await;
    assert!(out.records[0].flags.contains(&Flag::ImpairmentLate));
    assert!(out.records[0].failure.is_none());
}

#[tokio::test]
async fn a_relays_links_are_watched_as_those_of_its_peers() {
    let beside = |relay| {
        let bench = on(&["lat10"], Fault::None, Fault::None)
            .node("relay-0", at(3))
            .agent("relay-0", relay);
        over(&["lat10"], bench)
    };
    let late = beside(Fault::Late).run().await;
    assert!(late.records[0].flags.contains(&Flag::ImpairmentLate));
    assert!(late.records[0].nodes["relay-0"].link.is_some());
    let restarted = beside(Fault::Restarts).run().await;
    assert_eq!(
        restarted.outline(),
        [
            "c0.i0.a0 relay-0 NodeLost",
            "c0.i0.a1 completed",
            "c0.i1.a0 completed"
        ]
    );
    assert!(restarted.records[1].links.as_ref().unwrap().is_effective());
}

#[tokio::test]
async fn a_trial_whose_packets_go_another_way_than_its_link_fails() {
    let client = Script { bytes: 1000, ..at(2) };
    let server = Script { bytes: 1000, ..at(1) };
    let bench = || {
        let bench = on(&["lat10"], Fault::None, Fault::None)
            .node("server-0", server.clone())
            .agent("server-0", Fault::None)
            .node("client-0", client.clone())
            .agent("client-0", Fault::Bypassed);
        over(&["lat10"], bench)
    };
    let out = bench().run().await;
    let failure = out.records[0].failure.as_ref().unwrap();
    assert_eq!(failure.reason, Reason::ImpairmentNotEffective);
    assert!(
        failure.message.contains("no packet that client-0 sent"),
        "{}",
        failure.message
    );

    // Only the leg to a relay is impaired, which a direct trial has nothing to do with.
    let mut direct = bench().node("client-0", client.clone()).node("relay-0", at(3));
    direct = over(
        &["lat10"],
        direct
            .agent("client-0", Fault::Bypassed)
            .agent("relay-0", Fault::None),
    );
    let network = &mut direct.plan.networks[0];
    network.client_relay = Some(std::mem::take(&mut network.to_server));
    direct.plan.cells[0].relays = Names::default();
    let out = direct.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
}

#[tokio::test]
async fn a_node_whose_agent_is_gone_is_replaced_and_its_links_are_set_again() {
    let bench = on(&["lat10"], Fault::None, Fault::Vanishes)
        .spare("client-0", at(3))
        .spare_agent(Fault::None);
    let out = tokio::time::timeout(Duration::from_secs(60), bench.run())
        .await
        .unwrap();
    assert_eq!(
        out.outline(),
        [
            "c0.i0.a0 client-0 NodeLost",
            "c0.i0.a1 completed",
            "c0.i1.a0 completed"
        ]
    );
    assert!(out.records[1].links.as_ref().unwrap().is_effective());
}

/// An earlier session set the client's link to the server to this network of the plan.
async fn impair_client(bench: &Bench, network: usize) {
    let slow = bench.plan.networks[network].to_server.clone();
    let request = LinkRequest {
        link: OutgoingLinks::to(["10.0.0.1".parse().unwrap()], slow).unwrap(),
        backend: Backend::Auto,
        seed: None,
    };
    bench.agents["client-0"].impair(&request).await.unwrap();
}

#[tokio::test]
async fn a_trial_of_an_earlier_session_continues_over_the_links_that_it_was_begun_with() {
    let bench = on(&["lat10"], Fault::None, Fault::None);
    impair_client(&bench, 0).await;
    start_and_die(&bench).await;
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    assert!(
        out.records[0].links.is_none(),
        "it was measured by whoever began it"
    );
    assert!(out.records[1].links.as_ref().unwrap().is_effective());
}

#[tokio::test]
async fn a_trial_that_has_ended_is_collected_even_if_its_links_have_changed() {
    let bench = on(&["none", "lat10"], Fault::None, Fault::None);
    start_and_die(&bench).await;
    let (server, client) = (bench.nodes["server-0"].client(), bench.nodes["client-0"].client());
    client
        .status_after(ID, TrialState::Running, TEST_TIMEOUT)
        .await
        .unwrap();
    server.finish(ID).await.unwrap();
    server
        .status_after(ID, TrialState::Running, TEST_TIMEOUT)
        .await
        .unwrap();
    // The next trial was about to begin.
    impair_client(&bench, 1).await;
    let out = bench.run().await;
    assert_eq!(
        out.outline(),
        [
            "c0.i0.a0 completed",
            "c1.i0.a0 completed",
            "c0.i1.a0 completed",
            "c1.i1.a0 completed"
        ]
    );
    let started = bench.nodes["client-0"].started();
    assert_eq!(started, [ID, "r-c1.i0.a0", "r-c0.i1.a0", "r-c1.i1.a0"]);
    assert!(out.records[1].links.as_ref().unwrap().is_effective());
}

#[tokio::test]
async fn a_trial_of_an_earlier_session_over_other_links_is_restarted() {
    let bench = on(&["lat10"], Fault::None, Fault::None);
    start_and_die(&bench).await;
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    assert!(out.records[0].links.as_ref().unwrap().is_effective());
}

#[tokio::test]
async fn an_agent_that_measures_for_another_run_is_waited_for() {
    let bench = on(&["lat10"], Fault::None, Fault::Busy);
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
}

#[tokio::test]
async fn a_link_without_replies_fails_its_trials_and_loses_no_node() {
    let out = on(&["none", "lat10"], Fault::Mute, Fault::None).run().await;
    assert_eq!(out.end.state, RunState::Complete, "{:?}", out.end.message);
    for record in &out.records {
        let failure = record.failure.as_ref().unwrap();
        assert_eq!(
            failure.reason,
            Reason::ImpairmentNotEffective,
            "{}",
            failure.message
        );
        assert!(failure.message.contains("nobody answers"), "{}", failure.message);
    }
    assert!(
        !out.events.iter().any(|event| event.ends_with("replaced")),
        "{:?}",
        out.events
    );
}
