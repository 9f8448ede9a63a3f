//! The command line.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::{
    Args, Parser, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use perfrun_contract::{
    limits::{CHUNK_MAX, STREAMS_MAX},
    matrix::{IpFamily, Negotiation, Stack, Transport},
    node::variables,
    quantity::ByteSize,
    role::Role,
    workload::{BandwidthProtocol, Timing},
};
use perfrun_serve::listening_address;
use perfrun_stack as stack;
use strum::VariantNames;

use crate::restart::EPOCH_VARIABLE;

const NOTES: &str = "\
Examples, in two shells:
  perfrun-node server --stack libp2p --listen /ip4/127.0.0.1/tcp/4001
  perfrun-node client --stack litep2p --server ADDRESS --upload-bytes 1Gi    # ADDRESS: what the server printed

Exit status:
  0    the measurement is complete, or the server was stopped by Ctrl-C or SIGTERM
  1    something failed: see standard error
  2    the command line is invalid";

/// The benchmark node of perfrun.
///
/// Under a conductor (`perfrun run`, or the operator) it is controlled over HTTP. From a shell it runs one
/// benchmark with another perfrun-node, or with a published tool: litep2p-perf, or one that speaks the libp2p
/// perf protocol.
#[derive(Debug, Parser)]
#[command(version, name = "perfrun-node", after_help = NOTES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Log filter, e.g. `info` or `perfrun_node=debug,litep2p=trace`; logs go to standard error.
    #[arg(
        long,
        global = true,
        env = "RUST_LOG",
        default_value = "warn,litep2p=error,webrtc=error,yamux=error"
    )]
    pub log: String,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the trials that a conductor sends to the control port.
    Control(Control),
    /// Impair what this network namespace sends to peers, as a conductor requests on the control port.
    LinkAgent(LinkAgent),
    /// Serve a benchmark until stopped.
    Server(Server),
    /// Measure bandwidth: upload, then download, on one stream or several.
    Client(Client),
    /// Measure the time to open substreams.
    ClientSubstream(ClientSubstream),
    /// Do what libp2p's perf does, with its options and its settings.
    Perf(Perf),
    /// Relay what sources and sinks send each other, until stopped (libp2p's circuit relay v2).
    Relay(Relay),
    /// Serve transfers behind a relay until stopped.
    Source(Source),
    /// Measure a transfer from a source through its relay.
    Sink(Sink),
}

/// A controlled node.
#[derive(Args, Debug)]
pub struct Control {
    /// Where to listen for the conductor: `ADDRESS:PORT`, or `fd:N` for an inherited, listening TCP socket.
    #[arg(long, default_value = "0.0.0.0:9090")]
    pub control: ControlAddress,
    #[command(flatten)]
    pub listen: Listen,
    /// File with the token that calls must carry.
    #[arg(long, env = variables::TOKEN_FILE)]
    pub token_file: PathBuf,
    /// Role of the node, for the labels of metrics.
    #[arg(long, default_value = "server", value_parser = role)]
    pub role: Role,
    /// Refuse calls of a smaller epoch. A program that restarts passes on what it knew.
    #[arg(long, hide = true, env = EPOCH_VARIABLE, default_value_t = 0)]
    pub epoch: u64,
    #[command(flatten)]
    pub metrics_args: MetricsArgs,
}

/// The address at which peers reach a controlled program.
#[derive(Args, Debug)]
pub struct Listen {
    /// The address that trials, and measurements of links, listen on and dial from.
    #[arg(long, env = variables::LISTEN_IP, default_value = "0.0.0.0")]
    pub listen_ip: IpAddr,
    /// All addresses of this machine or pod, with commas in between. If `listen_ip` is not of `ip_family`,
    /// the first of them that is takes its place.
    #[arg(long, env = variables::LISTEN_IPS, value_delimiter = ',')]
    pub listen_ips: Vec<IpAddr>,
    /// The IP family that the conductor needs: `IPv4` or `IPv6`.
    #[arg(long, env = variables::IP_FAMILY)]
    pub ip_family: Option<IpFamily>,
}

impl Listen {
    /// The address of the requested family, or else the first one. The conductor refuses a node with an
    /// address of the wrong family.
    pub fn ip(&self) -> IpAddr {
        let fits = |ip: &IpAddr| self.ip_family.is_none_or(|needed| needed == IpFamily::from(*ip));
        let mut all = [self.listen_ip]
            .into_iter()
            .chain(self.listen_ips.iter().copied());
        all.find(fits).unwrap_or(self.listen_ip)
    }
}

/// The labels of a controlled program's metrics, and how the metrics are collected.
#[derive(Args, Debug, Default)]
pub struct MetricsArgs {
    /// Name of the run, for the labels of metrics.
    #[arg(long, env = variables::RUN, default_value = "")]
    pub run: String,
    /// Namespace of the run, for the labels of metrics.
    #[arg(long, env = variables::RUN_NAMESPACE, default_value = "")]
    pub run_namespace: String,
    /// Name of the node in the run's plan, for the labels of metrics.
    #[arg(long, env = variables::RUN_NODE, default_value = "")]
    pub run_node: String,
    /// Also serve /metrics, and nothing else, at this address. Scrapers then need no access to the control
    /// port.
    #[arg(long, env = variables::METRICS, value_parser = listening_address)]
    pub metrics: Option<SocketAddr>,
    /// On a stop signal, wait up to this many seconds until everything that scraped /metrics before has done
    /// so again.
    #[arg(long, env = variables::LINGER_SECONDS, default_value = "0", value_parser = seconds)]
    pub linger_seconds: Duration,
}

/// A controlled link agent.
#[derive(Args, Debug)]
pub struct LinkAgent {
    /// Where to listen for the conductor: `ADDRESS:PORT`, or `fd:N` for an inherited, listening TCP socket.
    #[arg(long, default_value = "0.0.0.0:9091")]
    pub control: ControlAddress,
    #[command(flatten)]
    pub listen: Listen,
    /// File with the token that calls must carry.
    #[arg(long, env = variables::TOKEN_FILE)]
    pub token_file: PathBuf,
    /// The network interface that leads to peers.
    #[arg(long, default_value = "eth0")]
    pub interface: String,
    /// File for the current link. An agent that replaces this one restores the link from it before it answers
    /// calls.
    #[arg(long)]
    pub state_file: Option<PathBuf>,
    /// Create /dev/net/tun if it is missing, as in most containers. Needs CAP_MKNOD. The device is not
    /// removed on exit.
    #[arg(long)]
    pub make_tun_device: bool,
    #[command(flatten)]
    pub metrics_args: MetricsArgs,
}

/// Address of the control port.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlAddress {
    /// An address to bind.
    Bind(SocketAddr),
    /// An inherited file descriptor.
    Inherited(i32),
}

impl std::str::FromStr for ControlAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is neither fd:N nor an IP address and a port, such as 0.0.0.0:9090");
        match text.strip_prefix("fd:") {
            Some(fd) => fd.parse().map(Self::Inherited).map_err(|_| wrong()),
            None => text.parse().map(Self::Bind).map_err(|_| wrong()),
        }
    }
}

/// The stack and transport of one side of a stand-alone benchmark.
#[derive(Args, Clone, Copy, Debug)]
pub struct StackArgs {
    /// The stack: libp2p, litep2p, commonware (its stream layer) or raw. The two sides may differ, because
    /// libp2p and litep2p can talk to each other.
    #[arg(long, default_value = "litep2p", value_parser = parse_stack)]
    pub stack: Stack,
    /// tcp, tcp-tls, quic-v1, ws or webrtc-direct. The default is that of the multiaddr, or tcp for
    /// ADDRESS:PORT.
    #[arg(long, value_parser = parse_transport)]
    pub transport: Option<Transport>,
}

/// How bytes are exchanged.
#[derive(Args, Clone, Copy, Debug)]
pub struct ExchangeArgs {
    /// The protocol to speak, the same on both sides.
    #[arg(long, default_value = "litep2p-perf", value_parser = protocol())]
    pub protocol: BandwidthProtocol,
    /// Bytes of one write or read, up to 16Mi. The published Rust tools use 1Ki.
    #[arg(long, default_value = "64Ki", value_parser = chunk)]
    pub chunk_bytes: ByteSize,
}

/// How results are printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct Output {
    /// Print JSON lines on a terminal, too. Pipes and files always get JSON lines.
    #[arg(long)]
    pub json: bool,
}

fn parse_stack(text: &str) -> Result<Stack, String> {
    stack::named(text).ok_or_else(|| {
        let names: Vec<&str> = stack::implemented().map(Into::into).collect();
        format!("this program speaks {}", names.join(", "))
    })
}

fn parse_transport(text: &str) -> Result<Transport, String> {
    match text.parse::<Transport>() {
        Ok(transport) if transport.is_in_process() => Err(format!(
            "{transport} connects peers of one process, not of two: measure it with a PerfRun document"
        )),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

fn protocol() -> impl TypedValueParser<Value = BandwidthProtocol> {
    PossibleValuesParser::new(BandwidthProtocol::VARIANTS).try_map(|name| name.parse())
}

const SERVER_EXAMPLES: &str = "\
Examples:
  perfrun-node server --stack libp2p --listen /ip4/127.0.0.1/udp/4001/quic-v1
  perfrun-node server --stack raw --listen 127.0.0.1:4002";

/// A stand-alone server.
#[derive(Args, Debug)]
#[command(after_help = SERVER_EXAMPLES)]
pub struct Server {
    #[command(flatten)]
    pub stack: StackArgs,
    #[command(flatten)]
    pub exchange: ExchangeArgs,
    /// Where to listen: `ADDRESS:PORT`, or a multiaddr with its transport, e.g.
    /// `/ip4/0.0.0.0/udp/33333/quic-v1`.
    #[arg(long, visible_alias = "listen-address", default_value = "0.0.0.0:33333")]
    pub listen: String,
    /// Identity from a text, as in litep2p-perf: its bytes, cut or zero-padded to 32, are the Ed25519 secret.
    /// The default is a new identity for each server.
    #[arg(long, value_name = "TEXT")]
    pub node_key: Option<String>,
    /// Identity from a number, 0 to 255, as in rust-libp2p's examples: the Ed25519 secret is this byte and 31
    /// zeros. go-libp2p's published perf client expects the identity of 0,
    /// 12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN. Cannot be combined with --node-key.
    #[arg(long, value_name = "N", conflicts_with = "node_key")]
    pub node_key_seed: Option<u8>,
    #[command(flatten)]
    pub output: Output,
}

const CLIENT_EXAMPLES: &str = "\
Examples:
  perfrun-node client --stack libp2p --server ADDRESS --upload-bytes 64Mi    # ADDRESS: what the server printed
  perfrun-node client --stack raw --server 127.0.0.1:4002 --upload-bytes 4Gi --download-bytes 4Gi";

/// A stand-alone bandwidth client.
#[derive(Args, Debug)]
#[command(after_help = CLIENT_EXAMPLES)]
pub struct Client {
    #[command(flatten)]
    pub stack: StackArgs,
    #[command(flatten)]
    pub exchange: ExchangeArgs,
    /// The address that the server printed. Also `ADDRESS:PORT`, but not with litep2p or webrtc-direct.
    #[arg(long, visible_alias = "server-address")]
    pub server: String,
    /// Bytes to upload on each stream.
    #[arg(long, default_value = "0")]
    pub upload_bytes: ByteSize,
    /// Bytes to download on each stream.
    #[arg(long, default_value = "0")]
    pub download_bytes: ByteSize,
    /// Parallel streams, up to 1024.
    #[arg(long, default_value_t = 1, value_parser = streams)]
    pub streams: u32,
    /// When an upload ends: `strict` (the default) when the server has read it, `compat` when the client has
    /// written it, as in the published tools. Implies --details for the final JSON line, because only the
    /// transfers have this time.
    #[arg(long)]
    pub timing: Option<Timing>,
    /// How the protocol is negotiated: v1, or v1lazy (libp2p only).
    #[arg(long, default_value = "v1")]
    pub negotiation: Negotiation,
    /// Print JSON lines, with more in the final line than the published tools print: timing, connect time,
    /// transfers.
    #[arg(long)]
    pub details: bool,
    /// Give up after this many seconds.
    #[arg(long, default_value = "300", value_name = "SECONDS", value_parser = timeout)]
    pub timeout: Duration,
    #[command(flatten)]
    pub output: Output,
}

const CLIENT_SUBSTREAM_EXAMPLES: &str = "\
Examples:
  perfrun-node client-substream --server ADDRESS --substreams 32    # ADDRESS: what the server printed";

/// A stand-alone substreams client.
#[derive(Args, Debug)]
#[command(after_help = CLIENT_SUBSTREAM_EXAMPLES)]
pub struct ClientSubstream {
    #[command(flatten)]
    pub stack: StackArgs,
    /// The address that the server printed.
    #[arg(long, visible_alias = "server-address")]
    pub server: String,
    /// Substreams to open, up to 1024.
    #[arg(long, default_value_t = 1, value_parser = streams)]
    pub substreams: u32,
    /// How the protocol is negotiated: v1, or v1lazy (libp2p only).
    #[arg(long, default_value = "v1")]
    pub negotiation: Negotiation,
    /// Give up after this many seconds.
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = timeout)]
    pub timeout: Duration,
    #[command(flatten)]
    pub output: Output,
}

const PERF_EXAMPLES: &str = "\
Examples:
  perfrun-node perf --server-address 127.0.0.1:4001 --run-server
  perfrun-node perf --server-address 127.0.0.1:4001 --transport tcp --upload-bytes 64Mi";

/// libp2p's perf: libp2p, `/perf/1.0.0`, writes of 1 KiB, and `v1lazy`.
#[derive(Args, Debug)]
#[command(after_help = PERF_EXAMPLES)]
pub struct Perf {
    /// Serve on TCP and on QUIC until stopped, with the identity that published clients expect.
    #[arg(long, conflicts_with_all = ["transport", "upload_bytes", "download_bytes", "timeout"])]
    pub run_server: bool,
    /// `ADDRESS:PORT` of the server.
    #[arg(long, value_parser = listening_address)]
    pub server_address: SocketAddr,
    /// tcp, which is secured by TLS here, or quic-v1.
    #[arg(long, required_unless_present = "run_server", value_parser = perf_transport)]
    pub transport: Option<Transport>,
    /// Bytes to upload.
    #[arg(long, default_value = "0")]
    pub upload_bytes: ByteSize,
    /// Bytes to download.
    #[arg(long, default_value = "0")]
    pub download_bytes: ByteSize,
    /// Give up after this many seconds.
    #[arg(long, default_value = "300", value_name = "SECONDS", value_parser = timeout)]
    pub timeout: Duration,
    #[command(flatten)]
    pub output: Output,
}

impl Perf {
    const EXCHANGE: ExchangeArgs = ExchangeArgs {
        protocol: BandwidthProtocol::Perf,
        chunk_bytes: ByteSize(1024),
    };

    /// The server on a transport.
    pub(crate) fn server(&self, transport: Transport) -> Server {
        Server {
            stack: Self::stack(Some(transport)),
            exchange: Self::EXCHANGE,
            listen: self.server_address.to_string(),
            node_key: None,
            node_key_seed: Some(0),
            output: self.output,
        }
    }

    /// The client.
    pub(crate) fn client(&self) -> Client {
        Client {
            stack: Self::stack(self.transport),
            exchange: Self::EXCHANGE,
            server: self.server_address.to_string(),
            upload_bytes: self.upload_bytes,
            download_bytes: self.download_bytes,
            streams: 1,
            timing: None,
            negotiation: Negotiation::V1Lazy,
            details: false,
            timeout: self.timeout,
            output: self.output,
        }
    }

    fn stack(transport: Option<Transport>) -> StackArgs {
        StackArgs {
            stack: Stack::Libp2p,
            transport,
        }
    }
}

fn perf_transport(text: &str) -> Result<Transport, String> {
    match text {
        "tcp" => Ok(Transport::TcpTls),
        "quic-v1" => Ok(Transport::QuicV1),
        _ => Err("must be tcp or quic-v1".into()),
    }
}

/// A stand-alone relay.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  perfrun-node relay --listen /ip4/127.0.0.1/tcp/4001")]
pub struct Relay {
    /// Where to listen: `ADDRESS:PORT`, or a multiaddr with its transport. The relay tells its peers this
    /// address, so it must be one that they can dial.
    #[arg(long)]
    pub listen: String,
    /// The transport of `ADDRESS:PORT` (default: tcp), or tcp-tls for a multiaddr of tcp.
    #[arg(long, value_parser = parse_transport)]
    pub transport: Option<Transport>,
    #[command(flatten)]
    pub output: Output,
}

/// A transfer through a relay.
#[derive(Args, Clone, Copy, Debug)]
pub struct Relayed {
    /// The transport, where the address does not name it: tcp-tls.
    #[arg(long, value_parser = parse_transport)]
    pub transport: Option<Transport>,
    /// Bytes of a transfer, the same at the source and at its sinks.
    #[arg(long, default_value = "1G")]
    pub bytes: ByteSize,
    /// Bytes of one write or read, up to 16Mi.
    #[arg(long, default_value = "64Ki", value_parser = chunk)]
    pub chunk_bytes: ByteSize,
}

const SOURCE_EXAMPLES: &str = "\
Examples:
  perfrun-node source --relay ADDRESS --bytes 100M    # ADDRESS: what the relay printed";

/// A stand-alone source.
#[derive(Args, Debug)]
#[command(after_help = SOURCE_EXAMPLES)]
pub struct Source {
    /// The address that the relay printed.
    #[arg(long)]
    pub relay: String,
    #[command(flatten)]
    pub relayed: Relayed,
    #[command(flatten)]
    pub output: Output,
}

const SINK_EXAMPLES: &str = "\
Examples:
  perfrun-node sink --source ADDRESS --bytes 100M    # ADDRESS: what the source printed";

/// A stand-alone sink.
#[derive(Args, Debug)]
#[command(after_help = SINK_EXAMPLES)]
pub struct Sink {
    /// The address that the source printed.
    #[arg(long)]
    pub source: String,
    #[command(flatten)]
    pub relayed: Relayed,
    /// Give up after this many seconds.
    #[arg(long, default_value = "300", value_name = "SECONDS", value_parser = timeout)]
    pub timeout: Duration,
    #[command(flatten)]
    pub output: Output,
}

/// Streams of one connection to a stand-alone server. With a higher limit, yamux could not grow the windows
/// of a few.
pub const STANDALONE_STREAMS_MAX: u32 = 1024;

fn streams(text: &str) -> Result<u32, String> {
    let streams = text
        .parse()
        .ok()
        .filter(|streams| (1..=STANDALONE_STREAMS_MAX).contains(streams));
    streams.ok_or_else(|| {
        format!(
            "must be 1 to {STANDALONE_STREAMS_MAX}, the limit of `perfrun-node server` for one connection; `perfrun run` measures up \
             to {STREAMS_MAX} substreams"
        )
    })
}

fn chunk(text: &str) -> Result<ByteSize, String> {
    let bytes: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if (1..=CHUNK_MAX.0).contains(&bytes.0) {
        Ok(bytes)
    } else {
        Err(format!("must be 1 to {CHUNK_MAX}"))
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("must be more than 0 seconds".into()),
        timeout => Ok(timeout),
    }
}

fn role(text: &str) -> Result<Role, String> {
    text.parse().map_err(|_| "must be server, client or relay".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "must be a number of seconds, e.g. 2.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn commands_for_a_shell_have_examples_that_they_accept() {
        let command = Cli::command();
        for name in [
            "server",
            "client",
            "client-substream",
            "perf",
            "relay",
            "source",
            "sink",
        ] {
            let inner = command.find_subcommand(name).expect("a command");
            let help = inner.get_after_help().expect("examples").to_string();
            for line in help.lines().skip(1) {
                let words = line.split('#').next().unwrap_or_default().split_whitespace();
                let parsed = Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
                assert!(line.starts_with(&format!("  perfrun-node {name} ")), "{line}");
            }
        }
    }

    #[test]
    fn a_node_listens_on_the_first_address_of_the_needed_family() {
        let chosen = |listen_ip: &str, listen_ips: &[&str], ip_family| {
            let parsed = |ip: &str| ip.parse::<IpAddr>().expect("an address");
            let listen = Listen {
                listen_ip: parsed(listen_ip),
                listen_ips: listen_ips.iter().map(|ip| parsed(ip)).collect(),
                ip_family,
            };
            listen.ip().to_string()
        };
        let [v4, v6] = [Some(IpFamily::IPv4), Some(IpFamily::IPv6)];
        let both = ["10.0.0.1", "fd00::1", "fd00::2"];
        assert_eq!(chosen("10.0.0.1", &both, v4), "10.0.0.1");
        assert_eq!(chosen("10.0.0.1", &both, v6), "fd00::1");
        assert_eq!(chosen("fd00::2", &both, v6), "fd00::2");
        assert_eq!(chosen("fd00::1", &both, v4), "10.0.0.1");
        assert_eq!(chosen("127.0.0.1", &both, None), "127.0.0.1");
        // The conductor refuses such a node.
        assert_eq!(chosen("10.0.0.1", &both[..1], v6), "10.0.0.1");
    }
}
