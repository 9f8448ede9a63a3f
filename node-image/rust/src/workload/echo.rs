//! Many streams on many connections, each of which echoes a line at a steady pace.

mod pacer;

use std::{
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::{Either, select, try_join_all};
use perfrun_contract::{
    node::{Failure, Plateau, Reason},
    parameters::Echo,
};
use perfrun_stack::{BoxStream, Connection, DialPhases};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep_until, timeout, timeout_at},
};

use self::pacer::{Pacer, added_by_timer};
use super::{
    failed::{Failed, failure},
    measurements::Measurements,
    peer::{self, Peer},
    setup::Setup,
};
use crate::{
    observer::Observer,
    wire::{self, Arrival, Counters, echo},
};

/// The state that all streams of one side share.
pub(super) struct EchoSide {
    line: Arc<[u8]>,
    pacer: Pacer,
    deadline: Duration,
    observer: Arc<Observer>,
    /// A permit for each stream that has completed its first round trip or failed.
    settled: Semaphore,
    first_failure: OnceLock<Failure>,
}

impl EchoSide {
    pub(super) fn new(setup: &Setup, load: &Echo) -> Self {
        Self {
            line: echo::line(load.message_bytes.0 as usize),
            pacer: Pacer::new(load, Instant::now()),
            deadline: Duration::from_secs_f64(load.deadline_seconds),
            observer: setup.observer.clone(),
            settled: Semaphore::new(0),
            first_failure: OnceLock::new(),
        }
    }

    /// Counts a failure. The trial continues without the stream or connection.
    fn count_failure(&self, Failed(failure): Failed) {
        tracing::debug!(failure = failure.message, "an echo failed");
        self.observer.counters.count_failure(failure.reason);
        let _ = self.first_failure.set(failure);
    }

    /// Counts streams of a server that did not end with their clients.
    pub(super) fn count_unended(&self, count: usize) {
        for _ in 0..count {
            self.count_failure(Failed(failure(
                Reason::Timeout,
                "a stream did not end with its client",
            )));
        }
    }

    fn missed_deadline(&self) -> Failed {
        let message = format!(
            "a line did not come back within its deadline, {:?}",
            self.deadline
        );
        Failed(failure(Reason::Timeout, message))
    }
}

/// Opens connections and streams on schedule, and makes them echo until the load's time is over.
pub(super) async fn run(
    setup: &Setup,
    peers: &mut [Peer],
    load: &Echo,
    measurements: &mut Measurements,
) -> Result<(), Failed> {
    let begun = Instant::now();
    let client = Client {
        setup,
        load,
        begun,
        end: begun + Duration::from_secs_f64(load.duration_seconds),
        side: Arc::new(EchoSide::new(setup, load)),
    };
    let connections = (0..).zip(peers);
    let connections = connections.map(|(number, peer)| client.connection(peer, number));
    let connections = pin!(try_join_all(connections));
    let plateau = pin!(client.plateau());
    let (plateau, connections) = match select(plateau, connections).await {
        Either::Left((plateau, connections)) => (plateau?, connections.await?),
        // Streams may notice the end of the load before the plateau does.
        Either::Right((connections, plateau)) if Instant::now() >= client.end => {
            (plateau.await?, connections?)
        }
        Either::Right((connections, _)) => {
            connections?;
            let none = || failure(Reason::Internal, "all streams ended early");
            let first = client.side.first_failure.get().cloned();
            let Failure { reason, message } = first.unwrap_or_else(none);
            return Err(Failed(failure(
                reason,
                format!("every stream failed, the first because: {message}"),
            )));
        }
    };
    let mut lateness = Duration::ZERO;
    for (phases, late) in connections.into_iter().flatten() {
        lateness = lateness.max(late);
        measurements.record_dial(phases);
    }
    measurements.plateau = Some(Plateau {
        ramp_lateness_seconds: lateness.as_secs_f64(),
        ..plateau
    });
    Ok(())
}

/// The client's side of an echo.
struct Client<'a> {
    setup: &'a Setup,
    load: &'a Echo,
    begun: Instant,
    end: Instant,
    side: Arc<EchoSide>,
}

impl Client<'_> {
    /// Counts round trips from the moment at which all streams have settled.
    async fn plateau(&self) -> Result<Plateau, Failed> {
        let Self {
            load,
            begun,
            end,
            ref side,
            ..
        } = *self;
        let streams = load.connections * load.streams_per_connection;
        // At least half of the time after the scheduled ramp is for the plateau.
        let latest = end - (end - begun).saturating_sub(Duration::from_secs_f64(load.ramp_seconds())) / 2;
        let settled = side.settled.acquire_many(streams);
        if timeout_at(latest, settled).await.is_err() {
            let missing = streams as usize - side.settled.available_permits();
            let message = format!(
                "{missing} of {streams} streams had neither echoed nor failed {:?} after the start, although the ramp \
                 should take {} s: make duration longer, or the load smaller",
                latest - begun,
                load.ramp_seconds()
            );
            return Err(Failed(failure(Reason::Timeout, message)));
        }
        let round_trips = || side.observer.counters.operations.load(Ordering::Relaxed);
        let (from, before) = (Instant::now(), round_trips());
        sleep_until(end).await;
        Ok(Plateau {
            ramp_seconds: (from - begun).as_secs_f64(),
            seconds: from.elapsed().as_secs_f64(),
            round_trips: round_trips() - before,
            ..Plateau::default()
        })
    }

    /// Dials the connection of this number at its moment and runs its streams. Returns how it was dialled,
    /// and by how much the connection or a stream was late at most. `None` if the dial failed.
    async fn connection(
        &self,
        peer: &mut Peer,
        number: u32,
    ) -> Result<Option<(DialPhases, Duration)>, Failed> {
        let Self {
            setup,
            load,
            begun,
            end,
            ref side,
        } = *self;
        let streams = load.streams_per_connection;
        let interval = Duration::from_secs_f64(load.connection_interval_seconds);
        let mut late = lateness(begun + interval * number).await;
        let connection: Arc<dyn Connection> = match peer::dial(setup, &mut peer.host, &peer.server).await {
            Ok(connection) => connection.into(),
            Err(error) => {
                side.count_failure(error.into());
                side.settled.add_permits(streams as usize);
                return Ok(None);
            }
        };
        // Counted from here, so that a slow dial does not turn the first streams into a burst.
        let up = Instant::now();
        Counters::add(&side.observer.counters.connections, 1);
        let interval = Duration::from_secs_f64(load.stream_interval_seconds);
        let mut tasks = JoinSet::new();
        for i in 0..streams {
            late = late.max(lateness(up + interval * i).await);
            // Streams that follow each other are on different connections, so that lines on each are spread,
            // too.
            let number = i * load.connections + number;
            tasks.spawn(stream(connection.clone(), side.clone(), number, end));
        }
        let phases = connection.phases();
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|error| Failed(failure(Reason::Internal, error)))??;
        }
        Ok(Some((phases, late)))
    }
}

/// Waits for a moment and returns by how much it was missed.
async fn lateness(at: Instant) -> Duration {
    sleep_until(at).await;
    at.elapsed()
}

/// Runs one stream of a client. Only wrong bytes end the trial.
async fn stream(
    connection: Arc<dyn Connection>,
    side: Arc<EchoSide>,
    number: u32,
    end: Instant,
) -> Result<(), Failed> {
    let _active = ActiveGuard::new(&side);
    let first = SettleGuard(&side.settled);
    let opened = connection.open().await;
    drop(connection);
    let echoed = match opened {
        Ok(stream) => {
            Counters::add(&side.observer.counters.streams, 1);
            echo_until(stream, &side, number, end, first).await
        }
        Err(error) => Err(error.into()),
    };
    match echoed {
        Err(failed) if failed.0.reason == Reason::WrongEcho => Err(failed),
        Err(failed) => {
            side.count_failure(failed);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

async fn echo_until(
    mut stream: BoxStream,
    side: &EchoSide,
    number: u32,
    end: Instant,
    first: SettleGuard<'_>,
) -> Result<(), Failed> {
    let mut first = Some(first);
    let mut window = 0;
    let counters = &side.observer.counters;
    let mut now = Instant::now();
    let mut due = side.pacer.first(number, now);
    // What the timer added to the last line that waited for it, and so to the late lines behind that one.
    let mut added = Duration::ZERO;
    loop {
        // For a moment that has just passed, the timer would still wait for its next millisecond.
        if due > now {
            sleep_until(due.min(end)).await;
            now = Instant::now();
            added = added_by_timer(due, now);
        }
        if now >= end {
            return Ok(());
        }
        let begun = side.pacer.counts_from(due, now, added);
        timeout(side.deadline, echo::round_trip(&mut stream, &side.line, counters))
            .await
            .map_err(|_| side.missed_deadline())??;
        now = Instant::now();
        counters.round_trips.record(now - begun);
        Counters::add(&counters.operations, 1);
        counters.echoing.count(&mut window);
        first.take();
        due = side.pacer.next(due, now);
    }
}

/// Serves one stream. Only wrong bytes fail the trial; other failures are counted.
pub(super) async fn serve(mut stream: BoxStream, side: Arc<EchoSide>) -> Result<Arrival, wire::Error> {
    let _active = ActiveGuard::new(&side);
    let mut window = 0;
    let counters = &side.observer.counters;
    loop {
        let line = echo::serve(&mut stream, &side.line, counters);
        match timeout(side.deadline, line).await {
            Ok(Ok(true)) => {
                Counters::add(&counters.operations, 1);
                counters.echoing.count(&mut window);
            }
            Ok(Ok(false)) => break,
            Ok(Err(error @ wire::Error::WrongLine)) => return Err(error),
            Ok(Err(error)) => {
                side.count_failure(error.into());
                break;
            }
            Err(_) => {
                side.count_failure(side.missed_deadline());
                break;
            }
        }
    }
    Ok(Arrival::default())
}

/// Counts a stream while it exists.
struct ActiveGuard<'a>(&'a AtomicU64);

impl<'a> ActiveGuard<'a> {
    fn new(side: &'a EchoSide) -> Self {
        let active = &side.observer.counters.active;
        Counters::add(active, 1);
        Self(active)
    }
}

impl Drop for ActiveGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Settles a stream when dropped: the ramp no longer waits for it.
struct SettleGuard<'a>(&'a Semaphore);

impl Drop for SettleGuard<'_> {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        pin::Pin,
        task::{Context, Poll},
    };

    use async_trait::async_trait;
    #[cfg(feature = "jemalloc")]
    use tikv_jemalloc_ctl::thread;
    use tokio::{
        io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, duplex},
        time::sleep,
    };

    use super::*;
    use crate::{metrics::TrialMetrics, sampler::Sampling};
    use perfrun_stack as stack;

    const LINE: usize = 16 << 10;
    const STREAMS: usize = 2000;

    /// A stream that returns what is written to it and holds no buffer.
    struct Echoing {
        line: Arc<[u8]>,
        due: usize,
        returns: bool,
    }

    impl AsyncRead for Echoing {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.due == 0 {
                return Poll::Pending;
            }
            let from = self.line.len() - self.due;
            let most = self.due.min(into.remaining());
            into.put_slice(&self.line[from..from + most]);
            self.due -= most;
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Echoing {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
            if self.returns {
                self.due += from.len();
            }
            Poll::Ready(Ok(from.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    struct Fake(Arc<[u8]>);

    #[async_trait]
    impl Connection for Fake {
        fn phases(&self) -> DialPhases {
            DialPhases::default()
        }

        async fn open(&self) -> Result<BoxStream, stack::Error> {
            Ok(Box::new(Echoing {
                line: self.0.clone(),
                due: 0,
                returns: true,
            }))
        }

        async fn close(self: Box<Self>) {}
    }

    fn side(pacer: Pacer) -> Arc<EchoSide> {
        Arc::new(EchoSide {
            line: echo::line(LINE),
            pacer,
            deadline: Duration::from_secs(2000),
            observer: Arc::new(Observer::new(TrialMetrics::default(), Sampling::default())),
            settled: Semaphore::new(0),
            first_failure: OnceLock::new(),
        })
    }

    /// Bytes that this thread holds. The runtime of a test has no other thread.
    #[cfg(feature = "jemalloc")]
    fn held() -> u64 {
        let allocated = thread::allocatedp::read().expect("jemalloc counts").get();
        allocated - thread::deallocatedp::read().expect("jemalloc counts").get()
    }

    async fn until_all_have_echoed(side: &EchoSide) {
        while side.observer.counters.operations.load(Ordering::Relaxed) < STREAMS as u64 {
            tokio::task::yield_now().await;
        }
    }

    #[cfg(feature = "jemalloc")]
    #[tokio::test]
    async fn a_client_holds_less_than_a_kibibyte_for_each_stream_of_lines_of_any_length() {
        let side = side(Pacer::Pause(Duration::from_secs(1000)));
        let connection: Arc<dyn Connection> = Arc::new(Fake(side.line.clone()));
        let end = Instant::now() + Duration::from_secs(10_000);
        let before = held();
        let mut tasks = JoinSet::new();
        for _ in 0..STREAMS {
            tasks.spawn(stream(connection.clone(), side.clone(), 0, end));
        }
        until_all_have_echoed(&side).await;
        let each = (held() - before) / STREAMS as u64;
        assert!((100..1024).contains(&each), "{each} bytes");
    }

    #[cfg(feature = "jemalloc")]
    #[tokio::test]
    async fn a_server_holds_less_than_a_kibibyte_for_each_stream_too() {
        let side = side(Pacer::Pause(Duration::from_secs(1000)));
        let before = held();
        let mut tasks = JoinSet::new();
        for _ in 0..STREAMS {
            let accepted = Echoing {
                line: side.line.clone(),
                due: LINE,
                returns: false,
            };
            tasks.spawn(serve(Box::new(accepted), side.clone()));
        }
        until_all_have_echoed(&side).await;
        let each = (held() - before) / STREAMS as u64;
        assert!((100..1024).contains(&each), "{each} bytes");
    }

    /// Echoes for half a second with a peer that answers the second line after 250 ms and the others after 10
    /// ms. Returns when lines reached the peer, and the mean of the round trips, both in milliseconds.
    async fn echoed(pacer: Pacer) -> (Vec<u128>, f64) {
        let side = side(pacer);
        let begun = Instant::now();
        let (ours, mut theirs) = duplex(2 * LINE);
        let end = begun + Duration::from_millis(500);
        let client = echo_until(Box::new(ours), &side, 1, end, SettleGuard(&side.settled));
        let peer = async {
            let mut arrived = vec![];
            let mut line = vec![0; LINE];
            while theirs.read_exact(&mut line).await.is_ok() {
                arrived.push(begun.elapsed().as_millis());
                let answer = if arrived.len() == 2 { 250 } else { 10 };
                sleep(Duration::from_millis(answer)).await;
                theirs.write_all(&line).await.unwrap();
            }
            arrived
        };
        let (ended, arrived) = tokio::join!(client, peer);
        assert!(ended.is_ok());
        let trips = side.observer.counters.round_trips.take();
        assert_eq!(trips.len(), arrived.len() as u64);
        (arrived, trips.mean() / 1e6)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_delays_all_lines_that_pause_after_it() {
        let (sent, mean) = echoed(Pacer::Pause(Duration::from_millis(100))).await;
        assert_eq!(sent, [0, 110, 460]);
        // 10, 250 and 10 ms. Each counts as the middle of a bucket less than 0.8 % wide.
        assert!((89.6..90.4).contains(&mean), "{mean} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_delays_lines_with_a_period_until_they_are_on_time_again() {
        let pacer = Pacer::Period {
            begun: Instant::now(),
            period: Duration::from_millis(100),
            streams: 4,
        };
        let (sent, mean) = echoed(pacer).await;
        // Those of 225 and 325 ms wait for the answer at 375 ms.
        assert_eq!(sent, [25, 125, 375, 385, 425]);
        // 10, 250 and, from the moments at which they were due, 160, 70 and 10 ms.
        assert!((99.6..100.4).contains(&mean), "{mean} ms");
    }
}
