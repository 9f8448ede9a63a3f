//! New connections: dial, first byte there and back, close.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use futures::future::join_all;
use perfrun_api::{
    node::{Distribution, Reason},
    plan::Amount,
};

use super::{
    Failed, Findings, Setup,
    client::{Peer, deadline},
    failure,
};
use crate::{
    stack::DialPhases,
    wire::{Counters, ping},
};

/// A peer that fails so often in a row gives up: the server is gone, and nothing is gained by hammering on.
const MOST_FAILURES_IN_A_ROW: u32 = 10;

/// Every peer opens one connection after the other, until all together have done `amount`.
pub(super) async fn run(
    setup: &Setup,
    peers: &[Peer],
    amount: Amount,
    findings: &mut Findings,
) -> Result<(), Failed> {
    let deadline = deadline(amount, Instant::now());
    let tickets = AtomicU64::new(match amount {
        Amount::Count(count) => count,
        Amount::Seconds(_) => u64::MAX,
    });
    let all = join_all(peers.iter().map(|peer| slot(setup, peer, &tickets, deadline))).await;
    let mut last_failure = None;
    let mut succeeded = false;
    for (handshakes, failed) in all {
        for (phases, first_byte) in handshakes {
            succeeded = true;
            if let Some(transport) = phases.transport {
                findings.record(Distribution::HandshakeTransport, transport);
            }
            findings.record(Distribution::HandshakeEstablished, phases.established);
            findings.record(Distribution::HandshakeFirstByte, first_byte);
        }
        last_failure = failed.or(last_failure);
    }
    match last_failure {
        Some(failure) if !succeeded => Err(failure),
        _ if !succeeded => Err(Failed(failure(
            Reason::Timeout,
            "no connection was established in the time given",
        ))),
        _ => Ok(()),
    }
}

type Handshake = (DialPhases, Duration);

/// One peer's handshakes, and its last failure.
async fn slot(
    setup: &Setup,
    peer: &Peer,
    tickets: &AtomicU64,
    deadline: Option<Instant>,
) -> (Vec<Handshake>, Option<Failed>) {
    let counters = &setup.probe.counters;
    let (mut done, mut last_failure, mut in_a_row) = (vec![], None, 0);
    let in_time = || deadline.is_none_or(|deadline| Instant::now() < deadline);
    let take = || {
        tickets
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    };
    while in_a_row < MOST_FAILURES_IN_A_ROW && in_time() && take() {
        match handshake(peer, counters).await {
            Ok(handshake) => {
                Counters::add(&counters.operations, 1);
                done.push(handshake);
                in_a_row = 0;
            }
            Err(failed) => {
                Counters::add(&counters.failures, 1);
                last_failure = Some(failed);
                in_a_row += 1;
            }
        }
    }
    (done, last_failure)
}

async fn handshake(peer: &Peer, counters: &Counters) -> Result<Handshake, Failed> {
    let begun = Instant::now();
    let connection = peer.host.dial(&peer.server).await?;
    Counters::add(&counters.connections, 1);
    let exchange = async {
        let mut stream = connection.open().await?;
        Counters::add(&counters.streams, 1);
        ping::round_trip(&mut stream, [0x55; ping::SIZE], counters).await?;
        Ok::<_, Failed>(begun.elapsed())
    };
    let first_byte = exchange.await;
    let phases = connection.phases();
    connection.close().await;
    Ok((phases, first_byte?))
}
