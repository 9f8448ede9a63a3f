//! Impairments of links: presets, networks of documents, and their impairments in plans.

use std::{num::NonZeroU64, time::Duration};

use perfrun_api::{
    network::{PRESETS, preset},
    planning::{self, Error},
};
use perfrun_contract::network::NetworkImpairments;
use perfrun_link::{Impairment, Jitter, JitterDistribution, Loss, Ratio};

use crate::fixtures::{cell_ids, plan, spec};

fn impairments(name: &str) -> NetworkImpairments {
    preset(name).unwrap().impairments().unwrap()
}

/// The impairments of an entry of `networks` named `far`.
fn far(figures: &str) -> NetworkImpairments {
    let document = format!(
        "workload: {{ping: {{}}}}\nmatrix: {{networks: [far]}}\nnetworks: [{{name: far, {figures}}}]"
    );
    let mut plan = plan(&document);
    assert_eq!(plan.networks.len(), 1, "{document}");
    plan.networks.remove(0)
}

fn percent(percent: f64) -> Ratio {
    Ratio::from_percent(percent).unwrap()
}

fn random(loss: f64) -> Option<Loss> {
    Some(Loss::Random {
        ratio: percent(loss),
        correlation: Ratio::ZERO,
    })
}

#[test]
fn presets_of_the_published_benchmark_impair_one_direction() {
    let lat10 = impairments("lat10");
    assert_eq!(lat10.to_server.delay, Duration::from_millis(10));
    assert!(lat10.to_client.is_none());
    let loss1 = impairments("loss1");
    assert_eq!(loss1.to_server.loss, random(1.0));
    assert!(loss1.to_client.is_none() && loss1.to_server.delay.is_zero());
}

#[test]
fn every_figure_of_a_preset_is_in_its_impairments() {
    for preset in PRESETS.iter() {
        let network = &preset.network;
        let impairments = network.impairments().unwrap();
        let said = serde_json::to_value(network).unwrap();
        for (direction, impairment) in [
            (&said["toServer"], &impairments.to_server),
            (&said["toClient"], &impairments.to_client),
        ] {
            let says = |field: &str| direction.get(field).or(said.get(field)).is_some();
            let applies = !impairment.is_none();
            assert_eq!(says("rate") && applies, impairment.rate_bits_per_second.is_some());
            assert_eq!(says("jitter") && applies, impairment.jitter.is_some());
            let loses = says("loss") || says("bursts");
            assert_eq!(loses && applies, impairment.loss.is_some(), "{}", network.name);
        }
        assert!(!impairments.is_none(), "{}", network.name);
    }
    let wan = impairments("wan");
    assert_eq!(
        wan.to_client,
        Impairment {
            delay: Duration::from_millis(25),
            jitter: Some(Jitter {
                amount: Duration::from_millis(1),
                distribution: JitterDistribution::Normal,
                correlation: Ratio::ZERO,
            }),
            loss: random(0.1),
            rate_bits_per_second: NonZeroU64::new(100_000_000),
            ..Impairment::default()
        }
    );
    assert_eq!(wan.to_server, wan.to_client);
    assert!(impairments("none").is_none());
    assert_eq!(preset("moon"), None);
}

#[test]
fn presets_of_home_lines_are_slower_to_the_server() {
    let rates = |name: &str| {
        let impairments = impairments(name);
        [impairments.to_server, impairments.to_client]
            .map(|direction| direction.rate_bits_per_second.unwrap().get() / 1_000_000)
    };
    assert_eq!(rates("dsl"), [20, 100]);
    assert_eq!(rates("mobile4g"), [10, 40]);
    assert_eq!(rates("satellite"), [5, 50]);
}

#[test]
fn networks_are_described_in_text() {
    let told = |name: &str| impairments(name).to_string();
    assert_eq!(told("none"), "none");
    assert_eq!(told("lat10"), "to server: delay 10ms");
    assert_eq!(
        told("wan"),
        "each way: delay 25ms, jitter 1ms normal, loss 0.1%, rate 100Mbit"
    );
    assert_eq!(
        told("dsl"),
        "to server: delay 15ms, loss 0.05%, rate 20Mbit; to client: delay 15ms, loss 0.05%, rate 100Mbit"
    );
}

#[test]
fn a_direction_leaves_the_other_one_as_it_is() {
    let one_way = far("delay: 5ms, direction: toClient");
    assert!(one_way.to_server.is_none());
    assert_eq!(one_way.to_client.delay, Duration::from_millis(5));
    assert_eq!(one_way.round_trip(), Duration::from_millis(5));
    assert_eq!(far("delay: 5ms").round_trip(), Duration::from_millis(10));
}

#[test]
fn a_field_of_a_direction_replaces_that_of_both_directions() {
    let asymmetric = far(
        "delay: 5ms, loss: 1%, toServer: {delay: 7ms, bursts: {enter: 1%, leave: 10%}}, \
                          toClient: {rate: 1Mbit}",
    );
    assert_eq!(asymmetric.to_server.delay, Duration::from_millis(7));
    let bursts = Loss::GilbertElliott {
        enter_bad: percent(1.0),
        leave_bad: percent(10.0),
        loss_in_bad: Ratio::ONE,
        loss_in_good: Ratio::ZERO,
    };
    assert_eq!(
        asymmetric.to_server.loss,
        Some(bursts),
        "one model of loss replaces the other"
    );
    assert_eq!(asymmetric.to_client.delay, Duration::from_millis(5));
    assert_eq!(asymmetric.to_client.loss, random(1.0));
    assert_eq!(
        asymmetric.to_client.rate_bits_per_second,
        NonZeroU64::new(1_000_000)
    );
}

#[test]
fn fields_that_contradict_each_other_are_refused_with_network_and_direction() {
    let document = "workload: {ping: {}}\nmatrix: {networks: [far]}\n\
                    networks: [{name: far, delay: 5ms, jitter: 4ms, toClient: {delay: 1ms}}]";
    let Err(Error::ImpossibleNetwork(impossible)) = planning::plan(&spec(document)) else {
        panic!("{document}")
    };
    let words = impossible.to_string();
    assert!(
        words.starts_with("network far, to clients: a jitter of 4ms"),
        "{words}"
    );
}

#[test]
fn cells_of_a_network_are_together_and_named_after_it() {
    let plan = plan(
        "workload: {ping: {}}\nmatrix: {clients: [libp2p], servers: [libp2p], networks: [none, wan, wan, far]}\n\
         networks: [{name: far, delay: 1ms}]\niterations: 1\nwarmup: 0",
    );
    assert_eq!(
        cell_ids(&plan),
        [
            "raw.raw.tcp.ping-1000",
            "libp2p.libp2p.tcp.ping-1000",
            "raw.raw.tcp.ping-1000.wan",
            "libp2p.libp2p.tcp.ping-1000.wan",
            "raw.raw.tcp.ping-1000.far",
            "libp2p.libp2p.tcp.ping-1000.far",
        ]
    );
    let names: Vec<_> = plan
        .networks
        .iter()
        .map(|network| network.name.as_str())
        .collect();
    assert_eq!(names, ["none", "wan", "far"]);
    assert_eq!(
        plan.trials.iter().map(|trial| trial.cell).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
}

#[test]
fn a_run_that_impairs_nothing_has_no_networks() {
    assert!(plan("workload: {ping: {}}").networks.is_empty());
    // A listed network without any impairment counts as none.
    let idle = "workload: {ping: {}}\nmatrix: {networks: [idle]}\nnetworks: [{name: idle}]";
    assert!(plan(idle).networks.is_empty());
}

#[test]
fn combinations_may_name_their_network() {
    let plan = plan(
        "workload: {ping: {}}\nmatrix:\n  clients: [libp2p]\n  servers: [libp2p]\n  networks: [none, wan]\n  \
         rawReference: false\n  exclude: [{network: none}]\n  include:\n  \
         - {client: litep2p, server: litep2p, transport: tcp}\n  \
         - {client: libp2p, server: litep2p, transport: tcp, network: leo}",
    );
    assert_eq!(
        cell_ids(&plan),
        [
            "litep2p.litep2p.tcp.ping-1000",
            "libp2p.libp2p.tcp.ping-1000.wan",
            "litep2p.litep2p.tcp.ping-1000.wan",
            "libp2p.litep2p.tcp.ping-1000.leo",
        ]
    );
}

#[test]
fn a_network_that_no_cell_is_measured_on_is_not_set_up() {
    let plan = plan(
        "workload: {ping: {}}\nmatrix: {networks: [none, wan], exclude: [{network: wan}], rawReference: false}",
    );
    assert!(plan.networks.is_empty());
}

#[test]
fn a_field_that_describes_nothing_in_its_direction_is_refused() {
    for (figures, words) in [
        (
            "toServer: {distribution: normal}",
            "describes jitter, but no jitter is set: set jitter",
        ),
        (
            "toClient: {lossCorrelation: 5%}",
            "describes loss, but no loss is set: set loss",
        ),
        (
            "toClient: {reorderGap: 5}",
            "describes reorder, but no reorder is set: set reorder",
        ),
    ] {
        let document = format!(
            "workload: {{ping: {{}}}}\nmatrix: {{networks: [far]}}\nnetworks: [{{name: far, delay: 1ms, {figures}}}]"
        );
        let said = planning::plan(&spec(&document)).unwrap_err().to_string();
        assert!(said.contains(words), "{figures}: {said}");
    }
}

#[test]
fn the_rate_of_a_network_is_the_higher_one_and_none_if_one_direction_has_none() {
    assert_eq!(impairments("dsl").rate(), Some(100e6));
    assert_eq!(far("delay: 1ms, toServer: {rate: 1Mbit}").rate(), None);
    assert_eq!(impairments("lat10").rate(), None);
}

#[test]
fn tcp_windows_are_twice_the_bandwidth_delay_product() {
    let window = |networks: &str| {
        plan(&format!(
            "workload: {{ping: {{}}}}\nmatrix: {{networks: [{networks}]}}"
        ))
        .tcp_window_bytes()
    };
    assert_eq!(window("none"), None);
    assert_eq!(window("lan"), Some(6 << 20), "never less than Linux gives");
    // 1 Gbit/s × 90 ms × 2.
    assert_eq!(window("lan, transatlantic"), Some(22_500_000));
    // 10 Gbit/s if no rate is set.
    assert_eq!(window("lat10"), Some(25_000_000));
}

#[test]
fn links_of_a_relay_are_like_direct_links_unless_configured() {
    use perfrun_contract::role::Role::{Client, Relay, Server};
    let delay = |impairments: &NetworkImpairments, from, to| {
        let impairment = impairments.between(from, to).unwrap();
        impairment.delay.as_millis()
    };
    let alike = far("delay: 10ms, toClient: {delay: 20ms}");
    for (from, to, expected) in [
        (Client, Relay, 10),
        (Relay, Server, 10),
        (Server, Relay, 20),
        (Relay, Client, 20),
    ] {
        assert_eq!(delay(&alike, from, to), expected, "{from} to {to}");
    }
    let own = far("delay: 10ms, relay: {client: {delay: 40ms}, server: {loss: 1%}}");
    for (from, to, expected) in [
        (Client, Server, 10),
        (Client, Relay, 40),
        (Relay, Client, 40),
        (Relay, Server, 0),
        (Server, Relay, 0),
    ] {
        assert_eq!(delay(&own, from, to), expected, "{from} to {to}");
    }
    assert_eq!(own.between(Server, Relay).unwrap().loss, random(1.0));
    assert_eq!(own.between(Client, Client), None);
    assert_eq!(own.round_trip(), Duration::from_millis(80));
    assert_eq!(
        own.to_string(),
        "each way: delay 10ms; client and relay: delay 40ms; server and relay: loss 1%"
    );
    let only_there = far("relay: {client: {delay: 1ms}}");
    assert!(!only_there.is_none());
}
