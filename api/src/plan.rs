//! From a document to what is run: a pure function, the same for local runs and clusters.

mod parameters;
mod support;

use std::{collections::BTreeSet, num::NonZeroU64, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::{
    parameters::{Amount, Echo, Parameters},
    support::unsupported,
};
use crate::{
    matrix::{Stack, Transport},
    network::{Conditions, Impossible, NONE, preset},
    spec::{Matrix, Order, PerfRunSpec, Selector, StackName},
    workload::{RelayStress, Workload},
};

/// A plan with more trials than this would hardly end, and its results would not fit into memory.
pub const TRIALS_MAX: u64 = 100_000;

/// A link without a rate is held to be this fast, as for its queue.
const UNLIMITED_BITS_PER_SECOND: u64 = 10_000_000_000;

/// Linux' own default for receiving.
const TCP_WINDOW_MIN: u64 = 6 << 20;

/// The most that TCP can announce (RFC 7323: 65535 × 2^14).
const TCP_WINDOW_MAX: u64 = 65_535 << 14;

/// What a run does: its nodes, its cells, and its trials in running order.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Nodes to start.
    pub nodes: Vec<PlannedNode>,
    /// Conditions of the links; none at all, if links are left as they are throughout the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Conditions>,
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
#[derive(
    Clone,
    Copy,
    Debug,
    Deserialize,
    Eq,
    Hash,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
    strum::Display,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    /// Listens.
    Server,
    /// Dials.
    Client,
    /// Relays what servers and clients send each other.
    Relay,
}

/// One point of the matrix: a pair of stacks, a transport, a network and the workload's parameters.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// Unique in the plan and stable for a document, e.g. `libp2p.litep2p.tcp.upload-64Mi`, or with a network other than
    /// `none` at its end, `libp2p.litep2p.tcp.upload-64Mi.wan`.
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
    /// The name of the conditions of its links.
    #[serde(default = "unimpaired", skip_serializing_if = "is_unimpaired")]
    pub network: String,
    /// What is done.
    pub parameters: Parameters,
    /// Names of the client nodes.
    pub clients: Vec<String>,
    /// Names of the server nodes; none, if each client node is its own server.
    pub servers: Vec<String>,
    /// Names of the relay nodes; none, unless clients reach servers through one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<String>,
    /// Peers in each client node.
    pub peers_per_client: u32,
}

impl Cell {
    /// The pair as tables head it, e.g. `libp2p → litep2p`, or `raw` for the baseline.
    pub fn pair(&self) -> String {
        if self.is_raw() && self.client == self.server {
            self.client.to_string()
        } else {
            format!("{} → {}", self.client, self.server)
        }
    }

    /// Why it cannot be measured, if so.
    fn unsupported(&self) -> Option<String> {
        unsupported(
            self.client_stack,
            self.server_stack,
            self.transport,
            &self.parameters,
        )
        .or_else(|| support::apart(self))
        .or_else(|| support::uneven(self))
    }

    /// Whether this is the baseline without a peer-to-peer stack.
    pub fn is_raw(&self) -> bool {
        self.client_stack == Stack::Raw && self.server_stack == Stack::Raw
    }

    /// Whether nodes of this role are processes of their own, with CPU time and memory of their own. A server in memory is in its
    /// client's.
    pub fn has_process(&self, role: Role) -> bool {
        !(self.transport.is_in_process() && role == Role::Server)
    }

    /// Peers in each server node, where clients reach them through a relay; otherwise a server node is one peer.
    pub fn sources_per_server(&self) -> u32 {
        match &self.parameters {
            Parameters::RelayStress { sources, .. } => sources / (self.servers.len().max(1) as u32),
            _ => 1,
        }
    }

    /// Names of all its nodes, in the order in which they are prepared.
    pub fn nodes(&self) -> impl Iterator<Item = &String> {
        self.relays.iter().chain(&self.servers).chain(&self.clients)
    }
}

impl Plan {
    /// The largest TCP window that its networks call for, in bytes; nothing, if links are left as they are. Twice the
    /// bandwidth-delay product, of 10 Gbit/s where a network has no rate: the kernel counts headers, too.
    pub fn tcp_window_bytes(&self) -> Option<u64> {
        let bytes = |network: &Conditions| {
            let rate = network
                .all()
                .map(|way| {
                    way.rate_bits_per_second
                        .map_or(UNLIMITED_BITS_PER_SECOND, NonZeroU64::get)
                })
                .fold(0, u64::max);
            let product = rate as f64 / 8.0 * network.round_trip().as_secs_f64();
            ((2.0 * product) as u64).clamp(TCP_WINDOW_MIN, TCP_WINDOW_MAX)
        };
        self.networks.iter().map(bytes).max()
    }
}

fn unimpaired() -> String {
    NONE.to_owned()
}

fn is_unimpaired(network: &String) -> bool {
    network == NONE
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

/// Why there is no plan.
#[derive(Debug, Error, PartialEq)]
pub enum Error {
    /// Every cell is skipped.
    #[error("nothing to run: every cell of the matrix is skipped: {}", reasons(.0))]
    NoRunnableCell(Vec<Skipped>),
    /// The matrix has no cell at all.
    #[error("nothing to run: matrix.exclude leaves no cell")]
    NoCell,
    /// The matrix has too many cells.
    #[error(
        "too much to run: {0} trials, of at most {TRIALS_MAX}: make the matrix, the workload or iterations smaller"
    )]
    TooManyTrials(u64),
    /// The matrix names a stack that is neither built in nor listed; validation refuses such a document.
    #[error("nothing to run: the matrix names {0}, which is neither built in nor listed in stacks")]
    UnknownStack(StackName),
    /// The matrix names a network that is neither a preset nor listed; validation refuses such a document.
    #[error(
        "nothing to run: the matrix names the network {0}, which is neither a preset nor listed in networks"
    )]
    UnknownNetwork(String),
    /// No link can be like this.
    #[error("nothing to run: {0}")]
    ImpossibleNetwork(#[from] Impossible),
    /// An echo that would end before all its streams are open.
    #[error(
        "nothing to run: {load} takes {ramp_seconds} s to open all streams, one after the other: make \
         workload.echo.duration longer than that, it is {duration_seconds} s"
    )]
    NoPlateau {
        /// The parameters in short.
        load: String,
        /// How long its ramp takes.
        ramp_seconds: f64,
        /// How long it may take in all.
        duration_seconds: f64,
    },
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
    let parameters = parameters(&spec.workload, spec.topology.clients);
    if parameters.is_empty() {
        return Err(Error::NoWorkload);
    }
    check_plateaus(&parameters)?;
    let networks = networks(spec)?;
    let points: Vec<Vec<Point>> = networks
        .iter()
        .map(|network| points(&spec.matrix, &network.name))
        .collect();
    let rounds = u64::from(spec.warmup) + u64::from(spec.iterations);
    let size = points.iter().map(Vec::len).sum::<usize>() as u64 * parameters.len() as u64 * rounds;
    if size > TRIALS_MAX {
        return Err(Error::TooManyTrials(size));
    }
    let (mut cells, mut skipped) = (vec![], vec![]);
    // Cells of one network are together, so that links change as seldom as can be.
    for points in &points {
        let mut measured = vec![];
        for point in points {
            for parameters in &parameters {
                let cell = cell(spec, point, parameters.clone())?;
                match cell.unsupported() {
                    Some(reason) => skipped.push(Skipped { id: cell.id, reason }),
                    None => measured.push(cell),
                }
            }
        }
        if spec.matrix.raw_baseline {
            measured = with_baseline(spec, measured)?;
        }
        cells.append(&mut measured);
    }
    if cells.is_empty() {
        return Err(if skipped.is_empty() {
            Error::NoCell
        } else {
            Error::NoRunnableCell(skipped)
        });
    }
    let used = |network: &Conditions| cells.iter().any(|cell| cell.network == network.name);
    let networks: Vec<Conditions> = networks.into_iter().filter(used).collect();
    Ok(Plan {
        nodes: nodes(spec, &cells),
        networks: if networks.iter().all(Conditions::is_none) {
            vec![]
        } else {
            networks
        },
        trials: trials(spec, cells.len()),
        cells,
        skipped,
    })
}

/// All streams of an echo have to be there before it ends: otherwise there is nothing to hold against the nominal rate.
fn check_plateaus(parameters: &[Parameters]) -> Result<(), Error> {
    for parameters in parameters {
        if let Parameters::Echo(echo) = parameters
            && echo.ramp_seconds() >= echo.duration_seconds
        {
            return Err(Error::NoPlateau {
                load: parameters.to_string(),
                ramp_seconds: echo.ramp_seconds(),
                duration_seconds: echo.duration_seconds,
            });
        }
    }
    Ok(())
}

/// The networks that the matrix names, each once, with their figures.
fn networks(spec: &PerfRunSpec) -> Result<Vec<Conditions>, Error> {
    let added = spec
        .matrix
        .include
        .iter()
        .filter_map(|added| added.network.clone());
    let names = distinct(spec.matrix.networks.iter().cloned().chain(added).collect());
    names
        .into_iter()
        .map(|name| {
            let listed = spec.networks.iter().find(|network| network.name == name).cloned();
            let network = listed
                .or_else(|| preset(&name))
                .ok_or(Error::UnknownNetwork(name))?;
            Ok(network.conditions()?)
        })
        .collect()
}

/// Every set of parameters that the workload asks for, in the order of the document.
fn parameters(workload: &Workload, clients: u32) -> Vec<Parameters> {
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
    if let Some(relay) = &workload.relay {
        for path in &relay.paths {
            all.extend(relay.sizes.iter().map(|size| Parameters::Relay {
                path: *path,
                bytes: size.0,
                chunk_bytes: relay.chunk_bytes,
                pings: relay.pings,
                limits: relay.limits,
            }));
        }
    }
    if let Some(stress) = &workload.relay_stress {
        all.extend(
            stress
                .sinks
                .iter()
                .map(|sinks| stress_level(stress, *sinks, clients)),
        );
    }

    if let Some(echo) = &workload.echo {
        all.extend(echo.loads.iter().map(|load| {
            let (connections, streams_per_connection) = load.size();
            Parameters::Echo(Echo {
                connections,
                streams_per_connection,
                connection_interval_seconds: seconds(echo.connection_interval),
                stream_interval_seconds: seconds(echo.stream_interval),
                message_bytes: echo.message_bytes,
                pause_seconds: seconds(echo.pause),
                deadline_seconds: seconds(echo.deadline),
                duration_seconds: seconds(echo.duration),
                identity: echo.identity,
                sample_interval_seconds: seconds(echo.sample_interval),
            })
        }));
    }
    distinct(all)
}

/// All sources begin with their first sinks, and with the next after `sink_interval`; client nodes share that evenly.
fn stress_level(stress: &RelayStress, sinks: u32, clients: u32) -> Parameters {
    let sources = sinks.div_ceil(stress.sinks_per_source.max(1));
    let start_interval_seconds =
        seconds(stress.sink_interval) * f64::from(clients) / f64::from(sources.max(1));
    let starts = sinks / clients.max(1);
    Parameters::RelayStress {
        sinks,
        sources,
        start_interval_seconds,
        ramp_seconds: start_interval_seconds * f64::from(starts.saturating_sub(1)),
        plateau_seconds: seconds(stress.plateau),
        bytes: stress.transfer_bytes.0,
        chunk_bytes: stress.chunk_bytes,
        limits: stress.limits,
    }
}

/// Each once: a document may say the same twice (`1Ki` and `1024`), and ids are made from what is said.
fn distinct<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut distinct = vec![];
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

fn seconds(duration: kube::core::Duration) -> f64 {
    Duration::from(duration).as_secs_f64()
}

/// What a cell is, but for the workload.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    client: StackName,
    server: StackName,
    transport: Transport,
    network: String,
}

/// The pairs and transports that the matrix names for this network, each once.
fn points(matrix: &Matrix, network: &str) -> Vec<Point> {
    let crossed = matrix.transports.iter().flat_map(|transport| {
        matrix.clients.iter().flat_map(move |client| {
            matrix.servers.iter().map(move |server| Point {
                client: client.clone(),
                server: server.clone(),
                transport: *transport,
                network: network.to_owned(),
            })
        })
    });
    let is_crossed = matrix.networks.iter().any(|crossed| crossed == network);
    let chosen =
        crossed.filter(|point| is_crossed && !matrix.exclude.iter().any(|selector| matches(selector, point)));
    let added = matrix
        .include
        .iter()
        .filter(|added| {
            added
                .network
                .as_deref()
                .map_or(is_crossed, |named| named == network)
        })
        .map(|added| Point {
            client: added.client.clone(),
            server: added.server.clone(),
            transport: added.transport,
            network: network.to_owned(),
        });
    distinct(chosen.chain(added).collect())
}

/// Puts the raw baseline of these cells before them: what each does, done without a peer-to-peer stack, once for every
/// kind of transport. What raw cannot do has no baseline; nobody asked for those cells, so they are not skipped either.
fn with_baseline(spec: &PerfRunSpec, cells: Vec<Cell>) -> Result<Vec<Cell>, Error> {
    let raw = || StackName(Stack::Raw.to_string());
    let mut baseline = vec![];
    let mut ids = BTreeSet::new();
    for measured in &cells {
        let transport = measured.transport.raw();
        let point = Point {
            client: raw(),
            server: raw(),
            transport,
            network: measured.network.clone(),
        };
        let cell = cell(spec, &point, measured.parameters.clone())?;
        if cell.unsupported().is_none() && ids.insert(cell.id.clone()) {
            baseline.push(cell);
        }
    }
    // The matrix may name raw itself.
    let others = cells.into_iter().filter(|cell| !ids.contains(&cell.id));
    Ok(baseline.into_iter().chain(others).collect())
}

fn matches(selector: &Selector, point: &Point) -> bool {
    selector
        .client
        .as_ref()
        .is_none_or(|client| *client == point.client)
        && selector
            .server
            .as_ref()
            .is_none_or(|server| *server == point.server)
        && selector
            .transport
            .is_none_or(|transport| transport == point.transport)
        && selector
            .network
            .as_ref()
            .is_none_or(|network| *network == point.network)
}

fn cell(spec: &PerfRunSpec, point: &Point, parameters: Parameters) -> Result<Cell, Error> {
    let Point {
        client,
        server,
        transport,
        network,
    } = point;
    let names = |role, count, stack| {
        (0..count)
            .map(move |i| node_name(role, i, variant(spec, stack)))
            .collect()
    };
    Ok(Cell {
        id: cell_id(&client.0, &server.0, *transport, &parameters, network),
        client_stack: stack(spec, client)?,
        server_stack: stack(spec, server)?,
        clients: names(Role::Client, spec.topology.clients, client),
        servers: match transport.is_in_process() {
            // Its clients'.
            true => vec![],
            false => names(Role::Server, spec.topology.servers, server),
        },
        // The relay is of the build that serves.
        relays: names(Role::Relay, u32::from(parameters.is_relayed()), server),
        peers_per_client: match &parameters {
            Parameters::RelayStress { sinks, .. } => sinks / spec.topology.clients.max(1),
            _ => spec.topology.peers_per_client,
        },
        client: client.clone(),
        server: server.clone(),
        transport: *transport,
        network: network.clone(),
        parameters,
    })
}

/// What a cell of these is called.
pub fn cell_id(
    client: &str,
    server: &str,
    transport: Transport,
    parameters: &Parameters,
    network: &str,
) -> String {
    let id = format!("{client}.{server}.{transport}.{parameters}");
    if network == NONE {
        id
    } else {
        format!("{id}.{network}")
    }
}

/// The stack behind a name.
fn stack(spec: &PerfRunSpec, name: &StackName) -> Result<Stack, Error> {
    let listed = spec.stacks.iter().find(|listed| listed.name == name.0);
    listed
        .map(|listed| listed.stack)
        .or_else(|| name.0.parse().ok())
        .ok_or_else(|| Error::UnknownStack(name.clone()))
}

/// The variant that needs nodes of its own, if the name is one.
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
            (Role::Relay, &cell.server, &cell.relays),
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
