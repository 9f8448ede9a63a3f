//! Checks whether messages arrived, for stacks that may lose the last ones before a silence.
//!
//! After a silence, the dialler sends a check: a message that has nothing but the marked number of the last
//! message before it. No stack reorders messages, so all that have not arrived before the check are lost. The
//! listener returns the check if nothing is lost. Otherwise it answers with the number of the first message
//! that is lost, and with another mark. A stack may lose a check, too, so it is repeated while the silence
//! lasts.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
    time::Duration,
};

use perfrun_stack::messenger::{Message, Messenger};
use tokio::time::{Instant, Interval, interval_at};

use super::{LAST, send};
use crate::wire::Error;

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
        let judged = check_end(check, expected);
        let answer = match &judged {
            Ok(()) => check.sequence,
            Err(_) => expected | CHECK | LAST,
        };
        send(messenger, Message::bare(answer)).await?;
        judged?;
    }
}

/// What a check says at its listener, at which the message `expected` is due.
pub(super) fn check_end(check: Message, expected: u64) -> Result<(), Error> {
    match check.sequence & !CHECK {
        last if expected <= last => Err(Error::TailLost { first: expected }),
        _ => Ok(()),
    }
}

/// What an answer says at the dialler.
pub(super) fn check_answer(answer: Message) -> Result<(), Error> {
    match answer.sequence & LAST {
        0 => Ok(()),
        _ => Err(Error::TailLost {
            first: answer.sequence & !(CHECK | LAST),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use perfrun_contract::{histogram::recorder, node::Reason, parameters::Messages};
    use tokio::io::DuplexStream;

    use super::*;
    use crate::wire::{
        Counters,
        messages::{Framed, begin, open, run, serial, serve, testing::*},
    };

    /// A pair of which one end loses each of these numbers once, whether it is the last one or not.
    fn losing(
        numbers: &[u64],
    ) -> (
        Losing<impl FnMut(u64) -> bool + Send + Unpin>,
        Framed<DuplexStream>,
    ) {
        let (inner, theirs) = pair(1 << 16);
        let mut left: BTreeSet<u64> = numbers.iter().copied().collect();
        let ours = Losing {
            inner,
            lost: move |number: u64| left.remove(&(number & !LAST)),
            refused: |_| false,
        };
        (ours, theirs)
    }

    /// The reasons at both ends, and the time.
    async fn ends(load: Messages, lost: &[u64]) -> ([Option<Reason>; 2], Duration) {
        let begun = Instant::now();
        let (mut ours, mut theirs) = losing(lost);
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
        let (mut ours, mut theirs) = losing(&[]);
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
        let (mut ours, mut theirs) = losing(&[3]);
        let counters = [&Counters::default(), &Counters::default()];
        begin(&mut ours, None).await.unwrap();
        let mut times = recorder();
        let load = load(16, 1, 5);
        let error = serial(&mut ours, &mut theirs, &load, counters, &mut times).await;
        assert!(matches!(error, Err(Error::TailLost { first: 3 })), "{error:?}");
    }
}
