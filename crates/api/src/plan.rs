//! From a document to what is run: a pure function, the same for local runs and clusters.

mod bounds;
mod loads;
mod names;
mod points;
mod support;

use std::{
    collections::{BTreeSet, HashSet},
    num::NonZeroU64,
};

pub use perfrun_contract::{
    node::Role,
    parameters::{Amount, Echo, Parameters},
    support::unsupported,
};
use perfrun_link::impairment::UNLIMITED_BITS_PER_SECOND;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::{
    bounds::Size,
    loads::loads,
    names::{Sides, side},
    points::{Axes, Point},
};
pub use self::{
    bounds::{CELLS_MAX, MEASUREMENTS_MAX, NODES_MAX, TRIALS_MAX},
    names::Names,
};
use crate::{
    matrix::{Stack, Transport},
    network::{Conditions, Impossible, NONE, preset},
    spec::{Order, PerfRunSpec, StackName},
};

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
    pub clients: Names,
    /// Names of the server nodes; none, if each client node is its own server.
    pub servers: Names,
    /// Names of the relay nodes; none, unless clients reach servers through one.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub relays: Names,
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
        [&self.relays, &self.servers, &self.clients]
            .into_iter()
            .flat_map(|names| names.iter())
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
    /// More cells than [`CELLS_MAX`].
    #[error(
        "too much to run: {0} cells with the raw baseline and those to skip, but a run has at most {CELLS_MAX}: shorten the lists \
         of matrix or workload"
    )]
    TooManyCells(u64),
    /// More nodes than [`NODES_MAX`].
    #[error(
        "too much to run: {0} nodes, but a run has at most {NODES_MAX}: lower topology.clients or topology.servers, or name fewer \
         variants in matrix"
    )]
    TooManyNodes(u64),
    /// More trials than [`TRIALS_MAX`].
    #[error(
        "too much to run: {0} trials, but a run has at most {TRIALS_MAX}: lower iterations, or shorten the lists of matrix or \
         workload"
    )]
    TooManyTrials(u64),
    /// More measurements than [`MEASUREMENTS_MAX`].
    #[error(
        "too much to run: {0} measurements, one by each node in each trial, but a run has at most {MEASUREMENTS_MAX}: lower \
         iterations, topology.clients or topology.servers, or shorten the lists of matrix or workload"
    )]
    TooManyMeasurements(u64),
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

/// Makes the plan of a valid document. Refuses one that asks for too much before anything of it is made.
pub fn plan(spec: &PerfRunSpec) -> Result<Plan, Error> {
    let Content {
        networks,
        cells,
        skipped,
    } = content(spec)?;
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

/// The cells of a valid document's plan, without the rest of it.
pub fn cells(spec: &PerfRunSpec) -> Result<Vec<Cell>, Error> {
    content(spec).map(|content| content.cells)
}

/// What a plan is about, without who does it and when.
struct Content {
    networks: Vec<Conditions>,
    cells: Vec<Cell>,
    skipped: Vec<Skipped>,
}

fn content(spec: &PerfRunSpec) -> Result<Content, Error> {
    let loads = loads(&spec.workload, spec.topology.clients);
    if loads.is_empty() {
        return Err(Error::NoWorkload);
    }
    check_plateaus(&loads)?;
    let axes = Axes::of(&spec.matrix);
    let networks = networks(spec, &axes)?;
    Size::of(spec, &axes, &loads).check()?;
    let mut sides = Sides::of(spec);
    let (mut cells, mut skipped) = (vec![], vec![]);
    // Cells of one network are together, so that links change as seldom as can be.
    for network in axes.networks() {
        let mut measured = vec![];
        for point in axes.points(network) {
            for load in &loads {
                let cell = cell(spec, &mut sides, &point, load.clone())?;
                match cell.unsupported() {
                    Some(reason) => skipped.push(Skipped { id: cell.id, reason }),
                    None => measured.push(cell),
                }
            }
        }
        if spec.matrix.raw_baseline {
            measured = with_baseline(spec, &mut sides, measured)?;
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
    let used: HashSet<&str> = cells.iter().map(|cell| cell.network.as_str()).collect();
    let networks = networks.into_iter();
    let networks = networks.filter(|network| used.contains(network.name.as_str()));
    Ok(Content {
        networks: networks.collect(),
        cells,
        skipped,
    })
}

/// All streams of an echo have to be there before it ends: otherwise there is nothing to hold against the nominal rate.
fn check_plateaus(loads: &[Parameters]) -> Result<(), Error> {
    for load in loads {
        if let Parameters::Echo(echo) = load
            && echo.ramp_seconds() >= echo.duration_seconds
        {
            return Err(Error::NoPlateau {
                load: load.to_string(),
                ramp_seconds: echo.ramp_seconds(),
                duration_seconds: echo.duration_seconds,
            });
        }
    }
    Ok(())
}

/// The networks that the matrix names, each once, with their figures.
fn networks(spec: &PerfRunSpec, axes: &Axes<'_>) -> Result<Vec<Conditions>, Error> {
    let names = axes.networks().into_iter();
    names
        .map(|name| {
            let listed = spec.networks.iter().find(|network| network.name == name).cloned();
            let network = listed
                .or_else(|| preset(name))
                .ok_or_else(|| Error::UnknownNetwork(name.to_owned()))?;
            Ok(network.conditions()?)
        })
        .collect()
}

/// Puts the raw baseline of these cells before them: what each does, done without a peer-to-peer stack, once for every
/// kind of transport. What raw cannot do has no baseline; nobody asked for those cells, so they are not skipped either.
fn with_baseline(spec: &PerfRunSpec, sides: &mut Sides<'_>, cells: Vec<Cell>) -> Result<Vec<Cell>, Error> {
    let raw = StackName(Stack::Raw.to_string());
    let mut baseline = vec![];
    let mut ids = BTreeSet::new();
    for measured in &cells {
        let transport = measured.transport.raw();
        let point = Point {
            client: &raw,
            server: &raw,
            transport,
            network: &measured.network,
        };
        let cell = cell(spec, sides, &point, measured.parameters.clone())?;
        if cell.unsupported().is_none() && ids.insert(cell.id.clone()) {
            baseline.push(cell);
        }
    }
    // The matrix may name raw itself.
    let others = cells.into_iter().filter(|cell| !ids.contains(&cell.id));
    Ok(baseline.into_iter().chain(others).collect())
}

fn cell(
    spec: &PerfRunSpec,
    sides: &mut Sides<'_>,
    point: &Point<'_>,
    parameters: Parameters,
) -> Result<Cell, Error> {
    let Point {
        client,
        server,
        transport,
        network,
    } = *point;
    Ok(Cell {
        id: cell_id(&client.0, &server.0, transport, &parameters, network),
        client_stack: stack(spec, client)?,
        server_stack: stack(spec, server)?,
        clients: sides.names(Role::Client, client),
        servers: match transport.is_in_process() {
            // Its clients'.
            true => Names::default(),
            false => sides.names(Role::Server, server),
        },
        // The relay is of the build that serves.
        relays: match parameters.is_relayed() {
            true => sides.names(Role::Relay, server),
            false => Names::default(),
        },
        peers_per_client: match &parameters {
            Parameters::RelayStress { sinks, .. } => sinks / spec.topology.clients.max(1),
            _ => spec.topology.peers_per_client,
        },
        client: client.clone(),
        server: server.clone(),
        transport,
        network: network.to_owned(),
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

/// All nodes of the cells. A cell has all nodes of a side, or none of them.
fn nodes(spec: &PerfRunSpec, cells: &[Cell]) -> Vec<PlannedNode> {
    let mut seen = HashSet::new();
    let mut nodes = vec![];
    let sides = cells.iter().flat_map(|cell| {
        [
            (Role::Relay, &cell.server, &cell.relays),
            (Role::Server, &cell.server, &cell.servers),
            (Role::Client, &cell.client, &cell.clients),
        ]
    });
    for (role, stack, names) in sides {
        let (role, variant) = side(spec, role, stack);
        if !names.is_empty() && seen.insert((role, variant)) {
            nodes.extend(names.iter().map(|name| PlannedNode {
                name: name.clone(),
                role,
                variant: variant.map(str::to_owned),
            }));
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
