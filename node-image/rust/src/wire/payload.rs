//! Payload as it is sent, and as it arrives.

use std::{future::poll_fn, io, pin::Pin, sync::Arc, task::Poll, time::Instant};

use perfrun_contract::node::Transfer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::{Counters, Error};

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
    pub(super) fn add(&mut self, bytes: u64) {
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
    pub(super) fn extend_until(&mut self, at: Instant) {
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
    pub(super) read: Vec<u8>,
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
    pub(super) async fn send<S: AsyncWrite + Unpin>(
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
    pub(super) async fn receive<S: AsyncRead + Unpin>(
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
    pub(super) async fn shutdown_and_receive<S: AsyncRead + AsyncWrite + Unpin>(
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
    pub(super) async fn receive_exactly<S: AsyncRead + Unpin>(
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

fn ready_or_pending(poll: Poll<io::Result<()>>) -> io::Result<bool> {
    match poll {
        Poll::Ready(done) => done.map(|()| true),
        Poll::Pending => Ok(false),
    }
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
    fn one_read_gives_no_rate() {
        let transfer = arrival(Instant::now(), &[(0, 10)]).transfer().unwrap();
        assert_eq!(
            (transfer.bytes_after_first, transfer.first_to_last_seconds),
            (Some(0), Some(0.0))
        );
    }
}
