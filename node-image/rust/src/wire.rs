//! What is sent on a stream, written once for all stacks and generic over the stream.
//!
//! Integers are big-endian u64, payload is zeros, and messages have no frames. A declared length is only
//! counted down; nothing is allocated for it. Every loop reads and writes in turn in one task: litep2p's
//! yamux loses a waker when two tasks poll the two halves of a stream (rust-yamux issue 232).

pub mod echo;
pub mod litep2p_perf;
pub mod messages;
pub mod perf;
pub mod ping;
pub mod test_data;
#[cfg(test)]
mod testing;

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Instant,
};

use perfrun_contract::{
    matrix::Protocol,
    node::{Reason, Transfer},
};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::latencies::Latencies;

/// What the streams of a trial share while it runs. All counters are atomics, so that the data path never
/// waits for a reader.
#[derive(Debug, Default)]
pub struct Counters {
    /// Payload bytes handed to the stack.
    pub sent: AtomicU64,
    /// Payload bytes taken from the stack.
    pub received: AtomicU64,
    /// Connections established.
    pub connections: AtomicU64,
    /// Streams opened.
    pub streams: AtomicU64,
    /// Opens, handshakes and round trips that succeeded.
    pub operations: AtomicU64,
    /// Dials, opens, handshakes, round trips and ends of streams that failed.
    pub failures: AtomicU64,
    /// [`Self::failures`] by reason, in the order of [`Reason::ALL`].
    pub errors: [AtomicU64; Reason::ALL.len()],
    /// Open circuits of a relay.
    pub circuits: AtomicU64,
    /// Streams of an echo that have started and not ended.
    pub active: AtomicU64,
    /// Streams of an echo with a recent round trip.
    pub echoing: Echoing,
    /// Round trips of an echo.
    pub(crate) round_trips: Latencies,
    /// Cancelled when a server waits no longer for streams that only have to end.
    pub(crate) over: CancellationToken,
}

impl Counters {
    /// Adds to one of the counters.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Counts a failure.
    pub fn failed(&self, reason: Reason) {
        Self::add(&self.failures, 1);
        let counters = Reason::ALL.into_iter().zip(&self.errors);
        for (_, counter) in counters.filter(|(counted, _)| *counted == reason) {
            Self::add(counter, 1);
        }
    }

    /// Waits for the end of a stream on which nothing else is due. `None` if the server waits no longer: the
    /// end is lost, which is counted as a failure and takes nothing from what was exchanged.
    pub(crate) async fn await_end<T>(&self, end: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            end = end => Some(end),
            () = self.over.cancelled() => {
                self.failed(Reason::Timeout);
                None
            }
        }
    }
}

/// Counts the streams that were active in the current window, each once. The upper half of the number is the
/// window, the lower half the count.
#[derive(Debug)]
pub struct Echoing(AtomicU64);

impl Default for Echoing {
    fn default() -> Self {
        // Streams start with window 0, so the first window is 1.
        Self(AtomicU64::new(1 << 32))
    }
}

impl Echoing {
    /// Counts a stream as active. `last` is the window in which that stream was last counted, 0 at first.
    pub fn count(&self, last: &mut u32) {
        let window = |state: u64| (state >> 32) as u32;
        if window(self.0.load(Ordering::Relaxed)) != *last {
            *last = window(self.0.fetch_add(1, Ordering::Relaxed));
        }
    }

    /// Returns the count and starts the next window. Only one task may call this.
    pub fn take(&self) -> u64 {
        let window = self.0.load(Ordering::Relaxed) >> 32;
        self.0.swap((window + 1) << 32, Ordering::Relaxed) & u64::from(u32::MAX)
    }
}

/// Why an exchange ended early.
#[derive(Debug, Error)]
pub enum Error {
    /// The peer ended the stream early.
    #[error("the peer ended the stream after {got} of {due} bytes of {what}")]
    TooFewBytes {
        what: &'static str,
        /// Bytes that arrived.
        got: u64,
        /// Bytes that were due.
        due: u64,
    },
    /// The peer sent more than was due.
    #[error("the peer sent more than the {due} bytes of {what} that were due")]
    UnexpectedBytes {
        what: &'static str,
        /// Bytes that were due.
        due: u64,
    },
    /// The peer echoed other bytes than it received.
    #[error("the peer echoed other bytes than it was sent")]
    WrongEcho,
    /// The peer sent another line than the one that both ends use.
    #[error("the peer sent another line than the one that both ends use")]
    WrongLine,
    /// A message did not arrive.
    #[error("message {expected} is lost: {got} arrived in its place")]
    MessageLost {
        /// The number that was due.
        expected: u64,
        /// The number that arrived.
        got: u64,
    },
    /// The last messages before a silence did not arrive.
    #[error("message {first} is lost: a check that was sent after it arrived")]
    TailLost {
        /// The first of them.
        first: u64,
    },
    /// The peer acknowledged a message that is not in flight.
    #[error("the peer acknowledged message {got}, and messages {from} to {to} were in flight")]
    WrongAcknowledgement {
        /// The number that arrived.
        got: u64,
        /// First message in flight.
        from: u64,
        /// Last message in flight.
        to: u64,
    },
    /// The stack refused to send a message.
    #[error("the stack refused to send message {0}: its quota is used up, or its queue is full")]
    MessageRefused(u64),
    /// The stream broke.
    #[error("the stream broke: {0}")]
    Stream(#[from] io::Error),
}

impl Error {
    fn too_few(what: &'static str, got: u64, due: u64) -> Self {
        Self::TooFewBytes { what, got, due }
    }

    fn unexpected(what: &'static str, due: u64) -> Self {
        Self::UnexpectedBytes { what, due }
    }

    /// The reason in the results.
    pub fn reason(&self) -> Reason {
        match self {
            Self::TooFewBytes { .. } => Reason::TooFewBytes,
            Self::UnexpectedBytes { .. } | Self::WrongLine => Reason::UnexpectedBytes,
            Self::WrongEcho => Reason::WrongEcho,
            Self::MessageLost { .. } | Self::TailLost { .. } => Reason::MessageLost,
            Self::WrongAcknowledgement { .. } => Reason::UnexpectedBytes,
            Self::MessageRefused(_) => Reason::Refused,
            Self::Stream(_) => Reason::StreamFailed,
        }
    }
}

/// How much a sender sends.
#[derive(Clone, Copy, Debug)]
pub enum Volume {
    /// A number of bytes.
    Bytes(u64),
    /// As much as possible until a moment.
    Until(Instant),
}

/// Bytes as they arrived at a receiver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrival {
    /// Payload bytes.
    pub bytes: u64,
    /// End of the first read, and the bytes it brought.
    first: Option<(Instant, u64)>,
    /// End of the last read.
    last: Option<Instant>,
}

impl Arrival {
    fn add(&mut self, bytes: u64) {
        let now = Instant::now();
        self.bytes += bytes;
        self.first.get_or_insert((now, bytes));
        self.last = Some(now);
    }

    /// When the first bytes arrived.
    pub fn first(&self) -> Option<Instant> {
        self.first.map(|(at, _)| at)
    }

    /// When the last bytes arrived.
    pub fn last(&self) -> Option<Instant> {
        self.last
    }

    /// Extends the arrival to `at`: the receiver was ready until then, so that a stall at the end counts.
    fn lasts_until(&mut self, at: Instant) {
        self.last = self.last.map(|last| last.max(at));
    }

    /// Merges the arrival on another stream into this one.
    pub fn merge(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.first = [self.first, other.first]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at);
        self.last = self.last.max(other.last);
    }

    /// The transfer as the receiver reports it: `seconds` is from the first read until the last.
    pub fn transfer(&self) -> Option<Transfer> {
        let ((first, first_bytes), last) = (self.first?, self.last?);
        let seconds = (last - first).as_secs_f64();
        Some(Transfer {
            bytes: self.bytes,
            seconds,
            bytes_after_first: Some(self.bytes - first_bytes),
            first_to_last_seconds: Some(seconds),
        })
    }
}

/// The moments of one client's exchange.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Payload bytes sent.
    pub sent: u64,
    /// Before the first payload byte was written.
    pub begun: Instant,
    /// When the last write, or the half-close, returned.
    pub written: Instant,
    /// When the peer proved that it had consumed everything, by its first byte or its end of stream.
    pub consumed: Instant,
    /// When the download was requested.
    pub requested: Instant,
    /// The arrival of the download.
    pub arrival: Arrival,
}

/// What a stream writes from and reads into: zeros that all streams of a trial share, and its own read
/// buffer.
pub struct Buffers {
    zeros: Arc<[u8]>,
    /// Allocated by the first read, so that a stream which is only opened costs nothing.
    read: Vec<u8>,
}

impl Buffers {
    /// Buffers for writes and reads of as many bytes as `zeros` has.
    pub fn new(zeros: &Arc<[u8]>) -> Self {
        Self {
            zeros: zeros.clone(),
            read: vec![],
        }
    }

    /// Sends payload and counts what the stack accepts.
    async fn send<S: AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        volume: Volume,
        counters: &Counters,
    ) -> io::Result<u64> {
        let mut sent = 0u64;
        loop {
            let due = match volume {
                Volume::Bytes(bytes) => bytes - sent,
                Volume::Until(deadline) if Instant::now() >= deadline => 0,
                Volume::Until(_) => u64::MAX,
            };
            if due == 0 {
                return Ok(sent);
            }
            let chunk = &self.zeros[..self.zeros.len().min(usize::try_from(due).unwrap_or(usize::MAX))];
            let n = stream.write(chunk).await?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            sent += n as u64;
            Counters::add(&counters.sent, n as u64);
        }
    }

    /// Reads once, at most `due` bytes. Returns 0 at the end of the stream.
    async fn receive<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        due: u64,
        arrival: &mut Arrival,
        counters: &Counters,
    ) -> io::Result<u64> {
        self.read.resize(self.zeros.len(), 0);
        let most = self.read.len().min(usize::try_from(due).unwrap_or(usize::MAX));
        let n = stream.read(&mut self.read[..most]).await? as u64;
        if n > 0 {
            arrival.add(n);
            Counters::add(&counters.received, n);
        }
        Ok(n)
    }

    /// Half-closes and, at the same time, waits for the first bytes or the end of the stream. Returns the
    /// moment of the half-close. litep2p's QUIC waits there for the peer's acknowledgement: a download read
    /// only after that would have waited in buffers, and would seem faster than it was.
    async fn shutdown_and_receive<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        due: u64,
        arrival: &mut Arrival,
        counters: &Counters,
    ) -> io::Result<Instant> {
        self.read.resize(self.zeros.len(), 0);
        // At least one, to wait for the end of the stream even without a download.
        let most = self
            .read
            .len()
            .min(usize::try_from(due.max(1)).unwrap_or(usize::MAX));
        let mut written = None;
        let n = poll_fn(|cx| {
            if written.is_none() && ready_or_pending(Pin::new(&mut *stream).poll_shutdown(cx))? {
                written = Some(Instant::now());
            }
            let mut into = ReadBuf::new(&mut self.read[..most]);
            let read = Pin::new(&mut *stream).poll_read(cx, &mut into);
            read.map_ok(|()| into.filled().len() as u64)
        })
        .await?;
        if n > 0 {
            arrival.add(n);
            Counters::add(&counters.received, n);
        }
        // A peer that answers has received our end of stream, even if the stack has not reported it yet.
        Ok(written.unwrap_or_else(Instant::now))
    }

    /// Reads exactly `due` bytes of `what`.
    async fn receive_exactly<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        what: &'static str,
        due: u64,
        arrival: &mut Arrival,
        counters: &Counters,
    ) -> Result<(), Error> {
        while arrival.bytes < due {
            let got = arrival.bytes;
            if self.receive(stream, due - got, arrival, counters).await? == 0 {
                return Err(Error::too_few(what, got, due));
            }
        }
        Ok(())
    }
}

/// Serves one stream until it ends. `bytes` is what a server sends to a client that only reads.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    protocol: Protocol,
    stream: S,
    bytes: u64,
    buffers: &mut Buffers,
    counters: &Counters,
) -> Result<Arrival, Error> {
    match protocol {
        Protocol::Perf => return perf::serve(stream, buffers, counters).await,
        Protocol::Litep2pPerf => return litep2p_perf::serve(stream, buffers, counters).await,
        Protocol::TestData => test_data::serve(stream, bytes, buffers, counters).await?,
        // Echoes and messages have servers of their own.
        Protocol::Ping | Protocol::Echo | Protocol::Messages => ping::serve(stream, counters).await?,
    }
    Ok(Arrival::default())
}

fn ready_or_pending(poll: Poll<io::Result<()>>) -> io::Result<bool> {
    match poll {
        Poll::Ready(done) => done.map(|()| true),
        Poll::Pending => Ok(false),
    }
}

/// Reads a header. `None` if the stream ended before its first byte.
async fn read_header<S: AsyncRead + Unpin>(stream: &mut S, what: &'static str) -> Result<Option<u64>, Error> {
    let mut header = [0; 8];
    Ok(read_whole(stream, &mut header, what)
        .await?
        .then(|| u64::from_be_bytes(header)))
}

/// Fills `into`. `false` if the stream ended before its first byte.
async fn read_whole<S: AsyncRead + Unpin>(
    stream: &mut S,
    into: &mut [u8],
    what: &'static str,
) -> Result<bool, Error> {
    let got = stream.read(into).await?;
    read_rest(stream, into, got, what).await
}

/// Fills `into`, or else the stream may end. `false` if it did, or if its end is lost.
async fn read_next<S: AsyncRead + Unpin>(
    stream: &mut S,
    into: &mut [u8],
    what: &'static str,
    counters: &Counters,
) -> Result<bool, Error> {
    let got = counters.await_end(stream.read(into)).await.unwrap_or(Ok(0))?;
    read_rest(stream, into, got, what).await
}

/// Fills what is left of `into` after a first read, which got 0 bytes at the end of the stream.
async fn read_rest<S: AsyncRead + Unpin>(
    stream: &mut S,
    into: &mut [u8],
    mut got: usize,
    what: &'static str,
) -> Result<bool, Error> {
    if got == 0 {
        return Ok(false);
    }
    while got < into.len() {
        match stream.read(&mut into[got..]).await? {
            0 => {
                return Err(Error::too_few(what, got as u64, into.len() as u64));
            }
            n => got += n,
        }
    }
    Ok(true)
}

/// Writes a header.
async fn write_header<S: AsyncWrite + Unpin>(stream: &mut S, value: u64) -> io::Result<()> {
    stream.write_all(&value.to_be_bytes()).await
}

/// Whether an error means that the peer dropped the stream, which is how several protocols end.
pub(crate) fn is_dropped(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof, WriteZero,
    };
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof | WriteZero
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn arrival(base: Instant, reads: &[(u64, u64)]) -> Arrival {
        let at = |ms| base + Duration::from_millis(ms);
        Arrival {
            bytes: reads.iter().map(|(_, bytes)| bytes).sum(),
            first: reads.first().map(|(ms, bytes)| (at(*ms), *bytes)),
            last: reads.last().map(|(ms, _)| at(*ms)),
        }
    }

    #[test]
    fn arrivals_on_several_streams_merge_into_one_from_the_first_read_to_the_last() {
        let base = Instant::now();
        let mut all = Arrival::default();
        assert!(all.transfer().is_none());
        all.merge(&arrival(base, &[(100, 10), (200, 5)]));
        all.merge(&Arrival::default());
        all.merge(&arrival(base, &[(50, 7), (150, 1)]));
        all.merge(&arrival(base, &[(60, 100), (350, 2)]));
        let transfer = all.transfer().unwrap();
        assert_eq!((transfer.bytes, transfer.bytes_after_first), (125, Some(118)));
        assert_eq!(
            (transfer.seconds, transfer.first_to_last_seconds),
            (0.3, Some(0.3))
        );
        assert_eq!(all.first(), Some(base + Duration::from_millis(50)));
        assert_eq!(all.last(), Some(base + Duration::from_millis(350)));
    }

    #[test]
    fn a_stream_counts_once_in_a_window() {
        let echoing = Echoing::default();
        let mut streams = [0; 3];
        assert_eq!(echoing.take(), 0);
        for (round, busy) in [3, 1, 0, 2].into_iter().enumerate() {
            for _ in 0..=round {
                streams[..busy].iter_mut().for_each(|last| echoing.count(last));
            }
            assert_eq!(echoing.take(), busy as u64, "window {round}");
        }
    }

    #[test]
    fn one_read_gives_no_rate() {
        let transfer = arrival(Instant::now(), &[(0, 10)]).transfer().unwrap();
        assert_eq!(
            (transfer.bytes_after_first, transfer.first_to_last_seconds),
            (Some(0), Some(0.0))
        );
    }
}
