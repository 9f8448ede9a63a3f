//! The workloads of a PerfRun: what it measures.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a copy of each type, which no one else reaches"
)]

mod rules;

use kube::{KubeSchema, core::Duration};
use perfrun_contract::{
    limits::{MESSAGE_RATE_MAX, MESSAGE_WINDOW_MAX, STREAMS_MAX},
    matrix::{Identity, Negotiation},
    quantity::ByteSize,
    workload::{BandwidthProtocol, Direction, MessageMode, OpenMode, RelayLimits, RelayPath, Timing},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::rule;

/// What to measure. Exactly one workload is set.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = rules::one_workload())]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Bulk transfer over streams of one connection: up, down, or one after the other.
    pub bandwidth: Option<Bandwidth>,
    /// Time to open many substreams on one connection.
    pub substreams: Option<Substreams>,
    /// Time to set up a new connection, from the dial to the first byte that comes back.
    pub handshakes: Option<Handshakes>,
    /// Round-trip time as an application sees it, on one open stream.
    pub ping: Option<Ping>,
    /// One transfer through a circuit relay, compared with a direct one.
    pub relay: Option<Relay>,
    /// Many peers that fetch through one circuit relay, to find its limit.
    pub relay_stress: Option<RelayStress>,
    /// Many streams on many connections, each echoing a line again and again at a fixed pace.
    pub echo: Option<Echo>,
    /// Messages from each client peer to its server: what passing messages costs.
    pub messages: Option<Messages>,
}

/// Whether a document sets a workload.
type IsSet = fn(&Workload) -> bool;

impl Workload {
    /// The field of each workload, and whether a document sets it.
    const ALL: [(&'static str, IsSet); 8] = [
        ("bandwidth", |workload| workload.bandwidth.is_some()),
        ("substreams", |workload| workload.substreams.is_some()),
        ("handshakes", |workload| workload.handshakes.is_some()),
        ("ping", |workload| workload.ping.is_some()),
        ("echo", |workload| workload.echo.is_some()),
        ("relay", |workload| workload.relay.is_some()),
        ("relayStress", |workload| workload.relay_stress.is_some()),
        ("messages", |workload| workload.messages.is_some()),
    ];

    /// The name of the workload's field; empty in a document that was not validated and sets none.
    pub fn name(&self) -> &'static str {
        let set = Self::ALL.iter().find(|(_, is_set)| is_set(self));
        set.map_or("", |(name, _)| name)
    }
}

/// Bulk transfer. Set either `sizes` or `duration`.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = rules::sizes_or_duration())]
#[x_kube(validation = rules::duration_needs_perf())]
#[x_kube(validation = rules::duration_needs_one_direction())]
#[serde(rename_all = "camelCase")]
pub struct Bandwidth {
    /// Protocol on the streams: `perf` (/perf/1.0.0, the libp2p specification) or `litep2p-perf`
    /// (/litep2p-perf/1.0.0, of the published litep2p comparison).
    #[serde(default)]
    pub protocol: BandwidthProtocol,
    /// `upload` (client to server), `download` (server to client), or `both`: an upload, then a download on
    /// the same stream, as in the published tools. Each entry is measured separately.
    #[serde(default = "default_directions")]
    #[schemars(length(max = 3))]
    #[x_kube(validation = rule::not_empty("direction"))]
    pub directions: Vec<Direction>,
    /// Bytes of each transfer. Each size is measured separately.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[schemars(transform = rule::each(rule::size("1", "1Pi")))]
    pub sizes: Vec<ByteSize>,
    /// Transfer for this time instead of a number of bytes, e.g. `20s`.
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::duration("10ms", "1h"))]
    pub duration: Option<Duration>,
    /// Parallel streams of the connection. Each number is measured separately. `sizes` are the bytes of one
    /// stream.
    #[serde(default = "default_one")]
    #[schemars(length(max = 16))]
    #[schemars(transform = rule::each(rule::integer(1, 1024)))]
    #[x_kube(validation = rule::not_empty("number"))]
    pub streams: Vec<u32>,
    /// Bytes of one write to the stack, and of one read. 64Ki shows what a stack can do; the published tools
    /// use 1Ki.
    #[serde(default = "default_chunk")]
    #[x_kube(validation = rules::chunk())]
    pub chunk_bytes: ByteSize,
    /// When an upload ends. `strict`: when the receiver has consumed it. `compat`: when the last write or the
    /// half-close returns, as in the published tools; below a few MiB this measures local buffers.
    #[serde(default)]
    pub timing: Timing,
    /// How the protocol of a stream is negotiated. `v1`: the peer confirms it before the first byte. `v1lazy`
    /// (libp2p and go-libp2p): together with the first bytes.
    #[serde(default)]
    pub negotiation: Negotiation,
}

/// Time to open many substreams on one connection. They carry no data, and stay open until all are open.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = rules::rate_if_paced())]
#[serde(rename_all = "camelCase")]
pub struct Substreams {
    /// Substreams to open. Each number is measured separately. Over TCP, yamux has at most 256 of them in
    /// progress: above that, the numbers include the wait until the peer has acknowledged earlier ones.
    /// litep2p as a server on QUIC allows 100, so cells with more are skipped.
    #[serde(default = "default_counts")]
    #[schemars(length(max = 64))]
    #[schemars(transform = rule::each(rule::integer(1, STREAMS_MAX)))]
    #[x_kube(validation = rule::not_empty("number"))]
    pub counts: Vec<u32>,
    /// `burst` requests all of them immediately; `paced` requests `rate` of them per second.
    #[serde(default)]
    pub mode: OpenMode,
    /// Substreams per second, for mode `paced`.
    #[x_kube(validation = rule::integer(1, 100_000))]
    pub rate: Option<u32>,
    /// How the protocol of the substreams is negotiated. With `v1lazy` (libp2p and go-libp2p), a substream
    /// counts as open before the peer has answered, so these numbers do not compare with `v1`.
    #[serde(default)]
    pub negotiation: Negotiation,
}

/// New connections, each closed after its first byte comes back. Set either `count` or `duration`.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = rules::count_or_duration())]
#[serde(rename_all = "camelCase")]
pub struct Handshakes {
    /// Connections to open in one trial.
    #[x_kube(validation = rule::integer(1, 1_000_000))]
    pub count: Option<u32>,
    /// Open connections for this time instead, e.g. `10s`.
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::duration("10ms", "1h"))]
    pub duration: Option<Duration>,
    /// Connections in progress at the same time, each from its own identity. Each number is measured
    /// separately. 1 shows latency; more shows connections per second.
    #[serde(default = "default_one")]
    #[schemars(length(max = 16))]
    #[schemars(transform = rule::each(rule::integer(1, 256)))]
    #[x_kube(validation = rule::not_empty("number"))]
    pub in_flight: Vec<u32>,
}

/// Round trips of 32 bytes on one open stream (`/ipfs/ping/1.0.0`), one after the other.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ping {
    /// Round trips in one trial.
    #[serde(default = "default_pings")]
    #[x_kube(validation = rule::integer(1, 10_000_000))]
    pub count: u32,
    /// Pause between two round trips. 0s starts the next one as soon as the last one ends.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 64), extend("default" = "0s"))]
    #[x_kube(validation = rule::duration("0s", "1m"))]
    pub interval: Duration,
}

/// Transfers through a circuit relay (libp2p circuit v2), and without it, as in the published relay test. A
/// client, the sink, opens a stream of `/libp2p/test/data` and reads to its end; a server, the source, writes
/// all its data. The raw reference of a relayed transfer is a plain TCP proxy.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Relay {
    /// How sinks reach their source: `direct`, or `relayed`, through the relay. Each entry is measured
    /// separately.
    #[serde(default = "default_paths")]
    #[schemars(length(max = 2))]
    #[x_kube(validation = rule::not_empty("path"))]
    pub paths: Vec<RelayPath>,
    /// Bytes of a transfer. Each size is measured separately.
    #[serde(default = "default_transfers")]
    #[schemars(length(max = 64))]
    #[schemars(transform = rule::each(rule::size("1", "1Pi")))]
    pub sizes: Vec<ByteSize>,
    /// Bytes of one write to the stack, and of one read.
    #[serde(default = "default_chunk")]
    #[x_kube(validation = rules::chunk())]
    pub chunk_bytes: ByteSize,
    /// Round trips (`/ipfs/ping/1.0.0`) to the relay, and then to the source, before the transfer. libp2p
    /// only.
    #[serde(default = "default_relay_pings")]
    #[x_kube(validation = rule::integer(0, 10_000))]
    pub pings: u32,
    /// Limits of the relay. Default: no limits.
    #[serde(default)]
    #[schemars(schema_with = "relay_limits")]
    pub limits: RelayLimits,
}

/// Sinks that fetch through one relay repeatedly, at several levels of load, as in the published relay stress
/// test. Each sink and each source is a peer of its own. Sinks start one after the other; the numbers
/// describe the plateau, the time when all of them fetch.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayStress {
    /// Total number of sinks. Each number, a level, is measured separately. A level is skipped if the client
    /// nodes cannot share it evenly.
    #[serde(default = "default_sinks")]
    #[schemars(length(max = 16))]
    #[schemars(transform = rule::each(rule::integer(1, 10_000)))]
    #[x_kube(validation = rule::not_empty("number"))]
    pub sinks: Vec<u32>,
    /// Sinks of each source. This sets the number of sources, which are spread over the server nodes.
    #[serde(default = "default_sinks_per_source")]
    #[x_kube(validation = rule::integer(1, 2000))]
    pub sinks_per_source: u32,
    /// Time from the start of one sink of a source to the start of the next. With the default, the 100 sinks
    /// of a source need 100 s.
    #[serde(default = "default_sink_interval")]
    #[schemars(length(max = 64), extend("default" = "1s"))]
    #[x_kube(validation = rule::duration("1ms", "1m"))]
    pub sink_interval: Duration,
    /// How long sinks fetch after all of them have started.
    #[serde(default = "default_plateau")]
    #[schemars(length(max = 64), extend("default" = "1m"))]
    #[x_kube(validation = rule::duration("1s", "1h"))]
    pub plateau: Duration,
    /// Bytes of a transfer. After each transfer, a sink opens the next stream.
    #[serde(default = "default_stress_transfer")]
    #[x_kube(validation = rule::size("1", "1Pi"))]
    pub transfer_bytes: ByteSize,
    /// Bytes of one write to the stack, and of one read.
    #[serde(default = "default_chunk")]
    #[x_kube(validation = rules::chunk())]
    pub chunk_bytes: ByteSize,
    /// Limits of the relay. Default: no limits.
    #[serde(default)]
    #[schemars(schema_with = "relay_limits")]
    pub limits: RelayLimits,
}

fn default_paths() -> Vec<RelayPath> {
    vec![RelayPath::Direct, RelayPath::Relayed]
}

fn default_transfers() -> Vec<ByteSize> {
    vec![ByteSize(1_000_000_000)]
}

fn default_relay_pings() -> u32 {
    10
}

fn default_sinks() -> Vec<u32> {
    vec![100, 500, 1000]
}

fn default_sinks_per_source() -> u32 {
    100
}

fn default_sink_interval() -> Duration {
    std::time::Duration::from_secs(1).into()
}

fn default_plateau() -> Duration {
    std::time::Duration::from_secs(60).into()
}

fn default_stress_transfer() -> ByteSize {
    ByteSize(10_000_000)
}

/// Many streams that echo at a pace (`/echo/1.0.0`, of the published WebRTC transport benchmarks). Each
/// connection has its own identity and socket. On each stream, the client sends a line, reads it back, waits
/// for its `pause` or `period`, and sends it again. Connections and streams are opened one after the other:
/// the ramp. Results describe the plateau, from the end of the ramp to the end of `duration`.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = rules::pause_or_period())]
#[x_kube(validation = rules::pace_before_deadline())]
#[serde(rename_all = "camelCase")]
pub struct Echo {
    /// Connections and streams. Each load is measured separately.
    #[schemars(length(max = 16))]
    #[x_kube(validation = rule::not_empty("load"))]
    pub loads: Vec<EchoLoad>,
    /// Time from the start of one connection to the start of the next.
    #[serde(default = "default_connection_interval")]
    #[schemars(length(max = 64), extend("default" = "1s"))]
    #[x_kube(validation = rule::duration("0s", "1m"))]
    pub connection_interval: Duration,
    /// Time from the start of one stream to the start of the next, on each connection.
    #[serde(default = "default_stream_interval")]
    #[schemars(length(max = 64), extend("default" = "100ms"))]
    #[x_kube(validation = rule::duration("0s", "1m"))]
    pub stream_interval: Duration,
    /// Bytes of a line, including its end.
    #[serde(default = "default_message")]
    #[x_kube(validation = rules::echo_line())]
    pub message_bytes: ByteSize,
    /// Pause after each round trip, as in the published benchmark. The nominal rate is one line per pause on
    /// each stream, as if a round trip took no time. Default: 500ms, unless `period` is set.
    // Earlier versions set the default in every stored object. Such an object must equal a document without
    // the field.
    #[serde(default, skip_serializing_if = "is_published_pause")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::duration("1ms", "1h"))]
    pub pause: Option<Duration>,
    /// Send the lines of a stream at fixed times instead, with this time between them, e.g. `500ms`. The
    /// lines of a client's streams are spread evenly over the period. While a stream waits for an answer, it
    /// sends nothing. A late line is sent as soon as possible, and its round trip counts from when it was
    /// due, except for what the timer added, at most 2 ms.
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::duration("1ms", "1h"))]
    pub period: Option<Duration>,
    /// Limit of a round trip from the sending of its line, at either end. A stream that exceeds it is reset
    /// and counted as failed.
    #[serde(default = "default_deadline")]
    #[schemars(length(max = 64), extend("default" = "5s"))]
    #[x_kube(validation = rule::duration("1ms", "2h"))]
    pub deadline: Duration,
    /// How long to echo, including the ramp. It must be longer than the ramp.
    #[serde(default = "default_echo_duration")]
    #[schemars(length(max = 64), extend("default" = "300s"))]
    #[x_kube(validation = rule::duration("10ms", "1h"))]
    pub duration: Duration,
    /// Type of the keys of all peers.
    #[serde(default)]
    pub identity: Identity,
    /// How often both ends sample streams, bytes, round trips, CPU and memory. A stream counts as echoing if
    /// it completed a round trip in this interval, which should therefore be longer than `pause` or `period`.
    #[serde(default = "default_sample_interval")]
    #[schemars(length(max = 64), extend("default" = "1s"))]
    #[x_kube(validation = rule::duration("100ms", "1m"))]
    pub sample_interval: Duration,
}

/// Messages with sequence numbers, on one long-lived exchange of each client peer with its server. Stacks
/// with streams send them on one stream, each after its length. Set either `count` or `duration`.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = rules::count_or_duration())]
#[serde(rename_all = "camelCase")]
pub struct Messages {
    /// How messages follow each other. `serial`: one at a time between two peers of one process, as in the
    /// published benchmark. `serialAck`: one at a time, each answered by another process. `stream`: a window
    /// of them in flight. `broadcast`: each to all servers of the topology, unanswered; what arrives is
    /// counted, and what is lost does not fail the trial. Each mode is measured separately.
    #[serde(default = "default_modes")]
    #[schemars(length(max = 4))]
    #[x_kube(validation = rule::not_empty("mode"))]
    pub modes: Vec<MessageMode>,
    /// Bytes of a message. Each size is measured separately.
    #[serde(default = "default_message_sizes")]
    #[schemars(length(max = 64))]
    #[schemars(transform = rule::each(rule::size("8", "1Mi")))]
    pub sizes: Vec<ByteSize>,
    /// Messages in flight in mode `stream`: sent and not acknowledged. They may have at most 64Mi.
    #[serde(default = "default_window")]
    #[x_kube(validation = rule::integer(1, MESSAGE_WINDOW_MAX))]
    pub window: u32,
    /// Messages per second of each peer. Each message is due at its own moment, and its times count from that
    /// moment, so they include the time it waits behind earlier messages. Default: a message follows the last
    /// as soon as the mode allows.
    #[x_kube(validation = rule::integer(1, MESSAGE_RATE_MAX))]
    pub rate: Option<u32>,
    /// Send with priority. Only commonware has priorities: its connections send these messages first.
    #[serde(default)]
    pub priority: bool,
    /// Messages of each peer in one trial.
    #[x_kube(validation = rule::integer(1, 100_000_000))]
    pub count: Option<u32>,
    /// Send for this time instead, e.g. `10s`.
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::duration("10ms", "1h"))]
    pub duration: Option<Duration>,
}

/// Number of connections and streams: a preset, or both numbers.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = rules::preset_or_numbers())]
#[x_kube(validation = rules::echo_streams())]
#[serde(rename_all = "camelCase")]
pub struct EchoLoad {
    /// A published load. `scenario-1`: 10 connections of 1000 streams. `scenario-2`: 100 of 100.
    /// `published-effective`: 5 of 259, which makes the 1295 streams that echoed in the published runs of
    /// both scenarios.
    pub preset: Option<EchoPreset>,
    /// Connections of each client, each with its own identity and socket.
    #[x_kube(validation = rule::integer(1, STREAMS_MAX))]
    pub connections: Option<u32>,
    /// Streams of each connection. litep2p as a server on QUIC allows 100, so cells with more are skipped.
    #[x_kube(validation = rule::integer(1, STREAMS_MAX))]
    pub streams_per_connection: Option<u32>,
}

impl EchoLoad {
    /// The number of connections, and of streams on each.
    pub fn size(self) -> (u32, u32) {
        match self.preset {
            Some(EchoPreset::Scenario1) => (10, 1000),
            Some(EchoPreset::Scenario2) => (100, 100),
            Some(EchoPreset::PublishedEffective) => (5, 259),
            None => (
                self.connections.unwrap_or(1),
                self.streams_per_connection.unwrap_or(1),
            ),
        }
    }
}

/// A published load.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EchoPreset {
    /// 10 connections of 1000 streams.
    #[serde(rename = "scenario-1")]
    Scenario1,
    /// 100 connections of 100 streams.
    #[serde(rename = "scenario-2")]
    Scenario2,
    /// 5 connections of 259 streams: the 1295 that echoed in the published runs, where a full log pipe
    /// blocked the others.
    PublishedEffective,
}

fn default_directions() -> Vec<Direction> {
    vec![Direction::Upload, Direction::Download]
}

fn default_one() -> Vec<u32> {
    vec![1]
}

fn default_chunk() -> ByteSize {
    ByteSize(64 << 10)
}

fn default_counts() -> Vec<u32> {
    vec![1, 32, 64, 128, 256]
}

fn default_pings() -> u32 {
    1000
}

fn default_interval() -> Duration {
    std::time::Duration::ZERO.into()
}

fn default_modes() -> Vec<MessageMode> {
    vec![MessageMode::SerialAck, MessageMode::Stream]
}

fn default_message_sizes() -> Vec<ByteSize> {
    [64, 1 << 10, 16 << 10].map(ByteSize).to_vec()
}

fn default_window() -> u32 {
    64
}

fn default_connection_interval() -> Duration {
    std::time::Duration::from_secs(1).into()
}

fn default_stream_interval() -> Duration {
    std::time::Duration::from_millis(100).into()
}

fn default_message() -> ByteSize {
    ByteSize(1 << 10)
}

/// The published pause.
pub(crate) const ECHO_PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

fn is_published_pause(pause: &Option<Duration>) -> bool {
    pause.is_none_or(|pause| pause == ECHO_PAUSE)
}

fn default_deadline() -> Duration {
    std::time::Duration::from_secs(5).into()
}

fn default_echo_duration() -> Duration {
    std::time::Duration::from_secs(300).into()
}

fn default_sample_interval() -> Duration {
    std::time::Duration::from_secs(1).into()
}

/// The contract's schema of limits with the rules for a document.
fn relay_limits(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = RelayLimits::json_schema(generator);
    let properties = schema
        .get_mut("properties")
        .and_then(serde_json::Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        let rule = match name.as_str() {
            "circuitBytes" => rule::size("1", "1Pi"),
            _ => rule::integer(0, 1_000_000),
        };
        rule::add(property, &rule);
    }
    schema
}
