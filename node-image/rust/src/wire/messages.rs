//! Messages with sequence numbers. On a stream, each follows its length, a big-endian u32.
//!
//! The dialler's message 0 opens the exchange and counts nowhere. The last one has the highest bit of its
//! number set. The listener acknowledges both of them, and others after a number of messages that both ends
//! know, by a message that has nothing but the number of the one that arrived last.
//!
//! In one process, one task has both ends: it sees itself what arrives, and acknowledges nothing.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use futures::{Sink, Stream};
use perfrun_contract::{
    histogram::Recorder,
    limits::MESSAGE_MAX,
    parameters::{Amount, Messages},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::{
    bytes::{Buf, BufMut, BytesMut},
    codec::{self, Decoder, Encoder},
};

use super::{Arrival, Counters, Error};
use crate::messenger::{Message, Messenger};

/// Marks the number of the last message.
const LAST: u64 = 1 << 63;

/// The name in errors.
const PAYLOAD: &str = "a message";

/// Most bytes of a read, and bytes that are written together.
const READ: usize = 64 << 10;

/// Messages on a stream.
pub struct Framed<S>(codec::Framed<S, Frames>);

impl<S: AsyncRead + AsyncWrite> Framed<S> {
    /// Frames messages on `stream`.
    pub fn new(stream: S) -> Self {
        let mut frames = codec::Framed::with_capacity(stream, Frames::default(), READ);
        frames.set_backpressure_boundary(READ);
        Self(frames)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Messenger for Framed<S> {
    fn poll_send(&mut self, cx: &mut Context<'_>, message: Message) -> Poll<io::Result<bool>> {
        let mut frames = Pin::new(&mut self.0);
        ready!(frames.as_mut().poll_ready(cx))?;
        Poll::Ready(frames.start_send(message).map(|()| true))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Message>>> {
        Pin::new(&mut self.0).poll_next(cx).map(Option::transpose)
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A stream that breaks has ended, too.
        self.poll_receive(cx).map(|_| ())
    }
}

/// Frames of messages. What follows the number of a message is skipped as it comes, so that a declared length
/// takes no memory.
#[derive(Default)]
struct Frames {
    /// The message that is arriving, and the bytes of it that are still due.
    arriving: Option<(Message, usize)>,
}

impl Frames {
    /// Bytes of a length.
    const LENGTH: usize = 4;
}

impl Encoder<Message> for Frames {
    type Error = io::Error;

    fn encode(&mut self, message: Message, to: &mut BytesMut) -> io::Result<()> {
        let length = u32::try_from(message.bytes).map_err(io::Error::other)?;
        to.reserve(Self::LENGTH + message.bytes);
        to.put_u32(length);
        to.put_u64(message.sequence);
        to.put_bytes(0, message.bytes - Message::LEAST);
        Ok(())
    }
}

impl Decoder for Frames {
    type Item = Message;
    type Error = io::Error;

    fn decode(&mut self, from: &mut BytesMut) -> io::Result<Option<Message>> {
        let (message, due) = match self.arriving.take() {
            Some(arriving) => arriving,
            None if from.len() < Self::LENGTH + Message::LEAST => return Ok(None),
            None => {
                let bytes = from.get_u32() as usize;
                if !(Message::LEAST..=MESSAGE_MAX.0 as usize).contains(&bytes) {
                    let error = format!("the peer announced a message of {bytes} bytes");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
                let sequence = from.get_u64();
                (Message { sequence, bytes }, bytes - Message::LEAST)
            }
        };
        let skipped = due.min(from.len());
        from.advance(skipped);
        if skipped == due {
            return Ok(Some(message));
        }
        self.arriving = Some((message, due - skipped));
        Ok(None)
    }

    fn decode_eof(&mut self, from: &mut BytesMut) -> io::Result<Option<Message>> {
        match self.decode(from)? {
            None if self.arriving.is_some() || !from.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            whole_or_none => Ok(whole_or_none),
        }
    }
}

/// What a dialler found.
#[derive(Clone, Copy, Debug)]
pub struct Exchanged {
    /// Bytes of messages that arrived.
    pub bytes: u64,
    /// From the first message until the last one was known to have arrived.
    pub time: Duration,
}

/// Sends message 0, with which the listener's end begins.
pub async fn begin<M: Messenger + ?Sized>(messenger: &mut M) -> Result<(), Error> {
    send(messenger, bare(0)).await
}

/// Sends message 0 and waits for its acknowledgement.
pub async fn open<M: Messenger + ?Sized>(messenger: &mut M) -> Result<(), Error> {
    begin(messenger).await?;
    let got = acknowledged(poll_fn(|cx| messenger.poll_receive(cx)).await?, 0)?;
    match got {
        0 => Ok(()),
        got => Err(Error::WrongAcknowledgement { got, from: 0, to: 0 }),
    }
}

/// Sends messages with at most a window of them in flight, until the last is acknowledged. `trips` gets the
/// round trips of acknowledged messages: from giving the message to the stack until the acknowledgement that
/// names it.
pub async fn run<M: Messenger + ?Sized>(
    messenger: &mut M,
    load: &Messages,
    counters: &Counters,
    trips: &mut Recorder,
) -> Result<Exchanged, Error> {
    let begun = Instant::now();
    let (mut sent, mut arrived, mut is_last) = (0, 0, false);
    // When the messages in flight were sent.
    let mut in_flight = VecDeque::with_capacity(load.window as usize);
    while !(is_last && arrived == sent) {
        let has_room = !is_last && sent - arrived < u64::from(load.window);
        let step = poll_fn(|cx| {
            if let Poll::Ready(received) = messenger.poll_receive(cx)? {
                return Poll::Ready(Ok(Step::Received(received)));
            }
            if !has_room {
                ready!(messenger.poll_flush(cx))?;
                return Poll::Pending;
            }
            let (sequence, now) = (sent + 1, Instant::now());
            let is_last = match load.amount {
                Amount::Count(count) => sequence >= count,
                Amount::Seconds(seconds) => (now - begun).as_secs_f64() >= seconds,
            };
            let marked = sequence | if is_last { LAST } else { 0 };
            match ready!(messenger.poll_send(cx, message(load, marked)))? {
                true => Poll::Ready(Ok(Step::Sent { at: now, is_last })),
                false => Poll::Ready(Err(Error::MessageRefused(sequence))),
            }
        })
        .await?;
        match step {
            Step::Sent { at, is_last: last } => {
                in_flight.push_back(at);
                (sent, is_last) = (sent + 1, last);
                Counters::add(&counters.sent, load.message_bytes.0);
            }
            Step::Received(received) => {
                let got = acknowledged(received, arrived + 1)?;
                if !(arrived + 1..=sent).contains(&got) {
                    return Err(Error::WrongAcknowledgement {
                        got,
                        from: arrived + 1,
                        to: sent,
                    });
                }
                let now = Instant::now();
                let acknowledged = got - arrived;
                // Only the message that is named was acknowledged immediately.
                if let Some(at) = in_flight.drain(..acknowledged as usize).next_back() {
                    record(trips, now - at);
                }
                Counters::add(&counters.operations, acknowledged);
                arrived = got;
            }
        }
    }
    Ok(Exchanged {
        bytes: arrived * load.message_bytes.0,
        time: begun.elapsed(),
    })
}

enum Step {
    Sent { at: Instant, is_last: bool },
    Received(Option<Message>),
}

/// Takes messages until the last, and acknowledges them.
pub async fn serve<M: Messenger + ?Sized>(
    messenger: &mut M,
    load: &Messages,
    counters: &Counters,
) -> Result<Arrival, Error> {
    let mut arrival = Arrival::default();
    let each = u64::from(load.acknowledged_each());
    let mut acknowledged = 0;
    for expected in 0.. {
        let Some(got) = poll_fn(|cx| messenger.poll_receive(cx)).await? else {
            // A peer may leave before it has begun.
            return match expected {
                0 => Ok(arrival),
                _ => Err(ended_early(expected)),
            };
        };
        let is_last = arrive(got, expected, load, counters, &mut arrival)?;
        if expected == 0 || is_last || expected - acknowledged >= each {
            acknowledged = expected;
            send(messenger, bare(expected)).await?;
        }
        if is_last {
            // Otherwise the last acknowledgement could be lost with the stream.
            poll_fn(|cx| messenger.poll_ended(cx)).await;
            break;
        }
    }
    Ok(arrival)
}

/// Sends one message at a time, each after the last has arrived at the other end, in this task. `from` has
/// [begun](begin). `times` gets the time from giving a message to the stack until it arrived.
pub async fn serial<A: Messenger + ?Sized, B: Messenger + ?Sized>(
    from: &mut A,
    to: &mut B,
    load: &Messages,
    [sender, receiver]: [&Counters; 2],
    times: &mut Recorder,
) -> Result<(Exchanged, Arrival), Error> {
    let mut arrival = Arrival::default();
    arrives(from, to, load, 0, receiver, &mut arrival).await?;
    let begun = Instant::now();
    let mut at = begun;
    for sequence in 1.. {
        give(from, message(load, sequence)).await?;
        arrives(from, to, load, sequence, receiver, &mut arrival).await?;
        let now = Instant::now();
        record(times, now - at);
        Counters::add(&sender.sent, load.message_bytes.0);
        Counters::add(&sender.operations, 1);
        let is_last = match load.amount {
            Amount::Count(count) => sequence >= count,
            Amount::Seconds(seconds) => (now - begun).as_secs_f64() >= seconds,
        };
        at = now;
        if is_last {
            break;
        }
    }
    let exchanged = Exchanged {
        bytes: arrival.bytes,
        time: at - begun,
    };
    Ok((exchanged, arrival))
}

/// Waits until a message that was given to the stack at one end has arrived at the other.
async fn arrives<A: Messenger + ?Sized, B: Messenger + ?Sized>(
    from: &mut A,
    to: &mut B,
    load: &Messages,
    sequence: u64,
    counters: &Counters,
    arrival: &mut Arrival,
) -> Result<(), Error> {
    let got = poll_fn(|cx| {
        // At the same time, for messages larger than all buffers.
        if let Poll::Ready(Err(error)) = from.poll_flush(cx) {
            return Poll::Ready(Err(error));
        }
        to.poll_receive(cx)
    })
    .await?
    .ok_or_else(|| ended_early(sequence))?;
    arrive(got, sequence, load, counters, arrival).map(|_| ())
}

/// Counts a message that arrived. Returns whether it is the last.
fn arrive(
    message: Message,
    expected: u64,
    load: &Messages,
    counters: &Counters,
    arrival: &mut Arrival,
) -> Result<bool, Error> {
    let due = match expected {
        0 => Message::LEAST as u64,
        _ => load.message_bytes.0,
    };
    let (got, bytes) = (message.sequence & !LAST, message.bytes as u64);
    if got != expected {
        return Err(Error::MessageLost { expected, got });
    }
    if bytes < due {
        let what = PAYLOAD;
        return Err(Error::TooFewBytes {
            what,
            got: bytes,
            due,
        });
    }
    if bytes > due {
        return Err(Error::UnexpectedBytes { what: PAYLOAD, due });
    }
    if expected > 0 {
        arrival.add(bytes);
        Counters::add(&counters.received, bytes);
    }
    Ok(message.sequence & LAST != 0)
}

/// The number that an acknowledgement names.
fn acknowledged(received: Option<Message>, expected: u64) -> Result<u64, Error> {
    let Message { sequence, bytes } = received.ok_or_else(|| ended_early(expected))?;
    match bytes {
        Message::LEAST => Ok(sequence),
        _ => Err(Error::UnexpectedBytes {
            what: "an acknowledgement",
            due: Message::LEAST as u64,
        }),
    }
}

/// A message that has nothing but its number.
fn bare(sequence: u64) -> Message {
    Message {
        sequence,
        bytes: Message::LEAST,
    }
}

fn message(load: &Messages, sequence: u64) -> Message {
    Message {
        sequence,
        bytes: load.message_bytes.0 as usize,
    }
}

/// Gives the stack a message.
async fn give<M: Messenger + ?Sized>(messenger: &mut M, message: Message) -> Result<(), Error> {
    match poll_fn(|cx| messenger.poll_send(cx, message)).await? {
        true => Ok(()),
        false => Err(Error::MessageRefused(message.sequence & !LAST)),
    }
}

/// Gives the stack a message and makes it send it.
async fn send<M: Messenger + ?Sized>(messenger: &mut M, message: Message) -> Result<(), Error> {
    give(messenger, message).await?;
    Ok(poll_fn(|cx| messenger.poll_flush(cx)).await?)
}

fn ended_early(due: u64) -> Error {
    let error = format!("the peer ended the exchange, and message {due} was due");
    io::Error::new(io::ErrorKind::UnexpectedEof, error).into()
}

fn record(recorder: &mut Recorder, time: Duration) {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    recorder
        .record(nanoseconds)
        .expect("a recorder that resizes takes every value");
}

#[cfg(test)]
mod tests {
    use futures::SinkExt;
    use perfrun_contract::{histogram::recorder, quantity::ByteSize, workload::MessageMode};
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::wire::testing::*;

    fn load(bytes: u64, window: u32, count: u64) -> Messages {
        Messages {
            mode: MessageMode::Stream,
            message_bytes: ByteSize(bytes),
            amount: Amount::Count(count),
            window,
        }
    }

    /// A pipe of `capacity` bytes with messages framed on both ends.
    fn pair(capacity: usize) -> (Framed<DuplexStream>, Framed<DuplexStream>) {
        let (ours, theirs) = duplex(capacity);
        (Framed::new(ours), Framed::new(theirs))
    }

    /// What the listener makes of messages with these numbers and lengths.
    async fn served(load: Messages, sent: &[(u64, usize)]) -> Result<Arrival, Error> {
        let (mut ours, mut theirs) = pair(1 << 20);
        for &(sequence, bytes) in sent {
            send(&mut ours, Message { sequence, bytes }).await.unwrap();
        }
        ours.0.close().await.unwrap();
        serve(&mut theirs, &load, &Counters::default()).await
    }

    /// What the dialler makes of an acknowledgement of these bytes.
    async fn acknowledged_by(sequence: u64, bytes: usize) -> Result<Exchanged, Error> {
        let (mut ours, mut theirs) = pair(1 << 20);
        send(&mut theirs, Message { sequence, bytes }).await.unwrap();
        run(&mut ours, &load(16, 4, 4), &Counters::default(), &mut recorder()).await
    }

    #[tokio::test]
    async fn all_messages_arrive_whatever_their_size_and_the_pipes() {
        for capacity in PIPES {
            for bytes in [8, 9, 64, 1000] {
                for (window, count) in [(1, 1), (1, 5), (4, 3), (4, 4), (64, 100)] {
                    let load = load(bytes, window, count);
                    let (mut ours, mut theirs) = pair(capacity);
                    let (client, server) = (Counters::default(), Counters::default());
                    let mut trips = recorder();
                    let dial = async {
                        open(&mut ours).await?;
                        let exchanged = run(&mut ours, &load, &client, &mut trips).await;
                        drop(ours);
                        exchanged
                    };
                    let (ran, served) = tokio::join!(dial, serve(&mut theirs, &load, &server));
                    let (exchanged, arrival) = (ran.unwrap(), served.unwrap());
                    assert_eq!((exchanged.bytes, arrival.bytes), (bytes * count, bytes * count));
                    assert_eq!(counted(&client), (0, bytes * count));
                    assert_eq!(counted(&server), (bytes * count, 0));
                    // One for each acknowledgement.
                    let trips_due = count.div_ceil(u64::from(load.acknowledged_each()));
                    assert_eq!(trips.len(), trips_due, "{load:?}");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn messages_are_sent_for_a_time() {
        let timed = Messages {
            amount: Amount::Seconds(0.02),
            ..load(64, 8, 1)
        };
        let (mut ours, mut theirs) = pair(1 << 16);
        let (counters, mut trips) = (Counters::default(), recorder());
        let dial = async {
            open(&mut ours).await?;
            let exchanged = run(&mut ours, &timed, &counters, &mut trips).await;
            drop(ours);
            exchanged
        };
        let counters = Counters::default();
        let (ran, served) = tokio::join!(dial, serve(&mut theirs, &timed, &counters));
        let (exchanged, arrival) = (ran.unwrap(), served.unwrap());
        assert!(exchanged.time >= Duration::from_millis(20), "{exchanged:?}");
        assert_eq!(exchanged.bytes, arrival.bytes);
        assert!(arrival.bytes >= 64);
    }

    #[tokio::test]
    async fn one_task_with_both_ends_sees_each_message_arrive() {
        for capacity in PIPES {
            let load = load(100, 1, 7);
            let (mut ours, mut theirs) = pair(capacity);
            let (sender, receiver) = (Counters::default(), Counters::default());
            let mut times = recorder();
            let both = async {
                give(&mut ours, bare(0)).await?;
                serial(&mut ours, &mut theirs, &load, [&sender, &receiver], &mut times).await
            };
            let (exchanged, arrival) = both.await.unwrap();
            assert_eq!((exchanged.bytes, arrival.bytes, times.len()), (700, 700, 7));
            assert_eq!((counted(&sender), counted(&receiver)), ((0, 700), (700, 0)));
        }
    }

    #[tokio::test]
    async fn a_gap_in_the_numbers_is_a_lost_message() {
        for sent in [&[(0, 8), (2, 16)][..], &[(0, 8), (1, 16), (1, 16)], &[(1, 16)]] {
            let error = served(load(16, 4, 4), sent).await.unwrap_err();
            assert!(matches!(error, Error::MessageLost { .. }), "{sent:?}: {error:?}");
        }
    }

    #[tokio::test]
    async fn messages_of_another_length_are_refused() {
        let short = served(load(16, 4, 4), &[(0, 8), (1, 15)]).await;
        assert!(too_few(&short), "{short:?}");
        let long = served(load(16, 4, 4), &[(0, 8), (1, 17)]).await;
        assert!(unexpected(&long), "{long:?}");
    }

    #[tokio::test]
    async fn a_peer_may_leave_before_the_first_message_but_not_before_the_last() {
        assert_eq!(served(load(16, 4, 4), &[]).await.unwrap().bytes, 0);
        let early = served(load(16, 4, 4), &[(0, 8), (1, 16)]).await;
        assert!(matches!(early, Err(Error::Stream(_))), "{early:?}");
    }

    #[tokio::test]
    async fn an_acknowledgement_must_be_of_a_message_in_flight_and_bare() {
        for sequence in [0, 5, u64::MAX] {
            let error = acknowledged_by(sequence, 8).await.unwrap_err();
            assert!(matches!(error, Error::WrongAcknowledgement { .. }), "{error:?}");
        }
        let long = acknowledged_by(1, 9).await;
        assert!(unexpected(&long), "{long:?}");
    }

    #[tokio::test]
    async fn a_declared_length_takes_no_memory_and_has_bounds() {
        for announced in [0, 7, MESSAGE_MAX.0 as u32 + 1, u32::MAX] {
            let (mut ours, theirs) = duplex(64);
            ours.write_u32(announced).await.unwrap();
            ours.write_u64(0).await.unwrap();
            let served = serve(&mut Framed::new(theirs), &load(16, 4, 4), &Counters::default()).await;
            assert!(matches!(served, Err(Error::Stream(_))), "{announced}: {served:?}");
        }
    }

    #[tokio::test]
    async fn half_a_message_is_an_early_end() {
        for got in 1..20 {
            let (mut ours, theirs) = duplex(64);
            let message = [[0; 3].as_slice(), &[16], &[0; 16]].concat();
            ours.write_all(&message[..got]).await.unwrap();
            drop(ours);
            let mut frames = Framed::new(theirs);
            let received = poll_fn(|cx| frames.poll_receive(cx)).await;
            assert!(received.is_err(), "{got}: {received:?}");
        }
    }
}
