//! Time to open many substreams on one connection. Nothing is exchanged on them.

use std::{
    future::Future,
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use futures::stream::{FuturesUnordered, StreamExt};
use perfrun_contract::{distribution::Distribution, node::Reason, parameters::Substreams};
use perfrun_stack::{self as stack, BoxStream, Connection};

use super::{failed::Failed, measurements::Measurements, peer::Peer, setup::Setup};
use crate::wire::Counters;

type Opened = (Instant, Result<BoxStream, stack::Error>);

/// Opens the substreams of all peers and holds them until all are open.
pub(super) async fn run(
    setup: &Setup,
    peers: &[Peer],
    load: &Substreams,
    measurements: &mut Measurements,
) -> Result<(), Failed> {
    let count = load.count;
    let pace = load
        .rate
        .map(|rate| Duration::from_secs_f64(1.0 / f64::from(rate)));
    let all = futures::future::try_join_all(peers.iter().map(|peer| async move {
        Ok::<_, Failed>(match pace {
            None => burst(peer.connection()?, count).await,
            Some(pace) => paced(peer.connection()?, count, pace).await,
        })
    }))
    .await?;

    let mut held = vec![];
    let mut last_error = None;
    let counters = &setup.observer.counters;
    for opens in all {
        for (from_first, after_last, opened) in opens {
            match opened {
                Ok(stream) => {
                    measurements.record(Distribution::Open, from_first);
                    if let Some(after_last) = after_last {
                        measurements.record(Distribution::OpenCompat, after_last);
                    }
                    Counters::add(&counters.streams, 1);
                    Counters::add(&counters.operations, 1);
                    held.push(stream);
                }
                Err(error) => {
                    counters.count_failure(Reason::OpenFailed);
                    last_error = Some(error);
                }
            }
        }
    }
    match last_error {
        Some(error) if held.is_empty() => Err(error.into()),
        _ => Ok(()),
    }
}

/// A substream with its time since before the first request, and since after the last.
type Timed = (Duration, Option<Duration>, Result<BoxStream, stack::Error>);

/// Requests all substreams immediately.
async fn burst(connection: &dyn Connection, count: u32) -> Vec<Timed> {
    let first = Instant::now();
    // The first poll of an open queues its request: an open that was polled once is requested.
    let mut pending = FuturesUnordered::new();
    let mut opened: Vec<Opened> = vec![];
    for _ in 0..count {
        let mut open: Pin<Box<dyn Future<Output = Opened> + Send + '_>> = Box::pin(async {
            let stream = connection.open().await;
            (Instant::now(), stream)
        });
        match futures::poll!(open.as_mut()) {
            Poll::Ready(done) => opened.push(done),
            Poll::Pending => pending.push(open),
        }
    }
    let last = Instant::now();
    while let Some(done) = pending.next().await {
        opened.push(done);
    }
    opened
        .into_iter()
        .map(|(at, stream)| (at - first, Some(at.saturating_duration_since(last)), stream))
        .collect()
}

/// Requests a substream every `pace`. Each is timed from its own request.
async fn paced(connection: &dyn Connection, count: u32, pace: Duration) -> Vec<Timed> {
    let begun = Instant::now();
    let opens = (0..count).map(|i| async move {
        tokio::time::sleep_until((begun + pace * i).into()).await;
        let requested = Instant::now();
        let stream = connection.open().await;
        (requested.elapsed(), None, stream)
    });
    opens.collect::<FuturesUnordered<_>>().collect().await
}
