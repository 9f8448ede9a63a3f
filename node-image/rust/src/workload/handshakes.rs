//! New connections: dial, first byte there and back, close.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures::future::join_all;
use perfrun_contract::{
    node::{Distribution, Reason},
    parameters::Amount,
};

use super::{
    Failed, Findings, Setup,
    client::{Peer, deadline, dialler},
    failure,
};
use crate::{
    stack::{DialPhases, Host},
    wire::{Counters, ping},
};

/// A peer that fails so often in a row, or more than once over so long, gives up and ends the trial: the server is
/// gone, and nothing is gained by hammering on.
const MOST_FAILURES_IN_A_ROW: u32 = 10;
const LONGEST_FAILURE: Duration = Duration::from_secs(15);

/// Hosts that are started before the trial, at most.
///
/// Every handshake is that of a new peer: litep2p, on either side, takes a connection for closed later than the peer
/// that closed it, and until then refuses to dial the same identity again, or holds its connection for a second one.
const MOST_IN_STOCK: u64 = 128;

/// Hosts to start before a trial of `amount` handshakes. When they are used up others are started in between; that is
/// in no handshake's time, but in the rate and in the CPU time.
pub(super) fn stock(amount: Amount) -> usize {
    match amount {
        Amount::Count(count) => count.min(MOST_IN_STOCK) as usize,
        Amount::Seconds(_) => MOST_IN_STOCK as usize,
    }
}

/// Opens connections one after the other in each of `slots`, until all together have done `amount`.
pub(super) async fn run(
    setup: &Setup,
    peers: &[Peer],
    slots: usize,
    amount: Amount,
    findings: &mut Findings,
) -> Result<(), Failed> {
    let deadline = deadline(amount, Instant::now());
    let tickets = AtomicU64::new(match amount {
        Amount::Count(count) => count,
        Amount::Seconds(_) => u64::MAX,
    });
    let work = Work {
        setup,
        stock: peers,
        used: AtomicUsize::new(0),
        tickets,
        deadline,
    };
    let peers = peers.iter().take(slots);
    let mut slots = Slots {
        findings,
        all: peers.clone().map(|_| Slot::default()).collect(),
    };
    join_all(
        peers
            .zip(&mut slots.all)
            .map(|(peer, slot)| slot.fill(&work, &peer.server)),
    )
    .await;
    let succeeded = slots.all.iter().any(|slot| !slot.done.is_empty());
    let gave_up = slots.all.iter().any(|slot| slot.gave_up);
    let last_failure = slots
        .all
        .iter_mut()
        .filter_map(|slot| slot.last_failure.take())
        .last();
    match last_failure {
        Some(failure) if gave_up || !succeeded => Err(failure),
        None if !succeeded => Err(Failed(failure(
            Reason::Timeout,
            "no connection was established in the time given",
        ))),
        _ => Ok(()),
    }
}

type Handshake = (DialPhases, Duration);

/// What all slots share.
struct Work<'a> {
    setup: &'a Setup,
    stock: &'a [Peer],
    /// Hosts of the stock that were used.
    used: AtomicUsize,
    /// Handshakes that nobody has begun.
    tickets: AtomicU64,
    deadline: Option<Instant>,
}

impl Work<'_> {
    /// Whether there is another handshake to do.
    fn take(&self) -> bool {
        let left = |left: u64| left.checked_sub(1);
        self.deadline.is_none_or(|deadline| Instant::now() < deadline)
            && self
                .tickets
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
                .is_ok()
    }
}

/// What came of all slots; the handshakes reach the findings even if the trial is cut short.
struct Slots<'a> {
    findings: &'a mut Findings,
    all: Vec<Slot>,
}

impl Drop for Slots<'_> {
    fn drop(&mut self) {
        for (phases, first_byte) in self.all.iter().flat_map(|slot| &slot.done) {
            self.findings.record_dial(*phases);
            self.findings
                .record(Distribution::HandshakeFirstByte, *first_byte);
        }
    }
}

/// What came of one slot.
#[derive(Default)]
struct Slot {
    done: Vec<Handshake>,
    last_failure: Option<Failed>,
    gave_up: bool,
}

impl Slot {
    async fn fill(&mut self, work: &Work<'_>, server: &str) {
        let counters = &work.setup.probe.counters;
        // The failures since the last success, and when the first of them began.
        let (mut in_a_row, mut failing_since) = (0, None);
        while !self.gave_up && work.take() {
            let begun = Instant::now();
            match with_new_host(work, server).await {
                Ok(handshake) => {
                    Counters::add(&counters.operations, 1);
                    self.done.push(handshake);
                    (in_a_row, failing_since) = (0, None);
                }
                Err(failed) => {
                    tracing::debug!(failure = failed.0.message, "a handshake failed");
                    counters.failed(failed.0.reason);
                    self.last_failure = Some(failed);
                    in_a_row += 1;
                    let since = *failing_since.get_or_insert(begun);
                    let gone = in_a_row > 1 && since.elapsed() >= LONGEST_FAILURE;
                    self.gave_up = in_a_row == MOST_FAILURES_IN_A_ROW || gone;
                }
            }
        }
    }
}

async fn with_new_host(work: &Work<'_>, server: &str) -> Result<Handshake, Failed> {
    let counters = &work.setup.probe.counters;
    match work.stock.get(work.used.fetch_add(1, Ordering::Relaxed)) {
        Some(peer) => handshake(&*peer.host, server, counters).await,
        None => handshake(&*dialler(work.setup).await?, server, counters).await,
    }
}

async fn handshake(host: &dyn Host, server: &str, counters: &Counters) -> Result<Handshake, Failed> {
    let begun = Instant::now();
    let connection = host.dial(server).await?;
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
