//! Bounds of a plan.
//!
//! Any user can write documents for an operator that all namespaces share. So the size of a plan is counted
//! before any part of it is made: the cost of refusing a document does not depend on the size that it
//! requests.

use std::collections::{HashMap, HashSet};

use perfrun_contract::{matrix::Transport, parameters::Parameters, role::Role};
use strum::IntoEnumIterator;

use crate::{
    planning::{
        Error,
        cell_pairs::{ComparedPoints, Comparisons},
        names::{self, NodeGroup},
        points::{Axes, Point},
        stacks::ResolvedStack,
    },
    spec::PerfRunSpec,
};

/// Most cells of a run, including skipped cells and the raw reference. Nobody reads a larger table, and
/// results hold each cell.
pub const CELLS_MAX: u64 = 4096;

/// Most nodes of a run. Each is a process or a pod.
pub const NODES_MAX: u64 = 512;

/// Most trials of a run. More would take days.
pub const TRIALS_MAX: u64 = 100_000;

/// Most measurements of a run: each node measures each of its trials. Without samples, each takes about 1 KiB
/// in results.json and in memory, and a quarter of that in ConfigMaps: 0.5 GiB and 0.125 GiB in total.
pub const MEASUREMENTS_MAX: u64 = 500_000;

/// The size of the plan that a document requests, including cells that will be skipped.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Size {
    cells: u64,
    nodes: u64,
    trials: u64,
    measurements: u64,
}

impl Size {
    /// Counts in a time that depends only on the length of the document.
    pub(super) fn of<'a>(
        spec: &'a PerfRunSpec,
        axes: &Axes<'a>,
        comparisons: &Comparisons<'a>,
        loads: &[Parameters],
    ) -> Self {
        let relayed = loads.iter().filter(|load| load.is_relayed()).count() as u64;
        // In one process, client nodes are their own servers.
        let served = |transport| {
            let served = loads.iter().filter(|load| !load.is_in_process_on(transport));
            (transport, served.count() as u64)
        };
        let served: HashMap<Transport, u64> = Transport::iter().map(served).collect();
        let (mut cells, mut measurements) = (0_u64, 0_u64);
        let mut node_groups = HashSet::new();
        let mut add = |point: &Point<'a>| {
            let mut measured_by = |role, stack: ResolvedStack<'a>, loads: u64| {
                if loads > 0 {
                    node_groups.insert(NodeGroup::of(stack, role, point.ip_family));
                }
                loads * u64::from(names::count(&spec.topology, role))
            };
            cells += loads.len() as u64;
            measurements += measured_by(Role::Client, point.client, loads.len() as u64)
                + measured_by(Role::Server, point.server, served[&point.transport])
                + measured_by(Role::Relay, point.relay(), relayed);
        };
        for network in axes.networks() {
            let (mut references, mut named) = (HashSet::new(), HashSet::new());
            for point in axes.points(network) {
                add(&point);
                if let Some(ComparedPoints { candidate, control }) = comparisons.others(&point) {
                    add(&candidate);
                    control.iter().for_each(&mut add);
                }
                if [point.client, point.server] == [ResolvedStack::RAW; 2] {
                    named.insert((point.transport, point.ip_family));
                }
                references.insert((point.transport.raw(), point.ip_family));
            }
            let needed = references
                .difference(&named)
                .filter(|(transport, _)| spec.matrix.raw_reference && !transport.is_in_process());
            needed.for_each(|(transport, ip_family)| {
                add(&Point::raw(*transport, network, *ip_family));
            });
        }
        let iterations = u64::from(spec.warmup) + u64::from(spec.most_iterations());
        let nodes = node_groups
            .into_iter()
            .map(|node_group| names::count(&spec.topology, node_group.role));
        Self {
            cells,
            nodes: nodes.map(u64::from).sum(),
            trials: cells.saturating_mul(iterations),
            measurements: measurements.saturating_mul(iterations),
        }
    }

    /// Refuses a plan that exceeds a bound.
    pub(super) fn check(&self) -> Result<(), Error> {
        let Self {
            cells,
            nodes,
            trials,
            measurements,
        } = *self;
        if cells > CELLS_MAX {
            Err(Error::TooManyCells(cells))
        } else if nodes > NODES_MAX {
            Err(Error::TooManyNodes(nodes))
        } else if trials > TRIALS_MAX {
            Err(Error::TooManyTrials(trials))
        } else if measurements > MEASUREMENTS_MAX {
            Err(Error::TooManyMeasurements(measurements))
        } else {
            Ok(())
        }
    }
}
