//! The metrics of a node.

use std::collections::{BTreeMap, BTreeSet};

use perfrun_contract::{
    matrix::{Protocol, Stack, Transport},
    node::Reason,
    parameters::{Amount, Handshakes, Parameters},
    workload::{Direction, MessageMode},
};

use perfrun_metrics::undescribed;

use crate::{support::*, workloads::messages};

/// OpenMetrics text, parsed strictly enough to refuse what Prometheus would refuse.
struct Exposition {
    units: BTreeMap<String, String>,
    helps: BTreeMap<String, String>,
    types: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

fn parse(text: &str) -> Exposition {
    assert!(text.ends_with("# EOF\n"), "it does not end with # EOF");
    let (mut units, mut helps, mut types) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (kind, name) = (words.next().unwrap(), words.next().unwrap().to_owned());
            let to = match kind {
                "UNIT" => &mut units,
                "HELP" => &mut helps,
                "TYPE" => &mut types,
                other => panic!("{other}: {line}"),
            };
            let value = words.next().unwrap_or_default().to_owned();
            assert!(to.insert(name, value).is_none(), "twice: {line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let mut labels = BTreeSet::new();
            for before in series.split("=\"").collect::<Vec<_>>().split_last().unwrap().1 {
                let label = before.rsplit([',', '{']).next().unwrap();
                assert!(
                    labels.insert(label),
                    "Prometheus refuses a page with a label twice: {line}"
                );
            }
            let plain = name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
            assert!(plain, "{line}");
            assert!(
                samples
                    .insert(series.to_owned(), value.parse().unwrap())
                    .is_none(),
                "twice: {line}"
            );
        }
    }
    Exposition {
        units,
        helps,
        types,
        samples,
    }
}

impl Exposition {
    /// Checks what the messages of commonware add to the metrics of a node.
    fn check_commonware(&self, role: &str) {
        let all = |name| self.sum(name, &[]);
        let (sent, received) = if role == "client" { (202, 16) } else { (16, 202) };
        assert!(all("perfrun_commonware_messages_sent_total") >= f64::from(sent));
        assert!(all("perfrun_commonware_messages_received_total") >= f64::from(received));
        assert_eq!(all("perfrun_commonware_messages_rate_limited_total"), 0.0);
        assert!(all("perfrun_commonware_connections_total") >= 2.0);
    }

    /// The sum of the samples of a name with all these labels.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |series: &str| {
            labels
                .iter()
                .all(|(key, value)| series.contains(&format!("{key}=\"{value}\"")))
        };
        let of = |series: &str| series.split('{').next() == Some(name) && has(series);
        self.samples
            .iter()
            .filter(|(series, _)| of(series))
            .map(|(_, value)| value)
            .sum()
    }

    /// Checks the name, unit and help of each type.
    fn check_types(&self) {
        for (name, kind) in &self.types {
            assert!(name.starts_with("perfrun_"), "{name}");
            assert!(!self.helps[name].is_empty(), "{name} has no help");
            let unit = self.units.get(name).map(String::as_str);
            for (ending, expected) in [("_bytes", "bytes"), ("_seconds", "seconds")] {
                if name.ends_with(ending) && !name.contains("libp2p") {
                    assert_eq!(unit, Some(expected), "{name}");
                }
            }
            if let Some(unit) = unit {
                assert!(name.ends_with(&format!("_{unit}")), "{name} in {unit}");
            }
            assert!(
                ["counter", "gauge", "histogram", "info", "unknown"].contains(&kind.as_str()),
                "{kind}"
            );
        }
    }

    /// The families of all samples, after checking that each has a type, and the labels of a node in this
    /// role.
    fn families(&self, role: &str) -> BTreeSet<String> {
        let family = |series: &String| {
            let is_libp2ps = series.starts_with("perfrun_libp2p_");
            let has_role = is_libp2ps || series.contains(&format!("role=\"{role}\""));
            assert!(series.contains("run=\"a-run\"") && has_role, "{series}");
            let name = series.split('{').next().unwrap();
            let stem = |suffix| {
                name.strip_suffix(suffix)
                    .filter(|stem| self.types.contains_key(*stem))
            };
            let of = ["_total", "_sum", "_count", "_bucket", "_info"]
                .into_iter()
                .find_map(stem)
                .unwrap_or(name);
            assert!(self.types.contains_key(of), "{series} has no type");
            of.to_owned()
        };
        self.samples.keys().map(family).collect()
    }
}

#[tokio::test]
async fn metrics_are_open_metrics_with_a_unit_and_a_help() {
    let pair = Pair::start();
    for stacks in PAIRS {
        pair.trial(stacks, &ping(2, 0.0), 1).await;
        pair.trial(
            stacks,
            &Parameters::Handshakes(Handshakes {
                amount: Amount::Count(1),
                in_flight: 1,
            }),
            1,
        )
        .await;
    }
    pair.trial(PAIRS[0], &substreams(3), 1).await;
    let exchange = messages(MessageMode::Stream, 64, Amount::Count(100));
    if let Some(stacks) = commonware() {
        pair.trial(stacks, &exchange, 2).await.completed("messages");
    }
    for (node, role) in [(&pair.client, "client"), (&pair.server, "server")] {
        let page = node.metrics().await;
        assert_eq!(
            undescribed(&page),
            [""; 0],
            "not as docs/reference/metrics.md says"
        );
        let metrics = parse(&page);
        metrics.check_types();
        let families = metrics.families(role);
        for expected in [
            "perfrun_payload_bytes",
            "perfrun_connections",
            "perfrun_streams",
            "perfrun_operations",
            "perfrun_operation_failures",
            "perfrun_trials",
            "perfrun_cell_running",
            "perfrun_process_cpu_seconds",
            "perfrun_process_resident_memory_bytes",
            "perfrun_process_context_switches",
            "perfrun_libp2p_swarm_connections_established",
        ] {
            assert!(
                families.contains(expected),
                "{expected} is missing from {families:?}"
            );
        }
        for measured_by_clients in [
            "perfrun_handshake_seconds",
            "perfrun_round_trip_seconds",
            "perfrun_substream_open_seconds",
        ] {
            assert_eq!(
                families.contains(measured_by_clients),
                role == "client",
                "{measured_by_clients}"
            );
        }
        if commonware().is_some() {
            metrics.check_commonware(role);
        }
        for (stack, transport) in STACKS_WITH_THEMSELVES {
            let labels = [("stack", stack.into()), ("transport", transport.into())];
            assert!(
                metrics.sum("perfrun_connections_total", &labels) >= 2.0,
                "{stack} {transport}"
            );
        }
    }
}

#[tokio::test]
async fn counters_agree_with_trials_even_with_failed_ones() {
    let pair = Pair::start();
    let labels = |direction| {
        [
            ("stack", "litep2p"),
            ("transport", "quic-v1"),
            ("direction", direction),
        ]
    };
    let (mut client_bytes, mut server_bytes) = ((0, 0), (0, 0));
    let (stack, transport) = (Stack::Litep2p, Transport::QuicV1);
    let both = bandwidth(Protocol::Perf, Direction::Both, Amount::Count(300_007), 2);
    let endless = bandwidth(Protocol::Perf, Direction::Upload, Amount::Seconds(1000.0), 2);
    for (parameters, fails) in [(both.clone(), false), (endless, true), (both, false)] {
        let addresses = pair.server.serve("a", stack, transport, &parameters).await;
        let request = dialler(stack, transport, parameters, addresses, 1);
        pair.client.run("a", &request).await;
        if fails {
            pair.client.moved("a").await;
            pair.client.delete("a").await;
        }
        let client = pair.client.outcome("a").await;
        assert_eq!(reason(&client), fails.then_some(Reason::Cancelled));
        pair.server.finish("a").await;
        let server = pair.server.outcome("a").await;
        for (sum, outcome) in [(&mut client_bytes, &client), (&mut server_bytes, &server)] {
            sum.0 += outcome.measured.bytes_sent;
            sum.1 += outcome.measured.bytes_received;
        }
        for (node, bytes) in [(&pair.client, client_bytes), (&pair.server, server_bytes)] {
            let metrics = parse(&node.metrics().await);
            assert_eq!(
                metrics.sum("perfrun_payload_bytes_total", &labels("sent")),
                bytes.0 as f64
            );
            assert_eq!(
                metrics.sum("perfrun_payload_bytes_total", &labels("received")),
                bytes.1 as f64
            );
            assert_eq!(metrics.sum("perfrun_cell_running", &[("cell", "a-cell")]), 0.0);
        }
        pair.client.delete("a").await;
        pair.server.delete("a").await;
    }
    let metrics = parse(&pair.client.metrics().await);
    assert_eq!(
        metrics.sum("perfrun_trials_total", &[("outcome", "Completed")]),
        2.0
    );
    assert_eq!(
        metrics.sum("perfrun_trials_total", &[("outcome", "Cancelled")]),
        1.0
    );
    assert_eq!(
        metrics.sum("perfrun_connections_total", &[("stack", "litep2p")]),
        3.0
    );
}
