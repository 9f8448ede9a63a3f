//! Transfers from sources to sinks, directly or through a relay, and the relay itself.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use parking_lot::Mutex;
use perfrun_contract::{
    distribution::Distribution,
    node::{Reason, Transfer},
    parameters::RelayStress,
};
use perfrun_stack::{self as stack, BoxStream, HostConfig, Inbound, PingTarget, RelayEvent, Relaying};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    client::Server,
    failed::{Failed, failure},
    measurements::Measurements,
    peer::{Peer, dialler},
    setup::Setup,
};
use crate::wire::{Arrival, Buffers, Counters, ping, test_data};

/// How long a trial waits for the relay's host to close.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(20);

/// How long a sink waits after a failure before it connects again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Pings that a relay answers at the same time.
const PINGS_MAX: usize = 65_536;

/// Relays until `finish` resolves.
pub(crate) async fn serve(
    setup: &Setup,
    ready: impl FnOnce(Vec<String>),
    finish: impl Future<Output = ()>,
    measurements: &mut Measurements,
) -> Result<(), Failed> {
    setup.check_files(|parameters, each| parameters.relay_files(each))?;
    let (inbound, mut events) = mpsc::unbounded_channel();
    let config = HostConfig {
        relaying: Relaying::Relay(setup.parameters.limits()),
        ..setup.host(Some(setup.listen))
    };
    let host = stack::start(setup.stack, config, inbound).await?;
    ready(host.addresses().to_vec());
    let counters = &setup.observer.counters;
    let mut pings = JoinSet::new();
    let mut has_begun = false;
    tokio::pin!(finish);
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(Inbound::Connection) => Counters::add(&counters.connections, 1),
                // No peer has a reason to open a stream to the relay itself.
                Some(Inbound::Stream(_) | Inbound::Messenger(_)) => {}
                Some(Inbound::Ping(stream)) => if pings.len() < PINGS_MAX {
                    pings.spawn(async move { ping::serve(stream, &Counters::default()).await });
                },
                Some(Inbound::Relay(RelayEvent::CircuitOpened)) => {
                    // Where circuits are opened before the start, the workload begins after the last one.
                    // Otherwise it begins with the first one.
                    if !has_begun || setup.parameters.connects_before_start() {
                        setup.observer.begin();
                    }
                    has_begun = true;
                    Counters::add(&counters.streams, 1);
                    let live = counters.circuits.fetch_add(1, Ordering::Relaxed) + 1;
                    measurements.most_circuits = measurements.most_circuits.max(live);
                    setup.observer.metrics.set_circuits(live);
                }
                Some(Inbound::Relay(RelayEvent::CircuitClosed)) => {
                    let live = counters.circuits.fetch_sub(1, Ordering::Relaxed) - 1;
                    setup.observer.metrics.set_circuits(live);
                }
                Some(Inbound::Relay(RelayEvent::Refused { what, status })) => {
                    counters.count_failure(Reason::Refused);
                    setup.observer.metrics.count_refusal(what, status);
                    measurements.count_refusal(what, status);
                }
                None => return Err(Failed(failure(Reason::Internal, "the stack stopped listening"))),
            },
            Some(_) = pings.join_next() => {}
            () = &mut finish => break,
        }
    }
    setup.observer.finish();
    setup.observer.metrics.set_circuits(0);
    pings.shutdown().await;
    // A close that takes longer continues in the background.
    let _ = timeout(CLOSE_TIMEOUT, tokio::spawn(host.close())).await;
    Ok(())
}

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

/// Starts `sinks` peers one after the other, which fetch repeatedly until the time is over.
pub(super) async fn stress(
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
