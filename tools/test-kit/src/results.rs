//! Results as a run leaves them: planned from a document, measured by a model instead of sockets.

use std::collections::BTreeMap;

use perfrun_api::{
    planning::draft,
    results::{Results, SCHEMA_VERSION},
    spec::PerfRunSpec,
};
use perfrun_contract::{
    distribution::Distribution,
    histogram::{Histogram, recorder},
    matrix::{Stack, Transport},
    measure,
    metric::Metric,
    node::{CONTRACT, EchoSample, Info, Measured, Plateau, Reason, Resources, Sample, Transfer},
    parameters::{Amount, Parameters},
    plan::Cell,
    record::{Flag, NodeRecord, TrialFailure, TrialRecord},
    role::Role,
    run::{Environment, Isolation, RunState},
    workload::{Direction, MessageMode, RelayPath},
};
use perfrun_report::{judged, summarize};

/// Makes results from the `spec` of a document.
pub struct Run {
    name: String,
    spec: String,
    ended_after: Option<usize>,
    isolation: Isolation,
    profile: &'static str,
    failing: Vec<(String, Reason, &'static str)>,
    lost_once: Vec<String>,
    flagged: Vec<(String, Flag)>,
    changed: Vec<(String, Metric, f64)>,
}

/// A run of the given `spec`, indented by two spaces.
pub fn run(spec: &str) -> Run {
    Run {
        name: "quickstart".into(),
        spec: spec.into(),
        ended_after: None,
        isolation: Isolation::Namespaces,
        profile: "release",
        failing: vec![],
        lost_once: vec![],
        flagged: vec![],
        changed: vec![],
    }
}

impl Run {
    /// Names the run.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Ctrl-C after this number of trials.
    pub fn interrupted_after(mut self, trials: usize) -> Self {
        self.ended_after = Some(trials);
        self
    }

    /// All nodes share one loopback interface.
    pub fn on_loopback(mut self) -> Self {
        self.isolation = Isolation::Loopback;
        self
    }

    /// Nodes are debug builds, and trials are flagged so.
    pub fn debug_build(mut self) -> Self {
        self.profile = "debug";
        self
    }

    /// Trials whose `cell id/trial id` contains the text fail.
    pub fn failing(mut self, trials: &str, reason: Reason, message: &'static str) -> Self {
        self.failing.push((trials.into(), reason, message));
        self
    }

    /// Trials whose `cell id/trial id` contains the text lose a node and complete in the second attempt.
    pub fn lost_once(mut self, trials: &str) -> Self {
        self.lost_once.push(trials.into());
        self
    }

    /// Trials whose `cell id/trial id` contains the text are flagged.
    pub fn flagged(mut self, trials: &str, flag: Flag) -> Self {
        self.flagged.push((trials.into(), flag));
        self
    }

    /// In trials whose `cell id/trial id` contains the text, a metric is multiplied.
    pub fn changed(mut self, trials: &str, metric: Metric, factor: f64) -> Self {
        self.changed.push((trials.into(), metric, factor));
        self
    }

    /// The results, with their summary and what was found in them.
    pub fn results(&self) -> Results {
        let spec: PerfRunSpec = serde_saphyr::from_str(&self.spec).expect("the test gives a spec");
        let plan = draft(&spec).expect("the spec can be planned");
        let mut trials = vec![];
        for trial in plan.trials.iter().take(self.ended_after.unwrap_or(usize::MAX)) {
            let cell = &plan.cells[trial.cell];
            let key = format!("{}/{}", cell.id, trial.id);
            let mut record = TrialRecord {
                trial: trial.clone(),
                attempt: 0,
                failure: None,
                metrics: BTreeMap::new(),
                flags: vec![],
                at_seconds: trials.len() as f64 * 0.8,
                start_skew_seconds: Some(0.000_031),
                clock_uncertainty_seconds: Some(0.000_012),
                start_lateness_seconds: Some(0.000_2),
                overhead_seconds: 0.021 + noise(&key, 0.01),
                session: 0,
                disturbance: None,
                standstill: None,
                links: None,
                merged_samples: None,
                nodes: BTreeMap::new(),
            };
            let failure = |node: &str, reason, message: &str| {
                Some(TrialFailure {
                    node: Some(node.into()),
                    reason,
                    message: message.into(),
                })
            };
            if self.lost_once.iter().any(|text| key.contains(text.as_str())) {
                let failure = failure("server-0", Reason::NodeLost, "connection refused (control port)");
                trials.push(TrialRecord {
                    failure,
                    ..record.clone()
                });
                record.attempt = 1;
                record.flags.push(Flag::Retried);
            }
            match self.failing.iter().find(|(text, ..)| key.contains(text.as_str())) {
                Some((_, reason, message)) => record.failure = failure("client-0", *reason, message),
                None => {
                    record.nodes = measured(cell, &key);
                    record.metrics = measure::metrics(cell, &record.nodes);
                    for (_, metric, factor) in self
                        .changed
                        .iter()
                        .filter(|(text, ..)| key.contains(text.as_str()))
                    {
                        record.metrics.entry(*metric).and_modify(|value| *value *= factor);
                    }
                    let flags = self
                        .flagged
                        .iter()
                        .filter(|(text, _)| key.contains(text.as_str()));
                    record.flags.extend(flags.map(|(_, flag)| *flag));
                    if self.profile != "release" {
                        record.flags.push(Flag::DebugBuild);
                    }
                }
            }
            trials.push(record);
        }
        let info = Info {
            contract: CONTRACT,
            instance: None,
            version: "0.1.0".into(),
            stacks: [
                (Stack::Libp2p, "0.57.1"),
                (Stack::Litep2p, "0.16.0"),
                (Stack::Raw, "quinn 0.11.12"),
            ]
            .map(|(stack, version)| (stack.to_string(), version.to_owned()))
            .into(),
            capabilities: BTreeMap::new(),
            profile: self.profile.into(),
            program_sha256: Some("0123456789abcdef".repeat(4)),
            commit: None,
            label: None,
            compiler: Some("rustc 1.95.0".into()),
            target_features: None,
            allocator: Some("jemalloc".into()),
            listen_ip: [10, 77, 0, 2].into(),
            clock: None,
            boot_id: None,
            host: "bench".into(),
            kernel: "6.12.48".into(),
            cpu: "Imaginary CPU @ 3.00GHz".into(),
            cpus: 2,
            governor: Some("performance".into()),
            hypervisor: None,
            smt: Some(false),
            mitigations: None,
            mtu_bytes: Some(1500),
            congestion_control: Some("cubic".into()),
            cpu_limit: None,
            memory_limit_bytes: None,
            socket_buffer_limits_bytes: Some([212_992, 212_992]),
            tcp_window_limits_bytes: None,
        };
        let nodes: BTreeMap<String, Info> = plan
            .nodes
            .iter()
            .map(|node| (node.name.clone(), info.clone()))
            .collect();
        let interrupted = self.ended_after.is_some();
        let judged = judged(&plan, &trials, &nodes);
        Results {
            schema_version: SCHEMA_VERSION,
            name: self.name.clone(),
            started: "2026-11-20T14:00:00Z".parse().expect("this is a time"),
            ended: "2026-11-20T14:01:14.5Z".parse().expect("this is a time"),
            state: if interrupted {
                RunState::Interrupted
            } else {
                RunState::Complete
            },
            reason: interrupted.then(|| "stopped by the user".to_owned()),
            conclusion: None,
            environment: Environment {
                perfrun: "0.1.0".into(),
                isolation: self.isolation,
                nodes,
                programs: vec![],
            },
            summary: summarize(&plan, &trials),
            judged,
            spec,
            plan,
            trials,
        }
    }
}

/// Deterministic, from −spread to +spread.
fn noise(key: &str, spread: f64) -> f64 {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    });
    // The low bits of FNV hardly differ between similar texts.
    let mixed = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11;
    (mixed as f64 / (1u64 << 53) as f64 * 2.0 - 1.0) * spread
}

fn measured(cell: &Cell, key: &str) -> BTreeMap<String, NodeRecord> {
    let speed = [cell.client_stack, cell.server_stack].map(|stack| gigabits(stack, cell.transport));
    let (sender, receiver) = (speed[0], speed[1]);
    let scatter = |what: &str| 1.0 + noise(&format!("{key}{what}"), 0.04);
    let rate = move |what: &str, bytes: f64| {
        let asymmetry = if what == "down" {
            sender * 0.3 + receiver * 0.7
        } else {
            sender * 0.7 + receiver * 0.3
        };
        asymmetry * 1e9 / 8.0 * scatter(what) * bytes / (bytes + 700_000.0)
    };
    let [mut client, mut server, mut relay] = [const { None }; 3].map(Option::<Measured>::unwrap_or_default);
    let latency = 120e-6 / (sender.min(receiver) / 10.0).powf(0.3) * scatter("latency");
    match &cell.parameters {
        Parameters::Bandwidth {
            direction,
            amount,
            streams,
            ..
        } => {
            let bytes = |what: &str| match amount {
                Amount::Count(bytes) => bytes * u64::from(*streams),
                Amount::Seconds(seconds) => (rate(what, 1e9) * seconds) as u64,
            };
            let transfer = |what: &str| {
                let bytes = bytes(what);
                let seconds = bytes as f64 / rate(what, bytes as f64) + 50e-6;
                let after_first = bytes.saturating_sub(65536);
                let first_to_last_seconds = Some(after_first as f64 / rate(what, bytes as f64));
                Transfer {
                    bytes,
                    seconds,
                    bytes_after_first: Some(after_first),
                    first_to_last_seconds,
                }
            };
            if *direction != Direction::Download {
                client.upload = Some(transfer("up"));
                server.upload = client.upload;
            }
            if *direction != Direction::Upload {
                client.download = Some(transfer("down"));
            }
            client.bytes_sent = client.upload.map_or(0, |t| t.bytes);
            client.bytes_received = client.download.map_or(0, |t| t.bytes);
            (server.bytes_received, server.bytes_sent) = (client.bytes_sent, client.bytes_received);
            client.seconds =
                client.upload.map_or(0.0, |t| t.seconds) + client.download.map_or(0.0, |t| t.seconds);
            client
                .histograms
                .insert(Distribution::HandshakeEstablished, spread(1, latency * 9.0));
        }
        Parameters::Substreams { count, .. } => {
            let mean = latency * (1.0 + f64::from(*count) / 9.0);
            client.histograms.insert(Distribution::Open, spread(*count, mean));
            client
                .histograms
                .insert(Distribution::OpenCompat, spread(*count, mean * 0.93));
            client.seconds = mean * 2.0;
        }
        Parameters::Handshakes { amount, in_flight } => {
            let count = match amount {
                Amount::Count(count) => *count as u32,
                Amount::Seconds(_) => 200,
            };
            let slow = latency * (6.0 + 2.5 * f64::from(*in_flight));
            if cell.transport != Transport::QuicV1 {
                client
                    .histograms
                    .insert(Distribution::HandshakeTransport, spread(count, latency * 0.7));
            }
            client
                .histograms
                .insert(Distribution::HandshakeEstablished, spread(count, slow));
            client
                .histograms
                .insert(Distribution::HandshakeFirstByte, spread(count, slow + latency));
            client.seconds = f64::from(count) * (slow + latency) / f64::from(*in_flight);
        }
        Parameters::Ping { count, .. } => {
            client
                .histograms
                .insert(Distribution::RoundTrip, spread(*count, latency));
            client.seconds = f64::from(*count) * latency;
        }
        Parameters::Relay { path, bytes, .. } => {
            let is_relayed = *path == RelayPath::Relayed;
            let seconds = *bytes as f64 / rate("down", *bytes as f64) * if is_relayed { 2.1 } else { 1.0 };
            client.download = Some(Transfer {
                bytes: *bytes,
                seconds,
                bytes_after_first: Some(bytes - 65536),
                first_to_last_seconds: Some(seconds),
            });
            client.bytes_received = *bytes;
            server.bytes_sent = *bytes;
            client.seconds = seconds;
            let steps = if is_relayed { 2.0 } else { 1.0 };
            for (distribution, trips) in [
                (Distribution::HandshakeEstablished, 9.0),
                (Distribution::Open, 1.0),
                (Distribution::FirstByte, 1.5),
                (Distribution::RoundTrip, 1.0),
            ] {
                let recorded = spread(1, latency * trips * steps);
                client.histograms.insert(distribution, recorded);
            }
            if is_relayed {
                for distribution in [Distribution::RelayConnected, Distribution::RelayRoundTrip] {
                    client.histograms.insert(distribution, spread(1, latency));
                }
                let reservation = spread(1, latency * 2.0);
                server.histograms.insert(Distribution::Reservation, reservation);
                relay.most_circuits = 1;
            }
        }
        Parameters::RelayStress {
            sinks,
            ramp_seconds,
            plateau_seconds,
            bytes,
            ..
        } => {
            client.seconds = ramp_seconds + plateau_seconds;
            // More than some sinks bring no more.
            let carried = rate("down", 1e9) * (f64::from(*sinks) / 200.0).min(1.0);
            client.bytes_received = (carried * client.seconds) as u64;
            server.bytes_sent = client.bytes_received;
            let each = *bytes as f64 * f64::from(*sinks) / carried;
            client
                .histograms
                .insert(Distribution::Transfer, spread(1000, each));
            client
                .histograms
                .insert(Distribution::Lateness, spread(*sinks, 0.001));
            relay.most_circuits = u64::from(*sinks);
            if *sinks >= 1000 {
                let status = "RESOURCE_LIMIT_EXCEEDED (201)";
                relay.refused = [
                    (format!("circuit: {status}"), 34),
                    (format!("reservation: {status}"), 2),
                ]
                .into();
            }
        }
        Parameters::Echo(load) => {
            let trips = (load.nominal_rate() * load.duration_seconds * 0.97) as u64;
            client
                .histograms
                .insert(Distribution::RoundTrip, spread(trips as u32, latency));
            client.seconds = load.duration_seconds;
            client.bytes_sent = trips * load.message_bytes.0;
            client.bytes_received = client.bytes_sent;
            (server.bytes_received, server.bytes_sent) = (client.bytes_sent, client.bytes_received);
            let seconds = load.duration_seconds - load.ramp_seconds();
            client.plateau = Some(Plateau {
                ramp_seconds: load.ramp_seconds() + latency,
                ramp_lateness_seconds: 0.0012 * scatter("late"),
                seconds,
                round_trips: (load.nominal_rate() * seconds * 0.97) as u64,
            });
        }
        Parameters::Messages(load) => {
            let one_way = latency / 2.0 + load.message_bytes.0 as f64 / rate("up", 1e9);
            let (distribution, time) = match load.mode {
                MessageMode::Serial => (Distribution::OneWay, one_way),
                MessageMode::SerialAck | MessageMode::Stream => (Distribution::RoundTrip, one_way * 2.0),
                MessageMode::Broadcast => (Distribution::OneWay, one_way),
            };
            // The more of them are in flight, the more of them each read gets.
            let each = time / f64::from(load.window).sqrt();
            let count = match load.amount {
                Amount::Count(count) => count,
                Amount::Seconds(seconds) => (seconds / each) as u64,
            };
            let timed = count.div_ceil(load.acknowledged_each().into());
            client.histograms.insert(
                distribution,
                spread(timed as u32, time * f64::from(load.window).sqrt()),
            );
            client.seconds = count as f64 * each;
            client.bytes_sent = count * load.message_bytes.0;
            server.bytes_received = client.bytes_sent;
            let transfer = Transfer {
                bytes: client.bytes_sent,
                seconds: client.seconds,
                bytes_after_first: Some(client.bytes_sent - load.message_bytes.0),
                first_to_last_seconds: Some(client.seconds - each),
            };
            (client.upload, server.upload) = (Some(transfer), Some(transfer));
        }
    }
    let intervals = match cell.parameters {
        Parameters::Bandwidth {
            amount: Amount::Seconds(seconds),
            ..
        } => seconds.ceil() as u64,
        _ => 2,
    };
    let interval = client.seconds / intervals as f64;
    let echo = match &cell.parameters {
        Parameters::Echo(load) => Some(load),
        _ => None,
    };
    for end in [&mut client, &mut server, &mut relay] {
        end.connections = 1;
        end.streams = 1;
        end.resources = Resources {
            cpu_user_seconds: client_share(end) * 0.6,
            cpu_system_seconds: client_share(end) * 0.4,
            rss_start_bytes: 18 << 20,
            rss_peak_bytes: (19 << 20) + (end.bytes_received / 200).min(40 << 20),
            cpu_cycles: Some((client_share(end) * 2e9) as u64),
            allocated_peak_bytes: Some((11 << 20) + echo.map_or(0, |load| load.streams() * 4096)),
            ..Resources::default()
        };
        end.samples = (1..=intervals)
            .map(|i| Sample {
                at_seconds: i as f64 * interval,
                interval_seconds: interval,
                bytes_sent: end.bytes_sent / intervals,
                bytes_received: end.bytes_received / intervals,
                operations: u64::from(end.bytes_sent + end.bytes_received == 0),
                cpu_seconds: interval * 0.8,
                rss_bytes: end.resources.rss_peak_bytes,
                circuits: end.most_circuits * i / intervals,
                allocated_bytes: echo.map(|load| (11 << 20) + load.streams() * 2048 * i),
                echo: echo.map(|load| EchoSample {
                    active_streams: load.streams() * i / 2,
                    echoing_streams: load.streams() * i / 2,
                    round_trip_p50_seconds: Some(latency),
                    round_trip_p99_seconds: Some(latency * 2.0),
                }),
                ..Sample::default()
            })
            .collect();
    }
    let record = |role, measured: &Measured| NodeRecord {
        role,
        measured: measured.clone(),
        link: None,
    };
    let clients = cell
        .clients
        .iter()
        .map(|name| (name.clone(), record(Role::Client, &client)));
    // A client that is its own server gives two records.
    let within = cell.clients.iter().filter(|_| cell.is_in_process());
    let servers = within.map(|name| format!("{name}.server"));
    let servers = servers
        .chain(cell.servers.iter().cloned())
        .map(|name| (name, record(Role::Server, &server)));
    let relays = cell
        .relays
        .iter()
        .map(|name| (name.clone(), record(Role::Relay, &relay)));
    clients.chain(servers).chain(relays).collect()
}

fn client_share(end: &Measured) -> f64 {
    (end.bytes_sent + end.bytes_received) as f64 / 1.6e9 + 0.004
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
        (Stack::Commonware, _) => 2.9,
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
