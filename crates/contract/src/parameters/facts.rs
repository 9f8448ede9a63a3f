//! What planning, judging, the conductor and nodes need to know of a workload.

use std::time::Duration;

use super::{Amount, Way};
use crate::{
    distribution::Distribution,
    matrix::{Identity, Messaging, Negotiation, Protocol},
    metric::Metric,
    quantity::ByteSize,
    workload::{Direction, RelayLimits},
};

/// Open files that a node needs besides those of the load.
pub(super) const FILES_BESIDES: u64 = 64;

/// Open files of a host, with room for those of its dials.
pub(super) const FILES_OF_HOST: u64 = 4;

/// The facts of a workload. Those that most workloads have in common are defaults.
pub trait Workload: Send + Sync {
    /// The parameters in short, e.g. `upload-64Mi`, as the last part of a cell's id.
    fn in_short(&self) -> String;

    /// The protocol on the streams.
    fn protocol(&self) -> Protocol;

    /// Checks what a node must not trust. A document is checked more strictly; this keeps any request from
    /// making a node panic or run out of memory. The error says what must be true of the parameters.
    fn check(&self) -> Result<(), String>;

    /// The metrics that its trials may have besides those of all workloads.
    fn own_metrics(&self) -> Vec<Metric>;

    /// What the workload is for, one metric for each direction of a transfer. Progress shows
    /// [`Metric::HEADLINES`] instead.
    fn speeds(&self) -> Vec<Metric>;

    /// What that costs.
    fn costs(&self) -> Vec<Metric>;

    /// The metrics that findings are about. Every extra metric needs stronger evidence for all of them,
    /// because findings are corrected for their number.
    fn primary(&self) -> Vec<Metric> {
        [self.speeds(), self.costs()].concat()
    }

    /// How the dialler negotiates the protocol.
    fn negotiation(&self) -> Negotiation {
        Negotiation::V1
    }

    /// The keys of all peers.
    fn identity(&self) -> Identity {
        Identity::default()
    }

    /// Streams that are open at the same time on one connection.
    fn streams(&self) -> u32 {
        1
    }

    /// Streams that are opened at the same moment on one connection.
    fn burst(&self) -> u32 {
        self.streams()
    }

    /// Whether clients reach servers through a relay.
    fn is_relayed(&self) -> bool {
        false
    }

    /// The measuring time that the parameters request, by which a trial may last longer. Zero if they request
    /// none.
    fn duration(&self) -> Duration {
        Duration::ZERO
    }

    /// The field of a document with the time after which the load ends, whatever has arrived until then.
    /// `None` without one, and if what is in progress is completed.
    fn field_of_duration(&self) -> Option<&'static str> {
        None
    }

    /// Round trips that the time of [`Self::field_of_duration`] must exceed, so that there is something to
    /// measure.
    fn round_trips_before_a_value(&self) -> u32 {
        1
    }

    /// The pause after each of several items. Zero if it is not known before the trial.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }

    /// The time that the load takes by its own schedule: [`Self::duration`], without the pause after the last
    /// item. Zero without a schedule.
    fn scheduled_time(&self) -> Duration {
        self.duration().saturating_sub(self.pause())
    }

    /// Round trips that follow each other in a trial, at least. Zero if their number is not known before the
    /// trial.
    fn successive_round_trips(&self, _way: &Way) -> u64 {
        0
    }

    /// The shortest time that a trial can take over a way: that of its schedule, of its round trips or of its
    /// payload. Zero if it is not known before the trial.
    fn least_time(&self, way: &Way) -> Duration {
        let round_trips = way.time_of_round_trips(self.successive_round_trips(way));
        let payload = self.transfer().map(|transfer| way.time_of_transfer(transfer));
        let scheduled = self.scheduled_time();
        scheduled.max(round_trips).max(payload.unwrap_or_default())
    }

    /// The time between two samples, in seconds. `None` if the node decides.
    fn sample_interval_seconds(&self) -> Option<f64> {
        None
    }

    /// Bytes of one write or read call.
    fn chunk_bytes(&self) -> ByteSize {
        ByteSize(1024)
    }

    /// Bytes of a transfer that the server alone knows: the client fetches without a size. Zero without such
    /// transfers.
    fn served_bytes(&self) -> u64 {
        0
    }

    /// What the relay grants. Without a relay, the limits are empty.
    fn limits(&self) -> RelayLimits {
        RelayLimits::default()
    }

    /// Whether the workload has a path through a relay. [`Self::is_relayed`] says whether this trial takes
    /// it.
    fn has_relayed_path(&self) -> bool {
        false
    }

    /// Whether a client opens its connections before the start. Otherwise, opening them is part of the
    /// workload.
    fn connects_before_start(&self) -> bool {
        true
    }

    /// Whether both peers are in one process, on any transport.
    fn is_in_process(&self) -> bool {
        false
    }

    /// Why peers cannot be in one process. `None` if they can.
    fn why_not_in_process(&self) -> Option<&'static str> {
        self.has_relayed_path()
            .then_some("peers of a relay are separate processes, which memory cannot connect")
    }

    /// Why its messages cannot pass as a variant of a stack says. `None` if they can.
    fn why_messaging_unsupported(&self, messaging: Messaging) -> Option<String> {
        (messaging != Messaging::Streams)
            .then(|| format!("{messaging} is a setting for the workload messages only"))
    }

    /// Servers that each peer of a client dials: one, or all that a broadcast has.
    fn servers_of_peer(&self) -> usize {
        1
    }

    /// Whether receivers in other processes measure the one-way delay.
    fn is_stamped(&self) -> bool {
        false
    }

    /// Whether connecting is what the workload measures, so that a server's cost of connecting counts.
    fn is_about_connecting(&self) -> bool {
        false
    }

    /// Whether the workload is about many streams on one connection.
    fn is_about_streams(&self) -> bool {
        false
    }

    /// Whether the workload itself sets the number of peers of a client.
    fn has_own_peers(&self) -> bool {
        false
    }

    /// Sinks and sources of a stress test. `None` if the topology sets the number of peers.
    fn sinks_and_sources(&self) -> Option<(u32, u32)> {
        None
    }

    /// The transfer of each peer: its direction, its amount, and its streams. `None` for workloads that are
    /// not measured by their bytes.
    fn transfer(&self) -> Option<(Direction, Amount, u32)> {
        None
    }

    /// The operation that the workload repeats. `None` for workloads that are measured by their bytes.
    fn operation(&self) -> Option<Distribution> {
        None
    }

    /// Whether the time of each operation is a result.
    fn is_timed(&self) -> bool {
        self.operation().is_some()
    }

    /// Whether the end of a trial cuts off transfers in progress. Such a trial continues without servers that
    /// a relay refused.
    fn may_be_cut_off(&self) -> bool {
        false
    }

    /// Hosts, each with an identity of its own, that a peer of a client has at the same time.
    fn hosts_of_peer(&self) -> u32 {
        1
    }

    /// Hosts of a server that peers dial.
    fn hosts_of_server(&self) -> u32 {
        1
    }

    /// Hosts that a client with `peers` peers has at the same time.
    fn hosts(&self, peers: u32) -> u64 {
        u64::from(peers) * u64::from(self.hosts_of_peer())
    }

    /// Hosts that a client starts before a trial in which it uses `slots` at the same time.
    fn prepared_hosts(&self, slots: usize) -> usize {
        slots
    }

    /// Open files that a client with `hosts` hosts needs. With `stream_is_connection`, each stream takes a
    /// socket.
    fn client_files(&self, hosts: u64, stream_is_connection: bool) -> u64 {
        match stream_is_connection {
            true => hosts * u64::from(self.streams()) + FILES_BESIDES,
            false => FILES_OF_HOST * hosts,
        }
    }

    /// Open files that a server needs: with `sources`, for that number of hosts behind a relay, otherwise for
    /// one that peers dial. With `stream_is_connection`, each stream takes a socket.
    fn server_files(&self, sources: Option<u32>, stream_is_connection: bool) -> u64 {
        let hosts = match sources.map(u64::from) {
            None => self.hosts_of_server().into(),
            // A listener, and a connection with the relay for each sink, or one for all.
            Some(sources) if stream_is_connection => sources * (1 + u64::from(self.streams())),
            Some(sources) => sources * 2,
        };
        self.client_files(hosts, stream_is_connection)
    }

    /// Open files that a relay needs. With `stream_is_connection`, it has a connection with a source for each
    /// sink.
    fn relay_files(&self, _stream_is_connection: bool) -> u64 {
        FILES_BESIDES
    }

    /// Whether its trials may have a metric.
    fn may_have(&self, metric: Metric) -> bool {
        Metric::RESOURCES.contains(&metric)
            || (metric == Metric::CpuSecondsPerOperation && self.operation().is_some())
            || self.own_metrics().contains(&metric)
    }
}
