//! Messages with sequence numbers.
//!
//! The dialler's message 0 opens the exchange and counts nowhere. Its stamp says how far the listener's clock
//! is ahead of the dialler's; the stamps of all others are the moments at which they were due. The last one
//! has the highest bit of its number set. The listener acknowledges both of them, and others after a number
//! of messages that both ends know. An acknowledgement has nothing but the number of the message that arrived
//! last.
//!
//! In one process, one task has both ends: it sees itself what arrives, and acknowledges nothing.
//!
//! Where a stack may lose messages, the dialler checks after a silence whether they arrived.
//!
//! A broadcast ([`serve_broadcast`]) has the same first message, and another end.

mod broadcast;
mod checks;
mod framed;
mod pace;
#[cfg(test)]
mod testing;

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    task::{Poll, ready},
    time::{Duration, Instant},
};

use perfrun_contract::{
    histogram::{Recorder, record},
    parameters::{Amount, Messages},
};
use perfrun_stack::messenger::{Message, Messenger};

pub use self::{
    broadcast::{Broadcast, broadcast, serve_broadcast},
    framed::Framed,
};
use self::{checks::Checks, pace::Pace};
use super::{Arrival, Counters, Error};
use crate::clock;

/// Marks the number of the last message.
const LAST: u64 = 1 << 63;

/// The name in errors.
const PAYLOAD: &str = "a message";

/// The stamp of message 0 if it is unknown how far the clocks are apart.
const UNKNOWN: i64 = i64::MIN;

/// What a dialler found.
#[derive(Clone, Copy, Debug)]
pub struct Exchanged {
    /// Bytes of messages that arrived.
    pub bytes: u64,
    /// From the first message until the last one was known to have arrived.
    pub time: Duration,
}

/// Sends message 0, with which the listener's end begins. `clock` is how far the listener's clock is ahead of
/// this one, in nanoseconds, if that is known.
pub async fn begin<M: Messenger + ?Sized>(messenger: &mut M, clock: Option<i64>) -> Result<(), Error> {
    send(messenger, first(clock)).await
}

/// Message 0.
fn first(clock: Option<i64>) -> Message {
    Message {
        sequence: 0,
        stamp: clock.unwrap_or(UNKNOWN).cast_unsigned(),
        bytes: Message::STAMPED,
    }
}

/// What message 0 says of the clocks. See [`begin`].
fn clock_of(first: Message) -> Option<i64> {
    Some(first.stamp.cast_signed()).filter(|clock| *clock != UNKNOWN)
}

/// Sends message 0 and waits for its acknowledgement. See [`begin`].
pub async fn open<M: Messenger + ?Sized>(messenger: &mut M, clock: Option<i64>) -> Result<(), Error> {
    begin(messenger, clock).await?;
    let got = acknowledged(poll_fn(|cx| messenger.poll_receive(cx)).await?, 0)?;
    match got {
        0 => Ok(()),
        got => Err(Error::WrongAcknowledgement { got, from: 0, to: 0 }),
    }
}

/// Sends messages with at most a window of them in flight, until the last is acknowledged. `trips` gets the
/// round trips of acknowledged messages: from the moment at which the message was due, which without a rate
/// is when the stack gets it, until the acknowledgement that names it.
pub async fn run<M: Messenger + ?Sized>(
    messenger: &mut M,
    load: &Messages,
    counters: &Counters,
    trips: &mut Recorder,
) -> Result<Exchanged, Error> {
    let mut pace = Pace::begin(load.rate)?;
    let begun = pace.begun;
    let (mut sent, mut arrived, mut is_last) = (0, 0, false);
    // When the messages in flight were sent.
    let mut in_flight = VecDeque::with_capacity(load.window as usize);
    let mut checks = Checks::of(messenger);
    while !(is_last && arrived == sent) {
        let has_room = !is_last && sent - arrived < u64::from(load.window);
        let step = poll_fn(|cx| {
            if let Poll::Ready(received) = messenger.poll_receive(cx)? {
                return Poll::Ready(Ok(Step::Received(received)));
            }
            if has_room && let Poll::Ready(due) = pace.poll_due(cx, sent)? {
                let sequence = sent + 1;
                let is_last = is_last_of(load, sequence, due - begun);
                let marked = sequence | if is_last { LAST } else { 0 };
                return match ready!(messenger.poll_send(cx, message(load, marked, due)))? {
                    true => Poll::Ready(Ok(Step::Sent { due, is_last })),
                    false => Poll::Ready(Err(Error::MessageRefused(sequence))),
                };
            }
            if let Poll::Ready(flushed) = messenger.poll_flush(cx) {
                flushed?;
            }
            checks
                .poll_due(cx, sent - arrived, arrived)
                .map(|()| Ok(Step::Silent))
        })
        .await?;
        match step {
            Step::Silent => checks::check(messenger, sent).await?,
            Step::Received(Some(answer)) if checks.is_answer(answer) => checks::check_answer(answer)?,
            Step::Sent { due, is_last: last } => {
                in_flight.push_back(due);
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
                if let Some(due) = in_flight.drain(..acknowledged as usize).next_back() {
                    record(trips, now - due);
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
    Sent { due: Instant, is_last: bool },
    Received(Option<Message>),
    Silent,
}

/// Takes messages until the last, and acknowledges them. `times` gets the times from the moment at which a
/// message was due until it arrived, if it is known how far the clocks are apart.
pub async fn serve<M: Messenger + ?Sized>(
    messenger: &mut M,
    load: &Messages,
    counters: &Counters,
    times: &mut Recorder,
) -> Result<Arrival, Error> {
    let mut arriving = Arriving::new(load, counters);
    let mut clock = None;
    let each = u64::from(load.acknowledged_each());
    let mut acknowledged = 0;
    for expected in 0.. {
        let Some(got) = checks::receive(messenger, expected).await? else {
            return ended_before(expected, arriving.arrival);
        };
        let is_last = arriving.count(got, expected)?;
        match expected {
            0 => clock = clock_of(got),
            _ => record_one_way(times, got, clock, &arriving.arrival),
        }
        if expected == 0 || is_last || expected - acknowledged >= each {
            acknowledged = expected;
            send(messenger, Message::bare(expected)).await?;
        }
        if is_last {
            // Otherwise the last acknowledgement could be lost with the stream.
            let _ = counters.await_end(poll_fn(|cx| messenger.poll_ended(cx))).await;
            break;
        }
    }
    Ok(arriving.arrival)
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
    let (mut arriving, mut checks) = (Arriving::new(load, receiver), Checks::of(from));
    arriving.take(from, to, &mut checks, 0).await?;
    let mut pace = Pace::begin(load.rate)?;
    let begun = pace.begun;
    let mut now = begun;
    for sequence in 1.. {
        let due = poll_fn(|cx| pace.poll_due(cx, sequence - 1)).await?;
        // Without a rate, a message follows the last one.
        let due = if load.rate.is_some() { due } else { now };
        give(from, message(load, sequence, due)).await?;
        arriving.take(from, to, &mut checks, sequence).await?;
        now = Instant::now();
        record(times, now - due);
        Counters::add(&sender.sent, load.message_bytes.0);
        Counters::add(&sender.operations, 1);
        if is_last_of(load, sequence, now - begun) {
            break;
        }
    }
    let exchanged = Exchanged {
        bytes: arriving.arrival.bytes,
        time: now - begun,
    };
    Ok((exchanged, arriving.arrival))
}

/// What has arrived at one end of an exchange, and what is due there.
struct Arriving<'a> {
    load: &'a Messages,
    counters: &'a Counters,
    arrival: Arrival,
}

impl<'a> Arriving<'a> {
    fn new(load: &'a Messages, counters: &'a Counters) -> Self {
        Self {
            load,
            counters,
            arrival: Arrival::default(),
        }
    }

    /// Waits until a message that was given to the stack at the other end has arrived at this one, `to`.
    async fn take<A: Messenger + ?Sized, B: Messenger + ?Sized>(
        &mut self,
        from: &mut A,
        to: &mut B,
        checks: &mut Checks,
        sequence: u64,
    ) -> Result<(), Error> {
        let got = loop {
            let step = poll_fn(|cx| {
                // At the same time, for messages larger than all buffers.
                if let Poll::Ready(Err(error)) = from.poll_flush(cx) {
                    return Poll::Ready(Err(error));
                }
                if let Poll::Ready(received) = to.poll_receive(cx)? {
                    return Poll::Ready(Ok(Step::Received(received)));
                }
                checks.poll_due(cx, 1, sequence).map(|()| Ok(Step::Silent))
            });
            match step.await? {
                Step::Received(Some(check)) if checks.is_answer(check) => checks::check_end(check, sequence)?,
                Step::Received(received) => break received.ok_or_else(|| ended_early(sequence))?,
                _ => checks::check(from, sequence).await?,
            }
        };
        self.count(got, sequence).map(|_| ())
    }

    /// Counts a message that arrived. Returns whether it is the last.
    fn count(&mut self, message: Message, expected: u64) -> Result<bool, Error> {
        let due = match expected {
            0 => Message::STAMPED as u64,
            _ => self.load.message_bytes.0,
        };
        let (got, bytes) = (message.sequence & !LAST, message.bytes as u64);
        if got != expected {
            return Err(Error::MessageLost { expected, got });
        }
        if bytes < due {
            return Err(Error::too_few(PAYLOAD, bytes, due));
        }
        if bytes > due {
            return Err(Error::unexpected(PAYLOAD, due));
        }
        if expected > 0 {
            self.arrival.add(bytes);
            Counters::add(&self.counters.received, bytes);
        }
        Ok(message.sequence & LAST != 0)
    }
}

/// The number that an acknowledgement names.
fn acknowledged(received: Option<Message>, expected: u64) -> Result<u64, Error> {
    let Message { sequence, bytes, .. } = received.ok_or_else(|| ended_early(expected))?;
    match bytes {
        Message::LEAST => Ok(sequence),
        _ => Err(Error::unexpected("an acknowledgement", Message::LEAST as u64)),
    }
}

/// A message of the load that is due at this moment.
fn message(load: &Messages, sequence: u64, due: Instant) -> Message {
    Message {
        sequence,
        stamp: clock::nanoseconds(due),
        bytes: load.message_bytes.0 as usize,
    }
}

/// Whether a message is the last one. `after` is the time from the beginning.
fn is_last_of(load: &Messages, sequence: u64, after: Duration) -> bool {
    match load.amount {
        Amount::Count(count) => sequence >= count,
        Amount::Seconds(seconds) => after.as_secs_f64() >= seconds,
    }
}

/// Records how long a message took that has just arrived. `clock` is how far this clock is ahead of the
/// sender's.
fn record_one_way(times: &mut Recorder, message: Message, clock: Option<i64>, arrival: &Arrival) {
    let Some((clock, at)) = clock
        .zip(arrival.last())
        .filter(|_| message.bytes >= Message::STAMPED)
    else {
        return;
    };
    let due = message.stamp.saturating_add_signed(clock);
    // Below zero if the clocks are further apart than believed.
    let took = clock::nanoseconds(at).saturating_sub(due);
    record(times, Duration::from_nanos(took));
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

/// What the listener makes of an end before message `due`: a peer may leave before it has begun.
fn ended_before(due: u64, arrival: Arrival) -> Result<Arrival, Error> {
    match due {
        0 => Ok(arrival),
        due => Err(ended_early(due)),
    }
}

fn ended_early(due: u64) -> Error {
    let error = format!("the peer ended the exchange, and message {due} was due");
    io::Error::new(io::ErrorKind::UnexpectedEof, error).into()
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{histogram::recorder, limits::MESSAGE_MAX};
    #[cfg(feature = "jemalloc")]
    use tikv_jemalloc_ctl::thread::allocatedp;
    use tokio::{
        io::{AsyncWriteExt, duplex},
        net::UnixStream,
    };

    use super::{testing::*, *};
    use crate::wire::testing::*;

    /// What the listener makes of messages with these numbers and lengths.
    async fn served(load: Messages, sent: &[(u64, usize)]) -> Result<Arrival, Error> {
        let (mut ours, mut theirs) = pair(1 << 20);
        for &(sequence, bytes) in sent {
            send(&mut ours, numbered(sequence, bytes)).await.unwrap();
        }
        // It can still be written to.
        let mut ours = ours.into_inner();
        ours.shutdown().await.unwrap();
        serve(&mut theirs, &load, &Counters::default(), &mut recorder()).await
    }

    /// What the dialler makes of an acknowledgement of these bytes.
    async fn acknowledged_by(sequence: u64, bytes: usize) -> Result<Exchanged, Error> {
        let (mut ours, mut theirs) = pair(1 << 20);
        send(&mut theirs, numbered(sequence, bytes)).await.unwrap();
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
                    let (mut trips, mut one_way) = (recorder(), recorder());
                    let dial = async {
                        open(&mut ours, Some(0)).await?;
                        let exchanged = run(&mut ours, &load, &client, &mut trips).await;
                        drop(ours);
                        exchanged
                    };
                    let (ran, served) = tokio::join!(dial, serve(&mut theirs, &load, &server, &mut one_way));
                    let (exchanged, arrival) = (ran.unwrap(), served.unwrap());
                    assert_eq!((exchanged.bytes, arrival.bytes), (bytes * count, bytes * count));
                    assert_eq!(counted(&client), (0, bytes * count));
                    assert_eq!(counted(&server), (bytes * count, 0));
                    // One for each acknowledgement.
                    let trips_due = count.div_ceil(u64::from(load.acknowledged_each()));
                    assert_eq!(trips.len(), trips_due, "{load:?}");
                    // Shorter messages have no stamp.
                    assert_eq!(one_way.len(), if bytes < 16 { 0 } else { count }, "{load:?}");
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
            open(&mut ours, Some(0)).await?;
            let exchanged = run(&mut ours, &timed, &counters, &mut trips).await;
            drop(ours);
            exchanged
        };
        let (counters, mut times) = (Counters::default(), recorder());
        let (ran, served) = tokio::join!(dial, serve(&mut theirs, &timed, &counters, &mut times));
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
                give(&mut ours, first(None)).await?;
                serial(&mut ours, &mut theirs, &load, [&sender, &receiver], &mut times).await
            };
            let (exchanged, arrival) = both.await.unwrap();
            assert_eq!((exchanged.bytes, arrival.bytes, times.len()), (700, 700, 7));
            assert_eq!((counted(&sender), counted(&receiver)), ((0, 700), (700, 0)));
        }
    }

    #[tokio::test]
    async fn a_gap_in_the_numbers_is_a_lost_message() {
        for sent in [&[(0, 16), (2, 16)][..], &[(0, 16), (1, 16), (1, 16)], &[(1, 16)]] {
            let error = served(load(16, 4, 4), sent).await.unwrap_err();
            assert!(matches!(error, Error::MessageLost { .. }), "{sent:?}: {error:?}");
        }
    }

    #[tokio::test]
    async fn messages_of_another_length_are_refused() {
        let short = served(load(16, 4, 4), &[(0, 16), (1, 15)]).await;
        assert!(too_few(&short), "{short:?}");
        let long = served(load(16, 4, 4), &[(0, 16), (1, 17)]).await;
        assert!(unexpected(&long), "{long:?}");
    }

    #[tokio::test]
    async fn a_peer_may_leave_before_the_first_message_but_not_before_the_last() {
        assert_eq!(served(load(16, 4, 4), &[]).await.unwrap().bytes, 0);
        let early = served(load(16, 4, 4), &[(0, 16), (1, 16)]).await;
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
            let served = serve(
                &mut Framed::new(theirs),
                &load(16, 4, 4),
                &Counters::default(),
                &mut recorder(),
            )
            .await;
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

    /// Bytes that both ends of an exchange of `count` messages allocate on this thread.
    #[cfg(feature = "jemalloc")]
    async fn allocated_by(bytes: u64, window: u32, count: u64) -> u64 {
        let load = load(bytes, window, count);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut ours, mut theirs) = (Framed::new(ours), Framed::new(theirs));
        // Recorders that never have to grow.
        let [mut trips, mut one_way] = [(); 2].map(|()| {
            let mut recorder = recorder();
            record(&mut recorder, Duration::from_secs(3600));
            recorder
        });
        let (client, server) = (Counters::default(), Counters::default());
        let allocated = allocatedp::read().expect("jemalloc has statistics");
        let before = allocated.get();
        let (ran, served) = tokio::join!(
            async {
                open(&mut ours, Some(0)).await?;
                let exchanged = run(&mut ours, &load, &client, &mut trips).await;
                drop(ours);
                exchanged
            },
            serve(&mut theirs, &load, &server, &mut one_way)
        );
        let allocated = allocated.get() - before;
        assert_eq!(ran.unwrap().bytes, served.unwrap().bytes);
        allocated
    }

    #[cfg(feature = "jemalloc")]
    #[tokio::test]
    async fn no_message_allocates_memory() {
        for (bytes, window) in [
            (8, 1),
            (64, 1),
            (64, 64),
            (1024, 64),
            (16 << 10, 64),
            (100_000, 16),
        ] {
            let few = allocated_by(bytes, window, 200).await;
            let many = allocated_by(bytes, window, 2200).await;
            // The runtime allocates something now and then. One allocation for each message is at least 8
            // bytes.
            let each = many.abs_diff(few) as f64 / 2000.0;
            assert!(
                each < 1.0,
                "{each} B for each of {window} messages of {bytes} B in flight"
            );
        }
    }

    #[tokio::test]
    async fn a_round_trip_counts_from_the_moment_at_which_a_message_was_due() {
        // One in flight, acknowledged after 20 ms: at 1000 per second, each waits for those before it.
        let load = Messages {
            rate: Some(1000),
            ..load(16, 1, 3)
        };
        let (mut ours, mut theirs) = pair(1 << 20);
        let mut trips = recorder();
        let answer = async {
            for number in 1..=3 {
                poll_fn(|cx| theirs.poll_receive(cx)).await.unwrap().unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
                send(&mut theirs, Message::bare(number)).await.unwrap();
            }
        };
        let counters = Counters::default();
        let (ran, ()) = tokio::join!(run(&mut ours, &load, &counters, &mut trips), answer);
        ran.unwrap();
        let longest = Duration::from_nanos(trips.max());
        assert!(longest >= Duration::from_millis(3 * 20 - 2), "{longest:?}");
    }
}
