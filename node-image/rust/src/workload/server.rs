//! The listening side of a trial.

use std::{future::Future, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;
use perfrun_contract::{
    distribution::Distribution,
    histogram::{Recorder, recorder},
    limits::SERVER_STREAMS_MAX,
    node::Reason,
    parameters::{Messages, Parameters},
};
use perfrun_stack::{self as stack, BoxStream, Host, Inbound, Reservation, messenger::BoxMessenger};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{
    echo::{self, EchoSide},
    failed::{Failed, failure},
    measurements::Measurements,
    messages,
    setup::Setup,
};
use crate::wire::{self, Arrival, Buffers, Counters, messages::Framed, ping};

/// How long a server whose clients are done waits for the next of its streams to end. The time starts again
/// with each stream that ends: the more streams there are and the busier the machine is, the longer they take
/// together, but not each after the one before it. TCP repeats an end that is lost within this time unless
/// the link is very slow. QUIC sends the close of a connection again only in answer to packets, and the
/// server has none to send: to wait longer would not help.
const NEXT_END_TIMEOUT: Duration = Duration::from_secs(2);

/// How long all streams may take together, so that a trial ends whatever its peers do. It is also the time
/// for streams that are cut off during their transfers: many of them, through a relay, whose queues may hold
/// the first end back for long.
const ALL_ENDS_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a trial waits for its host to close. A QUIC socket drains for three probe timeouts, 80 ms on
/// loopback, in which it does nothing; the next trial has another port and need not wait.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(20);

/// Streams served at the same time; the server drops the rest, so that peers cannot make it hold any number
/// of them.
const OPEN_STREAMS_MAX: usize = SERVER_STREAMS_MAX as usize;

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
    measurements: &mut Measurements,
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
    } = Hosts::start(setup, listening, inbound, measurements).await?;
    ready(addresses);

    let mut streams = Streams::new(setup);
    tokio::pin!(finish);
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(event) => streams.take(event),
                None => return Err(Failed(failure(Reason::Internal, "the stack stopped listening"))),
            },
            Some(ended) = streams.tasks.join_next() => streams.add_ended(ended),
            () = &mut finish => break,
        }
    }
    while let Ok(event) = events.try_recv() {
        streams.take(event);
    }
    streams.drain().await;
    measurements.upload = streams.arrival.transfer();
    let one_way = streams.one_way.lock().clone();
    if !one_way.is_empty() {
        measurements.add(Distribution::OneWay, &one_way);
    }
    if let Some(fault) = hosts.iter().find_map(|host| host.fault()) {
        let fault = Failed(failure(Reason::Internal, fault));
        streams.failed.get_or_insert(fault);
    }
    drop(reservations);
    // A close that takes longer continues in the background.
    let close = join_all(hosts.into_iter().map(Host::close));
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, tokio::spawn(close)).await;
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
        measurements: &mut Measurements,
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
                    hosts.reserve(setup, relay, inbound.clone(), measurements).await?;
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
        measurements: &mut Measurements,
    ) -> Result<(), Failed> {
        let host = stack::start(setup.stack, setup.host(Some(setup.listen)), inbound).await?;
        let reservation = match host.reserve(relay).await {
            Ok(reservation) => reservation,
            Err(error) => {
                measurements.count_if_refused(&error);
                // Such a load measures what a relay refuses, and continues with the hosts that have a place.
                if !(setup.parameters.may_be_cut_off() && matches!(error, stack::Error::Refused { .. })) {
                    return Err(error.into());
                }
                setup.observer.counters.count_failure(Reason::Refused);
                host.close().await;
                return Ok(());
            }
        };
        if let Some(connected) = reservation.relay_connected {
            measurements.record(Distribution::RelayConnected, connected);
            measurements.record(Distribution::Reservation, reservation.granted);
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
    side: Option<Arc<EchoSide>>,
    tasks: JoinSet<Result<Arrival, wire::Error>>,
    /// One-way delays of messages.
    one_way: Arc<Mutex<Recorder>>,
    begun: bool,
    arrival: Arrival,
    failed: Option<Failed>,
}

impl<'a> Streams<'a> {
    fn new(setup: &'a Setup) -> Self {
        // Where the workload is not about connecting, what the server used for that is not charged to it.
        let begun = setup.parameters.is_about_connecting();
        let side = match &setup.parameters {
            Parameters::Echo(load) => Some(Arc::new(EchoSide::new(setup, load))),
            _ => None,
        };
        Self {
            setup,
            zeros: setup.zeros(),
            side,
            tasks: JoinSet::new(),
            one_way: Arc::new(Mutex::new(recorder())),
            begun,
            arrival: Arrival::default(),
            failed: None,
        }
    }

    fn take(&mut self, event: Inbound) {
        match event {
            Inbound::Connection => self.count_connection(),
            Inbound::Stream(stream) => match self.setup.parameters.messages() {
                Some(load) => self.exchange(Box::new(Framed::new(stream)), *load),
                None => self.serve(stream),
            },
            Inbound::Messenger(messenger) => {
                if let Some(load) = self.setup.parameters.messages() {
                    self.exchange(messenger, *load);
                }
            }
            Inbound::Ping(stream) => self.answer_ping(stream),
            Inbound::Relay(_) => {}
        }
    }

    /// Counts a connection. Clients connect before they start, so the usage until here is not charged to the
    /// workload, and reading it takes none of the workload's time.
    fn count_connection(&mut self) {
        if !self.begun {
            self.setup.observer.begin();
        }
        Counters::add(&self.setup.observer.counters.connections, 1);
    }

    /// Counts a stream, unless there are too many.
    fn accept(&mut self) -> bool {
        if self.tasks.len() >= OPEN_STREAMS_MAX {
            let message = format!("peers opened more than {OPEN_STREAMS_MAX} streams");
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
        if let Some(side) = &self.side {
            self.tasks.spawn(echo::serve(stream, side.clone()));
            return;
        }
        let parameters = &self.setup.parameters;
        let (protocol, bytes) = (parameters.protocol(), parameters.served_bytes());
        let may_be_cut_off = parameters.may_be_cut_off();
        let mut buffers = Buffers::new(&self.zeros);
        self.tasks.spawn(async move {
            let served = wire::serve(protocol, stream, bytes, &mut buffers, &observer.counters);
            if !may_be_cut_off {
                return served.await;
            }
            match observer.counters.await_end(served).await {
                None => Ok(Arrival::default()),
                Some(Err(wire::Error::Stream(error))) if wire::is_dropped(&error) => Ok(Arrival::default()),
                Some(served) => served,
            }
        });
    }

    /// Answers a ping beside the workload. Its bytes are not payload, and its end does not matter.
    fn answer_ping(&mut self, stream: BoxStream) {
        if self.tasks.len() < OPEN_STREAMS_MAX {
            let uncounted = Counters {
                over: self.setup.observer.counters.over.clone(),
                ..Counters::default()
            };
            self.tasks.spawn(async move {
                let ended = ping::serve(stream, &uncounted).await;
                tracing::debug!(?ended, "a ping ended");
                Ok(Arrival::default())
            });
        }
    }

    /// Waits for the ends of streams. Then those end on which nothing else is due, and the others fail.
    async fn drain(&mut self) {
        let next = match self.setup.parameters.may_be_cut_off() {
            true => ALL_ENDS_TIMEOUT,
            false => NEXT_END_TIMEOUT,
        };
        self.ends_within(next).await;
        self.setup.observer.counters.over.cancel();
        self.ends_within(NEXT_END_TIMEOUT).await;
        self.record_unended();
        // Before the host, which cannot close while its streams are held.
        self.tasks.shutdown().await;
    }

    /// Waits until no stream is left, or none has ended for a time.
    async fn ends_within(&mut self, next: Duration) {
        let latest = Instant::now() + ALL_ENDS_TIMEOUT;
        while let Ok(Some(ended)) =
            timeout_at(latest.min(Instant::now() + next), self.tasks.join_next()).await
        {
            self.add_ended(ended);
        }
    }

    /// Records streams that did not end with their clients.
    fn record_unended(&mut self) {
        let count = self.tasks.len();
        if count == 0 {
            return;
        }
        if let Some(side) = &self.side {
            // An echo only counts streams that fail. On webrtc-direct, ends get lost when their connection
            // closes.
            side.count_unended(count);
        } else {
            let message = format!("{count} streams did not end with their clients");
            self.failed
                .get_or_insert(Failed(failure(Reason::Timeout, message)));
        }
    }

    /// Adds the arrival of a stream, or keeps the first failure: one bad peer ends its stream, not those of
    /// others.
    fn add_ended(&mut self, ended: Result<Result<Arrival, wire::Error>, tokio::task::JoinError>) {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use perfrun_contract::{
        matrix::{Protocol, Stack},
        parameters::{Amount, Bandwidth, Ping, Relay},
        quantity::ByteSize,
        workload::{Direction, MessageMode, RelayLimits, RelayPath},
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        time::sleep,
    };

    use super::*;

    const PING: Parameters = Parameters::Ping(Ping {
        count: 1,
        interval_seconds: 0.0,
    });

    fn setup(parameters: Parameters) -> Setup {
        Setup::of(Stack::Raw, parameters)
    }

    fn bandwidth(protocol: Protocol) -> Parameters {
        Parameters::Bandwidth(Bandwidth::new(protocol, Direction::Both, Amount::Count(100)))
    }

    /// A client's end of a stream that is served.
    fn opened(streams: &mut Streams<'_>) -> DuplexStream {
        let (ours, theirs) = duplex(1 << 16);
        streams.take(Inbound::Stream(Box::new(theirs)));
        ours
    }

    /// Drains the streams. Returns how long that took, and how many ends were counted as lost.
    async fn drained(streams: &mut Streams<'_>) -> (Duration, u64) {
        let begun = Instant::now();
        streams.drain().await;
        let counters = &streams.setup.observer.counters;
        let lost = counters.failures.load(Ordering::Relaxed);
        let errors = counters.counts().errors();
        assert_eq!(errors.get(&Reason::Timeout).copied().unwrap_or_default(), lost);
        (begun.elapsed(), lost)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_end_of_a_stream_is_counted_and_its_bytes_still_count() {
        let header = u64::MAX.to_be_bytes();
        let relay = Parameters::Relay(Relay {
            path: RelayPath::Direct,
            bytes: 100,
            chunk_bytes: ByteSize(1024),
            pings: 0,
            limits: RelayLimits::default(),
        });
        let endless = [&header[..], &[0; 70]].concat();
        for (parameters, says, hears, arrives) in [
            (PING, &[7; ping::SIZE][..], ping::SIZE, 0),
            // Opened, and nothing more.
            (PING, &[], 0, 0),
            (bandwidth(Protocol::Litep2pPerf), &[], 0, 0),
            // A download that the client cuts off.
            (bandwidth(Protocol::Perf), &endless, 1, 70),
            (relay, &[], 100, 0),
        ] {
            let what = parameters.to_string();
            let setup = setup(parameters);
            let mut streams = Streams::new(&setup);
            let mut client = opened(&mut streams);
            client.write_all(says).await.unwrap();
            if says.len() > ping::SIZE {
                client.shutdown().await.unwrap();
            }
            client.read_exact(&mut vec![0; hears]).await.unwrap();
            let (_, lost) = drained(&mut streams).await;
            assert!(streams.failed.is_none(), "{what}: {:?}", streams.failed);
            assert_eq!((lost, streams.arrival.bytes), (1, arrives), "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn messages_count_though_the_end_of_the_stream_is_lost() {
        let load = Messages {
            mode: MessageMode::Stream,
            message_bytes: ByteSize(64),
            amount: Amount::Count(3),
            window: 2,
            rate: None,
            priority: false,
            receivers: 1,
        };
        for mode in [MessageMode::Stream, MessageMode::Broadcast] {
            let load = Messages { mode, ..load };
            let setup = setup(Parameters::Messages(load));
            let mut streams = Streams::new(&setup);
            let mut client: [BoxMessenger; 1] = [Box::new(Framed::new(opened(&mut streams)))];
            let counters = Counters::default();
            wire::messages::open(&mut *client[0], None).await.unwrap();
            if mode == MessageMode::Broadcast {
                let sent = wire::messages::broadcast(&mut client, None, &load, &counters).await;
                assert_eq!(sent.unwrap().sent, 3);
            } else {
                let mut trips = recorder();
                let sent = wire::messages::run(&mut *client[0], &load, &counters, &mut trips).await;
                assert_eq!(sent.unwrap().bytes, 3 * 64);
            }
            assert_eq!(drained(&mut streams).await, (NEXT_END_TIMEOUT, 1), "{mode}");
            assert!(streams.failed.is_none(), "{mode}: {:?}", streams.failed);
            assert_eq!(streams.arrival.bytes, 3 * 64, "{mode}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_on_which_something_is_due_fails_the_trial() {
        for (parameters, says) in [
            (PING, &[7; ping::SIZE - 1][..]),
            (bandwidth(Protocol::Perf), &[]),
            (bandwidth(Protocol::Perf), &[0; 8 + 99]),
            (bandwidth(Protocol::Litep2pPerf), &[0; 7]),
            (bandwidth(Protocol::Litep2pPerf), &[0; 8]),
        ] {
            let what = format!("{parameters}: {} bytes", says.len());
            let setup = setup(parameters);
            let mut streams = Streams::new(&setup);
            let mut client = opened(&mut streams);
            client.write_all(says).await.unwrap();
            let (_, lost) = drained(&mut streams).await;
            let Some(Failed(failure)) = &streams.failed else {
                panic!("{what}: it completed")
            };
            assert_eq!((failure.reason, lost), (Reason::Timeout, 0), "{what}");
            assert_eq!(
                failure.message, "1 streams did not end with their clients",
                "{what}"
            );
        }
    }

    /// Drains 20 streams that end one after the other, a gap apart.
    async fn ending(gap: Duration) -> (Duration, u64) {
        let setup = setup(PING);
        let mut streams = Streams::new(&setup);
        let clients: Vec<_> = (0..20).map(|_| opened(&mut streams)).collect();
        let leave = tokio::spawn(async move {
            for client in clients {
                sleep(gap).await;
                drop(client);
            }
        });
        let drained = drained(&mut streams).await;
        assert!(streams.failed.is_none(), "{:?}", streams.failed);
        leave.abort();
        drained
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_patient_while_streams_end() {
        let ms = Duration::from_millis;
        assert_eq!(ending(ms(400)).await, (ms(8000), 0));
        // Six have ended after nine seconds.
        assert_eq!(ending(ms(1500)).await, (ALL_ENDS_TIMEOUT, 14));
        assert_eq!(ending(ms(2100)).await, (NEXT_END_TIMEOUT, 20));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_ping_beside_the_workload_does_not_matter() {
        let setup = setup(bandwidth(Protocol::Perf));
        let mut streams = Streams::new(&setup);
        let (mut ours, theirs) = duplex(64);
        streams.take(Inbound::Ping(Box::new(theirs)));
        ours.write_all(&[7; ping::SIZE]).await.unwrap();
        ours.read_exact(&mut [0; ping::SIZE]).await.unwrap();
        assert_eq!(drained(&mut streams).await, (NEXT_END_TIMEOUT, 0));
        assert!(streams.failed.is_none(), "{:?}", streams.failed);
    }
}
