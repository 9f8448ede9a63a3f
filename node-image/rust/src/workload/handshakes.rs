//! New connections: dial, send the first bytes there and back, close.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures::future::join_all;
use perfrun_contract::{distribution::Distribution, matrix::Transport, node::Reason, parameters::Amount};
use perfrun_stack::{DialPhases, Host};

use super::{
    failed::{Failed, failure},
    measurements::Measurements,
    peer::{Peer, dialler},
    setup::Setup,
};
use crate::wire::{Counters, ping};

/// Failures in a row after which a slot gives up and ends the trial: the server is gone.
const FAILURES_IN_A_ROW_MAX: u32 = 10;

/// Time of repeated failures after which a slot gives up, even with fewer of them.
const FAILURE_MAX: Duration = Duration::from_secs(15);

/// Whether failures in a row, for this time, show that the server is gone.
fn is_gone(transport: Transport, in_a_row: u32, failing: Duration) -> bool {
    // libp2p's WebRTC may lose several dials in a row, of 10 s each, to a server that is not gone (webrtc-rs
    // issue 821).
    let takes_long = transport != Transport::WebrtcDirect && failing >= FAILURE_MAX;
    in_a_row >= FAILURES_IN_A_ROW_MAX || (in_a_row > 1 && takes_long)
}

/// Opens connections one after the other in each of `slots`, until all slots together have made `amount`.
pub(super) async fn run(
    setup: &Setup,
    peers: &[Peer],
    slots: usize,
    amount: Amount,
    measurements: &mut Measurements,
) -> Result<(), Failed> {
    let deadline = amount.duration().map(|time| Instant::now() + time);
    let tickets = AtomicU64::new(match amount {
        Amount::Count(count) => count,
        Amount::Seconds(_) => u64::MAX,
    });
    let work = Work {
        setup,
        prepared_hosts: peers,
        used: AtomicUsize::new(0),
        tickets,
        deadline,
    };
    let peers = peers.iter().take(slots);
    let mut slots = Slots {
        measurements,
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
            "no connection was established within the duration",
        ))),
        _ => Ok(()),
    }
}

type Handshake = (DialPhases, Duration);

/// The state that all slots share.
struct Work<'a> {
    setup: &'a Setup,
    prepared_hosts: &'a [Peer],
    /// The number of prepared hosts that are in use, or were used.
    used: AtomicUsize,
    /// Handshakes that no slot has begun.
    tickets: AtomicU64,
    deadline: Option<Instant>,
}

impl Work<'_> {
    /// Claims a handshake. `false` if none is left.
    fn claim(&self) -> bool {
        let left = |left: u64| left.checked_sub(1);
        self.deadline.is_none_or(|deadline| Instant::now() < deadline)
            && self
                .tickets
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
                .is_ok()
    }
}

/// The results of all slots. Their handshakes reach the measurements even if the trial is cut short.
struct Slots<'a> {
    measurements: &'a mut Measurements,
    all: Vec<Slot>,
}

impl Drop for Slots<'_> {
    fn drop(&mut self) {
        for (phases, first_byte) in self.all.iter().flat_map(|slot| &slot.done) {
            self.measurements.record_dial(*phases);
            self.measurements
                .record(Distribution::HandshakeFirstByte, *first_byte);
        }
    }
}

#[derive(Default)]
struct Slot {
    done: Vec<Handshake>,
    last_failure: Option<Failed>,
    gave_up: bool,
}

impl Slot {
    async fn fill(&mut self, work: &Work<'_>, server: &str) {
        let counters = &work.setup.observer.counters;
        // Failures since the last success, and the start of the first of them.
        let (mut in_a_row, mut failing_since) = (0, None);
        while !self.gave_up && work.claim() {
            let begun = Instant::now();
            match with_new_host(work, server).await {
                Ok(handshake) => {
                    Counters::add(&counters.operations, 1);
                    self.done.push(handshake);
                    (in_a_row, failing_since) = (0, None);
                }
                Err(failed) => {
                    tracing::debug!(failure = failed.0.message, "a handshake failed");
                    counters.count_failure(failed.0.reason);
                    self.last_failure = Some(failed);
                    in_a_row += 1;
                    let since = *failing_since.get_or_insert(begun);
                    self.gave_up = is_gone(work.setup.transport, in_a_row, since.elapsed());
                }
            }
        }
    }
}

async fn with_new_host(work: &Work<'_>, server: &str) -> Result<Handshake, Failed> {
    let counters = &work.setup.observer.counters;
    match work.prepared_hosts.get(work.used.fetch_add(1, Ordering::Relaxed)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_gives_up_when_its_server_is_gone() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(20));
        for (transport, in_a_row, failing, gone) in [
            (Transport::Tcp, 1, long, false),
            (Transport::Tcp, 2, short, false),
            (Transport::Tcp, 2, long, true),
            (Transport::Tcp, 10, short, true),
            (Transport::WebrtcDirect, 9, 9 * long, false),
            (Transport::WebrtcDirect, 10, short, true),
        ] {
            let what = format!("{transport}: {in_a_row} in {failing:?}");
            assert_eq!(is_gone(transport, in_a_row, failing), gone, "{what}");
        }
    }
}
