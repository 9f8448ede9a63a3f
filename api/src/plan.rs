//! From a document to what is run: a pure function, the same for local runs and clusters.

use std::{collections::BTreeSet, fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    matrix::{Negotiation, Protocol, Stack, Transport},
    quantity::ByteSize,
    spec::{Combination, Matrix, Order, PerfRunSpec, StackName},
    workload::{Direction, OpenMode, Timing, Workload},
};

/// What a run does: its nodes, its cells, and its trials in running order.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Nodes to start.
    pub nodes: Vec<PlannedNode>,
    /// Cells to measure.
    pub cells: Vec<Cell>,
    /// Cells of the matrix that cannot be measured.
    pub skipped: Vec<Skipped>,
    /// Trials in running order.
    pub trials: Vec<Trial>,
}

/// A node to start.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedNode {
    /// Unique name, e.g. `client-0` or `server-0-next`.
    pub name: String,
    /// What the node does.
    pub role: Role,
    /// The stack variant whose image and environment the node has; none: the default ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// What a node does in a run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    /// Listens.
    Server,
    /// Dials.
    Client,
}

/// One point of the matrix: a pair of stacks, a transport and the workload's parameters.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// Unique in the plan and stable for a document, e.g. `libp2p.litep2p.tcp.upload-64Mi`.
    pub id: String,
    /// The stack that dials, and the one that listens, by the names of the matrix.
    pub client: StackName,
    /// The stack that listens.
    pub server: StackName,
    /// What `client` is, or is a variant of.
    pub client_stack: Stack,
    /// What `server` is, or is a variant of.
    pub server_stack: Stack,
    /// The transport.
    pub transport: Transport,
    /// What is done.
    pub parameters: Parameters,
    /// Names of the client nodes.
    pub clients: Vec<String>,
    /// Names of the server nodes.
    pub servers: Vec<String>,
    /// Peers in each client node.
    pub peers_per_client: u32,
}

impl Cell {
    /// The pair as tables head it, e.g. `libp2p → litep2p`, or `raw` for the baseline.
    pub fn pair(&self) -> String {
        if self.is_raw() {
            "raw".to_owned()
        } else {
            format!("{} → {}", self.client, self.server)
        }
    }

    /// Whether this is the baseline without a peer-to-peer stack.
    pub fn is_raw(&self) -> bool {
        self.client_stack == Stack::Raw && self.server_stack == Stack::Raw
    }
}

/// A cell that cannot be measured, and why.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    /// What the cell would have been called.
    pub id: String,
    /// Why it cannot be measured.
    pub reason: String,
}

/// One execution of a cell.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// Unique in the run, e.g. `c3.w0` or `c3.i7`.
    pub id: String,
    /// Index of the cell in the plan.
    pub cell: usize,
    /// Number of the repetition, from 0.
    pub iteration: u32,
    /// Recorded, but left out of all statistics.
    pub warmup: bool,
}

/// What a trial does, all defaults filled in.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "workload")]
pub enum Parameters {
    /// Bulk transfer.
    #[serde(rename_all = "camelCase")]
    Bandwidth {
        /// The protocol on the streams.
        protocol: Protocol,
        /// Which way bytes go.
        direction: Direction,
        /// How much is transferred.
        amount: Amount,
        /// Parallel streams.
        streams: u32,
        /// Bytes of one write or read call.
        chunk_bytes: ByteSize,
        /// When an upload ends.
        timing: Timing,
        /// How the protocol is negotiated.
        negotiation: Negotiation,
    },
    /// Opening of many substreams.
    #[serde(rename_all = "camelCase")]
    Substreams {
        /// Substreams to open.
        count: u32,
        /// How they are requested.
        mode: OpenMode,
        /// Requests per second, for [`OpenMode::Paced`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u32>,
        /// How the protocol is negotiated.
        negotiation: Negotiation,
    },
    /// New connections.
    #[serde(rename_all = "camelCase")]
    Handshakes {
        /// How many, or for how long.
        amount: Amount,
        /// Connections being set up at the same time.
        in_flight: u32,
    },
    /// Round trips on one stream.
    #[serde(rename_all = "camelCase")]
    Ping {
        /// Round trips.
        count: u32,
        /// Pause between two, in seconds.
        interval_seconds: f64,
    },
}

impl Parameters {
    /// What is spoken on the streams.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Bandwidth { protocol, .. } => *protocol,
            Self::Substreams { .. } => Protocol::Litep2pPerf,
            Self::Handshakes { .. } | Self::Ping { .. } => Protocol::Ping,
        }
    }

    /// How the dialler negotiates it.
    pub fn negotiation(&self) -> Negotiation {
        match self {
            Self::Bandwidth { negotiation, .. } | Self::Substreams { negotiation, .. } => *negotiation,
            Self::Handshakes { .. } | Self::Ping { .. } => Negotiation::V1,
        }
    }

    /// The measuring time that is asked for, where it is: a trial may last that much longer.
    pub fn duration(&self) -> Duration {
        match self {
            Self::Bandwidth {
                amount: Amount::Seconds(seconds),
                ..
            }
            | Self::Handshakes {
                amount: Amount::Seconds(seconds),
                ..
            } => Duration::from_secs_f64(*seconds),
            Self::Substreams {
                count,
                rate: Some(rate),
                ..
            } => Duration::from_secs_f64(f64::from(*count) / f64::from(*rate)),
            Self::Ping {
                count,
                interval_seconds,
            } => Duration::from_secs_f64(f64::from(*count) * interval_seconds),
            _ => Duration::ZERO,
        }
    }
}

/// The parameters in short, e.g. `upload-64Mi`: the last part of a cell's id.
impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bandwidth {
                direction,
                amount,
                streams,
                ..
            } => {
                write!(f, "{direction}-{}", amount.of_bytes())?;
                if *streams > 1 {
                    write!(f, "-x{streams}")
                } else {
                    Ok(())
                }
            }
            Self::Substreams { count, .. } => write!(f, "open-{count}"),
            Self::Handshakes { amount, in_flight } => {
                write!(f, "handshakes-{}", amount.of_items())?;
                if *in_flight > 1 {
                    write!(f, "-x{in_flight}")
                } else {
                    Ok(())
                }
            }
            Self::Ping { count, .. } => write!(f, "ping-{count}"),
        }
    }
}

/// How much of something, or for how long.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Amount {
    /// So many bytes of each stream, or connections.
    Count(u64),
    /// For so many seconds.
    Seconds(f64),
}

impl Amount {
    /// The amount with its unit, when it counts bytes.
    pub fn of_bytes(self) -> String {
        match self {
            Self::Count(bytes) => ByteSize(bytes).to_string(),
            Self::Seconds(seconds) => format!("{seconds}s"),
        }
    }

    /// The amount with its unit, when it counts things.
    pub fn of_items(self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Seconds(seconds) => format!("{seconds}s"),
        }
    }
}

/// Why there is nothing to run.
#[derive(Debug, Error, PartialEq)]
pub enum Error {
    /// Every cell is skipped.
    #[error("nothing to run: every cell of the matrix is skipped: {}", reasons(.0))]
    NoRunnableCell(Vec<Skipped>),
    /// The matrix has no cell at all.
    #[error("nothing to run: matrix.exclude leaves no cell")]
    NoCell,
    /// No workload is set; validation refuses such a document.
    #[error("nothing to run: set a workload")]
    NoWorkload,
}

fn reasons(skipped: &[Skipped]) -> String {
    let distinct: BTreeSet<&str> = skipped.iter().map(|cell| cell.reason.as_str()).collect();
    distinct.into_iter().collect::<Vec<_>>().join("; ")
}

/// Makes the plan of a valid document.
pub fn plan(spec: &PerfRunSpec) -> Result<Plan, Error> {
    let parameters = parameters(&spec.workload);
    if parameters.is_empty() {
        return Err(Error::NoWorkload);
    }
    let mut plan = Plan {
        nodes: vec![],
        cells: vec![],
        skipped: vec![],
        trials: vec![],
    };
    for combination in combinations(&spec.matrix) {
        for parameters in &parameters {
            let cell = cell(spec, &combination, parameters.clone());
            match unsupported(&cell) {
                Some(reason) => plan.skipped.push(Skipped { id: cell.id, reason }),
                None => plan.cells.push(cell),
            }
        }
    }
    if plan.cells.is_empty() {
        return Err(if plan.skipped.is_empty() {
            Error::NoCell
        } else {
            Error::NoRunnableCell(plan.skipped)
        });
    }
    plan.nodes = nodes(spec, &plan.cells);
    plan.trials = trials(spec, plan.cells.len());
    Ok(plan)
}

/// Every set of parameters that the workload asks for, in the order of the document.
fn parameters(workload: &Workload) -> Vec<Parameters> {
    let mut all = vec![];
    if let Some(bandwidth) = &workload.bandwidth {
        let amounts = match bandwidth.duration {
            Some(duration) => vec![Amount::Seconds(seconds(duration))],
            None => bandwidth.sizes.iter().map(|size| Amount::Count(size.0)).collect(),
        };
        for direction in &bandwidth.directions {
            for streams in &bandwidth.streams {
                all.extend(amounts.iter().map(|amount| Parameters::Bandwidth {
                    protocol: bandwidth.protocol.into(),
                    direction: *direction,
                    amount: *amount,
                    streams: *streams,
                    chunk_bytes: bandwidth.chunk_bytes,
                    timing: bandwidth.timing,
                    negotiation: bandwidth.negotiation,
                }));
            }
        }
    }
    if let Some(substreams) = &workload.substreams {
        all.extend(substreams.counts.iter().map(|count| Parameters::Substreams {
            count: *count,
            mode: substreams.mode,
            rate: substreams.rate,
            negotiation: substreams.negotiation,
        }));
    }
    if let Some(handshakes) = &workload.handshakes {
        let amount = match (handshakes.duration, handshakes.count) {
            (Some(duration), _) => Amount::Seconds(seconds(duration)),
            (None, count) => Amount::Count(count.unwrap_or(1).into()),
        };
        all.extend(
            handshakes
                .in_flight
                .iter()
                .map(|in_flight| Parameters::Handshakes {
                    amount,
                    in_flight: *in_flight,
                }),
        );
    }
    if let Some(ping) = &workload.ping {
        all.push(Parameters::Ping {
            count: ping.count,
            interval_seconds: seconds(ping.interval),
        });
    }
    all
}

fn seconds(duration: kube::core::Duration) -> f64 {
    Duration::from(duration).as_secs_f64()
}

/// The pairs and transports to measure, the raw baseline first, each once.
fn combinations(matrix: &Matrix) -> Vec<Combination> {
    let crossed = matrix.transports.iter().flat_map(|transport| {
        matrix.clients.iter().flat_map(move |client| {
            matrix.servers.iter().map(move |server| Combination {
                client: client.clone(),
                server: server.clone(),
                transport: *transport,
            })
        })
    });
    let chosen: Vec<Combination> = crossed
        .filter(|c| !matrix.exclude.iter().any(|selector| matches(selector, c)))
        .chain(matrix.include.iter().cloned())
        .collect();
    let raw = || StackName(Stack::Raw.to_string());
    let baseline = chosen
        .iter()
        .filter(|_| matrix.raw_baseline)
        .map(|c| Combination {
            client: raw(),
            server: raw(),
            transport: c.transport.raw(),
        });
    let mut unique = vec![];
    for combination in baseline.chain(chosen.iter().cloned()) {
        if !unique.contains(&combination) {
            unique.push(combination);
        }
    }
    unique
}

fn matches(selector: &crate::spec::Selector, combination: &Combination) -> bool {
    selector
        .client
        .as_ref()
        .is_none_or(|client| *client == combination.client)
        && selector
            .server
            .as_ref()
            .is_none_or(|server| *server == combination.server)
        && selector
            .transport
            .is_none_or(|transport| transport == combination.transport)
}

fn cell(spec: &PerfRunSpec, combination: &Combination, parameters: Parameters) -> Cell {
    let Combination {
        client,
        server,
        transport,
    } = combination;
    let names = |role, count, stack| {
        (0..count)
            .map(move |i| node_name(role, i, variant(spec, stack)))
            .collect()
    };
    Cell {
        id: format!("{client}.{server}.{transport}.{parameters}"),
        client_stack: stack(spec, client),
        server_stack: stack(spec, server),
        clients: names(Role::Client, spec.topology.clients, client),
        servers: names(Role::Server, spec.topology.servers, server),
        peers_per_client: spec.topology.peers_per_client,
        client: client.clone(),
        server: server.clone(),
        transport: *transport,
        parameters,
    }
}

/// The stack behind a name; validation has refused names that nobody knows, so those cannot occur.
fn stack(spec: &PerfRunSpec, name: &StackName) -> Stack {
    let listed = spec
        .stacks
        .iter()
        .find(|listed| listed.name == name.0)
        .map(|listed| listed.stack);
    listed.or_else(|| name.0.parse().ok()).unwrap_or(Stack::Raw)
}

/// The variant that needs nodes of its own, if the name is one with an image or environment.
fn variant<'a>(spec: &'a PerfRunSpec, name: &StackName) -> Option<&'a str> {
    let listed = spec.stacks.iter().find(|listed| listed.name == name.0)?;
    Some(listed.name.as_str())
}

fn node_name(role: Role, index: u32, variant: Option<&str>) -> String {
    match variant {
        Some(variant) => format!("{role}-{index}-{variant}"),
        None => format!("{role}-{index}"),
    }
}

fn nodes(spec: &PerfRunSpec, cells: &[Cell]) -> Vec<PlannedNode> {
    let mut nodes: Vec<PlannedNode> = vec![];
    let sides = cells.iter().flat_map(|cell| {
        [
            (Role::Server, &cell.server, &cell.servers),
            (Role::Client, &cell.client, &cell.clients),
        ]
    });
    for (role, stack, names) in sides {
        for name in names {
            if !nodes.iter().any(|node| node.name == *name) {
                let variant = variant(spec, stack).map(str::to_owned);
                nodes.push(PlannedNode {
                    name: name.clone(),
                    role,
                    variant,
                });
            }
        }
    }
    nodes
}

fn trials(spec: &PerfRunSpec, cells: usize) -> Vec<Trial> {
    let rounds: Vec<(bool, u32)> = (0..spec.warmup)
        .map(|i| (true, i))
        .chain((0..spec.iterations).map(|i| (false, i)))
        .collect();
    let trial = |cell: usize, (warmup, iteration): (bool, u32)| Trial {
        id: format!("c{cell}.{}{iteration}", if warmup { 'w' } else { 'i' }),
        cell,
        iteration,
        warmup,
    };
    match spec.order {
        Order::Interleaved => rounds
            .iter()
            .flat_map(|round| (0..cells).map(move |cell| trial(cell, *round)))
            .collect(),
        Order::Sequential => (0..cells)
            .flat_map(|cell| rounds.iter().map(move |r| trial(cell, *r)))
            .collect(),
    }
}

/// Why a cell cannot be measured, if so. The facts are those of the stacks' current releases.
fn unsupported(cell: &Cell) -> Option<String> {
    let stacks = [cell.client_stack, cell.server_stack];
    if stacks.contains(&Stack::Raw) && !cell.is_raw() {
        return Some("raw speaks only to raw: it has no peer-to-peer handshake".into());
    }
    match (cell.transport, &cell.parameters) {
        (Transport::TcpTls, _) if stacks.contains(&Stack::Litep2p) => {
            Some("litep2p secures TCP by Noise only, it has no TLS".into())
        }
        (Transport::TcpTls, _) if cell.is_raw() => Some("the raw baseline of tcp-tls is plain tcp".into()),
        (_, Parameters::Substreams { .. }) if cell.is_raw() => {
            Some("raw opens streams without a round trip: there is nothing to compare with".into())
        }
        (_, parameters)
            if parameters.negotiation() == Negotiation::V1Lazy && cell.client_stack != Stack::Libp2p =>
        {
            Some(format!(
                "{} cannot negotiate v1lazy as a client",
                cell.client_stack
            ))
        }
        (Transport::QuicV1, Parameters::Substreams { count, .. })
            if *count > LITEP2P_QUIC_STREAMS && stacks.contains(&Stack::Litep2p) =>
        {
            Some(format!(
                "litep2p allows {LITEP2P_QUIC_STREAMS} streams on a QUIC connection, fixed"
            ))
        }
        (Transport::QuicV1, Parameters::Bandwidth { streams, .. })
            if *streams > LITEP2P_QUIC_STREAMS && stacks.contains(&Stack::Litep2p) =>
        {
            Some(format!(
                "litep2p allows {LITEP2P_QUIC_STREAMS} streams on a QUIC connection, fixed"
            ))
        }
        (Transport::Tcp | Transport::TcpTls, Parameters::Substreams { count, .. })
            if *count > YAMUX_UNACKNOWLEDGED_STREAMS =>
        {
            Some(format!(
                "yamux stops opening at {YAMUX_UNACKNOWLEDGED_STREAMS} substreams that the peer has not acknowledged"
            ))
        }
        _ => None,
    }
}

/// quinn's default stream credit, which litep2p does not change.
const LITEP2P_QUIC_STREAMS: u32 = 100;
/// `MAX_ACK_BACKLOG` of rust-yamux: a peer acknowledges a stream when it first writes to it, and nothing is exchanged.
const YAMUX_UNACKNOWLEDGED_STREAMS: u32 = 256;
