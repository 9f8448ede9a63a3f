//! What the driver of a trial takes down, and reads from that.

use std::{collections::BTreeMap, ops::Range};

use perfrun_contract::node::{Reason, TrialState};
use tokio::time::Instant;

use super::{Driver, Halt, Leftover};
use crate::{
    client::{Error, Prepared},
    clock::{ClockReading, Offset},
    progress::{Event, fraction},
};

impl Driver<'_> {
    /// Places of the clients in the list.
    pub(super) fn clients(&self) -> Range<usize> {
        self.parties.len() - self.task.cell.clients.len()..self.parties.len()
    }

    /// How far the clocks of all servers are ahead of a client's, in the order of the servers, with the
    /// uncertainty. `None` if a clock has never been read.
    pub(super) fn server_clocks(&self, client: &str) -> Option<Vec<Offset>> {
        let now = self.clock.nanoseconds();
        let client = &self.nodes[client];
        let servers = self.task.cell.servers.iter().map(|name| &self.nodes[name]);
        servers
            .map(|server| match (&server.info.clock, &client.info.clock) {
                (Some(server), Some(client)) if server == client => Some(Offset::default()),
                _ => Some(server.clock.offset(now)?.since(client.clock.offset(now)?)),
            })
            .collect()
    }

    /// The largest uncertainty between the clocks of a server and a client, in seconds. `None` if a clock
    /// has never been read.
    pub(super) fn clock_uncertainty(&self) -> Option<f64> {
        let mut most = 0;
        for client in self.task.cell.clients.iter() {
            let offsets = self.server_clocks(client)?;
            most = offsets
                .iter()
                .map(|offset| offset.uncertainty)
                .fold(most, i64::max);
        }
        Some(most as f64 / 1e9)
    }

    /// The clients' clocks as they stand now.
    pub(super) fn offsets(&self) -> BTreeMap<String, Offset> {
        let now = self.clock.nanoseconds();
        let of = |name: &String| Some((name.clone(), self.nodes[name].clock.offset(now)?));
        self.task.cell.clients.iter().filter_map(of).collect()
    }

    /// Nodes that still have to forget the trial.
    pub(super) fn leftover(&self) -> Leftover {
        let asked = self
            .parties
            .iter()
            .filter(|party| party.asked && !self.seen.lost.contains(&party.name));
        let nodes = asked
            .map(|party| (party.name.clone(), party.node.clone()))
            .collect();
        Leftover {
            id: self.id.clone(),
            nodes,
        }
    }

    /// Whether the trial can still go well.
    pub(super) fn go_on(&self) -> Result<(), Halt> {
        if self.seen.failures.is_empty() {
            Ok(())
        } else {
            Err(Halt::Failed)
        }
    }

    pub(super) fn note_clocks(&mut self, asked: Vec<(usize, Result<Vec<ClockReading>, Error>)>) {
        for (i, answer) in asked {
            match answer {
                Ok(trips) => {
                    if let Some(node) = self.nodes.get_mut(&self.parties[i].name) {
                        trips.into_iter().for_each(|trip| node.clock.add(trip));
                    }
                }
                Err(error) => self.trouble(i, &error),
            }
        }
    }

    pub(super) fn note_prepared(
        &mut self,
        prepared: Vec<(usize, Result<Prepared, Error>)>,
    ) -> Result<(), Halt> {
        for (i, answer) in prepared {
            match answer {
                Ok(_) => self.parties[i].asked = true,
                Err(error) => self.trouble(i, &error),
            }
        }
        self.go_on()
    }

    /// Takes the outcome out of the last status, if there is one.
    pub(super) fn note_outcome(&mut self, i: usize) {
        let party = &mut self.parties[i];
        let Some(status) = party
            .status
            .as_mut()
            .filter(|status| status.state == TrialState::Finished)
        else {
            return;
        };
        party.over = true;
        match status.outcome.take() {
            Some(outcome) => self.seen.ended(&party.name, party.role, outcome),
            None => {
                let message = format!("{} finished without an outcome", party.name);
                self.seen.failed(Some(&party.name), Reason::Internal, message);
            }
        }
    }

    /// A call failed: the node is lost, or will not.
    pub(super) fn trouble(&mut self, i: usize, error: &Error) {
        let party = &mut self.parties[i];
        if std::mem::replace(&mut party.over, true) {
            return;
        }
        match error {
            Error::Unreachable(_) => self.seen.lost(&party.name, &error.describe()),
            // It knew both when the run began: something else answers at this address now.
            Error::NotFound => self
                .seen
                .lost(&party.name, "it was restarted and has forgotten the trial"),
            Error::Unauthorized => self.seen.lost(&party.name, "another node answers in its place"),
            Error::Conflict(_)
            | Error::Busy(_)
            | Error::Refused { .. }
            | Error::TooLong(_)
            | Error::Malformed(_) => {
                let message = format!("{}: {}", party.name, error.describe());
                self.seen.failed(Some(&party.name), Reason::Internal, message);
            }
        }
    }

    /// Nodes should have ended the trial themselves by now.
    pub(super) fn overdue(&mut self) {
        let waiting = self
            .parties
            .iter()
            .rev()
            .find(|party| party.is_open())
            .map(|party| party.name.clone());
        let message = format!("not done after {:?}", self.began.elapsed());
        self.seen.failed(waiting.as_deref(), Reason::Timeout, message);
    }

    pub(super) fn tell_progress(&mut self) {
        let Some(started) = self.started else { return };
        if self.progress_reported.elapsed() < self.task.progress_interval.mul_f64(0.9) {
            return;
        }
        self.progress_reported = Instant::now();
        let clients = self.clients().filter_map(|i| self.parties[i].status.as_ref());
        let bytes = clients
            .map(|status| status.bytes_sent + status.bytes_received)
            .sum();
        let seconds = self
            .progress_reported
            .saturating_duration_since(started)
            .as_secs_f64();
        let fraction = fraction(self.task.cell, bytes, seconds);
        (self.on_event)(Event::TrialProgress {
            trial: self.task.trial,
            bytes,
            fraction,
        });
    }
}
