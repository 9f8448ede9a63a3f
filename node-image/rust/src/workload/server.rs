//! The listening side of a trial.

use std::{future::Future, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;
use perfrun_contract::{
    histogram::{Recorder, recorder},
    limits::SERVER_STREAMS_MAX,
    node::{Distribution, Reason},
    parameters::{Messages, Parameters},
};
use perfrun_stack::{self as stack, BoxStream, Host, Inbound, Reservation, messenger::BoxMessenger};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    echo::{self, Terms},
    failed::{Failed, failure},
    findings::Findings,
    messages,
    setup::Setup,
};
use crate::wire::{self, Arrival, Buffers, Counters, messages::Framed, ping};

/// How long streams may take to end once the clients are done.
const DRAIN: Duration = Duration::from_secs(2);

/// How long streams may take to end that were cut off during their transfers: many of them, through a relay.
const DRAIN_CUT_OFF: Duration = Duration::from_secs(10);

/// How long a trial waits for its host to close. A QUIC socket drains for three probe timeouts, 80 ms on
/// loopback, in which it does nothing; the next trial has another port and need not wait.
const CLOSE: Duration = Duration::from_millis(20);

/// Streams served at the same time; the server drops the rest, so that peers cannot make it hold any number
/// of them.
const MOST_STREAMS: usize = SERVER_STREAMS_MAX as usize;

/// Where peers reach a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listening<'a> {
    /// At an address of its own.
    Here,
    /// Behind a relay.
    Behind {
        /// The relay's address.
        relay: &'a str,
        /// Number of hosts, each with a reservation at the relay.
        peers: u32,
    },
}

/// Listens, passes its addresses to `ready`, and serves until `finish` resolves; open streams may then end. A
/// stream that fails does not disturb the others; the first failure is reported at the end.
pub(crate) async fn serve(
    setup: &Setup,
    listening: Listening<'_>,
    ready: impl FnOnce(Vec<String>),
    finish: impl Future<Output = ()>,
    findings: &mut Findings,
) -> Result<(), Failed> {
    setup.check_files(|parameters, stream_is_connection| {
        let sources = match listening {
            Listening::Here => None,
            Listening::Behind { peers, .. } => Some(peers),
        };
        parameters.server_files(sources, stream_is_connection)
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
                Some(event) => streams.take(event),
                None => return Err(Failed(failure(Reason::Internal, "the stack stopped listening"))),
            },
            Some(ended) = streams.tasks.join_next() => streams.ended(ended),
            () = &mut finish => break,
        }
    }
    while let Ok(event) = events.try_recv() {
        streams.take(event);
    }
    let drain = async {
        while let Some(ended) = streams.tasks.join_next().await {
            streams.ended(ended);
        }
    };
    let patience = if setup.parameters.may_be_cut_off() {
        DRAIN_CUT_OFF
    } else {
        DRAIN
    };
    if tokio::time::timeout(patience, drain).await.is_err() {
        streams.left();
        // Before the host, which cannot close while its streams are held.
        streams.tasks.shutdown().await;
    }
    findings.upload = streams.arrival.transfer();
    let one_way = streams.one_way.lock().clone();
    if !one_way.is_empty() {
        findings.add(Distribution::OneWay, &one_way);
    }
    if let Some(fault) = hosts.iter().find_map(|host| host.fault()) {
        let fault = Failed(failure(Reason::Internal, fault));
        streams.failed.get_or_insert(fault);
    }
    drop(reservations);
    // A close that takes longer continues in the background.
    let close = join_all(hosts.into_iter().map(Host::close));
    let _ = tokio::time::timeout(CLOSE, tokio::spawn(close)).await;
    streams.failed.map_or(Ok(()), Err)
}

/// The hosts of a server.
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
                for _ in 0..peers {
                    hosts.reserve(setup, relay, inbound.clone(), findings).await?;
                }
            }
        }
        Ok(hosts)
    }

    /// Starts a host with a reservation at a relay.
    async fn reserve(
        &mut self,
        setup: &Setup,
        relay: &str,
        inbound: mpsc::UnboundedSender<Inbound>,
        findings: &mut Findings,
    ) -> Result<(), Failed> {
        let host = stack::start(setup.stack, setup.host(Some(setup.listen)), inbound).await?;
        let reservation = match host.reserve(relay).await {
            Ok(reservation) => reservation,
            Err(error) => {
                findings.refusal(&error);
                // Such a load measures what a relay refuses, and continues with the hosts that have a place.
                if !(setup.parameters.may_be_cut_off() && matches!(error, stack::Error::Refused { .. })) {
                    return Err(error.into());
                }
                setup.observer.counters.failed(Reason::Refused);
                host.close().await;
                return Ok(());
            }
        };
        if let Some(connected) = reservation.relay_connected {
            findings.record(Distribution::RelayConnected, connected);
            findings.record(Distribution::Reservation, reservation.granted);
        }
        self.addresses.push(reservation.address.clone());
        self.reservations.push(reservation);
        self.all.push(host);
        Ok(())
    }
}

/// The streams being served, and the results of those that ended.
struct Streams<'a> {
    setup: &'a Setup,
    zeros: Arc<[u8]>,
    /// `None` unless the workload is an echo.
    terms: Option<Arc<Terms>>,
    tasks: JoinSet<Result<Arrival, wire::Error>>,
    /// Times of one way, of messages.
    one_way: Arc<Mutex<Recorder>>,
    begun: bool,
    arrival: Arrival,
    failed: Option<Failed>,
}

impl<'a> Streams<'a> {
    fn new(setup: &'a Setup) -> Self {
        // Where the workload is not about connecting, what the server used for that is not charged to it.
        let begun = setup.parameters.is_about_connecting();
        let terms = match &setup.parameters {
            Parameters::Echo(load) => Some(Arc::new(Terms::new(setup, load))),
            _ => None,
        };
        Self {
            setup,
            zeros: setup.zeros(),
            terms,
            tasks: JoinSet::new(),
            one_way: Arc::new(Mutex::new(recorder())),
            begun,
            arrival: Arrival::default(),
            failed: None,
        }
    }

    fn take(&mut self, event: Inbound) {
        match event {
            Inbound::Connection => self.connected(),
            Inbound::Stream(stream) => match self.setup.parameters {
                Parameters::Messages(load) => self.exchange(Box::new(Framed::new(stream)), load),
                _ => self.serve(stream),
            },
            Inbound::Messenger(messenger) => {
                if let Parameters::Messages(load) = self.setup.parameters {
                    self.exchange(messenger, load);
                }
            }
            Inbound::Ping(stream) => self.echo(stream),
            Inbound::Relay(_) => {}
        }
    }

    /// Counts a connection. Clients connect before they start, so the usage until here is not charged to the
    /// workload, and reading it takes none of the workload's time.
    fn connected(&mut self) {
        if !self.begun {
            self.setup.observer.begin();
        }
        Counters::add(&self.setup.observer.counters.connections, 1);
    }

    /// Counts a stream, unless there are too many.
    fn accept(&mut self) -> bool {
        if self.tasks.len() >= MOST_STREAMS {
            let message = format!("peers opened more than {MOST_STREAMS} streams");
            self.failed
                .get_or_insert(Failed(failure(Reason::OpenFailed, message)));
            return false;
        }
        self.begun = true;
        Counters::add(&self.setup.observer.counters.streams, 1);
        true
    }

    fn exchange(&mut self, messenger: BoxMessenger, load: Messages) {
        if self.accept() {
            let (handover, observer) = (self.setup.handover.clone(), self.setup.observer.clone());
            self.tasks.spawn(messages::serve(
                messenger,
                load,
                handover,
                observer,
                self.one_way.clone(),
            ));
        }
    }

    fn serve(&mut self, stream: BoxStream) {
        if !self.accept() {
            return;
        }
        let observer = self.setup.observer.clone();
        if let Some(terms) = &self.terms {
            self.tasks.spawn(echo::serve(stream, terms.clone()));
            return;
        }
        let parameters = &self.setup.parameters;
        let (protocol, bytes) = (parameters.protocol(), parameters.served_bytes());
        let may_be_cut_off = parameters.may_be_cut_off();
        let mut buffers = Buffers::new(&self.zeros);
        self.tasks.spawn(async move {
            match wire::serve(protocol, stream, bytes, &mut buffers, &observer.counters).await {
                Err(wire::Error::Stream(error)) if may_be_cut_off && wire::is_dropped(&error) => {
                    Ok(Arrival::default())
                }
                served => served,
            }
        });
    }

    /// Serves a ping beside the workload. Its bytes are not payload, and its end does not matter.
    fn echo(&mut self, stream: BoxStream) {
        if self.tasks.len() < MOST_STREAMS {
            self.tasks.spawn(async move {
                let ended = ping::serve(stream, &Counters::default()).await;
                tracing::debug!(?ended, "a ping ended");
                Ok(Arrival::default())
            });
        }
    }

    /// Records streams that did not end with their clients.
    fn left(&mut self) {
        let count = self.tasks.len();
        if let Some(terms) = &self.terms {
            // An echo only counts streams that fail. On webrtc-direct, ends get lost when their connection
            // closes.
            terms.left(count);
        } else {
            let message = format!("{count} streams did not end with their clients");
            self.failed
                .get_or_insert(Failed(failure(Reason::Timeout, message)));
        }
    }

    /// Adds the arrival of a stream, or keeps the first failure: one bad peer ends its stream, not those of
    /// others.
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
