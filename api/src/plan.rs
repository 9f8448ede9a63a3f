//! From a document to what is run: a pure function, the same for local runs and clusters.

mod parameters;
mod support;

use std::{collections::BTreeSet, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::parameters::{Amount, Parameters};
use self::support::unsupported;
use crate::{
    matrix::{Stack, Transport},
    spec::{Combination, Matrix, Order, PerfRunSpec, Selector, StackName},
    workload::Workload,
};

/// A plan with more trials than this would hardly end, and its results would not fit into memory.
pub const TRIALS_MAX: u64 = 100_000;

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
        if self.is_raw() && self.client == self.server {
            self.client.to_string()
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
    let combinations = combinations(&spec.matrix);
    let rounds = u64::from(spec.warmup) + u64::from(spec.iterations);
    let size = combinations.len() as u64 * parameters.len() as u64 * rounds;
    if size > TRIALS_MAX {
        return Err(Error::TooManyTrials(size));
    }
    let (mut cells, mut skipped) = (vec![], vec![]);
    for combination in &combinations {
        for parameters in &parameters {
            let cell = cell(spec, combination, parameters.clone())?;
            match unsupported(&cell) {
                Some(reason) => skipped.push(Skipped { id: cell.id, reason }),
                None => cells.push(cell),
            }
        }
    }
    if cells.is_empty() {
        return Err(if skipped.is_empty() {
            Error::NoCell
        } else {
            Error::NoRunnableCell(skipped)
        });
    }
    if spec.matrix.raw_baseline {
        cells = with_baseline(spec, cells)?;
    }
    Ok(Plan {
        nodes: nodes(spec, &cells),
        trials: trials(spec, cells.len()),
        cells,
        skipped,
    })
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
    distinct(all)
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

/// The pairs and transports that the matrix names, each once.
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
    let chosen = crossed.filter(|c| !matrix.exclude.iter().any(|selector| matches(selector, c)));
    distinct(chosen.chain(matrix.include.iter().cloned()).collect())
}

/// Puts the raw baseline of these cells before them: what each does, done without a peer-to-peer stack, once for every
/// kind of transport. What raw cannot do has no baseline; nobody asked for those cells, so they are not skipped either.
fn with_baseline(spec: &PerfRunSpec, cells: Vec<Cell>) -> Result<Vec<Cell>, Error> {
    let raw = || StackName(Stack::Raw.to_string());
    let mut baseline = vec![];
    let mut ids = BTreeSet::new();
    for measured in &cells {
        let transport = measured.transport.raw();
        let combination = Combination {
            client: raw(),
            server: raw(),
            transport,
        };
        let cell = cell(spec, &combination, measured.parameters.clone())?;
        if unsupported(&cell).is_none() && ids.insert(cell.id.clone()) {
            baseline.push(cell);
        }
    }
    // The matrix may name raw itself.
    let others = cells.into_iter().filter(|cell| !ids.contains(&cell.id));
    Ok(baseline.into_iter().chain(others).collect())
}

fn matches(selector: &Selector, combination: &Combination) -> bool {
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

fn cell(spec: &PerfRunSpec, combination: &Combination, parameters: Parameters) -> Result<Cell, Error> {
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
    Ok(Cell {
        id: format!("{client}.{server}.{transport}.{parameters}"),
        client_stack: stack(spec, client)?,
        server_stack: stack(spec, server)?,
        clients: names(Role::Client, spec.topology.clients, client),
        servers: names(Role::Server, spec.topology.servers, server),
        peers_per_client: spec.topology.peers_per_client,
        client: client.clone(),
        server: server.clone(),
        transport: *transport,
        parameters,
    })
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
