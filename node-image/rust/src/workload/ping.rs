//! Round trips of an application, one after the other on one open stream of each peer.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use perfrun_contract::{
    distribution::Distribution,
    histogram::{Recorder, record, recorder},
};

use super::{failed::Failed, measurements::Measurements, peer::Peer, setup::Setup};
use crate::wire::{Counters, ping};

/// Makes `count` round trips with each peer.
pub(super) async fn run(
    setup: &Setup,
    peers: &[Peer],
    count: u32,
    interval: Duration,
    measurements: &mut Measurements,
) -> Result<(), Failed> {
    let counters = &setup.observer.counters;
    let mut trips = Trips {
        measurements,
        of_peers: peers.iter().map(|_| recorder()).collect(),
    };
    try_join_all(
        peers
            .iter()
            .zip(&mut trips.of_peers)
            .map(|(peer, trips)| async move {
                let mut stream = peer.connection()?.open().await?;
                Counters::add(&counters.streams, 1);
                // The first round trip also completes the negotiation on some stacks, and is not counted.
                ping::round_trip(&mut stream, [0; ping::SIZE], counters).await?;
                let mut payload = [0; ping::SIZE];
                for i in 0..count {
                    payload[..4].copy_from_slice(&i.to_be_bytes());
                    let begun = Instant::now();
                    ping::round_trip(&mut stream, payload, counters).await?;
                    record(trips, begun.elapsed());
                    Counters::add(&counters.operations, 1);
                    if !interval.is_zero() {
                        tokio::time::sleep(interval).await;
                    }
                }
                Ok::<_, Failed>(())
            }),
    )
    .await?;
    Ok(())
}

/// The recorders of all peers. They reach the measurements even if the trial is cut short.
struct Trips<'a> {
    measurements: &'a mut Measurements,
    of_peers: Vec<Recorder>,
}

impl Drop for Trips<'_> {
    fn drop(&mut self) {
        for peer in &self.of_peers {
            self.measurements.add(Distribution::RoundTrip, peer);
        }
    }
}
