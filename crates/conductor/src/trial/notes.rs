//! What the driver of a trial notes, and what it reads from its notes.

use std::{collections::BTreeMap, ops::Range};

use perfrun_contract::node::{Reason, TrialState};
use tokio::time::Instant;

use super::{Driver, Halt, Leftover, party::Answer, report::Report};
use crate::{
    client::{Error, Prepared},
    clock::{ClockReading, Offset},
    progress::{Event, fraction},
};

impl Driver<'_> {
    /// The indices of the clients in `parties`.
    pub(super) fn clients(&self) -> Range<usize> {
        self.parties.len() - self.attempt.cell.clients.len()..self.parties.len()
    }

    /// How far the clocks of all servers are ahead of a client's, in the order of the servers, with the
    /// uncertainty. `None` if a clock has never been read.
    pub(super) fn server_clocks(&self, client: &str) -> Option<Vec<Offset>> {
        let now = self.clock.nanoseconds();
        let client = &self.nodes[client];
        let servers = self.attempt.cell.servers.iter().map(|name| &self.nodes[name]);
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
        for client in self.attempt.cell.clients.iter() {
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
        self.attempt.cell.clients.iter().filter_map(of).collect()
    }

    /// Nodes that still have to forget the trial.
    pub(super) fn leftover(&self) -> Leftover {
        let accepted = self
            .parties
            .iter()
            .filter(|party| party.has_accepted && !self.observations.lost.contains(&party.name));
        let nodes = accepted
            .map(|party| (party.name.clone(), party.node.clone()))
            .collect();
        Leftover {
            id: self.id.clone(),
            nodes,
        }
    }

    /// An error if anything has failed so far.
    pub(super) fn check_failures(&self) -> Result<(), Halt> {
        if self.observations.failures.is_empty() {
            Ok(())
        } else {
            Err(Halt::Failed)
        }
    }

    pub(super) fn note_clocks(&mut self, readings: Vec<Answer<Vec<ClockReading>>>) {
        for (i, answer) in readings {
            match answer {
                Ok(readings) => {
                    if let Some(node) = self.nodes.get_mut(&self.parties[i].name) {
                        readings.into_iter().for_each(|reading| node.clock.add(reading));
                    }
                }
                Err(error) => self.note_failed_call(i, &error),
            }
        }
    }

    pub(super) fn note_prepared(&mut self, prepared: Vec<Answer<Prepared>>) -> Result<(), Halt> {
        for (i, answer) in prepared {
            match answer {
                Ok(_) => self.parties[i].has_accepted = true,
                Err(error) => self.note_failed_call(i, &error),
            }
        }
        self.check_failures()
    }

    /// Notes what a node reports, and the outcome if there is one.
    pub(super) fn note_report(&mut self, i: usize, report: Report) {
        let party = &mut self.parties[i];
        let has_ended = report.status.state == TrialState::Finished;
        party.last_status = Some(report.status);
        if !has_ended {
            return;
        }
        party.has_ended = true;
        match report.outcome {
            Some(outcome) => {
                self.permits.push(report.permit);
                self.merged_samples = self.merged_samples.max(report.merged_samples);
                self.observations.add_outcome(&party.name, party.role, outcome);
                // An earlier session may have started the trial: then nobody knows when it began.
                if self.started.is_some() && self.began.elapsed() < self.attempt.timeout {
                    self.observations.note_time_left();
                }
            }
            None => {
                let message = format!("{} finished without an outcome", party.name);
                self.observations
                    .add_failure(Some(&party.name), Reason::Internal, message);
            }
        }
    }

    /// Notes a failed call: the node is lost, or refused it.
    pub(super) fn note_failed_call(&mut self, i: usize, error: &Error) {
        let party = &mut self.parties[i];
        if std::mem::replace(&mut party.has_ended, true) {
            return;
        }
        match error {
            Error::Unreachable(_) => self.observations.add_lost(&party.name, &error.describe()),
            // The node knew the trial and the token before: another process answers at this address now.
            Error::NotFound => self
                .observations
                .add_lost(&party.name, "it was restarted and has forgotten the trial"),
            Error::Unauthorized => self
                .observations
                .add_lost(&party.name, "another node answers in its place"),
            Error::Conflict(_)
            | Error::Busy(_)
            | Error::Refused { .. }
            | Error::TooLong(_)
            | Error::NoRoom
            | Error::Malformed(_) => {
                let message = format!("{}: {}", party.name, error.describe());
                self.observations
                    .add_failure(Some(&party.name), Reason::Internal, message);
            }
        }
    }

    /// Notes that the trial takes too long: nodes should have ended it by now.
    pub(super) fn note_timeout(&mut self) {
        let waiting = self
            .parties
            .iter()
            .rev()
            .find(|party| party.is_open())
            .map(|party| party.name.clone());
        let message = format!("not done after {:?}", self.began.elapsed());
        self.observations
            .add_failure(waiting.as_deref(), Reason::Timeout, message);
    }

    pub(super) fn report_progress(&mut self) {
        let Some(started) = self.started else { return };
        if self.progress_reported.elapsed() < self.attempt.progress_interval.mul_f64(0.9) {
            return;
        }
        self.progress_reported = Instant::now();
        let clients = self
            .clients()
            .filter_map(|i| self.parties[i].last_status.as_ref());
        let bytes = clients.map(|status| status.bytes).sum();
        let seconds = self
            .progress_reported
            .saturating_duration_since(started)
            .as_secs_f64();
        let fraction = fraction(self.attempt.cell, bytes, seconds);
        (self.on_event)(Event::TrialProgress {
            trial: self.attempt.trial,
            bytes,
            fraction,
        });
    }
}
