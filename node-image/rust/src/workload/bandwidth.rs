//! Bulk transfer over parallel streams of each peer's connection.

use std::time::Instant;

use futures::future::try_join_all;
use perfrun_contract::{
    matrix::Protocol,
    node::{Reason, Transfer},
    parameters::{Amount, Bandwidth},
    workload::{Direction, Timing},
};
use perfrun_stack::BoxStream;

use super::{
    failed::{Failed, failure},
    measurements::Measurements,
    peer::Peer,
    setup::Setup,
};
use crate::wire::{Arrival, Buffers, Counters, Exchange, Volume, litep2p_perf, perf};

/// Opens all streams, then exchanges on all of them at the same time.
pub(super) async fn run(
    setup: &Setup,
    peers: &[Peer],
    load: &Bandwidth,
    measurements: &mut Measurements,
) -> Result<(), Failed> {
    let Bandwidth {
        protocol,
        direction,
        amount,
        streams,
        timing,
        ..
    } = *load;
    let opens = peers.iter().map(|peer| async {
        let connection = peer.connection()?;
        try_join_all((0..streams).map(|_| connection.open()))
            .await
            .map_err(Failed::from)
    });
    let opened: Vec<BoxStream> = try_join_all(opens).await?.into_iter().flatten().collect();
    Counters::add(&setup.observer.counters.streams, opened.len() as u64);

    let request = Request {
        protocol,
        up: (direction != Direction::Download).then_some(amount),
        down: (direction != Direction::Upload).then_some(setup.download.unwrap_or(amount)),
        // The time of a transfer begins when all streams are open.
        begun: Instant::now(),
    };
    let zeros = setup.zeros();
    let mut tasks = tokio::task::JoinSet::new();
    for stream in opened {
        let observer = setup.observer.clone();
        let mut buffers = Buffers::new(&zeros);
        // A task for each stream: inside one task, all streams would share one core.
        tasks.spawn(async move { request.exchange(stream, &mut buffers, &observer.counters).await });
    }
    let mut exchanges = vec![];
    while let Some(done) = tasks.join_next().await {
        let done = done.map_err(|error| Failed(failure(Reason::Internal, error)))?;
        exchanges.push(done?);
    }
    measurements.upload = (direction != Direction::Download).then(|| upload(&exchanges, timing));
    measurements.download = (direction != Direction::Upload).then(|| download(&exchanges));
    Ok(())
}

/// What each stream exchanges.
#[derive(Clone, Copy)]
struct Request {
    protocol: Protocol,
    up: Option<Amount>,
    down: Option<Amount>,
    begun: Instant,
}

impl Request {
    async fn exchange(
        self,
        stream: BoxStream,
        buffers: &mut Buffers,
        counters: &Counters,
    ) -> Result<Exchange, Failed> {
        let Self {
            protocol,
            up,
            down,
            begun,
        } = self;
        let bytes = |amount: Option<Amount>| match amount {
            Some(Amount::Count(bytes)) => bytes,
            _ => 0,
        };
        let until = |amount: Option<Amount>| Some(begun + amount?.duration()?);
        let exchange = match protocol {
            Protocol::Litep2pPerf => {
                litep2p_perf::run(stream, bytes(up), bytes(down), buffers, counters).await?
            }
            Protocol::Perf => {
                let upload = until(up).map_or(Volume::Bytes(bytes(up)), Volume::Until);
                let download = until(down).map_or(perf::Download::Bytes(bytes(down)), perf::Download::Until);
                perf::run(stream, upload, download, buffers, counters).await?
            }
            other => {
                return Err(Failed(failure(
                    Reason::Unsupported,
                    format!("{} carries no bulk transfer", other.as_ref()),
                )));
            }
        };
        Ok(exchange)
    }
}

/// The upload of all streams as one, from the first byte written until the end that `timing` defines.
fn upload(exchanges: &[Exchange], timing: Timing) -> Transfer {
    let end = |e: &Exchange| match timing {
        Timing::Strict => e.consumed,
        Timing::Compat => e.written,
    };
    let begun = exchanges.iter().map(|e| e.begun).min();
    let ended = exchanges.iter().map(end).max();
    Transfer {
        bytes: exchanges.iter().map(|e| e.sent).sum(),
        seconds: begun
            .zip(ended)
            .map_or(0.0, |(begun, ended)| (ended - begun).as_secs_f64()),
        ..Transfer::default()
    }
}

/// The download of all streams as one, from the first request until the last byte.
fn download(exchanges: &[Exchange]) -> Transfer {
    let mut all = Arrival::default();
    for exchange in exchanges {
        all.merge(&exchange.arrival);
    }
    let requested = exchanges.iter().map(|e| e.requested).min();
    let seconds = requested
        .zip(all.last())
        .map_or(0.0, |(requested, last)| (last - requested).as_secs_f64());
    Transfer {
        seconds,
        ..all.transfer().unwrap_or_default()
    }
}
