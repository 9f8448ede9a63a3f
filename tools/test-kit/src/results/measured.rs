//! What nodes would measure in a trial, by a model of the stacks: one module for each workload that takes
//! more than a line.

mod bandwidth;
mod echo;
mod handshakes;
mod messages;
mod relay;
mod relay_stress;

use std::collections::BTreeMap;

use perfrun_contract::{
    distribution::Distribution,
    histogram::{Histogram, recorder},
    matrix::{Stack, Transport},
    node::{EchoSample, Measured, Resources, Sample},
    parameters::{Echo, Parameters},
    plan::Cell,
    record::NodeRecord,
    role::Role,
};

/// A trial of a cell, and what the nodes of each role measure in it.
#[derive(Default)]
struct Trial<'a> {
    key: &'a str,
    /// The speeds of client and server, in gigabits per second.
    speed: [f64; 2],
    /// The time of a round trip, in seconds.
    latency: f64,
    /// Samples that each node takes.
    intervals: u64,
    client: Measured,
    server: Measured,
    relay: Measured,
}

impl Trial<'_> {
    /// The rate of a transfer of these bytes `up` or `down`, in bytes per second.
    fn rate(&self, what: &str, bytes: f64) -> f64 {
        let [sender, receiver] = self.speed;
        let asymmetry = match what {
            "down" => sender * 0.3 + receiver * 0.7,
            _ => sender * 0.7 + receiver * 0.3,
        };
        asymmetry * 1e9 / 8.0 * scatter(self.key, what) * bytes / (bytes + 700_000.0)
    }

    /// The client times `count` of these, with a mean in seconds.
    fn times(&mut self, distribution: Distribution, count: u32, mean: f64) {
        self.client.histograms.insert(distribution, spread(count, mean));
    }

    /// Each node uses the processor and memory, in all intervals alike.
    fn use_resources(&mut self, echo: Option<&Echo>) {
        let intervals = self.intervals;
        let interval = self.client.seconds / intervals as f64;
        for end in [&mut self.client, &mut self.server, &mut self.relay] {
            let bytes = end.bytes_sent + end.bytes_received;
            let cpu_seconds = bytes as f64 / 1.6e9 + 0.004;
            end.connections = 1;
            end.streams = 1;
            end.resources = Resources {
                cpu_user_seconds: cpu_seconds * 0.6,
                cpu_system_seconds: cpu_seconds * 0.4,
                rss_start_bytes: 18 << 20,
                rss_peak_bytes: (19 << 20) + (end.bytes_received / 200).min(40 << 20),
                cpu_cycles: Some((cpu_seconds * 2e9) as u64),
                allocated_peak_bytes: Some((11 << 20) + echo.map_or(0, |load| load.streams() * 4096)),
                ..Resources::default()
            };
            end.samples = (1..=intervals)
                .map(|i| Sample {
                    at_seconds: i as f64 * interval,
                    interval_seconds: interval,
                    bytes_sent: end.bytes_sent / intervals,
                    bytes_received: end.bytes_received / intervals,
                    operations: u64::from(bytes == 0),
                    cpu_seconds: interval * 0.8,
                    rss_bytes: end.resources.rss_peak_bytes,
                    circuits: end.most_circuits * i / intervals,
                    allocated_bytes: echo.map(|load| (11 << 20) + load.streams() * 2048 * i),
                    echo: echo.map(|load| EchoSample {
                        active_streams: load.streams() * i / 2,
                        echoing_streams: load.streams() * i / 2,
                        round_trip_p50_seconds: Some(self.latency),
                        round_trip_p99_seconds: Some(self.latency * 2.0),
                    }),
                    ..Sample::default()
                })
                .collect();
        }
    }
}

/// What the nodes of a cell measure in the trial of this key.
pub(super) fn measured(cell: &Cell, key: &str) -> BTreeMap<String, NodeRecord> {
    let speed = [cell.client_stack, cell.server_stack].map(|stack| gigabits(stack, cell.transport));
    let latency = 120e-6 / (speed[0].min(speed[1]) / 10.0).powf(0.3) * scatter(key, "latency");
    let mut trial = Trial {
        key,
        speed,
        latency,
        intervals: 2,
        ..Trial::default()
    };
    match &cell.parameters {
        Parameters::Bandwidth(load) => {
            bandwidth::measure(&mut trial, load.direction, load.amount, load.streams);
        }
        Parameters::Substreams(load) => {
            let mean = latency * (1.0 + f64::from(load.count) / 9.0);
            trial.times(Distribution::Open, load.count, mean);
            trial.times(Distribution::OpenCompat, load.count, mean * 0.93);
            trial.client.seconds = mean * 2.0;
        }
        Parameters::Handshakes(load) => {
            handshakes::measure(&mut trial, cell.transport, load.amount, load.in_flight);
        }
        Parameters::Ping(load) => {
            trial.times(Distribution::RoundTrip, load.count, latency);
            trial.client.seconds = f64::from(load.count) * latency;
        }
        Parameters::Relay(load) => relay::measure(&mut trial, load.path, load.bytes),
        Parameters::RelayStress(load) => {
            let seconds = load.ramp_seconds + load.plateau_seconds;
            relay_stress::measure(&mut trial, load.sinks, seconds, load.bytes);
        }
        Parameters::Echo(load) => echo::measure(&mut trial, load),
        Parameters::Messages(load) => messages::measure(&mut trial, load),
    }
    let echo = match &cell.parameters {
        Parameters::Echo(load) => Some(load),
        _ => None,
    };
    trial.use_resources(echo);
    // A client that is its own server gives two records.
    let within = cell.clients.iter().filter(|_| cell.is_in_process());
    let servers = within.map(|name| format!("{name}.server"));
    let nodes = [
        (Role::Client, trial.client, cell.clients.to_vec()),
        (
            Role::Server,
            trial.server,
            servers.chain(cell.servers.to_vec()).collect(),
        ),
        (Role::Relay, trial.relay, cell.relays.to_vec()),
    ];
    let records = nodes.into_iter().flat_map(|(role, measured, names)| {
        let record = NodeRecord {
            role,
            measured,
            link: None,
        };
        names.into_iter().map(move |name| (name, record.clone()))
    });
    records.collect()
}

fn scatter(key: &str, what: &str) -> f64 {
    1.0 + noise(&format!("{key}{what}"), 0.04)
}

fn gigabits(stack: Stack, transport: Transport) -> f64 {
    match (stack, transport) {
        (Stack::Raw, Transport::QuicV1) => 6.2,
        (Stack::Raw, _) => 38.0,
        (Stack::Libp2p, Transport::Tcp | Transport::Ws | Transport::WebrtcDirect | Transport::Memory) => 9.4,
        (Stack::Libp2p, Transport::TcpTls) => 12.1,
        (Stack::Libp2p | Stack::GoLibp2p | Stack::External, _) => 3.9,
        (Stack::Litep2p, Transport::QuicV1) => 2.1,
        (Stack::Litep2p, _) => 5.3,
        _ => 2.9,
    }
}

/// `count` values around a mean, in nanoseconds: most of them near it, some far above.
fn spread(count: u32, mean: f64) -> Histogram {
    let mut all = recorder();
    for i in 0..count {
        let quantile = (f64::from(i) + 0.5) / f64::from(count);
        all.record((mean * 1e9 * (0.7 + 0.4 * quantile + 1.6 * quantile.powi(40))) as u64)
            .expect("the recorder grows");
    }
    (&all).into()
}

/// Deterministic, from −spread to +spread.
pub(super) fn noise(key: &str, spread: f64) -> f64 {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    });
    // The low bits of FNV hardly differ between similar texts.
    let mixed = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11;
    (mixed as f64 / (1u64 << 53) as f64 * 2.0 - 1.0) * spread
}
