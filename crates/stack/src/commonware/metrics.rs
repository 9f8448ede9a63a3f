//! What commonware counts itself, summed over its peers and the runtimes of a process. Labels must not name
//! peers, as those of commonware do.

use perfrun_contract::metrics::commonware;
use perfrun_metrics::register;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// The counts of one runtime, which only commonware-p2p has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Counts {
    sent: u64,
    received: u64,
    /// Messages that the receiver's quota delayed.
    pub(super) held_back: u64,
    inbound: u64,
    outbound: u64,
    refused: u64,
}

impl Counts {
    /// Reads the metrics of a runtime.
    pub(super) fn read(page: &str) -> Self {
        let data = |name: &str| {
            sum(page, |family, labels| {
                family.ends_with(name) && labels.contains("data_")
            })
        };
        let all = |name: &str| sum(page, |family, _| family.ends_with(name));
        Self {
            sent: data("_messages_sent_total"),
            received: data("_messages_received_total"),
            held_back: data("_messages_rate_limited_total"),
            inbound: all("_inbound_connections_total"),
            outbound: all("_outbound_connections_total"),
            refused: sum(page, |family, _| {
                family.contains("_handshake") && family.ends_with("_limited_total")
                    || family.ends_with("_handshakes_blocked_total")
            }),
        }
    }
}

/// The sum of the samples whose family and labels are chosen.
fn sum(page: &str, is_chosen: impl Fn(&str, &str) -> bool) -> u64 {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples
        .filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (family, labels) = series.split_once('{').unwrap_or((series, ""));
            is_chosen(family, labels).then(|| value.parse::<u64>().ok())?
        })
        .sum()
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct Direction {
    direction: &'static str,
}

/// The counts of all runtimes that have ended.
#[derive(Default)]
pub(crate) struct Totals {
    sent: Counter,
    received: Counter,
    held_back: Counter,
    connections: Family<Direction, Counter>,
    refused: Counter,
}

impl Totals {
    pub(crate) fn register(&self, registry: &mut Registry) {
        register(registry, &commonware::SENT, self.sent.clone());
        register(registry, &commonware::RECEIVED, self.received.clone());
        register(registry, &commonware::RATE_LIMITED, self.held_back.clone());
        register(registry, &commonware::CONNECTIONS, self.connections.clone());
        register(registry, &commonware::REFUSED, self.refused.clone());
    }

    /// Adds the counts of a runtime.
    pub(super) fn add(&self, counts: Counts) {
        let connections = |direction| self.connections.get_or_create_owned(&Direction { direction });
        self.sent.inc_by(counts.sent);
        self.received.inc_by(counts.received);
        self.held_back.inc_by(counts.held_back);
        connections("inbound").inc_by(counts.inbound);
        connections("outbound").inc_by(counts.outbound);
        self.refused.inc_by(counts.refused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_summed_over_peers_and_leave_out_pings() {
        let page = "# HELP network_spawner_messages_sent messages sent.\n\
            # TYPE network_spawner_messages_sent counter\n\
            network_spawner_messages_sent_total{peer=\"a\",message=\"data_0\"} 5\n\
            network_spawner_messages_sent_total{peer=\"b\",message=\"data_2\"} 7\n\
            network_spawner_messages_sent_total{peer=\"b\",message=\"ping\"} 100\n\
            network_spawner_messages_rate_limited_total{peer=\"b\",message=\"data_0\"} 1\n\
            network_listener_handshake_ip_rate_limited_total 2\n\
            network_listener_handshakes_blocked_total 3\n\
            runtime_inbound_connections_total 4\n\
            runtime_outbound_connections_total 6\n\
            # EOF\n";
        let expected = Counts {
            sent: 12,
            received: 0,
            held_back: 1,
            inbound: 4,
            outbound: 6,
            refused: 5,
        };
        assert_eq!(Counts::read(page), expected);
        assert_eq!(Counts::read("nonsense\n\n{} x\n"), Counts::default());
    }
}
