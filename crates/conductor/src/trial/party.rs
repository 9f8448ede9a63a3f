//! The nodes of a trial, and the calls to them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use perfrun_contract::{
    matrix::Stack,
    node::{Side, TrialLabels, TrialRequest, TrialState, TrialStatus},
    plan::Cell,
    role::Role,
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until},
};

use super::{
    GRACE_TIMEOUT,
    report::{BriefStatus, Report, StatusLimits},
};
use crate::{
    attempt::{Attempt, Node},
    client::{Error, NodeClient, Prepared},
    clock::{self, ClockReading, LocalClock},
};

/// The least time between two polls of a node. Without it, a node that answers before its state has changed
/// would be called without a pause for as long as the trial lasts.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// Clients that are prepared at the same time. Each request has the addresses that its client dials.
const PREPARED_AT_A_TIME: usize = 16;

/// A node in a trial.
#[derive(Debug)]
pub(super) struct Party {
    pub name: String,
    pub role: Role,
    pub node: NodeClient,
    /// The name of the stack that it speaks in the trial.
    pub stack: String,
    /// Whether it has accepted the request to prepare the trial.
    pub has_accepted: bool,
    /// What is kept of the status that it has answered last.
    pub last_status: Option<BriefStatus>,
    /// Whether it has nothing more to report.
    pub has_ended: bool,
    /// How much of its answers is kept.
    pub limits: StatusLimits,
}

/// What a node answered, with its index in the list.
pub(super) type Answer<T> = (usize, Result<T, Error>);

/// The number of addresses that are dialled of a node of a role: one of each peer. Sources report one for
/// each of their peers. Others are one peer, with an address for each interface; one of them, or clients
/// would not be spread evenly.
pub(super) fn dialled_address_count(cell: &Cell, role: Role) -> usize {
    match role {
        Role::Server => cell.sources_per_server() as usize,
        Role::Relay => 1,
        Role::Client => 0,
    }
}

/// The nodes of a cell: relays, then servers, then clients.
pub(super) fn parties(cell: &Cell, nodes: &BTreeMap<String, Node>) -> Vec<Party> {
    let of = |role, stack: Stack, names: &[String]| -> Vec<Party> {
        let party = |name: &String| Party {
            name: name.clone(),
            role,
            node: nodes[name].client.clone(),
            stack: nodes[name].external.clone().unwrap_or_else(|| stack.to_string()),
            has_accepted: false,
            last_status: None,
            has_ended: false,
            limits: StatusLimits::new(cell.nodes().count(), dialled_address_count(cell, role)),
        };
        names.iter().map(party).collect()
    };
    let by_role = cell.nodes_by_role();
    let parties = by_role.map(|(role, names)| of(role, cell.stack_of(role).0, names));
    parties.into_iter().flatten().collect()
}

impl Party {
    /// Whether the trial is in progress at the node, as far as is known here.
    pub(super) fn is_open(&self) -> bool {
        self.has_accepted && !self.has_ended
    }

    /// Whether the conductor waits for it until it is past a state.
    pub(super) fn is_watched(&self, after: TrialState) -> bool {
        self.is_open()
            && self
                .last_status
                .as_ref()
                .is_none_or(|status| status.state <= after)
    }

    /// What is kept of a status.
    pub(super) fn report(&self, status: TrialStatus) -> Result<Report, Error> {
        self.limits.report(status, self.node.answer_budget())
    }

    /// What it knows of a trial.
    pub(super) async fn status(&self, id: &str) -> Result<Report, Error> {
        self.report(self.node.status(id).await?)
    }

    /// Waits until it is past a state, but not longer than `wait`.
    pub(super) fn poll(
        &self,
        i: usize,
        id: Arc<str>,
        after: TrialState,
        wait: Duration,
    ) -> BoxFuture<'static, Answer<Option<Report>>> {
        let (node, limits) = (self.node.clone(), self.limits);
        let call = async move {
            let called = Instant::now();
            let answer = node.status_after(&id, after, wait).await;
            let answer = answer.and_then(|status| limits.report(status, node.answer_budget()));
            if answer.as_ref().is_ok_and(|report| report.status.state <= after) {
                sleep_until(called + wait.min(POLL_PAUSE)).await;
            }
            (i, answer.map(Some))
        };
        call.boxed()
    }

    /// Requests a server to finish, because all clients are done. The answer has no report.
    pub(super) fn finish(&self, i: usize, id: Arc<str>) -> BoxFuture<'static, Answer<Option<Report>>> {
        let node = self.node.clone();
        async move { (i, node.finish(&id).await.map(|()| None)) }.boxed()
    }
}

/// Prepares the nodes of a role that listen, all for the same side.
pub(super) async fn prepare_listeners(
    parties: &[Party],
    role: Role,
    side: &Side,
    id: &str,
    attempt: &Attempt<'_>,
) -> Vec<Answer<Prepared>> {
    let listeners = parties.iter().enumerate().filter(|(_, party)| party.role == role);
    join_all(listeners.map(|(i, party)| async move {
        let request = request(attempt, party, side.clone());
        (i, party.node.prepare(id, &request).await)
    }))
    .await
}

/// Prepares the clients. `servers` takes the number of a client and returns the addresses to dial, with how
/// far the clocks behind them are ahead of the client's.
pub(super) async fn prepare_clients(
    parties: &[Party],
    id: &str,
    attempt: &Attempt<'_>,
    servers: impl Fn(usize) -> (Vec<String>, Vec<i64>),
) -> Vec<Answer<Prepared>> {
    let clients = parties
        .iter()
        .enumerate()
        .filter(|(_, party)| party.role == Role::Client);
    let permits = Semaphore::new(PREPARED_AT_A_TIME);
    let (servers, permits) = (&servers, &permits);
    join_all(clients.enumerate().map(|(number, (i, party))| async move {
        let _permit = permits.acquire().await;
        let (servers, clocks) = servers(number);
        let side = Side::Client {
            servers,
            peers: attempt.cell.peers_per_client,
            clocks,
        };
        let request = request(attempt, party, side);
        (i, party.node.prepare(id, &request).await)
    }))
    .await
}

fn request(attempt: &Attempt<'_>, party: &Party, side: Side) -> TrialRequest {
    let cell = attempt.cell;
    let timeout = match party.role {
        Role::Client => attempt.timeout,
        // Prepared before the clients they would end before them, which would find a broken stream and not a
        // lack of time.
        Role::Server | Role::Relay => attempt.timeout + GRACE_TIMEOUT / 2,
    };
    TrialRequest {
        stack: party.stack.clone(),
        settings: cell.stack_of(party.role).1.clone(),
        transport: cell.transport,
        parameters: cell.parameters.clone(),
        timeout_seconds: timeout.as_secs_f64(),
        side,
        labels: TrialLabels {
            cell: cell.id.clone(),
            network: cell.network.clone(),
        },
    }
}

/// Reads the clocks of the nodes of these roles.
pub(super) async fn read_clocks(
    parties: &[Party],
    roles: &[Role],
    clock: LocalClock,
    times: usize,
) -> Vec<Answer<Vec<ClockReading>>> {
    let nodes = parties
        .iter()
        .enumerate()
        .filter(|(_, party)| roles.contains(&party.role));
    join_all(nodes.map(|(i, party)| async move { (i, clock::readings(&party.node, clock, times).await) }))
        .await
}

/// Ends a trial wherever it is in progress.
pub(super) async fn end_all(parties: &[Party], id: &str) -> Vec<Answer<Option<Report>>> {
    let open = parties.iter().enumerate().filter(|(_, party)| party.is_open());
    join_all(open.map(|(i, party)| async move {
        let ended = end_trial(&party.node, id).await;
        let report = ended.and_then(|status| status.map(|status| party.report(status)).transpose());
        (i, report)
    }))
    .await
}

/// Cancels a trial at a node and waits for what it has measured until then; not longer than
/// [`GRACE_TIMEOUT`]. `None` if the node finished in the meantime and has forgotten the trial.
async fn end_trial(node: &NodeClient, id: &str) -> Result<Option<TrialStatus>, Error> {
    // Deleting a finished trial would drop its result.
    let status = node.status(id).await?;
    if status.state == TrialState::Finished {
        return Ok(Some(status));
    }
    drop(status);
    node.delete(id).await?;
    match node.status_after(id, TrialState::Running, GRACE_TIMEOUT).await {
        Err(Error::NotFound) => Ok(None),
        status => status.map(Some),
    }
}

/// Makes all nodes forget a trial of an earlier session.
pub(super) async fn forget_all(parties: &[Party], id: &str) {
    join_all(parties.iter().map(|party| async move {
        let has_result = end_trial(&party.node, id).await.map(|status| status.is_some());
        let forgotten = match has_result {
            Ok(true) => party.node.delete(id).await,
            Ok(false) | Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = forgotten {
            tracing::debug!(
                node = party.name,
                error = error.describe(),
                "the node keeps an old trial"
            );
        }
    }))
    .await;
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::client::{BoxError, Request, Requester, Response};

    /// Answers immediately that its trial is in this state.
    struct Hasty(TrialState);

    #[async_trait]
    impl Requester for Hasty {
        async fn request(&self, _: Request<'_>) -> Result<Response, BoxError> {
            let status = TrialStatus {
                state: self.0,
                addresses: vec![],
                bytes_sent: 0,
                bytes_received: 0,
                outcome: None,
            };
            Ok(Response::new(200, serde_json::to_vec(&status)?))
        }
    }

    fn party(state: TrialState) -> Party {
        Party {
            name: "server-0".to_owned(),
            role: Role::Server,
            node: NodeClient::over(Arc::new(Hasty(state))),
            stack: "libp2p".to_owned(),
            has_accepted: true,
            last_status: None,
            has_ended: false,
            limits: StatusLimits::new(1, 1),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_answers_at_once_is_polled_at_most_twenty_times_a_second() {
        let polled = async |state| {
            let (began, party) = (Instant::now(), party(state));
            for _ in 0..20 {
                let wait = Duration::from_secs(1);
                let (_, answer) = party.poll(0, "x".into(), TrialState::Ready, wait).await;
                answer.expect("it answers");
            }
            began.elapsed()
        };
        assert!(polled(TrialState::Ready).await >= Duration::from_secs(1));
        assert_eq!(polled(TrialState::Finished).await, Duration::ZERO);
    }
}
