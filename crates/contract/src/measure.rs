//! From what both ends of a trial measured to what the trial says.

use std::{collections::BTreeMap, ops::Range};

use crate::{
    histogram::{Recorder, recorder},
    node::{Distribution, LEAST_BYTES_FOR_A_RATE, Measured, Plateau, Resources, Role, Sample, Transfer},
    parameters::{Amount, Echo, Parameters},
    plan::Cell,
    record::{Metric, NodeRecord},
    workload::{Direction, OpenMode, Timing},
};

/// The metrics of a completed trial.
pub fn metrics(cell: &Cell, nodes: &BTreeMap<String, NodeRecord>) -> BTreeMap<Metric, f64> {
    let trial = Ends::new(cell, nodes);
    let mut metrics = BTreeMap::new();
    match &cell.parameters {
        Parameters::Bandwidth {
            direction,
            timing,
            amount,
            ..
        } => {
            // A time-bounded transfer is long enough for a rate, however little came.
            let least = match amount {
                Amount::Count(_) => LEAST_BYTES_FOR_A_RATE,
                Amount::Seconds(_) => 1,
            };
            trial.bandwidth(*direction, *timing, least, &mut metrics);
        }
        Parameters::Substreams { mode, .. } => {
            trial.substreams(*mode, &mut metrics);
            trial.per_operation(trial.operations(Distribution::Open), &mut metrics);
        }
        Parameters::Handshakes { .. } => {
            trial.handshakes(&mut metrics);
            trial.per_operation(trial.operations(Distribution::HandshakeFirstByte), &mut metrics);
        }
        Parameters::Ping { .. } => {
            trial.ping(&mut metrics);
            trial.per_operation(trial.operations(Distribution::RoundTrip), &mut metrics);
        }
        Parameters::Relay { .. } => trial.relay(&mut metrics),
        Parameters::RelayStress {
            ramp_seconds,
            plateau_seconds,
            ..
        } => trial.relay_stress(*ramp_seconds..ramp_seconds + plateau_seconds, &mut metrics),
        Parameters::Echo(echo) => {
            trial.ping(&mut metrics);
            trial.plateau(echo, &mut metrics);
            trial.per_operation(trial.operations(Distribution::RoundTrip), &mut metrics);
        }
    }
    trial.cost(&mut metrics);
    trial.memory(&mut metrics);
    metrics
}

/// Something must have arrived, and sender and receiver must agree on the bytes, unless the receiver cut the transfer off. Returns what is wrong.
pub fn count_mismatch(cell: &Cell, nodes: &BTreeMap<String, NodeRecord>) -> Option<String> {
    let trial = Ends::new(cell, nodes);
    let (direction, amount, streams) = match &cell.parameters {
        Parameters::Bandwidth {
            direction,
            amount,
            streams,
            ..
        } => (*direction, *amount, *streams),
        Parameters::Relay { bytes, .. } => (Direction::Download, Amount::Count(*bytes), 1),
        // Cut off when the time is over.
        Parameters::RelayStress { .. } => (Direction::Download, Amount::Seconds(0.0), 1),
        // What a stream had sent when it failed, nobody knows.
        Parameters::Echo(_) if nodes.values().all(|node| node.measured.failures == 0) => {
            return trial.echo_mismatch();
        }
        _ => return None,
    };
    let sum = |ends: &[&Measured], bytes: fn(&Measured) -> u64| ends.iter().map(|m| bytes(m)).sum::<u64>();
    let up = (
        sum(&trial.clients, |m| m.bytes_sent),
        sum(&trial.servers, |m| m.bytes_received),
    );
    let down = (
        sum(&trial.servers, |m| m.bytes_sent),
        sum(&trial.clients, |m| m.bytes_received),
    );
    let due = match amount {
        Amount::Count(bytes) => {
            let transfers = u64::from(streams) * u64::from(cell.peers_per_client) * cell.clients.len() as u64;
            Some(bytes.saturating_mul(transfers))
        }
        Amount::Seconds(_) => None,
    };
    let wrong = |what: &str, (sent, received): (u64, u64)| {
        if due.is_none() && received == 0 {
            return Some(format!(
                "{what}: nothing arrived in the time given, of {sent} bytes that were sent"
            ));
        }
        let complete = sent == received && due.is_none_or(|due| due == received);
        // A time-bounded download ends when the receiver resets the stream: what was under way is lost by design.
        let cut_off = what == "download" && due.is_none() && sent >= received;
        (!complete && !cut_off).then(|| {
            let due = due.map(|due| format!(" of {due} due")).unwrap_or_default();
            format!("{what}: {sent} bytes were sent, {received} received{due}")
        })
    };
    match direction {
        Direction::Upload => wrong("upload", up),
        Direction::Download => wrong("download", down),
        Direction::Both => wrong("upload", up).or_else(|| wrong("download", down)),
    }
}

/// Both ends of a trial, and what is between them.
struct Ends<'a> {
    clients: Vec<&'a Measured>,
    servers: Vec<&'a Measured>,
    /// Those of the servers that are processes, and not in their clients'.
    apart: Vec<&'a Measured>,
    relays: Vec<&'a Measured>,
}

impl<'a> Ends<'a> {
    fn new(cell: &Cell, nodes: &'a BTreeMap<String, NodeRecord>) -> Self {
        let of = |role| -> Vec<&Measured> {
            nodes
                .values()
                .filter(|n| n.role == role)
                .map(|n| &n.measured)
                .collect()
        };
        Self {
            clients: of(Role::Client),
            servers: of(Role::Server),
            apart: match cell.has_process(Role::Server) {
                true => of(Role::Server),
                false => vec![],
            },
            relays: of(Role::Relay),
        }
    }

    fn bandwidth(
        &self,
        direction: Direction,
        timing: Timing,
        least: u64,
        metrics: &mut BTreeMap<Metric, f64>,
    ) {
        let uploads: Vec<Transfer> = self.clients.iter().filter_map(|m| m.upload).collect();
        let downloads: Vec<Transfer> = self.clients.iter().filter_map(|m| m.download).collect();
        let arrivals: Vec<Transfer> = self.servers.iter().filter_map(|m| m.upload).collect();
        let mut payload = 0;
        if direction != Direction::Download {
            metrics.extend(longest(&uploads).map(|seconds| (Metric::UploadSeconds, seconds)));
            let goodput = match timing {
                Timing::Strict => receiver_rate(&arrivals, least),
                Timing::Compat => sender_rate(&uploads),
            };
            metrics.extend(goodput.map(|rate| (Metric::UploadGoodput, rate)));
            payload += arrivals.iter().map(|t| t.bytes).sum::<u64>();
        }
        if direction != Direction::Upload {
            metrics.extend(longest(&downloads).map(|seconds| (Metric::DownloadSeconds, seconds)));
            let goodput = match timing {
                Timing::Strict => receiver_rate(&downloads, least),
                Timing::Compat => sender_rate(&downloads),
            };
            metrics.extend(goodput.map(|rate| (Metric::DownloadGoodput, rate)));
            payload += downloads.iter().map(|t| t.bytes).sum::<u64>();
        }
        if payload >= LEAST_BYTES_FOR_A_RATE {
            let gibibytes = payload as f64 / (1u64 << 30) as f64;
            metrics.insert(Metric::CpuSecondsPerGiB, self.cpu() / gibibytes);
        }
        if let Some(connect) = self.merged(Distribution::HandshakeEstablished) {
            metrics.insert(Metric::ConnectSeconds, quantile(&connect, 0.5));
            metrics.insert(Metric::TotalSeconds, seconds(connect.max()) + self.slowest());
        }
    }

    fn substreams(&self, mode: OpenMode, metrics: &mut BTreeMap<Metric, f64>) {
        if let Some(open) = self.merged(Distribution::Open) {
            metrics.insert(Metric::OpenMean, open.mean() / 1e9);
            metrics.insert(Metric::OpenP50, quantile(&open, 0.5));
            metrics.insert(Metric::OpenP90, quantile(&open, 0.9));
            metrics.insert(Metric::OpenP99, quantile(&open, 0.99));
            metrics.insert(Metric::OpenMax, seconds(open.max()));
            let took = match mode {
                OpenMode::Burst => seconds(open.max()),
                // Each is timed from its own request, so the longest says nothing of them all.
                OpenMode::Paced => self.slowest(),
            };
            let rate = rate(open.len() as f64, took);
            metrics.extend(rate.map(|rate| (Metric::OpensPerSecond, rate)));
        }
        if let Some(open) = self.merged(Distribution::OpenCompat) {
            metrics.insert(Metric::OpenMeanCompat, open.mean() / 1e9);
        }
        self.failures(metrics);
    }

    fn handshakes(&self, metrics: &mut BTreeMap<Metric, f64>) {
        if let Some(phase) = self.merged(Distribution::HandshakeTransport) {
            metrics.insert(Metric::HandshakeTransportP50, quantile(&phase, 0.5));
        }
        if let Some(phase) = self.merged(Distribution::HandshakeEstablished) {
            metrics.insert(Metric::HandshakeEstablishedP50, quantile(&phase, 0.5));
            metrics.insert(Metric::HandshakeEstablishedP99, quantile(&phase, 0.99));
        }
        if let Some(phase) = self.merged(Distribution::HandshakeFirstByte) {
            metrics.insert(Metric::HandshakeFirstByteP50, quantile(&phase, 0.5));
            metrics.insert(Metric::HandshakeFirstByteP99, quantile(&phase, 0.99));
            let rate = rate(phase.len() as f64, self.slowest());
            metrics.extend(rate.map(|rate| (Metric::HandshakesPerSecond, rate)));
        }
        self.failures(metrics);
    }

    fn ping(&self, metrics: &mut BTreeMap<Metric, f64>) {
        if let Some(trips) = self.merged(Distribution::RoundTrip) {
            metrics.insert(Metric::RoundTripMean, trips.mean() / 1e9);
            metrics.insert(Metric::RoundTripP50, quantile(&trips, 0.5));
            metrics.insert(Metric::RoundTripP90, quantile(&trips, 0.9));
            metrics.insert(Metric::RoundTripP99, quantile(&trips, 0.99));
            metrics.insert(Metric::RoundTripMax, seconds(trips.max()));
        }
        self.failures(metrics);
    }

    fn relay(&self, metrics: &mut BTreeMap<Metric, f64>) {
        let downloads: Vec<Transfer> = self.clients.iter().filter_map(|m| m.download).collect();
        metrics.extend(longest(&downloads).map(|seconds| (Metric::DownloadSeconds, seconds)));
        let goodput = receiver_rate(&downloads, LEAST_BYTES_FOR_A_RATE);
        metrics.extend(goodput.map(|rate| (Metric::DownloadGoodput, rate)));
        for (distribution, metric) in [
            (Distribution::RelayConnected, Metric::RelayConnectSeconds),
            (Distribution::HandshakeEstablished, Metric::ConnectSeconds),
            (Distribution::Open, Metric::OpenP50),
            (Distribution::FirstByte, Metric::FirstByteP50),
            (Distribution::RelayRoundTrip, Metric::RelayRoundTripP50),
            (Distribution::RoundTrip, Metric::RoundTripP50),
        ] {
            let recorded = self.merged(distribution);
            metrics.extend(recorded.map(|all| (metric, quantile(&all, 0.5))));
        }
        let payload = downloads.iter().map(|t| t.bytes).sum::<u64>() as f64;
        self.per_payload(payload, metrics);
        // While data flowed: the relay is idle before and after.
        let flowed = longest(&downloads).unwrap_or_default();
        let busy: f64 = self.relays.iter().map(|relay| cpu(relay)).sum();
        if !self.relays.is_empty() {
            metrics.extend(rate(busy, flowed).map(|cpus| (Metric::RelayCpu, cpus)));
        }
        self.between(metrics);
    }

    fn relay_stress(&self, plateau: Range<f64>, metrics: &mut BTreeMap<Metric, f64>) {
        let on_it = |sample: &&Sample| {
            let middle = sample.at_seconds - sample.interval_seconds / 2.0;
            plateau.contains(&middle)
        };
        let over = |nodes: &[&Measured], value: fn(&Sample) -> f64| {
            let of_node = |node: &&Measured| {
                let samples = node.samples.iter().filter(on_it);
                let (sum, seconds) = samples.fold((0.0, 0.0), |(sum, seconds), sample| {
                    (sum + value(sample), seconds + sample.interval_seconds)
                });
                rate(sum, seconds)
            };
            nodes.iter().filter_map(of_node).reduce(|a, b| a + b)
        };
        let goodput = over(&self.clients, |sample| sample.bytes_received as f64 * 8.0);
        metrics.extend(goodput.map(|rate| (Metric::DownloadGoodput, rate)));
        let transfers = over(&self.clients, |sample| sample.operations as f64);
        metrics.extend(transfers.map(|rate| (Metric::TransfersPerSecond, rate)));
        let busy = over(&self.relays, |sample| sample.cpu_seconds);
        metrics.extend(busy.map(|cpus| (Metric::RelayCpu, cpus)));
        if let Some(transfers) = self.merged(Distribution::Transfer) {
            metrics.insert(Metric::TransferP50, quantile(&transfers, 0.5));
            metrics.insert(Metric::TransferP99, quantile(&transfers, 0.99));
            metrics.insert(Metric::TransferMax, seconds(transfers.max()));
        }
        if let Some(connect) = self.merged(Distribution::HandshakeEstablished) {
            metrics.insert(Metric::ConnectSeconds, quantile(&connect, 0.5));
        }
        if let Some(late) = self.merged(Distribution::Lateness) {
            metrics.insert(Metric::RampLateness, seconds(late.max()));
        }
        let payload = self.clients.iter().map(|m| m.bytes_received).sum::<u64>() as f64;
        self.per_payload(payload, metrics);
        self.failures(metrics);
        self.between(metrics);
    }

    /// What a GiB of payload took of all nodes, and of the relay.
    fn per_payload(&self, payload: f64, metrics: &mut BTreeMap<Metric, f64>) {
        if payload < LEAST_BYTES_FOR_A_RATE as f64 {
            return;
        }
        let gibibytes = payload / (1u64 << 30) as f64;
        metrics.insert(Metric::CpuSecondsPerGiB, self.cpu() / gibibytes);
        if self.relays.is_empty() {
            return;
        }
        let busy: f64 = self.relays.iter().map(|relay| cpu(relay)).sum();
        metrics.insert(Metric::RelayCpuSecondsPerGiB, busy / gibibytes);
        let carried = self.relays.iter().filter_map(|relay| {
            let Resources {
                interface_received_bytes,
                interface_sent_bytes,
                ..
            } = relay.resources;
            Some(interface_received_bytes? + interface_sent_bytes?)
        });
        let carried = carried.sum::<u64>() as f64;
        if carried > 0.0 {
            metrics.insert(Metric::RelayBytesPerByte, carried / payload);
        }
    }

    /// What only a relay has to tell.
    fn between(&self, metrics: &mut BTreeMap<Metric, f64>) {
        if self.relays.is_empty() {
            return;
        }
        let most = self.relays.iter().map(|relay| relay.most_circuits).sum::<u64>();
        metrics.insert(Metric::Circuits, most as f64);
        let refused = self.relays.iter().flat_map(|relay| relay.refused.values());
        metrics.insert(Metric::Refused, refused.sum::<u64>() as f64);
        let reservations = self
            .servers
            .iter()
            .filter_map(|m| m.histograms.get(&Distribution::Reservation));
        let longest = reservations.filter_map(|recording| Some(recording.decode().ok()?.max()));
        metrics.extend(longest.max().map(|ns| (Metric::ReservationSeconds, seconds(ns))));
    }

    /// Rates on the plateau. The nominal one is a line per pause and stream, as if a round trip took no time.
    fn plateau(&self, echo: &Echo, metrics: &mut BTreeMap<Metric, f64>) {
        let plateaus: Vec<Plateau> = self.clients.iter().filter_map(|m| m.plateau).collect();
        let longest = |of: fn(&Plateau) -> f64| plateaus.iter().map(of).reduce(f64::max);
        metrics.extend(longest(|p| p.ramp_seconds).map(|seconds| (Metric::RampSeconds, seconds)));
        metrics.extend(longest(|p| p.ramp_lateness_seconds).map(|seconds| (Metric::RampLateness, seconds)));
        // Every client is there, or the share would be of fewer streams than were asked for.
        let rates: Option<Vec<f64>> = self
            .clients
            .iter()
            .map(|m| m.plateau.and_then(|p| rate(p.round_trips as f64, p.seconds)))
            .collect();
        if let Some(achieved) = rates.map(|rates| rates.iter().sum::<f64>()) {
            let nominal = echo.nominal_rate() * self.clients.len() as f64;
            metrics.insert(Metric::RoundTripsPerSecond, achieved);
            metrics.extend(rate(achieved, nominal).map(|share| (Metric::AchievedShare, share)));
        }
        let fewest: Option<Vec<u64>> = self.clients.iter().map(|m| fewest_echoing(m)).collect();
        metrics.extend(fewest.map(|all| (Metric::EchoingStreams, all.iter().sum::<u64>() as f64)));
    }

    /// Without failures, what was sent has arrived, and what was echoed is as much.
    fn echo_mismatch(&self) -> Option<String> {
        let sum = |ends: &[&Measured], of: fn(&Measured) -> u64| ends.iter().map(|m| of(m)).sum::<u64>();
        let [sent, echoed] = [
            sum(&self.clients, |m| m.bytes_sent),
            sum(&self.clients, |m| m.bytes_received),
        ];
        let [received, returned] = [
            sum(&self.servers, |m| m.bytes_received),
            sum(&self.servers, |m| m.bytes_sent),
        ];
        let equal = [echoed, received, returned].iter().all(|bytes| *bytes == sent);
        (!equal).then(|| {
            format!(
                "echo: clients sent {sent} bytes, servers received {received} and sent {returned} back, of which clients \
                 received {echoed}"
            )
        })
    }

    fn per_operation(&self, operations: f64, metrics: &mut BTreeMap<Metric, f64>) {
        if operations > 0.0 {
            metrics.insert(Metric::CpuSecondsPerOperation, self.cpu() / operations);
        }
    }

    fn operations(&self, distribution: Distribution) -> f64 {
        self.merged(distribution).map_or(0.0, |all| all.len() as f64)
    }

    fn failures(&self, metrics: &mut BTreeMap<Metric, f64>) {
        metrics.insert(
            Metric::Failures,
            self.clients.iter().map(|m| m.failures).sum::<u64>() as f64,
        );
    }

    /// CPU for each GiB of payload, either way, and while the workload ran.
    fn cost(&self, metrics: &mut BTreeMap<Metric, f64>) {
        let payload = self
            .clients
            .iter()
            .map(|m| m.bytes_sent + m.bytes_received)
            .sum::<u64>();
        if payload >= LEAST_BYTES_FOR_A_RATE {
            let gibibytes = payload as f64 / (1u64 << 30) as f64;
            // A download that was cut off was paid for by bytes that nobody received; goodput's own count stands.
            metrics
                .entry(Metric::CpuSecondsPerGiB)
                .or_insert(self.cpu() / gibibytes);
            let all = self.clients.iter().chain(&self.apart).chain(&self.relays);
            // Of one node alone it would be half of the truth.
            let cycles: Option<u64> = all.map(|m| m.resources.cpu_cycles).sum();
            metrics.extend(cycles.map(|cycles| (Metric::CpuCyclesPerByte, cycles as f64 / payload as f64)));
        }
        for (metric, ends) in [
            (Metric::ClientCpuCores, &self.clients),
            (Metric::ServerCpuCores, &self.apart),
        ] {
            let busiest = ends
                .iter()
                .filter_map(|m| rate(cpu(m), m.samples.last()?.at_seconds))
                .reduce(f64::max);
            metrics.extend(busiest.map(|cores| (metric, cores)));
        }
    }

    fn memory(&self, metrics: &mut BTreeMap<Metric, f64>) {
        for (rss, allocated, ends) in [
            (Metric::ClientPeakRss, Metric::ClientPeakAllocated, &self.clients),
            (Metric::ServerPeakRss, Metric::ServerPeakAllocated, &self.apart),
            (Metric::RelayPeakRss, Metric::RelayPeakAllocated, &self.relays),
        ] {
            let resources = || ends.iter().map(|m| &m.resources);
            let most = resources().map(|resources| resources.rss_peak_bytes).max();
            metrics.extend(most.map(|bytes| (rss, bytes as f64)));
            let most = resources()
                .filter_map(|resources| resources.allocated_peak_bytes)
                .max();
            metrics.extend(most.map(|bytes| (allocated, bytes as f64)));
        }
        for (per_stream, ends) in [
            (Metric::ClientAllocatedPerStream, &self.clients),
            (Metric::ServerAllocatedPerStream, &self.apart),
        ] {
            let each = ends.iter().filter_map(|m| allocated_per_stream(m));
            metrics.extend(each.reduce(f64::max).map(|bytes| (per_stream, bytes)));
        }
    }

    fn cpu(&self) -> f64 {
        let all = self.clients.iter().chain(&self.apart).chain(&self.relays);
        all.map(|node| cpu(node)).sum()
    }

    /// The time of the client that took longest.
    fn slowest(&self) -> f64 {
        self.clients.iter().map(|m| m.seconds).fold(0.0, f64::max)
    }

    /// The clients' recordings of a distribution as one. If one of them cannot be read there is none: the node wrote
    /// it, so that would be a fault of the node, and no number is better than one that leaves a client out.
    fn merged(&self, distribution: Distribution) -> Option<Recorder> {
        let mut all = recorder(); // of any range; a decoded one holds only what it was made for
        for recording in self
            .clients
            .iter()
            .filter_map(|m| m.histograms.get(&distribution))
        {
            all.add(recording.decode().ok()?).ok()?;
        }
        Some(all).filter(|all| !all.is_empty())
    }
}

/// What a node used of its CPUs, in seconds.
fn cpu(node: &Measured) -> f64 {
    node.resources.cpu_user_seconds + node.resources.cpu_system_seconds
}

/// What streams make a node allocate, where it holds many of them. Not against what was allocated at the start: hosts of
/// the trial before may still have been closing.
fn allocated_per_stream(measured: &Measured) -> Option<f64> {
    let samples = measured
        .samples
        .iter()
        .filter_map(|sample| Some((sample.echo?.active_streams, sample.allocated_bytes?)));
    let streams = samples.clone().map(|(streams, _)| streams).max()?;
    let least = samples.clone().map(|(_, allocated)| allocated).min()?;
    let with_all = samples.filter(|(active, _)| *active == streams);
    let most = with_all.map(|(_, allocated)| allocated).max()?;
    rate((most - least) as f64, streams as f64)
}

/// The fewest streams that echoed in a sample that lies on the plateau as a whole.
fn fewest_echoing(measured: &Measured) -> Option<u64> {
    let plateau = measured.plateau?;
    let (begin, end) = (plateau.ramp_seconds, plateau.ramp_seconds + plateau.seconds);
    let whole = measured
        .samples
        .iter()
        .filter(|sample| sample.at_seconds - sample.interval_seconds >= begin && sample.at_seconds <= end);
    whole
        .filter_map(|sample| Some(sample.echo?.echoing_streams))
        .min()
}

/// The receivers' rate in bit/s: bytes after the first read over the time since. All receivers together take
/// as long as the longest of them: they start together, and their clocks cannot be compared any closer than the start
/// skew that each record tells.
fn receiver_rate(transfers: &[Transfer], least: u64) -> Option<f64> {
    if transfers.iter().map(|t| t.bytes).sum::<u64>() < least {
        return None;
    }
    let bytes: u64 = transfers.iter().filter_map(|t| t.bytes_after_first).sum();
    let seconds = transfers.iter().filter_map(|t| t.first_to_last_seconds);
    rate(bytes as f64 * 8.0, seconds.fold(0.0, f64::max))
}

/// What the published tools print, in decimal bit/s.
fn sender_rate(transfers: &[Transfer]) -> Option<f64> {
    let bytes: u64 = transfers.iter().map(|t| t.bytes).sum();
    rate(bytes as f64 * 8.0, longest(transfers)?)
}

fn longest(transfers: &[Transfer]) -> Option<f64> {
    transfers.iter().map(|t| t.seconds).reduce(f64::max)
}

/// So much per second. There is no rate over no time; infinity is not a measurement, nor can JSON hold it.
fn rate(amount: f64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| amount / seconds)
}

fn quantile(recorder: &Recorder, quantile: f64) -> f64 {
    seconds(recorder.value_at_quantile(quantile))
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
