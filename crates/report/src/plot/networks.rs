//! Networks that differ in delay and loss, as a map for each pair of stacks.

use std::{cmp::Ordering, collections::HashSet, time::Duration};

use perfrun_contract::{
    metric::{Better, Metric},
    network::{NONE, NetworkImpairments},
    plan::{Cell, CellKey},
    units::{self, PERCENT, Unit},
};
use perfrun_link::{Impairment, Loss};

use super::{
    canvas::Plot,
    heat::{HeatMaps, Map, Square},
};
use crate::{
    order::{distinct, grouped},
    path::Path,
    tables::ResultsIndex,
};

/// Networks that differ in nothing else than delay and loss.
struct Grid<'a> {
    /// What they have in common.
    rest: NetworkImpairments,
    networks: Vec<(GridPoint, &'a str)>,
}

/// A point of a grid, on which a network stands: what a round trip takes longer, and the shares of packets
/// that are lost on the way to servers and back.
#[derive(Clone, Copy, PartialEq)]
struct GridPoint {
    delay: Duration,
    loss: [f64; 2],
}

/// The medians on a grid of networks: a map for each pair of stacks, transport, load and metric. `None` if no
/// networks differ both in delay and in loss.
pub(super) fn delay_and_loss(index: &ResultsIndex<'_>) -> Option<Plot> {
    let grids: Vec<Grid<'_>> = Grid::of(&index.plan().networks);
    let maps = grids.iter().flat_map(|grid| grid.maps(index)).collect();
    let is_alike = |grid: &Grid<'_>| {
        grid.networks
            .iter()
            .all(|(point, _)| point.loss[0] == point.loss[1])
    };
    let loss = if grids.iter().all(is_alike) {
        "Loss each way"
    } else {
        "Loss to servers / back"
    };
    let heat = HeatMaps {
        title: format!("{}: medians by delay and loss", index.results.name),
        description: "A map for each pair of stacks, transport and load. A square has the median on the network with this delay \
                      and loss, and below it how good that is, as a share of the network without both, or of the best one in the \
                      map: the darker, the better."
            .to_owned(),
        caption: "Median, and how good that is: as a share of the network without delay and loss, or of the best in the map.".to_owned(),
        x_title: "Delay of a round trip".to_owned(),
        y_title: loss.to_owned(),
        maps,
    };
    (!heat.maps.is_empty()).then(|| heat.plot())
}

impl<'a> Grid<'a> {
    /// All grids with at least two delays and two losses.
    fn of(networks: &'a [NetworkImpairments]) -> Vec<Self> {
        let points = networks.iter().filter_map(|network| {
            let (rest, point) = GridPoint::of(network)?;
            Some((rest, (point, network.name.as_str())))
        });
        let grids = grouped(points).into_iter();
        let mut grids: Vec<Self> = grids.map(|(rest, networks)| Self { rest, networks }).collect();
        grids.retain(|grid| grid.delays().len() > 1 && grid.losses().len() > 1 && grid.networks.len() > 3);
        grids
    }

    fn delays(&self) -> Vec<Duration> {
        let mut delays = distinct(self.networks.iter().map(|(point, _)| point.delay));
        delays.sort_unstable();
        delays
    }

    fn losses(&self) -> Vec<[f64; 2]> {
        let mut losses = distinct(self.networks.iter().map(|(point, _)| point.loss));
        losses.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        losses
    }

    fn maps(&self, index: &ResultsIndex<'_>) -> Vec<Map> {
        let mut seen = HashSet::new();
        let is_here = |cell: &&Cell| self.networks.iter().any(|(_, name)| *name == cell.network);
        let of_grid = index.plan().cells.iter().filter(is_here);
        // One of the cells that differ in the network only.
        let first = of_grid.filter(|cell| seen.insert(beside(cell, NONE)));
        first
            .flat_map(|cell| {
                let metrics = index.headlines(self.cells(index, cell).map(|(_, cell)| cell));
                let several = metrics.len() > 1;
                metrics
                    .into_iter()
                    .filter_map(|metric| self.map(index, cell, metric, several))
                    .collect::<Vec<Map>>()
            })
            .collect()
    }

    /// The cells that differ from this one in the network only, with the points of their networks.
    fn cells<'s>(
        &self,
        index: &ResultsIndex<'s>,
        cell: &Cell,
    ) -> impl Iterator<Item = (GridPoint, &'s Cell)> {
        let networks = self.networks.iter();
        networks
            .filter_map(move |(point, network)| Some((*point, index.cell_called(&beside(cell, network))?)))
    }

    fn map(&self, index: &ResultsIndex<'_>, cell: &Cell, metric: Metric, several: bool) -> Option<Map> {
        let medians: Vec<(GridPoint, f64)> = self
            .cells(index, cell)
            .filter_map(|(point, cell)| Some((point, index.row(cell, metric)?.median)))
            .filter(|(_, median)| median.is_finite())
            .collect();
        let unimpaired = medians.iter().find(|(point, _)| point.is_unimpaired());
        let values = medians.iter().map(|(_, median)| *median);
        let best = match metric.better() {
            Better::Lower => values.reduce(f64::min)?,
            Better::Higher | Better::Neither => values.reduce(f64::max)?,
        };
        let whole = unimpaired.map_or(best, |(_, median)| *median);
        let share = |median: f64| match metric.better() {
            Better::Lower => whole / median,
            Better::Higher | Better::Neither => median / whole,
        };
        let square = |delay: Duration, loss: [f64; 2]| {
            let (_, median) = medians
                .iter()
                .find(|(point, _)| *point == GridPoint { delay, loss })?;
            Some(Square {
                value: units::text(metric.unit(), *median),
                share: share(*median),
            })
        };
        let delays = self.delays();
        let row = |loss: [f64; 2]| {
            let squares = delays.iter().map(|delay| square(*delay, loss));
            (share_lost(loss), squares.collect())
        };
        let also = [
            several.then(|| metric.to_string()),
            Some(self.rest.to_string()).filter(|rest| rest != NONE),
        ];
        let also: String = also.iter().flatten().map(|text| format!(", {text}")).collect();
        let path = Path {
            network: NONE,
            ..Path::of(cell)
        };
        Some(Map {
            title: format!("{}, {path}, {}{also}", cell.stack_pair(), cell.parameters),
            columns: delays
                .iter()
                .map(|delay| units::text(Unit::Seconds, delay.as_secs_f64()))
                .collect(),
            rows: self.losses().into_iter().map(row).collect(),
        })
    }
}

/// The id of the cell that differs from this one in the network only.
fn beside(cell: &Cell, network: &str) -> String {
    let key = CellKey {
        network,
        ..cell.key()
    };
    key.id()
}

/// A share of packets each way, or both where they differ.
fn share_lost(loss: [f64; 2]) -> String {
    // As documents write it: ten digits behind the point are exact.
    let [there, back] = loss.map(|share| format!("{} %", (share / PERCENT.factor * 1e10).round() / 1e10));
    if there == back {
        there
    } else {
        format!("{there} / {back}")
    }
}

impl GridPoint {
    /// The point of a network, and the rest of its impairments. `None` if they do not fit in a grid: losses
    /// that come in bursts are more than a share, and a relay has links of its own.
    fn of(network: &NetworkImpairments) -> Option<(NetworkImpairments, Self)> {
        if network.client_relay.is_some() || network.server_relay.is_some() {
            return None;
        }
        let loss = |direction: &Impairment| match &direction.loss {
            None => Some(0.0),
            Some(Loss::Random { ratio, correlation }) if correlation.is_zero() => Some(ratio.get()),
            Some(_) => None,
        };
        let point = Self {
            delay: network.round_trip(),
            loss: [loss(&network.to_server)?, loss(&network.to_client)?],
        };
        let rest = |direction: &Impairment| Impairment {
            delay: Duration::ZERO,
            loss: None,
            ..direction.clone()
        };
        let rest = NetworkImpairments {
            name: String::new(),
            to_server: rest(&network.to_server),
            to_client: rest(&network.to_client),
            ..network.clone()
        };
        Some((rest, point))
    }

    fn is_unimpaired(self) -> bool {
        self.delay.is_zero() && self.loss == [0.0; 2]
    }
}
