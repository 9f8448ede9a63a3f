//! One trial: the order of calls, and what is done when one of them fails.
//!
//! Waiting is by long polls, and can be interrupted at any time. Calls that begin something are always waited
//! for: one that is given up half-way could reach its node after the one that cancels it.

mod decide;
mod notes;
mod party;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use perfrun_contract::{
    node::{Reason, Side, Start, TrialState},
    record::TrialRecord,
    role::Role,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::{
    decide::{ResumeDecision, decide_known_trial, lead, servers_for},
    party::{Answer, Party},
};
use crate::{
    attempt::{Attempt, Node},
    client::{Error, NodeClient, OutcomePermit, Prepared},
    clock::LocalClock,
    links::LinksNotReady,
    progress::OnEvent,
    record::{Facts, Observations, record, window_limit},
};

/// Nodes end a trial that takes too long. The conductor ends it after this much more time.
const GRACE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often each client's clock is read with every trial: enough to keep up with drift, too few to cost a
/// millisecond.
const CLOCK_READINGS: usize = 2;

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum AttemptEnd {
    /// There is a record. The nodes keep what they know until [`Leftover::forget`].
    Recorded {
        record: Box<TrialRecord>,
        lost: BTreeSet<String>,
        leftover: Leftover,
        /// What the record takes until it is dropped.
        permits: Vec<OutcomePermit>,
    },
    /// It was stopped on request, and nothing is left of it.
    Interrupted,
}

/// What the nodes of a trial still know of it.
#[derive(Debug)]
pub(crate) struct Leftover {
    id: Arc<str>,
    nodes: Vec<(String, NodeClient)>,
}

impl Leftover {
    /// Makes the nodes forget the trial.
    pub(crate) async fn forget(self) {
        let id = &self.id;
        join_all(self.nodes.iter().map(|(name, node)| async move {
            if let Err(error) = node.delete(id).await {
                tracing::debug!(node = name, error = error.describe(), "the node keeps the trial");
            }
        }))
        .await;
    }
}

/// Runs one attempt.
pub(crate) async fn run(
    attempt: Attempt<'_>,
    nodes: &mut BTreeMap<String, Node>,
    clock: LocalClock,
    on_event: &OnEvent<'_>,
    stop: &CancellationToken,
) -> AttemptEnd {
    let span = tracing::debug_span!("trial", id = attempt.id());
    let now = Instant::now();
    let driver = Driver {
        id: attempt.id().into(),
        began: now,
        parties: party::parties(attempt.cell, nodes),
        nodes,
        clock,
        observations: Observations::default(),
        permits: vec![],
        merged_samples: None,
        requested_starts: BTreeMap::new(),
        started: None,
        on_event,
        progress_reported: now,
        stop,
        attempt,
    };
    driver.run().instrument(span).await
}

/// The record of a trial that could not be begun.
pub(crate) fn not_run(attempt: &Attempt<'_>, not_ready: LinksNotReady) -> AttemptEnd {
    let LinksNotReady { failure, check, lost } = not_ready;
    let record = TrialRecord {
        links: check.map(|check| *check),
        ..record(Facts::without_nodes(attempt, failure))
    };
    AttemptEnd::Recorded {
        record: Box::new(record),
        lost,
        leftover: Leftover {
            id: attempt.id().into(),
            nodes: vec![],
        },
        permits: vec![],
    }
}

/// What nodes know of an attempt, from an earlier session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum KnownState {
    /// Nothing.
    Nothing,
    /// It is in progress, at least on some of them.
    Begun,
    /// It has ended at all of them.
    Ended,
}

/// Asks nodes what they know of this attempt.
pub(crate) async fn known_state(attempt: &Attempt<'_>, nodes: &BTreeMap<String, Node>) -> KnownState {
    let id = &attempt.id();
    let states = party::parties(attempt.cell, nodes)
        .into_iter()
        .map(|party| async move { party.node.status(id).await.ok().map(|status| status.state) });
    let states = join_all(states).await;
    if states.iter().all(|state| *state == Some(TrialState::Finished)) {
        KnownState::Ended
    } else if states.iter().any(Option::is_some) {
        KnownState::Begun
    } else {
        KnownState::Nothing
    }
}

/// Makes nodes forget this attempt, wherever it is in progress.
pub(crate) async fn forget(attempt: &Attempt<'_>, nodes: &BTreeMap<String, Node>) {
    party::forget_all(&party::parties(attempt.cell, nodes), &attempt.id()).await;
}

/// Whether nodes know the trial with another request: an earlier session prepared them for nodes that were
/// lost since.
fn is_outdated(prepared: &[Answer<Prepared>]) -> bool {
    let is_conflict = |(_, answer): &Answer<Prepared>| matches!(answer, Err(Error::Conflict(_)));
    prepared.iter().any(is_conflict)
}

/// Why a trial was not run to its end.
enum Halt {
    /// Something failed, and was noted.
    Failed,
    Interrupted,
}

struct Driver<'a> {
    attempt: Attempt<'a>,
    id: Arc<str>,
    began: Instant,
    /// Relays first, then servers, then clients, each in the order of the cell.
    parties: Vec<Party>,
    nodes: &'a mut BTreeMap<String, Node>,
    clock: LocalClock,
    observations: Observations,
    /// What the outcomes in `observations` take.
    permits: Vec<OutcomePermit>,
    merged_samples: Option<u32>,
    requested_starts: BTreeMap<String, u64>,
    started: Option<Instant>,
    on_event: &'a OnEvent<'a>,
    progress_reported: Instant,
    stop: &'a CancellationToken,
}

impl Driver<'_> {
    async fn run(mut self) -> AttemptEnd {
        if let Err(halt) = self.drive().await {
            self.end_all().instrument(tracing::debug_span!("end")).await;
            if matches!(halt, Halt::Interrupted) || self.stop.is_cancelled() {
                self.leftover().forget().await;
                return AttemptEnd::Interrupted;
            }
        }
        let offsets = self.offsets();
        let server_clock_uncertainty = match self.attempt.cell.parameters.is_stamped() {
            true => self.clock_uncertainty(),
            false => None,
        };
        let leftover = self.leftover();
        let facts = Facts {
            trial: self.attempt.trial,
            cell: self.attempt.cell,
            attempt: self.attempt.number,
            after_loss: self.attempt.after_loss,
            session: self.attempt.session,
            requested_starts: self.requested_starts,
            offsets,
            server_clock_uncertainty,
            debug_build: self
                .parties
                .iter()
                .any(|party| self.nodes[&party.name].info.profile == "debug"),
            window_limit: window_limit(
                self.parties
                    .iter()
                    .filter_map(|party| self.nodes[&party.name].info.tcp_window_limits_bytes),
                self.attempt.round_trip,
            )
            .filter(|limit| self.attempt.rate.is_none_or(|rate| *limit < rate)),
            at: self.attempt.at,
            took: self.began.elapsed(),
            observations: self.observations,
        };
        let lost = facts.observations.lost.clone();
        let record = TrialRecord {
            merged_samples: self.merged_samples,
            ..record(facts)
        };
        AttemptEnd::Recorded {
            record: Box::new(record),
            lost,
            leftover,
            permits: self.permits,
        }
    }

    /// The steps of a trial without failures.
    async fn drive(&mut self) -> Result<(), Halt> {
        match self
            .prepare_listeners()
            .instrument(tracing::debug_span!("servers"))
            .await?
        {
            ResumeDecision::StartOver => {
                self.prepare_clients()
                    .instrument(tracing::debug_span!("clients"))
                    .await?;
                self.start_clients()
                    .instrument(tracing::debug_span!("barrier"))
                    .await?;
            }
            ResumeDecision::TakeOver => tracing::debug!("an earlier session started this trial"),
        }
        self.watch(TrialState::Running)
            .instrument(tracing::debug_span!("workload"))
            .await
    }

    /// Relays listen, then servers, perhaps behind a relay. In the meantime the clocks of clients are read.
    async fn prepare_listeners(&mut self) -> Result<ResumeDecision, Halt> {
        // The nodes that are prepared first show what an earlier session has left.
        let cell = self.attempt.cell;
        let (first, side, then) = if cell.is_in_process() {
            let peers = cell.peers_per_client;
            (Role::Client, Side::Both { peers }, None)
        } else if cell.relays.is_empty() {
            (Role::Server, Side::Server, None)
        } else {
            (Role::Relay, Side::Relay, Some(Role::Server))
        };
        let (prepared, ()) = {
            let prepare = self.request_listeners(first, &side);
            // The clocks of servers matter only for one-way times.
            let roles: &[Role] = match cell.parameters.is_stamped() {
                true => &[Role::Client, Role::Server],
                false => &[Role::Client],
            };
            let read = party::read_clocks(&self.parties, roles, self.clock, CLOCK_READINGS);
            let (prepared, readings) = futures::join!(prepare, read);
            (prepared, self.note_clocks(readings))
        };
        let known = |answer: &Result<Prepared, Error>| {
            matches!(answer, Ok(Prepared::Known) | Err(Error::Conflict(_)))
        };
        if prepared.iter().any(|(_, answer)| known(answer)) {
            if self.examine_known_trial().await == ResumeDecision::TakeOver {
                return Ok(ResumeDecision::TakeOver);
            }
            party::forget_all(&self.parties, &self.id).await;
            let again = self.request_listeners(first, &side).await;
            self.note_prepared(again)?;
        } else {
            self.note_prepared(prepared)?;
        }
        self.watch(TrialState::Preparing).await?;
        if let Some(then) = then {
            let relays = self.addresses(first)?;
            let side = Side::Source {
                relay: relays.into_iter().next().unwrap_or_default(),
                peers: self.attempt.cell.sources_per_server(),
            };
            let mut prepared = self.request_listeners(then, &side).await;
            if is_outdated(&prepared) {
                let behind = &self.parties[self.attempt.cell.relays.len()..];
                party::forget_all(behind, &self.id).await;
                prepared = self.request_listeners(then, &side).await;
            }
            self.note_prepared(prepared)?;
            self.watch(TrialState::Preparing).await?;
        }
        Ok(ResumeDecision::StartOver)
    }

    async fn request_listeners(&self, role: Role, side: &Side) -> Vec<Answer<Prepared>> {
        let request = || party::prepare_listeners(&self.parties, role, side, &self.id, &self.attempt);
        let prepared = request().await;
        if self.end_abandoned_trials(&prepared).await {
            request().await
        } else {
            prepared
        }
    }

    /// The addresses that the nodes of a role reported: one of each peer. Of a stress test's sources a relay
    /// may have refused some, but not all.
    fn addresses(&mut self, role: Role) -> Result<Vec<String>, Halt> {
        let may_be_refused = role == Role::Server && self.attempt.cell.parameters.may_be_cut_off();
        let peers = party::dialled_address_count(self.attempt.cell, role);
        let mut all = vec![];
        for party in self.parties.iter_mut().filter(|party| party.role == role) {
            party.limits.dialled = 0;
            let addresses = party
                .last_status
                .as_mut()
                .map(|status| std::mem::take(&mut status.addresses));
            let addresses = addresses.unwrap_or_default();
            if addresses.len() < peers && !may_be_refused {
                let message = format!(
                    "{} is ready, but names {} addresses of {peers}",
                    party.name,
                    addresses.len()
                );
                self.observations
                    .add_failure(Some(&party.name), Reason::Internal, message);
                return Err(Halt::Failed);
            }
            all.extend(addresses);
        }
        if all.is_empty() {
            let message = "the relay refused every source a reservation".to_owned();
            self.observations.add_failure(None, Reason::Refused, message);
            return Err(Halt::Failed);
        }
        Ok(all)
    }

    /// Ends trials of this run that keep nodes busy: a session before this one began them, and lost a node
    /// with what it knew of the trials between. Returns whether there were any.
    async fn end_abandoned_trials(&self, prepared: &[Answer<Prepared>]) -> bool {
        let abandoned: BTreeSet<&str> = prepared
            .iter()
            .filter_map(|(_, answer)| match answer {
                Err(Error::Busy(trial)) if self.attempt.is_of_same_run(trial) => Some(trial.as_str()),
                _ => None,
            })
            .collect();
        for trial in &abandoned {
            tracing::debug!(trial, "an earlier session left this trial running");
            party::forget_all(&self.parties, trial).await;
        }
        !abandoned.is_empty()
    }

    /// What the nodes know of this trial from an earlier session.
    async fn examine_known_trial(&mut self) -> ResumeDecision {
        let reports = join_all(self.parties.iter().map(|party| party.status(&self.id))).await;
        let reports: Vec<_> = reports.into_iter().map(Result::ok).collect();
        let (listeners, clients) = reports.split_at(self.clients().start);
        let found = decide_known_trial(listeners, clients);
        if found == ResumeDecision::TakeOver {
            for (i, report) in reports.into_iter().enumerate() {
                self.parties[i].has_accepted = true;
                if let Some(report) = report {
                    self.note_report(i, report);
                }
            }
        }
        found
    }

    /// Clients are given the servers' addresses, and set themselves up.
    async fn prepare_clients(&mut self) -> Result<(), Halt> {
        if self.attempt.cell.is_in_process() {
            // They are their own servers, and ready.
            return Ok(());
        }
        let addresses = self.addresses(Role::Server)?;
        let peers = self.attempt.cell.peers_per_client;
        let most = match self.attempt.cell.parameters.sinks_and_sources() {
            // Each sink dials one source.
            Some(_) => peers as usize,
            // Hosts of handshakes are more than the peers, and messages go to all servers.
            None => usize::MAX,
        };
        let servers_of = |client: usize| {
            let clocks = match self.attempt.cell.parameters.is_stamped() {
                true => self.server_clocks(&self.attempt.cell.clients[client]),
                false => None,
            };
            let clocks = clocks.unwrap_or_default();
            let clocks: Vec<i64> = clocks.iter().map(|offset| offset.nanoseconds).collect();
            (
                servers_for(client, peers, most, &addresses),
                servers_for(client, peers, most, &clocks),
            )
        };
        let prepare = || party::prepare_clients(&self.parties, &self.id, &self.attempt, servers_of);
        let mut prepared = prepare().await;
        let is_outdated = is_outdated(&prepared);
        if is_outdated {
            party::forget_all(&self.parties[self.clients()], &self.id).await;
        }
        if self.end_abandoned_trials(&prepared).await || is_outdated {
            prepared = prepare().await;
        }
        self.note_prepared(prepared)?;
        self.watch(TrialState::Preparing).await
    }

    /// All clients receive the same moment to start, each in its own clock.
    async fn start_clients(&mut self) -> Result<(), Halt> {
        let offsets = self.offsets();
        let clients: Vec<usize> = self.clients().collect();
        let round_trips = clients
            .iter()
            .filter_map(|&i| self.nodes[&self.parties[i].name].clock.round_trip());
        let worst = Duration::from_nanos(
            round_trips
                .max()
                .and_then(|ns| u64::try_from(ns).ok())
                .unwrap_or(0),
        );
        let lead = lead(clients.len(), worst);
        self.started = Some(Instant::now() + lead);
        let at = self.clock.nanoseconds() + i64::try_from(lead.as_nanos()).unwrap_or(i64::MAX);
        for (name, offset) in offsets {
            self.requested_starts.insert(name, offset.to_node(at));
        }
        let answers = join_all(clients.iter().map(|&i| {
            let party = &self.parties[i];
            let start = Start {
                at_nanoseconds: self.requested_starts.get(&party.name).copied().unwrap_or(0),
            };
            party.node.start(&self.id, start)
        }))
        .await;
        for (i, answer) in clients.into_iter().zip(answers) {
            if let Err(error) = answer {
                self.note_failed_call(i, &error);
            }
        }
        self.check_failures()
    }

    /// Waits until all prepared nodes are past a state. When the last client has finished, servers and relays
    /// receive the request to finish.
    async fn watch(&mut self, after: TrialState) -> Result<(), Halt> {
        let deadline = self.began + self.attempt.timeout + GRACE_TIMEOUT;
        let wait = self.attempt.progress_interval;
        let poll = |party: &Party, i| party.poll(i, self.id.clone(), after, wait);
        let mut calls = FuturesUnordered::new();
        for (i, party) in self
            .parties
            .iter()
            .enumerate()
            .filter(|(_, party)| party.is_watched(after))
        {
            calls.push(poll(party, i));
        }
        let mut finishing = false;
        loop {
            self.check_failures()?;
            if !finishing && after == TrialState::Running && self.clients().all(|i| self.parties[i].has_ended)
            {
                finishing = true;
                for (i, party) in self
                    .parties
                    .iter()
                    .enumerate()
                    .filter(|(_, party)| !party.has_ended)
                {
                    calls.push(party.finish(i, self.id.clone()));
                }
            }
            let answer = tokio::select! {
                biased;
                answer = calls.next() => answer,
                () = self.stop.cancelled() => return Err(Halt::Interrupted),
                () = sleep_until(deadline) => {
                    self.note_timeout();
                    return Err(Halt::Failed);
                }
            };
            match answer {
                None => return Ok(()),
                Some((_, Ok(None))) => {}
                Some((i, Ok(Some(report)))) => {
                    self.note_report(i, report);
                    if self.parties[i].is_watched(after) {
                        calls.push(self.parties[i].poll(i, self.id.clone(), after, wait));
                    }
                    self.report_progress();
                }
                Some((i, Err(error))) => self.note_failed_call(i, &error),
            }
        }
    }

    /// After a failure: ends the trial wherever it is still in progress, and keeps what was measured until
    /// then.
    async fn end_all(&mut self) {
        for (i, answer) in party::end_all(&self.parties, &self.id).await {
            match answer {
                Ok(report) => {
                    let forgotten = report.is_none();
                    if let Some(report) = report {
                        self.note_report(i, report);
                    }
                    let party = &mut self.parties[i];
                    party.has_ended |= forgotten;
                    if !party.has_ended {
                        party.has_ended = true;
                        let why = format!(
                            "it did not end the trial within {GRACE_TIMEOUT:?} after the request to do so"
                        );
                        self.observations.add_lost(&party.name, &why);
                    }
                }
                Err(error) => self.note_failed_call(i, &error),
            }
        }
    }
}
