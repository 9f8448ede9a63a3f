//! What is measured: the workloads of a PerfRun.

use kube::{
    KubeSchema,
    core::{Duration, Rule},
};
pub use perfrun_contract::workload::{
    BandwidthProtocol, Direction, OpenMode, RelayLimits, RelayPath, Timing,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::{
    matrix::{Identity, Negotiation},
    quantity::ByteSize,
    rule,
};

/// What to measure. Exactly one workload is set.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("[has(self.bandwidth), has(self.substreams), has(self.handshakes), has(self.ping), has(self.echo), has(self.relay), has(self.relayStress)].filter(x, x).size() == 1").message("set exactly one workload: bandwidth, substreams, handshakes, ping, echo, relay or relayStress"))]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Bulk transfer over streams of one connection, up, down, or both after each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Time to open many substreams on one connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substreams: Option<Substreams>,
    /// Time to set up a new connection, from dialling to the first byte that came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// Round-trip time as an application sees it, on one open stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping: Option<Ping>,
    /// One transfer through a circuit relay, beside the same without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<Relay>,
    /// Many peers that fetch through one circuit relay, until it has no more to give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay_stress: Option<RelayStress>,
    /// Many streams on many connections, each echoing a line over and over, at a pace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo: Option<Echo>,
}

impl Workload {
    /// What it is called; of a document that was not validated, perhaps nothing.
    pub fn name(&self) -> &'static str {
        let Self {
            bandwidth,
            substreams,
            handshakes,
            ping,
            relay,
            relay_stress,
            echo,
        } = self;
        let names = [
            ("bandwidth", bandwidth.is_some()),
            ("substreams", substreams.is_some()),
            ("handshakes", handshakes.is_some()),
            ("ping", ping.is_some()),
            ("relay", relay.is_some()),
            ("relayStress", relay_stress.is_some()),
            ("echo", echo.is_some()),
        ];
        names
            .into_iter()
            .find_map(|(name, is_set)| is_set.then_some(name))
            .unwrap_or_default()
    }
}

/// Bulk transfer. Set either `sizes` or `duration`.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("(size(self.sizes) > 0) != has(self.duration)").message("set either sizes or duration: sizes transfers so many bytes, duration transfers for so long"))]
#[x_kube(validation = Rule::new("!has(self.duration) || self.protocol == 'perf'").message("duration needs protocol: perf, because litep2p-perf announces the number of bytes in advance"))]
#[x_kube(validation = Rule::new("!has(self.duration) || !self.directions.exists(d, d == 'both')").message("duration needs directions upload or download: a time-bounded transfer goes one way"))]
#[serde(rename_all = "camelCase")]
pub struct Bandwidth {
    /// The protocol spoken on the streams: `perf` (/perf/1.0.0, the libp2p specification) or `litep2p-perf`
    /// (/litep2p-perf/1.0.0, of the published litep2p comparison).
    #[serde(default)]
    pub protocol: BandwidthProtocol,
    /// `upload` (client to server), `download` (server to client), or `both`: an upload, then a download on the same
    /// stream, as the published tools do. Each entry is measured on its own.
    #[serde(default = "default_directions")]
    #[schemars(length(max = 3))]
    #[x_kube(validation = rule::not_empty("direction"))]
    pub directions: Vec<Direction>,
    /// Bytes of each transfer; every size is measured on its own.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::sizes("1", "1Pi"))]
    pub sizes: Vec<ByteSize>,
    /// Transfer for this long instead of a number of bytes, e.g. `20s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::duration("10ms", "1h"))]
    pub duration: Option<Duration>,
    /// Parallel streams of the connection; every number is measured on its own. The bytes of `sizes` are those of one
    /// stream.
    #[serde(default = "default_one")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = rule::integers(1, 1024))]
    pub streams: Vec<u32>,
    /// Bytes handed to the stack in one write, and asked for in one read. 64Ki shows what a stack can do; the published
    /// tools use 1Ki.
    #[serde(default = "default_chunk")]
    #[x_kube(validation = rule::size("1", "16Mi"))]
    pub chunk_bytes: ByteSize,
    /// When an upload ends: `strict`, when the receiver has consumed it; `compat`, when the last write or the
    /// half-close returned, as the published tools time it (which measures local buffers for sizes below some MiB).
    #[serde(default)]
    pub timing: Timing,
    /// How the stream's protocol is negotiated: `v1`, confirmed by the peer before the first byte; `v1lazy` (libp2p only),
    /// together with the first bytes.
    #[serde(default)]
    pub negotiation: Negotiation,
}

/// Time to open many substreams on one connection. Nothing is exchanged on them; they are held until all are open.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("(self.mode == 'paced') == has(self.rate)").message("set rate for mode: paced, and only then"))]
#[serde(rename_all = "camelCase")]
pub struct Substreams {
    /// Substreams to open, up to 4096; every number is measured on its own. Over TCP, yamux has at most 256 of them on
    /// their way: above, the numbers include the wait until the peer has acknowledged earlier ones. litep2p as a server
    /// on QUIC allows 100, so cells with more are skipped.
    #[serde(default = "default_counts")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::integers(1, 4096))]
    pub counts: Vec<u32>,
    /// `burst` requests all of them at once; `paced` requests `rate` of them per second.
    #[serde(default)]
    pub mode: OpenMode,
    /// Substreams per second, for mode `paced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::integer(1, 100_000))]
    pub rate: Option<u32>,
    /// How the substreams' protocol is negotiated. With `v1lazy` (libp2p only) a substream counts as open before the
    /// peer has answered: such numbers do not compare with `v1`.
    #[serde(default)]
    pub negotiation: Negotiation,
}

/// New connections, each closed after its first byte came back. Set either `count` or `duration`.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("has(self.count) != has(self.duration)").message("set either count or duration"))]
#[serde(rename_all = "camelCase")]
pub struct Handshakes {
    /// Connections to open in one trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::integer(1, 1_000_000))]
    pub count: Option<u32>,
    /// Open connections for this long instead, e.g. `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::duration("10ms", "1h"))]
    pub duration: Option<Duration>,
    /// Connections being set up at the same time, each by an identity of its own; every number is measured on its own.
    /// 1 shows latency, more shows connections per second.
    #[serde(default = "default_one")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = rule::integers(1, 256))]
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
    /// Pause between two round trips; 0s sends the next as soon as the last came back.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 64), extend("default" = "0s"))]
    #[x_kube(validation = rule::duration("0s", "1m"))]
    pub interval: Duration,
}

/// Transfers through a circuit relay (libp2p circuit v2), and without it: the published relay test. A client, the sink,
/// opens a stream of `/libp2p/test/data` and reads to its end; a server, the source, writes all it has to send. The raw
/// baseline of a relayed transfer is a plain TCP proxy.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Relay {
    /// How sinks reach their source: `direct`, or `relayed`, through the relay. Each entry is measured on its own.
    #[serde(default = "default_paths")]
    #[schemars(length(max = 2))]
    #[x_kube(validation = rule::not_empty("path"))]
    pub paths: Vec<RelayPath>,
    /// Bytes of a transfer; every size is measured on its own.
    #[serde(default = "default_transfers")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::sizes("1", "1Pi"))]
    pub sizes: Vec<ByteSize>,
    /// Bytes handed to the stack in one write, and asked for in one read.
    #[serde(default = "default_chunk")]
    #[x_kube(validation = rule::size("1", "16Mi"))]
    pub chunk_bytes: ByteSize,
    /// Round trips (`/ipfs/ping/1.0.0`) to the relay, and as many to the source, before the transfer. libp2p only.
    #[serde(default = "default_relay_pings")]
    #[x_kube(validation = rule::integer(0, 10_000))]
    pub pings: u32,
    /// What the relay grants. Left out, it limits nothing.
    #[serde(default)]
    #[schemars(schema_with = "relay_limits")]
    pub limits: RelayLimits,
}

/// Sinks that fetch through one relay, over and over, more of them from level to level: the published relay stress test.
/// Every sink and every source is a peer of its own. Sinks begin one after the other; the numbers are of the time when all
/// of them have, the plateau.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayStress {
    /// Sinks, of all client nodes together; every number, a level, is measured on its own. A level is skipped if it cannot be
    /// shared evenly by the client nodes.
    #[serde(default = "default_sinks")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = rule::integers(1, 10_000))]
    pub sinks: Vec<u32>,
    /// Sinks of each source. There are as many sources as that takes, spread over the server nodes.
    #[serde(default = "default_sinks_per_source")]
    #[x_kube(validation = rule::integer(1, 2000))]
    pub sinks_per_source: u32,
    /// One sink of each source begins every so often: with the default, 100 sinks of a source need 100 s.
    #[serde(default = "default_sink_interval")]
    #[schemars(length(max = 64), extend("default" = "1s"))]
    #[x_kube(validation = rule::duration("1ms", "1m"))]
    pub sink_interval: Duration,
    /// How long sinks fetch once all of them have begun.
    #[serde(default = "default_plateau")]
    #[schemars(length(max = 64), extend("default" = "1m"))]
    #[x_kube(validation = rule::duration("1s", "1h"))]
    pub plateau: Duration,
    /// Bytes of a transfer. A sink that has fetched them opens the next stream.
    #[serde(default = "default_stress_transfer")]
    #[x_kube(validation = rule::size("1", "1Pi"))]
    pub transfer_bytes: ByteSize,
    /// Bytes handed to the stack in one write, and asked for in one read.
    #[serde(default = "default_chunk")]
    #[x_kube(validation = rule::size("1", "16Mi"))]
    pub chunk_bytes: ByteSize,
    /// What the relay grants. Left out, it limits nothing.
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

/// Many streams that echo at a pace (`/echo/1.0.0`, of the published WebRTC transport benchmarks). Each connection has an
/// identity and a socket of its own. On each stream the client sends a line, reads the same line back, pauses, and sends
/// it again. Connections and streams are opened one after the other: the ramp. What is achieved is measured on the
/// plateau, from the end of the ramp to the end of `duration`.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("duration(self.pause.replace('µs', 'us')) < duration(self.deadline.replace('µs', 'us'))").message("pause must be shorter than deadline: a server gives up a stream that says nothing for that long"))]
#[serde(rename_all = "camelCase")]
pub struct Echo {
    /// Connections and streams; every load is measured on its own.
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
    /// Bytes of a line, its end included.
    #[serde(default = "default_message")]
    #[x_kube(validation = rule::size("2", "1Mi"))]
    pub message_bytes: ByteSize,
    /// Pause after each round trip. One line per pause and stream is the nominal rate.
    #[serde(default = "default_pause")]
    #[schemars(length(max = 64), extend("default" = "500ms"))]
    #[x_kube(validation = rule::duration("1ms", "1h"))]
    pub pause: Duration,
    /// How long a round trip may take, at either end. A stream that takes longer is reset and counted as failed.
    #[serde(default = "default_deadline")]
    #[schemars(length(max = 64), extend("default" = "5s"))]
    #[x_kube(validation = rule::duration("1ms", "2h"))]
    pub deadline: Duration,
    /// How long to echo, the ramp included; it has to be longer than that.
    #[serde(default = "default_echo_duration")]
    #[schemars(length(max = 64), extend("default" = "300s"))]
    #[x_kube(validation = rule::duration("10ms", "1h"))]
    pub duration: Duration,
    /// The keys of all peers, clients and servers.
    #[serde(default)]
    pub identity: Identity,
    /// How often both ends note streams, bytes, round trips, CPU and memory. A stream counts as echoing if it completed a
    /// round trip in this time, which should therefore be longer than `pause`.
    #[serde(default = "default_sample_interval")]
    #[schemars(length(max = 64), extend("default" = "1s"))]
    #[x_kube(validation = rule::duration("100ms", "1m"))]
    pub sample_interval: Duration,
}

/// Most streams of a load: a server serves no more at the same time.
const MOST_ECHO_STREAMS: u32 = 65_536;

/// How many connections and streams: a preset, or both numbers.
#[derive(Clone, Copy, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("has(self.preset) ? !has(self.connections) && !has(self.streamsPerConnection) : has(self.connections) && has(self.streamsPerConnection)").message("must be either a preset, or connections and streamsPerConnection"))]
#[x_kube(validation = echo_streams())]
#[serde(rename_all = "camelCase")]
pub struct EchoLoad {
    /// A published load: `scenario-1`, 10 connections of 1000 streams; `scenario-2`, 100 of 100; `published-effective`, 5 of
    /// 259, the 1295 streams that echoed in the published runs of both scenarios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<EchoPreset>,
    /// Connections of each client, each with an identity and a socket of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::integer(1, 4096))]
    pub connections: Option<u32>,
    /// Streams of each connection. litep2p as a server on QUIC allows 100, so cells with more are skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::integer(1, 4096))]
    pub streams_per_connection: Option<u32>,
}

fn echo_streams() -> Rule {
    Rule::new(format!(
        "!has(self.connections) || !has(self.streamsPerConnection) || \
         self.connections * self.streamsPerConnection <= {MOST_ECHO_STREAMS}"
    ))
    .message(format!("must have at most {MOST_ECHO_STREAMS} streams on all connections together").as_str())
}

impl EchoLoad {
    /// Connections, and streams of each.
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
    /// 5 connections of 259 streams: the 1295 that echoed in the published runs, whose others were blocked by a full log
    /// pipe.
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

fn default_connection_interval() -> Duration {
    std::time::Duration::from_secs(1).into()
}

fn default_stream_interval() -> Duration {
    std::time::Duration::from_millis(100).into()
}

fn default_message() -> ByteSize {
    ByteSize(1 << 10)
}

fn default_pause() -> Duration {
    std::time::Duration::from_millis(500).into()
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

/// The contract's schema of limits, and the rules that a document has to follow.
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
        let mut checked = Schema::try_from(property.take()).expect("a property has a schema");
        kube::core::validate(&mut checked, rule).expect("a rule is JSON");
        *property = checked.to_value();
    }
    schema
}
