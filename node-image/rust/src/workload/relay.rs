//! Transfers from sources to sinks, directly or through a relay.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use perfrun_contract::{
    distribution::Distribution,
    node::{Reason, Transfer},
};
use perfrun_stack::PingTarget;
use tokio_util::task::AbortOnDropHandle;

use super::{
    failed::{Failed, failure},
    measurements::Measurements,
    peer::Peer,
    setup::Setup,
};
use crate::wire::{Arrival, Buffers, Counters, ping, test_data};

/// Round trips of each peer, then one transfer.
pub(super) async fn run(
    setup: &Setup,
    peers: &[Peer],
    bytes: u64,
    pings: u32,
    measurements: &mut Measurements,
) -> Result<(), Failed> {
    let is_relayed = setup.parameters.is_relayed();
    for (target, distribution) in [
        (PingTarget::Relay, Distribution::RelayRoundTrip),
        (PingTarget::Peer, Distribution::RoundTrip),
    ] {
        if target == PingTarget::Relay && !is_relayed {
            continue;
        }
        let trips = peers.iter().map(|peer| round_trips(peer, target, pings));
        for trip in try_join_all(trips).await?.into_iter().flatten() {
            measurements.record(distribution, trip);
        }
    }
    let zeros = setup.zeros();
    let fetches = peers.iter().map(|peer| async {
        let requested = Instant::now();
        let stream = peer.connection()?.open().await?;
        let opened = Instant::now();
        Counters::add(&setup.observer.counters.streams, 1);
        let observer = setup.observer.clone();
        let mut buffers = Buffers::new(&zeros);
        // A task for each stream: inside one task, all streams would share one core. The task is aborted with
        // the trial, because a raw TCP stream would continue after a trial that is cut short.
        let fetch = AbortOnDropHandle::new(tokio::spawn(async move {
            test_data::fetch(stream, bytes, &mut buffers, &observer.counters).await
        }));
        let fetched = fetch
            .await
            .map_err(|error| Failed(failure(Reason::Internal, error)))??;
        Ok::<_, Failed>((requested, opened, fetched))
    });
    let mut all = Arrival::default();
    let mut seconds = 0.0_f64;
    for (requested, opened, fetched) in try_join_all(fetches).await? {
        Counters::add(&setup.observer.counters.operations, 1);
        measurements.record(Distribution::Open, opened - requested);
        if let Some(first) = fetched.arrival.first() {
            measurements.record(Distribution::FirstByte, first - requested);
        }
        measurements.record(Distribution::Transfer, fetched.ended - opened);
        seconds = seconds.max((fetched.ended - opened).as_secs_f64());
        all.merge(&fetched.arrival);
    }
    measurements.download = Some(Transfer {
        seconds,
        ..all.transfer().unwrap_or_default()
    });
    Ok(())
}

/// Round trips with the peer or the relay; empty if the stack has no ping beside its own protocol. The first
/// round trip also completes the negotiation on some stacks, and is not counted. Pings are not payload.
async fn round_trips(peer: &Peer, target: PingTarget, count: u32) -> Result<Vec<Duration>, Failed> {
    if count == 0 {
        return Ok(vec![]);
    }
    let Some(mut stream) = peer.connection()?.ping(target).await? else {
        return Ok(vec![]);
    };
    let counters = Counters::default();
    let mut trips = vec![];
    for i in 0..=count {
        let begun = Instant::now();
        ping::round_trip(&mut stream, [i as u8; ping::SIZE], &counters).await?;
        if i > 0 {
            trips.push(begun.elapsed());
        }
    }
    Ok(trips)
}
