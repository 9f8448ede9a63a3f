//! The least time of trials and of runs: what their loads and networks set.

use std::{fmt, time::Duration};

use perfrun_link::Impairment;

use super::{Cell, Plan};
use crate::{
    matrix::Stack,
    network::NetworkImpairments,
    parameters::Way,
    role::Role::{self, Client, Relay, Server},
    support::dial_round_trips,
    units,
};

/// The least time of a run, and the trials that take it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LeastTime {
    /// The time; zero if nothing is known of it.
    pub time: Duration,
    /// The number of trials that take it.
    pub trials: usize,
    /// Whether the run has no other trials.
    pub are_all: bool,
}

impl LeastTime {
    /// The trials that take the time, e.g. `first 20 trials`.
    pub fn of_trials(&self) -> String {
        let first = if self.are_all { "" } else { "first " };
        let plural = if self.trials == 1 { "" } else { "s" };
        format!("{first}{} trial{plural}", self.trials)
    }
}

impl fmt::Display for LeastTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of minutes, parts of a second say nothing.
        let time = match self.time.as_secs() {
            seconds @ 60.. => Duration::from_secs(seconds),
            _ => self.time,
        };
        write!(f, "takes at least {} ({})", units::time(time), self.of_trials())
    }
}

impl Plan {
    /// The least time that the run takes: the sum of what its trials cannot be shorter than. With interim
    /// checks, only trials up to the first one count, because no other is certain to be needed.
    pub fn least_time(&self) -> LeastTime {
        let first_check = self.judging.interim_checks.first().copied().unwrap_or(u32::MAX);
        let of_cells: Vec<Duration> = self.cells.iter().map(|cell| self.least_time_of(cell)).collect();
        let mut least = LeastTime::default();
        for trial in &self.trials {
            if trial.warmup || trial.iteration < first_check {
                let time = of_cells.get(trial.cell).copied().unwrap_or_default();
                least.time = least.time.saturating_add(time);
                least.trials += 1;
            }
        }
        least.are_all = least.trials == self.trials.len();
        least
    }

    /// The least time that a trial of a cell takes over its network.
    pub fn least_time_of(&self, cell: &Cell) -> Duration {
        cell.parameters.least_time(&self.way(cell))
    }

    fn way(&self, cell: &Cell) -> Way {
        let servers = cell.servers.len().max(1) as u32;
        let dial = match cell.client_stack {
            // It may send data with its dial.
            Stack::External => 0,
            stack => dial_round_trips(stack, cell.transport),
        };
        let unimpaired = Way {
            dial_round_trips: dial,
            peers: cell.peers_per_client,
            peers_on_link: cell.peers_per_client.div_ceil(servers),
            ..Way::default()
        };
        let Some(network) = self.network(&cell.network) else {
            return unimpaired;
        };
        let ways = cell.impairments_of_ways(network);
        let transits = ways.iter().flatten().map(|link| link.shortest_transit());
        let [to_server, to_client] = ways
            .each_ref()
            .map(|links| links.iter().filter_map(|link| link.rate_bits_per_second).min());
        Way {
            round_trip: transits.sum(),
            to_server_bits_per_second: to_server,
            to_client_bits_per_second: to_client,
            ..unimpaired
        }
    }
}

impl Cell {
    /// What happens to packets on the links from a client to its server, and on those back.
    pub fn impairments_of_ways<'a>(&self, network: &'a NetworkImpairments) -> [Vec<&'a Impairment>; 2] {
        let path: &[Role] = match self.relays.is_empty() {
            true => &[Client, Server],
            false => &[Client, Relay, Server],
        };
        let links = || path.iter().zip(&path[1..]);
        let there = links().filter_map(|(near, far)| network.between(*near, *far));
        let back = links().filter_map(|(near, far)| network.between(*far, *near));
        [there.collect(), back.collect()]
    }
}
