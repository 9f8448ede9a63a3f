//! Transfers from sources to sinks, through a relay or without one, and the relay between.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use perfrun_contract::{
    matrix::Stack,
    node::{Distribution, Reason, Transfer},
    parameters::Parameters,
    workload::RelayLimits,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Failed, Findings, Setup,
    client::{Peer, dialler},
    failure,
};
use crate::{
    stack::{self, BoxStream, HostConfig, Inbound, RelayEvent, Relaying, Whom},
    wire::{Arrival, Buffers, Counters, ping, test_data},
};

/// How long a trial waits for the relay's host to close.
const CLOSE: Duration = Duration::from_millis(20);

/// How long a sink waits before it asks again a relay that refused, or could not be reached.
const RETRY: Duration = Duration::from_secs(1);

/// Pings of peers that a relay answers at the same time.
const MOST_PINGS: usize = 65_536;

/// Relays until `finish`.
pub async fn serve(
    setup: &Setup,
    ready: impl FnOnce(Vec<String>),
    finish: impl Future<Output = ()>,
    findings: &mut Findings,
) -> Result<(), Failed> {
    if let Parameters::RelayStress { sinks, sources, .. } = setup.parameters {
        // A proxy has a connection with the source for each sink.
        let onward = if setup.stack == Stack::Raw { sinks } else { sources };
        setup.check_descriptors(sinks.saturating_add(onward))?;
    }
    let (inbound, mut events) = mpsc::unbounded_channel();
    let config = HostConfig {
        relaying: Relaying::Relay(limits(&setup.parameters)),
        ..setup.host(Some(setup.listen))
    };
    let host = stack::start(setup.stack, config, inbound).await?;
    ready(host.addresses().to_vec());
    let counters = &setup.probe.counters;
    let mut pings = JoinSet::new();
    let mut has_begun = false;
    tokio::pin!(finish);
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(Inbound::Connection) => Counters::add(&counters.connections, 1),
                // Nobody has anything to say to the relay itself.
                Some(Inbound::Stream(_)) => {}
                Some(Inbound::Ping(stream)) => if pings.len() < MOST_PINGS {
                    pings.spawn(async move { ping::serve(stream, &Counters::default()).await });
                },
                Some(Inbound::Relay(RelayEvent::CircuitOpened)) => {
                    // Circuits are made before the start, but where making them is part of the workload: then the first
                    // one tells that it has begun.
                    if !(has_begun && matches!(setup.parameters, Parameters::RelayStress { .. })) {
                        setup.probe.begin();
                    }
                    has_begun = true;
                    Counters::add(&counters.streams, 1);
                    let live = counters.circuits.fetch_add(1, Ordering::Relaxed) + 1;
                    findings.most_circuits = findings.most_circuits.max(live);
                    setup.probe.metrics.circuits(live);
                }
                Some(Inbound::Relay(RelayEvent::CircuitClosed)) => {
                    let live = counters.circuits.fetch_sub(1, Ordering::Relaxed) - 1;
                    setup.probe.metrics.circuits(live);
                }
                Some(Inbound::Relay(RelayEvent::Refused { what, status })) => {
                    counters.failed(Reason::Refused);
                    setup.probe.metrics.refused(what, status);
                    findings.refused(what, status);
                }
                None => return Err(Failed(failure(Reason::Internal, "the stack stopped listening"))),
            },
            Some(_) = pings.join_next() => {}
            () = &mut finish => break,
        }
    }
    setup.probe.finish();
    setup.probe.metrics.circuits(0);
    pings.shutdown().await;
    // It goes on by itself if it takes longer.
    let _ = timeout(CLOSE, tokio::spawn(host.close())).await;
    Ok(())
}

fn limits(parameters: &Parameters) -> RelayLimits {
    match parameters {
        Parameters::Relay { limits, .. } | Parameters::RelayStress { limits, .. } => *limits,
        _ => RelayLimits::default(),
    }
}

/// Round trips, then one transfer, of every peer.
pub(super) async fn run(
    setup: &Setup,
    peers: &[Peer],
    bytes: u64,
    pings: u32,
    findings: &mut Findings,
) -> Result<(), Failed> {
    let is_relayed = setup.parameters.is_relayed();
    for (whom, distribution) in [
        (Whom::Relay, Distribution::RelayRoundTrip),
        (Whom::Peer, Distribution::RoundTrip),
    ] {
        if whom == Whom::Relay && !is_relayed {
            continue;
        }
        let trips = peers.iter().map(|peer| round_trips(peer, whom, pings));
        for trip in try_join_all(trips).await?.into_iter().flatten() {
            findings.record(distribution, trip);
        }
    }
    let zeros = setup.zeros();
    let fetches = peers.iter().map(|peer| async {
        let asked = Instant::now();
        let stream = peer.connection()?.open().await?;
        let opened = Instant::now();
        Counters::add(&setup.probe.counters.streams, 1);
        let probe = setup.probe.clone();
        let mut buffers = Buffers::new(&zeros);
        // A task for each stream: polled inside another task, streams would share one core. It ends with the trial, also one
        // that is cut short: a stream of raw TCP would go on by itself.
        let fetch = AbortOnDropHandle::new(tokio::spawn(async move {
            test_data::fetch(stream, bytes, &mut buffers, &probe.counters).await
        }));
        let fetched = fetch
            .await
            .map_err(|error| Failed(failure(Reason::Internal, error)))??;
        Ok::<_, Failed>((asked, opened, fetched))
    });
    let mut all = Arrival::default();
    let mut seconds = 0.0_f64;
    for (asked, opened, fetched) in try_join_all(fetches).await? {
        Counters::add(&setup.probe.counters.operations, 1);
        findings.record(Distribution::Open, opened - asked);
        if let Some(first) = fetched.arrival.first() {
            findings.record(Distribution::FirstByte, first - asked);
        }
        findings.record(Distribution::Transfer, fetched.ended - opened);
        seconds = seconds.max((fetched.ended - opened).as_secs_f64());
        all.merge(&fetched.arrival);
    }
    findings.download = Some(Transfer {
        seconds,
        ..all.transfer().unwrap_or_default()
    });
    Ok(())
}

/// Round trips with the peer or the relay; none, where the stack has no ping beside its own protocol. The first one also
/// completes what the stack left for the first bytes, and is not counted. Their bytes are no payload.
async fn round_trips(peer: &Peer, whom: Whom, count: u32) -> Result<Vec<Duration>, Failed> {
    if count == 0 {
        return Ok(vec![]);
    }
    let Some(mut stream) = peer.connection()?.ping(whom).await? else {
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

/// `sinks` peers that begin one after the other and fetch over and over until the time is over.
pub(super) async fn stress(
    setup: &Setup,
    servers: &[String],
    sinks: usize,
    findings: &mut Findings,
) -> Result<(), Failed> {
    let Parameters::RelayStress {
        start_interval_seconds,
        ramp_seconds,
        plateau_seconds,
        bytes,
        ..
    } = setup.parameters
    else {
        return Err(Failed(failure(Reason::Internal, "not a stress test")));
    };
    let begun = Instant::now();
    let plateau = begun + Duration::from_secs_f64(ramp_seconds);
    let end = plateau + Duration::from_secs_f64(plateau_seconds);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut tasks = JoinSet::new();
    let zeros = setup.zeros();
    for i in 0..sinks {
        let mut sink = Sink {
            setup: setup.clone(),
            server: servers[i % servers.len()].clone(),
            bytes,
            plateau,
            buffers: Buffers::new(&zeros),
            seen: seen.clone(),
        };
        let at = begun + Duration::from_secs_f64(start_interval_seconds * i as f64);
        tasks.spawn(async move {
            sleep_until(at.into()).await;
            sink.lock().late(at.elapsed());
            sink.fetch_over_and_over().await;
        });
    }
    sleep_until(end.into()).await;
    // What was counted until here is the trial's; ending a thousand connections takes a while.
    let fetched = setup.probe.finish().totals.received > 0;
    tasks.shutdown().await;
    let mut seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let last_failure = seen.last_failure.take();
    findings.merge(seen.findings);
    match last_failure {
        Some(failed) if !fetched => Err(failed),
        None if !fetched => Err(Failed(failure(
            Reason::Timeout,
            "no transfer brought anything in the time given",
        ))),
        _ => Ok(()),
    }
}

/// What the sinks of a node have seen.
#[derive(Default)]
struct Seen {
    findings: Findings,
    last_failure: Option<Failed>,
}

impl Seen {
    fn late(&mut self, by: Duration) {
        self.findings.record(Distribution::Lateness, by);
    }
}

struct Sink {
    setup: Setup,
    server: String,
    bytes: u64,
    plateau: Instant,
    buffers: Buffers,
    seen: Arc<Mutex<Seen>>,
}

impl Sink {
    async fn fetch_over_and_over(&mut self) {
        loop {
            let Err(failed) = self.connect_and_fetch().await;
            self.setup.probe.counters.failed(failed.0.reason);
            tracing::debug!(failure = failed.0.message, "a sink failed");
            self.lock().last_failure = Some(failed);
            sleep(RETRY).await;
        }
    }

    /// Fetches over one connection until something fails.
    async fn connect_and_fetch(&mut self) -> Result<std::convert::Infallible, Failed> {
        let host = dialler(&self.setup).await?;
        let connection = host
            .dial(&self.server)
            .await
            .inspect_err(|error| self.lock().findings.refusal(error))?;
        let probe = self.setup.probe.clone();
        Counters::add(&probe.counters.connections, 1);
        self.lock().findings.record_dial(connection.phases());
        loop {
            let stream = connection.open().await?;
            Counters::add(&probe.counters.streams, 1);
            self.fetch(stream).await?;
            Counters::add(&probe.counters.operations, 1);
        }
    }

    async fn fetch(&mut self, stream: BoxStream) -> Result<(), Failed> {
        let opened = Instant::now();
        let counters = &self.setup.probe.counters;
        let fetched = test_data::fetch(stream, self.bytes, &mut self.buffers, counters).await?;
        if opened >= self.plateau {
            let findings = &mut self.lock().findings;
            findings.record(Distribution::Transfer, fetched.ended - opened);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
