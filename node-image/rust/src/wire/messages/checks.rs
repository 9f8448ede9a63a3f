//! Checks whether messages arrived, for stacks that may lose the last ones before a silence.
//!
//! After a silence, the dialler sends a check: a message that has nothing but the marked number of the last
//! message before it. No stack reorders messages, so all that have not arrived before the check are lost. The
//! listener answers with a marked number: that of the check if nothing is lost, otherwise with another mark
//! and the number of the last message that arrived. A stack may lose a check, too, so it is repeated while
//! the silence lasts.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Interval, interval_at};

use super::{LAST, send};
use crate::{
    messenger::{Message, Messenger},
    wire::Error,
};

/// Marks the number of a check, and of its answer.
const CHECK: u64 = 1 << 62;

/// A silence of this length is checked. A longer round trip costs a check that finds no loss.
const SILENCE: Duration = Duration::from_secs(1);

/// The schedule of a dialler's checks.
pub(super) struct Checks {
    /// `None` for a stack that loses no messages.
    ticks: Option<Interval>,
    /// Number of messages that had arrived at the last tick.
    arrived: u64,
}

impl Checks {
    pub(super) fn of<M: Messenger + ?Sized>(messenger: &M) -> Self {
        let ticks = messenger
            .may_lose()
            .then(|| interval_at(Instant::now() + SILENCE, SILENCE));
        Self { ticks, arrived: 0 }
    }

    /// Ready when messages are in flight, and none has arrived for a while.
    pub(super) fn poll_due(&mut self, cx: &mut Context<'_>, in_flight: u64, arrived: u64) -> Poll<()> {
        let Some(ticks) = &mut self.ticks else {
            return Poll::Pending;
        };
        loop {
            ready!(ticks.poll_tick(cx));
            let is_silent = in_flight > 0 && arrived == self.arrived;
            self.arrived = arrived;
            if is_silent {
                return Poll::Ready(());
            }
        }
    }

    /// Whether a message is part of a check. Otherwise it may be an acknowledgement that is wrong.
    pub(super) fn is_answer(&self, message: Message) -> bool {
        self.ticks.is_some() && message.sequence & CHECK != 0
    }
}

/// Sends a check behind the message `sent`.
pub(super) async fn check<M: Messenger + ?Sized>(messenger: &mut M, sent: u64) -> Result<(), Error> {
    match send(messenger, Message::bare(sent | CHECK)).await {
        // It is repeated.
        Err(Error::MessageRefused(_)) => Ok(()),
        sent => sent,
    }
}

/// Takes the next message of the workload, before which it answers checks. `expected` is the number that is
/// due.
pub(super) async fn receive<M: Messenger + ?Sized>(
    messenger: &mut M,
    expected: u64,
) -> Result<Option<Message>, Error> {
    loop {
        let received = poll_fn(|cx| messenger.poll_receive(cx)).await?;
        let Some(check) = received.filter(|received| received.sequence & CHECK != 0) else {
            return Ok(received);
        };
        let judged = judge_end(check, expected);
        let answer = match &judged {
            Ok(()) => check.sequence,
            Err(_) => expected.saturating_sub(1) | CHECK | LAST,
        };
        send(messenger, Message::bare(answer)).await?;
        judged?;
    }
}

/// What a check says at its listener, at which the message `expected` is due.
pub(super) fn judge_end(check: Message, expected: u64) -> Result<(), Error> {
    lost(expected, check.sequence & !CHECK)
}

/// What an answer says at the dialler, which has sent messages up to `sent`.
pub(super) fn judge(answer: Message, sent: u64) -> Result<(), Error> {
    match answer.sequence & LAST {
        0 => Ok(()),
        _ => lost((answer.sequence & !(CHECK | LAST)) + 1, sent),
    }
}

fn lost(first: u64, last: u64) -> Result<(), Error> {
    match first <= last {
        true => Err(Error::TailLost { first, last }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, io};

    use perfrun_contract::{histogram::recorder, node::Reason, parameters::Messages};
    use tokio::io::DuplexStream;

    use super::*;
    use crate::wire::{
        Counters,
        messages::{Framed, begin, open, run, serial, serve, testing::*},
    };

    /// An end that drops messages without a word.
    struct Dropping {
        inner: Framed<DuplexStream>,
        /// Numbers, without marks but those of checks.
        lost: BTreeSet<u64>,
    }

    impl Messenger for Dropping {
        fn poll_send(&mut self, cx: &mut Context<'_>, message: Message) -> Poll<io::Result<bool>> {
            match self.lost.remove(&(message.sequence & !LAST)) {
                true => Poll::Ready(Ok(true)),
                false => self.inner.poll_send(cx, message),
            }
        }

        fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.inner.poll_flush(cx)
        }

        fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Message>>> {
            self.inner.poll_receive(cx)
        }

        fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
            self.inner.poll_ended(cx)
        }

        fn may_lose(&self) -> bool {
            true
        }
    }

    fn dropping(lost: &[u64]) -> (Dropping, Framed<DuplexStream>) {
        let (ours, theirs) = pair(1 << 16);
        let lost = lost.iter().copied().collect();
        (Dropping { inner: ours, lost }, theirs)
    }

    /// The reasons at both ends, and the time.
    async fn ends(load: Messages, lost: &[u64]) -> ([Option<Reason>; 2], Duration) {
        let begun = Instant::now();
        let (mut ours, mut theirs) = dropping(lost);
        let (client, server) = (Counters::default(), Counters::default());
        let (mut trips, mut times) = (recorder(), recorder());
        let dial = async {
            open(&mut ours, None).await?;
            let ran = run(&mut ours, &load, &client, &mut trips).await;
            drop(ours);
            ran
        };
        let (ran, served) = tokio::join!(dial, serve(&mut theirs, &load, &server, &mut times));
        let reasons = [ran.err(), served.err()].map(|error| error.map(|error| error.reason()));
        (reasons, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_tail_is_found_at_both_ends_within_seconds() {
        let lost = [Some(Reason::MessageLost); 2];
        // The last message; all of a window; the last one and the first check.
        for numbers in [&[5][..], &[1, 2, 3, 4], &[4, 5, 5 | CHECK]] {
            let (reasons, took) = ends(load(16, 4, 5), numbers).await;
            assert_eq!(reasons, lost, "{numbers:?}");
            assert!(took < Duration::from_secs(4), "{numbers:?}: {took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_exchange_is_not_a_lost_one() {
        let load = Messages {
            rate: Some(1),
            ..load(16, 1, 5)
        };
        let (mut ours, mut theirs) = dropping(&[]);
        let answer = async {
            for number in 1..=5 {
                let got = receive(&mut theirs, number).await.unwrap().unwrap();
                assert_eq!(got.sequence & !LAST, number);
                tokio::time::sleep(Duration::from_millis(2500)).await;
                send(&mut theirs, Message::bare(number)).await.unwrap();
            }
            // Checks that wait here have no answer, and need none.
            std::future::pending::<()>().await;
        };
        let (counters, mut trips) = (Counters::default(), recorder());
        tokio::select! {
            ran = run(&mut ours, &load, &counters, &mut trips) => assert_eq!(ran.unwrap().bytes, 80),
            () = answer => unreachable!("it does not end"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_task_with_both_ends_finds_a_loss() {
        let (mut ours, mut theirs) = dropping(&[3]);
        let counters = [&Counters::default(), &Counters::default()];
        begin(&mut ours, None).await.unwrap();
        let mut times = recorder();
        let load = load(16, 1, 5);
        let error = serial(&mut ours, &mut theirs, &load, counters, &mut times).await;
        assert!(
            matches!(error, Err(Error::TailLost { first: 3, last: 3 })),
            "{error:?}"
        );
    }
}
