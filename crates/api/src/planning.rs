//! From a document to its plan: a pure function, the same for local runs and clusters.

mod bounds;
mod cell_pairs;
mod expectations;
mod feasibility;
mod loads;
mod names;
mod order;
mod points;
mod stacks;
mod support;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    iter,
    time::Duration,
};

use perfrun_contract::{
    capabilities::Capabilities,
    compare::Judging,
    limits::DIAL_TIMEOUT,
    matrix::{StackName, Transport},
    network::NetworkImpairments,
    parameters::Parameters,
    plan::{Cell, CellKey, LeastTime, Names, Order, Plan, PlannedNode, Renew, Skipped},
    quantity::ByteSize,
    role::Role,
    units::{Unit, text, time},
};
use thiserror::Error;

pub(crate) use self::stacks::ResolvedStack;
use self::{
    bounds::Size,
    cell_pairs::{CellPairIds, ComparedPoints, Comparisons},
    expectations::expectations,
    loads::loads,
    names::NodeGroups,
    order::Iterations,
    points::{Axes, Point},
    support::why_skipped,
};
pub use self::{
    bounds::{CELLS_MAX, MEASUREMENTS_MAX, NODES_MAX, TRIALS_MAX},
    feasibility::check,
};
use crate::{
    compare::{Compare, Replaces},
    network::{self, preset},
    spec::PerfRunSpec,
};

/// Why a document has no plan.
#[derive(Debug, Error, PartialEq)]
pub enum Error {
    /// Every cell is skipped.
    #[error(
        "nothing to run: every cell of the matrix is skipped: {}; name other stacks or transports, or another workload",
        reasons(.0)
    )]
    NoRunnableCell(Vec<Skipped>),
    /// The matrix has no cells.
    #[error("nothing to run: matrix.exclude removes every cell")]
    NoCell,
    /// More cells than [`CELLS_MAX`].
    #[error(
        "too many cells: {0}, with the raw reference and skipped cells, but at most {CELLS_MAX} are allowed; \
         shorten the lists of matrix or workload"
    )]
    TooManyCells(u64),
    /// More nodes than [`NODES_MAX`].
    #[error(
        "too many nodes: {0}, but at most {NODES_MAX} are allowed; lower topology.clients or \
         topology.servers, or name fewer variants in matrix"
    )]
    TooManyNodes(u64),
    /// More trials than [`TRIALS_MAX`].
    #[error(
        "too many trials: {0}, but at most {TRIALS_MAX} are allowed; lower iterations, or shorten the lists \
         of matrix or workload"
    )]
    TooManyTrials(u64),
    /// More measurements than [`MEASUREMENTS_MAX`].
    #[error(
        "too many measurements, one by each node in each trial: {0}, but at most {MEASUREMENTS_MAX} are \
         allowed; lower iterations, topology.clients or topology.servers, or shorten the lists of matrix or \
         workload"
    )]
    TooManyMeasurements(u64),
    /// The document names a stack that is neither built in nor listed. Validation refuses such documents.
    #[error("the document names the stack {0}, which is neither built in nor listed in stacks")]
    UnknownStack(StackName),
    /// The matrix names a network that is neither a preset nor listed. Validation refuses such documents.
    #[error("the matrix names the network {0}, which is neither a preset nor listed in networks")]
    UnknownNetwork(String),
    /// A network has figures that contradict each other.
    #[error(transparent)]
    ImpossibleNetwork(#[from] network::ImpossibleNetwork),
    /// An echo would end before all of its streams are open.
    #[error(
        "workload.echo.duration is too short: {load} takes {ramp_seconds} s to start all streams, one after the \
         other, but the duration is {duration_seconds} s"
    )]
    NoPlateau {
        /// The load in short.
        load: String,
        /// Duration of the ramp.
        ramp_seconds: f64,
        /// Duration of the echo, including the ramp.
        duration_seconds: f64,
    },
    /// Parameters that are valid one by one do not go together.
    #[error("nodes refuse the workload: {0}")]
    Parameters(String),
    /// An expectation cannot be judged.
    #[error("expect[{index}] cannot be judged: {problem}")]
    Expectation {
        /// Its place in the document, from 0.
        index: usize,
        /// Why not.
        problem: String,
    },
    /// The matrix has no cell of a baseline.
    #[error(
        "nothing to compare: the matrix has no cell with {baseline} that {candidate} can replace; add \
         {baseline} to {}",
        .replaces.places()
    )]
    NothingToCompare {
        /// The variant that is compared with.
        baseline: StackName,
        /// The variant that is compared.
        candidate: StackName,
        /// Where the candidate takes the place of the baseline.
        replaces: Replaces,
    },
    /// Each cell of a comparison is skipped, for its baseline or for its candidate.
    #[error(
        "nothing to compare: no cell can be measured both with {baseline} and with {candidate} in its place: \
         {}; name transports and workloads that both can do",
        reasons(.skipped)
    )]
    NothingInCommon {
        /// The variant that is compared with.
        baseline: StackName,
        /// The variant that is compared.
        candidate: StackName,
        /// What one of them cannot do.
        skipped: Vec<Skipped>,
    },
    /// No workload is set. Validation refuses such documents.
    #[error("nothing to run: set a workload")]
    NoWorkload,
    /// The trials take longer than the run may.
    #[error(
        "cannot end within timeouts.run, {}: its {} take{} at least {}; raise timeouts.run, or measure less (fewer \
         iterations, shorter durations)",
        time(*.limit),
        .least.of_trials(),
        if .least.trials == 1 { "s" } else { "" },
        time(.least.time)
    )]
    TooLong {
        /// `timeouts.run`.
        limit: Duration,
        /// What the trials take.
        least: LeastTime,
    },
    /// A trial takes longer than it may.
    #[error(
        "cannot end within timeouts.trial{}, {}: a trial of {cell} takes at least {} over network {network}; raise \
         timeouts.trial to more than {}, or measure less (a lower count, smaller sizes)",
        if .duration.is_zero() { "" } else { " and the duration of the workload" },
        time(*.timeout + *.duration),
        time(*.least),
        time(.least.saturating_sub(*.duration))
    )]
    TooSlow {
        /// Id of the cell.
        cell: String,
        /// Name of the network.
        network: String,
        /// What the trial takes.
        least: Duration,
        /// The time of the load, which a trial may take besides `timeouts.trial`.
        duration: Duration,
        /// `timeouts.trial`.
        timeout: Duration,
    },
    /// A load ends before the first answer.
    #[error(
        "workload.{field} is too short: {}, and the load lasts {}",
        time_before_a_value(.network, *.round_trip, *.round_trips),
        text(Unit::Seconds, .duration.as_secs_f64())
    )]
    TooShort {
        /// The field that is too short.
        field: &'static str,
        /// Name of the network.
        network: String,
        /// Its round trip.
        round_trip: Duration,
        /// Round trips that the load must exceed.
        round_trips: u32,
        /// The time of the load.
        duration: Duration,
    },
    /// No line of an echo comes back in time.
    #[error(
        "workload.echo.deadline is too short: a round trip on network {network} takes {} or more, and a line may take {}",
        text(Unit::Seconds, .round_trip.as_secs_f64()),
        text(Unit::Seconds, .deadline.as_secs_f64())
    )]
    DeadlineTooShort {
        /// Name of the network.
        network: String,
        /// Its shortest round trip.
        round_trip: Duration,
        /// `echo.deadline`.
        deadline: Duration,
    },
    /// A relay refuses everything.
    #[error(
        "workload.{workload}.limits.{limit} is 0, so the relay refuses every {refused} and nothing is transferred; raise \
         it, or leave it out"
    )]
    RelayRefusesAll {
        /// The workload.
        workload: &'static str,
        /// The limit that is 0.
        limit: &'static str,
        /// What the relay refuses.
        refused: &'static str,
    },
    /// A relay closes each circuit before the end of its transfer.
    #[error(
        "workload.{workload}.limits.circuitBytes is too small: a circuit ends after {most}, and a transfer of \
         workload.{workload}.{field} has {bytes}, to which connecting adds; raise circuitBytes, or lower {field}"
    )]
    CircuitTooSmall {
        /// The workload.
        workload: &'static str,
        /// The field with the bytes of a transfer.
        field: &'static str,
        /// The bytes that a circuit carries.
        most: ByteSize,
        /// The bytes of a transfer.
        bytes: ByteSize,
    },
    /// Stacks give up before they are connected.
    #[error(
        "network {network} is too far for {stack} over {transport}: a dial needs {} of {}, and stacks give up after {}; \
         lower delay",
        match .round_trips {
            1 => "a round trip".to_owned(),
            more => format!("{more} round trips"),
        },
        time(*.round_trip),
        time(DIAL_TIMEOUT)
    )]
    TooFarToDial {
        /// Name of the network.
        network: String,
        /// The variant that dials.
        stack: StackName,
        /// Over which it dials.
        transport: Transport,
        /// The round trip of the network.
        round_trip: Duration,
        /// Round trips of a dial.
        round_trips: u32,
    },
    /// A network loses or damages everything.
    #[error(
        "network {0} delivers no packet in at least one direction, so nothing connects over it; lower loss, bursts or \
         corrupt"
    )]
    NothingArrives(String),
}

/// Why a load is too short for a network.
fn time_before_a_value(network: &str, round_trip: Duration, round_trips: u32) -> String {
    let time = text(Unit::Seconds, (round_trip * round_trips).as_secs_f64());
    match round_trips {
        1 => format!("a round trip on network {network} takes {time}"),
        _ => format!(
            "a download on network {network} has only its first burst of bytes until {round_trips} round trips are \
             over, which takes {time}"
        ),
    }
}

fn reasons(skipped: &[Skipped]) -> String {
    let distinct: BTreeSet<&str> = skipped.iter().map(|cell| cell.reason.as_str()).collect();
    distinct.into_iter().collect::<Vec<_>>().join("; ")
}

/// The plan of a valid document that can be run to its end, see [`check`].
pub fn plan(spec: &PerfRunSpec) -> Result<Plan, Error> {
    let plan = draft(spec)?;
    check(spec, &plan)?;
    Ok(plan)
}

/// The plan of a valid document, whether or not it can be run to its end. A document that exceeds the bounds
/// is refused before any part of its plan is made. Without a seed, trials are in the order of the document.
pub fn draft(spec: &PerfRunSpec) -> Result<Plan, Error> {
    let Content {
        networks,
        nodes,
        cells,
        skipped,
        cell_pairs,
    } = content(spec)?;
    let cell_pairs = cell_pairs::indexed(&cells, &cell_pairs);
    let iterations = Iterations {
        warmup: spec.warmup,
        iterations: spec.most_iterations(),
        order: spec.order,
        seed: spec.seed,
    };
    Ok(Plan {
        nodes,
        networks: if networks.iter().all(NetworkImpairments::is_none) {
            vec![]
        } else {
            networks
        },
        trials: iterations.trials(&cells, &cell_pairs),
        seed: spec.seed.filter(|_| spec.order == Order::Interleaved),
        renew: spec.renew.unwrap_or(match spec.compare.is_empty() {
            true => Renew::Never,
            false => Renew::Iteration,
        }),
        judging: Judging {
            expect: expectations(spec, &cells, &cell_pairs)?,
            cell_pairs,
            interim_checks: interim_checks(spec),
            target_interval: spec.target_interval.map(|target| target.ratio().get()),
        },
        cells,
        skipped,
        external: external(spec),
    })
}

/// The numbers of iterations after which the run is checked: double each time, up to the largest. Empty if it
/// is checked only at its end.
fn interim_checks(spec: &PerfRunSpec) -> Vec<u32> {
    let Some(most) = spec.max_iterations else {
        return vec![];
    };
    let first = Some(spec.iterations.max(1));
    let doubled = iter::successors(first, |iterations| iterations.checked_mul(2));
    doubled
        .take_while(|iterations| *iterations < most)
        .chain([most])
        .collect()
}

/// The cells of the plan of a valid document.
pub fn cells(spec: &PerfRunSpec) -> Result<Vec<Cell>, Error> {
    content(spec).map(|content| content.cells)
}

/// The part of a plan without trials.
#[derive(Default)]
struct Content {
    networks: Vec<NetworkImpairments>,
    nodes: Vec<PlannedNode>,
    cells: Vec<Cell>,
    skipped: Vec<Skipped>,
    cell_pairs: Vec<CellPairIds>,
}

impl Content {
    /// Adds the cells of a point, and of those that it is compared with.
    fn add<'a>(
        &mut self,
        node_groups: &mut NodeGroups<'a>,
        comparisons: &Comparisons<'a>,
        point: &Point<'a>,
        load: &Parameters,
    ) {
        let baseline = self.add_cell(node_groups, point, load);
        let Some(ComparedPoints { candidate, control }) = comparisons.others(point) else {
            return;
        };
        let candidate = self.add_cell(node_groups, &candidate, load);
        if let Some((baseline, candidate)) = baseline.zip(candidate) {
            let control = control.and_then(|control| self.add_cell(node_groups, &control, load));
            self.cell_pairs.push(CellPairIds {
                baseline,
                candidate,
                control,
            });
        }
    }

    /// Adds the cell of a point, and returns its id. `None` if it is skipped.
    fn add_cell<'a>(
        &mut self,
        node_groups: &mut NodeGroups<'a>,
        point: &Point<'a>,
        load: &Parameters,
    ) -> Option<String> {
        let cell = cell(node_groups, point, load.clone());
        if let Some(reason) = why_skipped(point, &cell) {
            self.skipped.push(Skipped {
                id: cell.id,
                client: Some(cell.client),
                server: Some(cell.server),
                reason,
            });
            return None;
        }
        let id = cell.id.clone();
        self.cells.push(cell);
        Some(id)
    }
}

fn content(spec: &PerfRunSpec) -> Result<Content, Error> {
    let loads = loads(&spec.workload, &spec.topology);
    check_loads(&loads)?;
    let axes = Axes::of(spec)?;
    let networks = networks(spec, &axes)?;
    let comparisons = Comparisons::of(spec)?;
    Size::of(spec, &axes, &comparisons, &loads).check()?;
    let mut node_groups = NodeGroups::of(&spec.topology);
    let mut content = Content::default();
    // Cells of one network follow each other, so that links change as rarely as possible.
    for network in axes.networks() {
        let first = content.cells.len();
        for point in axes.points(network) {
            for load in &loads {
                content.add(&mut node_groups, &comparisons, &point, load);
            }
        }
        if spec.matrix.raw_reference {
            let measured = content.cells.split_off(first);
            let measured = with_raw_reference(&mut node_groups, network, measured);
            content.cells.extend(measured);
        }
    }
    if content.cells.is_empty() {
        return Err(if content.skipped.is_empty() {
            Error::NoCell
        } else {
            Error::NoRunnableCell(content.skipped)
        });
    }
    check_compared(spec, &content)?;
    let is_used =
        |network: &NetworkImpairments| content.cells.iter().any(|cell| cell.network == network.name);
    content.networks = networks.into_iter().filter(is_used).collect();
    content.nodes = node_groups.nodes(&content.cells);
    Ok(content)
}

/// Refuses a comparison without a pair of cells.
fn check_compared(spec: &PerfRunSpec, content: &Content) -> Result<(), Error> {
    let compared: HashSet<&str> = content
        .cell_pairs
        .iter()
        .map(|cell_pair| cell_pair.candidate.as_str())
        .collect();
    for compare in &spec.compare {
        let has_candidate = |cell: &Cell| [&cell.client, &cell.server].contains(&&compare.candidate);
        let is_compared = |cell: &Cell| has_candidate(cell) && compared.contains(cell.id.as_str());
        if !content.cells.iter().any(is_compared) {
            return Err(incomparable(compare, &content.skipped));
        }
    }
    Ok(())
}

/// Why nothing is compared with a baseline.
fn incomparable(compare: &Compare, skipped: &[Skipped]) -> Error {
    let Compare {
        baseline, candidate, ..
    } = compare;
    let is_either = |stack: &Option<StackName>| [baseline, candidate].map(Some).contains(&stack.as_ref());
    let of_either = |cell: &&Skipped| {
        (compare.replaces.has_client() && is_either(&cell.client))
            || (compare.replaces.has_server() && is_either(&cell.server))
    };
    let skipped: Vec<Skipped> = skipped.iter().filter(of_either).cloned().collect();
    let (baseline, candidate) = (baseline.clone(), candidate.clone());
    if skipped.is_empty() {
        return Error::NothingToCompare {
            baseline,
            candidate,
            replaces: compare.replaces,
        };
    }
    Error::NothingInCommon {
        baseline,
        candidate,
        skipped,
    }
}

/// Refuses loads that nodes would refuse, or that measure nothing.
fn check_loads(loads: &[Parameters]) -> Result<(), Error> {
    if loads.is_empty() {
        return Err(Error::NoWorkload);
    }
    check_plateaus(loads)?;
    loads
        .iter()
        .try_for_each(|load| load.check().map_err(Error::Parameters))
}

/// Checks that all streams of an echo are open before it ends. Without a plateau, nothing could be
/// compared with the nominal rate.
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

/// The networks that the matrix names, each once.
fn networks(spec: &PerfRunSpec, axes: &Axes<'_>) -> Result<Vec<NetworkImpairments>, Error> {
    let names = axes.networks().into_iter();
    names
        .map(|name| {
            let listed = spec.networks.iter().find(|network| network.name == name).cloned();
            let network = listed
                .or_else(|| preset(name))
                .ok_or_else(|| Error::UnknownNetwork(name.to_owned()))?;
            Ok(network.impairments()?)
        })
        .collect()
}

/// Puts the raw reference of some cells before them: their workloads without a peer-to-peer stack, once for
/// each kind of transport. Cells that raw does not support are left out, not skipped: no document requests
/// them.
fn with_raw_reference<'a>(node_groups: &mut NodeGroups<'a>, network: &'a str, cells: Vec<Cell>) -> Vec<Cell> {
    let mut references = vec![];
    let mut ids = BTreeSet::new();
    for measured in &cells {
        let point = Point::raw(measured.transport.raw(), network, measured.ip_family);
        let cell = cell(node_groups, &point, measured.parameters.clone());
        if why_skipped(&point, &cell).is_none() && ids.insert(cell.id.clone()) {
            references.push(cell);
        }
    }
    // The matrix may name raw as well.
    let others = cells.into_iter().filter(|cell| !ids.contains(&cell.id));
    references.into_iter().chain(others).collect()
}

fn cell<'a>(node_groups: &mut NodeGroups<'a>, point: &Point<'a>, parameters: Parameters) -> Cell {
    let Point {
        client,
        server,
        transport,
        network,
        ip_family,
        ..
    } = *point;
    let topology = node_groups.topology;
    let [client_name, server_name] = [client, server].map(|stack| stack.name());
    let is_of_document = topology.relay.is_some() && parameters.is_relayed();
    let relay = is_of_document.then(|| point.relay());
    Cell {
        id: CellKey {
            client: &client_name.0,
            server: &server_name.0,
            transport,
            parameters: &parameters,
            network,
            ip_family,
        }
        .id(),
        client_stack: client.stack,
        server_stack: server.stack,
        client_settings: client.settings(),
        server_settings: server.settings(),
        clients: node_groups.names(Role::Client, client, ip_family),
        servers: match parameters.is_in_process_on(transport) {
            // Client nodes are their own servers.
            true => Names::default(),
            false => node_groups.names(Role::Server, server, ip_family),
        },
        relays: match parameters.is_relayed() {
            true => node_groups.names(Role::Relay, point.relay(), ip_family),
            false => Names::default(),
        },
        relay_stack: relay.map(|relay| relay.stack),
        relay_settings: relay.map(|relay| relay.settings()).unwrap_or_default(),
        peers_per_client: match parameters.sinks_and_sources() {
            Some((sinks, _)) => sinks / topology.clients.max(1),
            None => topology.peers_per_client,
        },
        client: client_name,
        server: server_name,
        transport,
        network: network.to_owned(),
        ip_family,
        parameters,
    }
}

/// What the document says that external stacks can do.
fn external(spec: &PerfRunSpec) -> BTreeMap<String, Capabilities> {
    let stacks = spec.stacks.iter();
    stacks
        .filter_map(|stack| Some((stack.name.clone(), stack.capabilities.clone()?)))
        .collect()
}
