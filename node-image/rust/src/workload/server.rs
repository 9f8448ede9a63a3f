//! The listening side of a trial.

use std::{future::Future, sync::Arc, time::Duration};

use futures::future::join_all;
use perfrun_contract::{
    limits::SERVER_STREAMS_MAX,
    matrix::Protocol,
    node::{Distribution, Reason},
    parameters::Parameters,
};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    Failed, Findings, Setup,
    echo::{self, Terms},
    failure,
};
use crate::{
    stack::{self, BoxStream, Host, Inbound, Reservation},
    wire::{self, Arrival, Buffers, Counters, litep2p_perf, perf, ping, test_data},
};

/// How long streams may take to end once the clients are done.
const DRAIN: Duration = Duration::from_secs(2);

/// How long a trial waits for its host to close. A QUIC socket drains for three probe timeouts, 80 ms on loopback, in
/// which it does nothing; the next trial has another port and need not wait.
const CLOSE: Duration = Duration::from_millis(20);

/// Streams that are served at the same time; more are dropped. What peers can make the node hold must have an end.
const MOST_STREAMS: usize = SERVER_STREAMS_MAX as usize;

/// The same where sinks are cut off in the middle of their transfers: there are many of them, and a relay between.
const DRAIN_CUT_OFF: Duration = Duration::from_secs(10);

/// Where peers find a server.
#[derive(Clone, Copy, Debug)]
pub enum Listening<'a> {
    /// At an address of its own.
    Here,
    /// Behind a relay: so many peers, each with a reservation there.
    Behind {
        /// The relay's address.
        relay: &'a str,
        /// Peers.
        peers: u32,
    },
}

/// Listens, tells `ready` its addresses, and serves until `finish`; streams that are still open then may end. A stream
/// that fails ends alone; the first failure is reported at the end.
pub async fn serve(
    setup: &Setup,
    listening: Listening<'_>,
    ready: impl FnOnce(Vec<String>),
    finish: impl Future<Output = ()>,
    findings: &mut Findings,
) -> Result<(), Failed> {
    setup.check_descriptors(match listening {
        Listening::Here => 1,
        // A listener, and a connection with the relay for each sink, or one for all.
        Listening::Behind { peers, .. } if setup.has_a_connection_for_each_stream() => {
            peers.saturating_mul(1 + setup.parameters.streams())
        }
        Listening::Behind { peers, .. } => peers.saturating_mul(2),
    })?;
    let (inbound, mut events) = mpsc::unbounded_channel();
    let Hosts {
        all: hosts,
        reservations,
        addresses,
    } = Hosts::start(setup, listening, inbound, findings).await?;
    ready(addresses);

    let mut streams = Streams::new(setup);
    tokio::pin!(finish);
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(Inbound::Connection) => streams.connected(),
                Some(Inbound::Stream(stream)) => streams.serve(stream),
                Some(Inbound::Ping(stream)) => streams.echo(stream),
                Some(Inbound::Relay(_)) => {}
                None => return Err(Failed(failure(Reason::Internal, "the stack stopped listening"))),
            },
            Some(ended) = streams.tasks.join_next() => streams.ended(ended),
            () = &mut finish => break,
        }
    }
    while let Ok(Inbound::Stream(stream)) = events.try_recv() {
        streams.serve(stream);
    }
    let drain = async {
        while let Some(ended) = streams.tasks.join_next().await {
            streams.ended(ended);
        }
    };
    let patience = match setup.parameters {
        Parameters::RelayStress { .. } => DRAIN_CUT_OFF,
        _ => DRAIN,
    };
    if tokio::time::timeout(patience, drain).await.is_err() {
        streams.left();
        // Before the host, which could not close while its streams are held.
        streams.tasks.shutdown().await;
    }
    findings.upload = streams.arrival.transfer();
    drop(reservations);
    // It goes on by itself if it takes longer.
    let close = join_all(hosts.into_iter().map(Host::close));
    let _ = tokio::time::timeout(CLOSE, tokio::spawn(close)).await;
    streams.failed.map_or(Ok(()), Err)
}

/// What peers of this server find.
struct Hosts {
    all: Vec<Box<dyn Host>>,
    reservations: Vec<Reservation>,
    addresses: Vec<String>,
}

impl Hosts {
    async fn start(
        setup: &Setup,
        listening: Listening<'_>,
        inbound: mpsc::UnboundedSender<Inbound>,
        findings: &mut Findings,
    ) -> Result<Self, Failed> {
        let mut hosts = Self {
            all: vec![],
            reservations: vec![],
            addresses: vec![],
        };
        match listening {
            Listening::Here => {
                let host = stack::start(setup.stack, setup.host(Some(setup.listen)), inbound).await?;
                hosts.addresses = host.addresses().to_vec();
                hosts.all.push(host);
            }
            Listening::Behind { relay, peers } => {
                // What a relay refuses is what a stress test looks for: it goes on with those that have a place.
                let goes_on = matches!(setup.parameters, Parameters::RelayStress { .. });
                for _ in 0..peers {
                    let host =
                        stack::start(setup.stack, setup.host(Some(setup.listen)), inbound.clone()).await?;
                    let reservation = match host.reserve(relay).await {
                        Ok(reservation) => reservation,
                        Err(error) => {
                            findings.refusal(&error);
                            if !(goes_on && matches!(error, stack::Error::Refused { .. })) {
                                return Err(error.into());
                            }
                            setup.probe.counters.failed(Reason::Refused);
                            host.close().await;
                            continue;
                        }
                    };
                    if let Some(connected) = reservation.relay_connected {
                        findings.record(Distribution::RelayConnected, connected);
                        findings.record(Distribution::Reservation, reservation.granted);
                    }
                    hosts.addresses.push(reservation.address.clone());
                    hosts.reservations.push(reservation);
                    hosts.all.push(host);
                }
            }
        }
        Ok(hosts)
    }
}

/// The streams being served, and what came of those that ended.
struct Streams<'a> {
    setup: &'a Setup,
    zeros: Arc<[u8]>,
    /// Of an echo.
    terms: Option<Arc<Terms>>,
    tasks: JoinSet<Result<Arrival, wire::Error>>,
    begun: bool,
    arrival: Arrival,
    failed: Option<Failed>,
}

impl<'a> Streams<'a> {
    fn new(setup: &'a Setup) -> Self {
        // Where the workload is not about connecting, what the server used for that is not charged to it.
        let begun = matches!(setup.parameters, Parameters::Handshakes { .. });
        let (zeros, tasks) = (setup.zeros(), JoinSet::new());
        let terms = match &setup.parameters {
            Parameters::Echo(load) => Some(Arc::new(Terms::new(setup, load))),
            _ => None,
        };
        Self {
            setup,
            zeros,
            terms,
            tasks,
            begun,
            arrival: Arrival::default(),
            failed: None,
        }
    }

    /// A peer's connection is up. Clients connect before they start, so what was used until here is not charged to
    /// the workload, and reading it takes none of the workload's time.
    fn connected(&mut self) {
        if !self.begun {
            self.setup.probe.begin();
        }
        Counters::add(&self.setup.probe.counters.connections, 1);
    }

    fn serve(&mut self, stream: BoxStream) {
        if self.tasks.len() >= MOST_STREAMS {
            let message = format!("peers opened more than {MOST_STREAMS} streams");
            self.failed
                .get_or_insert(Failed(failure(Reason::OpenFailed, message)));
            return;
        }
        self.begun = true;
        let probe = self.setup.probe.clone();
        Counters::add(&probe.counters.streams, 1);
        if let Some(terms) = &self.terms {
            self.tasks.spawn(echo::serve(stream, terms.clone()));
            return;
        }
        let protocol = self.setup.parameters.protocol();
        let mut buffers = Buffers::new(&self.zeros);
        let (bytes, may_be_cut_off) = match self.setup.parameters {
            Parameters::Relay { bytes, .. } => (bytes, false),
            Parameters::RelayStress { bytes, .. } => (bytes, true),
            _ => (0, false),
        };
        self.tasks.spawn(async move {
            match protocol {
                Protocol::TestData => {
                    let served = test_data::serve(stream, bytes, &buffers, &probe.counters).await;
                    match served {
                        Err(wire::Error::Stream(error)) if may_be_cut_off && wire::is_dropped(&error) => {}
                        served => served?,
                    }
                    Ok(Arrival::default())
                }
                Protocol::Perf => perf::serve(stream, &mut buffers, &probe.counters).await,
                Protocol::Litep2pPerf => litep2p_perf::serve(stream, &mut buffers, &probe.counters).await,
                // An echo has terms.
                Protocol::Ping | Protocol::Echo => ping::serve(stream, &probe.counters)
                    .await
                    .map(|()| Arrival::default()),
            }
        });
    }

    /// A ping beside the workload. Its bytes are no payload, and how it ends is of no account.
    fn echo(&mut self, stream: BoxStream) {
        if self.tasks.len() < MOST_STREAMS {
            self.tasks.spawn(async move {
                let ended = ping::serve(stream, &Counters::default()).await;
                tracing::debug!(?ended, "a ping ended");
                Ok(Arrival::default())
            });
        }
    }

    /// Streams did not end with their clients.
    fn left(&mut self) {
        let count = self.tasks.len();
        if let Some(terms) = &self.terms {
            // As whatever else becomes of one of many streams. On webrtc-direct, ends get lost when their connection closes.
            terms.left(count);
        } else {
            let message = format!("{count} streams did not end with their clients");
            self.failed
                .get_or_insert(Failed(failure(Reason::Timeout, message)));
        }
    }

    /// Keeps what a stream brought, or the first failure: one bad peer ends its stream, not the others'.
    fn ended(&mut self, ended: Result<Result<Arrival, wire::Error>, tokio::task::JoinError>) {
        match ended {
            Ok(Ok(arrival)) => self.arrival.merge(&arrival),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a stream failed");
                self.failed.get_or_insert(error.into());
            }
            Err(error) => {
                self.failed
                    .get_or_insert(Failed(failure(Reason::Internal, error)));
            }
        }
    }
}
