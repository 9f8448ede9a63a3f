//! Many sinks that fetch repeatedly through one relay.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use perfrun_contract::{distribution::Distribution, node::Reason, parameters::RelayStress};
use perfrun_stack::BoxStream;
use tokio::{
    task::JoinSet,
    time::{sleep, sleep_until},
};

use super::{
    client::Server,
    failed::{Failed, failure},
    measurements::Measurements,
    peer::dialler,
    setup::Setup,
};
use crate::wire::{Buffers, Counters, test_data};

/// How long a sink waits after a failure before it connects again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Starts `sinks` peers one after the other, which fetch repeatedly until the time is over.
pub(super) async fn run(
    setup: &Setup,
    servers: &[Server],
    sinks: usize,
    load: &RelayStress,
    measurements: &mut Measurements,
) -> Result<(), Failed> {
    let begun = Instant::now();
    let plateau = begun + Duration::from_secs_f64(load.ramp_seconds);
    let end = plateau + Duration::from_secs_f64(load.plateau_seconds);
    let shared = Arc::new(Mutex::new(SinkMeasurements::default()));
    let mut tasks = JoinSet::new();
    let zeros = setup.zeros();
    for i in 0..sinks {
        let mut sink = Sink {
            setup: setup.clone(),
            server: servers[i % servers.len()].address.clone(),
            bytes: load.bytes,
            plateau,
            buffers: Buffers::new(&zeros),
            shared: shared.clone(),
        };
        let at = begun + Duration::from_secs_f64(load.start_interval_seconds * i as f64);
        tasks.spawn(async move {
            sleep_until(at.into()).await;
            sink.shared.lock().record_lateness(at.elapsed());
            sink.fetch_repeatedly().await;
        });
    }
    sleep_until(end.into()).await;
    // The trial ends here, because closing a thousand connections takes a while.
    let fetched = setup.observer.finish().totals.counts.received > 0;
    tasks.shutdown().await;
    let SinkMeasurements {
        measurements: of_sinks,
        last_failure,
    } = std::mem::take(&mut *shared.lock());
    measurements.merge(of_sinks);
    match last_failure {
        Some(failed) if !fetched => Err(failed),
        None if !fetched => Err(Failed(failure(
            Reason::Timeout,
            "no transfer delivered a byte within the duration",
        ))),
        _ => Ok(()),
    }
}

/// What the sinks of a node have measured.
#[derive(Default)]
struct SinkMeasurements {
    measurements: Measurements,
    last_failure: Option<Failed>,
}

impl SinkMeasurements {
    fn record_lateness(&mut self, by: Duration) {
        self.measurements.record(Distribution::Lateness, by);
    }
}

struct Sink {
    setup: Setup,
    server: String,
    bytes: u64,
    plateau: Instant,
    buffers: Buffers,
    shared: Arc<Mutex<SinkMeasurements>>,
}

impl Sink {
    async fn fetch_repeatedly(&mut self) {
        loop {
            let Err(failed) = self.connect_and_fetch().await;
            self.setup.observer.counters.count_failure(failed.0.reason);
            tracing::debug!(failure = failed.0.message, "a sink failed");
            self.shared.lock().last_failure = Some(failed);
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Fetches over one connection until something fails.
    async fn connect_and_fetch(&mut self) -> Result<std::convert::Infallible, Failed> {
        let host = dialler(&self.setup).await?;
        let connection = host
            .dial(&self.server)
            .await
            .inspect_err(|error| self.shared.lock().measurements.count_if_refused(error))?;
        let observer = self.setup.observer.clone();
        Counters::add(&observer.counters.connections, 1);
        self.shared.lock().measurements.record_dial(connection.phases());
        loop {
            let stream = connection.open().await?;
            Counters::add(&observer.counters.streams, 1);
            self.fetch(stream).await?;
            Counters::add(&observer.counters.operations, 1);
        }
    }

    async fn fetch(&mut self, stream: BoxStream) -> Result<(), Failed> {
        let opened = Instant::now();
        let counters = &self.setup.observer.counters;
        let fetched = test_data::fetch(stream, self.bytes, &mut self.buffers, counters).await?;
        if opened >= self.plateau {
            let mut shared = self.shared.lock();
            shared
                .measurements
                .record(Distribution::Transfer, fetched.ended - opened);
        }
        Ok(())
    }
}
