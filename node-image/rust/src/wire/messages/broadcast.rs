//! Each message to all listeners.
//!
//! Nothing but message 0 and the end is acknowledged. The end is a message that has nothing but the marked
//! number of the last one, and the dialler repeats it until the listener acknowledges it.

use std::{future::poll_fn, io, mem::replace, task::Poll, time::Duration};

use futures::future::try_join_all;
use perfrun_contract::{histogram::Recorder, parameters::Messages};
use perfrun_stack::messenger::{BoxMessenger, Broadcaster, Message, Messenger};
use tokio::{task::coop, time::timeout};

use super::{
    Arriving, LAST, Pace, acknowledged, clock_of, ended_before, is_last_of, message, record_one_way, send,
};
use crate::wire::{Arrival, Counters, Error};

/// Time after which the end is repeated, which a stack may lose, too.
const REPEAT_PAUSE: Duration = Duration::from_millis(50);

/// What the sender of a broadcast found.
#[derive(Clone, Copy, Debug)]
pub struct Broadcast {
    /// Messages sent to each listener.
    pub sent: u64,
    /// Messages that the stack refused to send, over all listeners.
    pub refused: u64,
    /// From the first message until all listeners had the end.
    pub time: Duration,
}

/// Sends each message to all listeners, whose exchanges are open, in this task: through `all` if the stack
/// has that, otherwise to one after the other. A listener on a stream that is full holds up the messages to
/// all.
pub async fn broadcast(
    messengers: &mut [BoxMessenger],
    mut all: Option<Box<dyn Broadcaster>>,
    load: &Messages,
    counters: &Counters,
) -> Result<Broadcast, Error> {
    let mut pace = Pace::begin(load.rate)?;
    let begun = pace.begun;
    let (mut sent, mut refused) = (0, 0);
    loop {
        // A stack that never lets this task wait would keep the runtime's thread.
        coop::consume_budget().await;
        let due = poll_fn(|cx| {
            if let Poll::Ready(due) = pace.poll_due(cx, sent)? {
                return Poll::Ready(io::Result::Ok(due));
            }
            for messenger in &mut *messengers {
                if let Poll::Ready(flushed) = messenger.poll_flush(cx) {
                    flushed?;
                }
            }
            Poll::Pending
        })
        .await?;
        sent += 1;
        let message = message(load, sent, due);
        let accepted = match &mut all {
            Some(all) => poll_fn(|cx| all.poll_broadcast(cx, message)).await?,
            None => {
                let mut accepted = 0;
                for messenger in &mut *messengers {
                    accepted += u64::from(poll_fn(|cx| messenger.poll_send(cx, message)).await?);
                }
                accepted
            }
        };
        refused += messengers.len() as u64 - accepted;
        Counters::add(&counters.sent, accepted * load.message_bytes.0);
        if is_last_of(load, sent, due - begun) {
            break;
        }
    }
    try_join_all(
        messengers
            .iter_mut()
            .map(|messenger| end_broadcast(messenger, sent)),
    )
    .await?;
    Ok(Broadcast {
        sent,
        refused,
        time: begun.elapsed(),
    })
}

/// Repeats the end of a broadcast until the listener has acknowledged it.
async fn end_broadcast(messenger: &mut BoxMessenger, sent: u64) -> Result<(), Error> {
    loop {
        let end = Message::bare(sent | LAST);
        // A stack may refuse it, as any other message.
        let _ = poll_fn(|cx| messenger.poll_send(cx, end)).await?;
        let received = async {
            poll_fn(|cx| messenger.poll_flush(cx)).await?;
            poll_fn(|cx| messenger.poll_receive(cx)).await
        };
        let Ok(received) = timeout(REPEAT_PAUSE, received).await else {
            continue;
        };
        let got = acknowledged(received?, sent)?;
        return match got == sent {
            true => Ok(()),
            false => Err(Error::WrongAcknowledgement {
                got,
                from: sent,
                to: sent,
            }),
        };
    }
}

/// Takes the messages of a broadcast until its end. See [`serve`](super::serve).
pub async fn serve_broadcast<M: Messenger + ?Sized>(
    messenger: &mut M,
    load: &Messages,
    counters: &Counters,
    times: &mut Recorder,
) -> Result<Arrival, Error> {
    let mut arriving = Arriving::new(load, counters);
    let (mut expected, mut clock, mut is_over) = (0, None, false);
    loop {
        let receive = poll_fn(|cx| messenger.poll_receive(cx));
        let received = match is_over {
            true => counters.await_end(receive).await.unwrap_or(Ok(None)),
            false => receive.await,
        };
        let got = match received {
            Ok(Some(got)) => got,
            _ if is_over => return Ok(arriving.arrival),
            Ok(None) => return ended_before(expected, arriving.arrival),
            Err(error) => return Err(error.into()),
        };
        let number = got.sequence & !LAST;
        if got.sequence & LAST != 0 {
            let is_repeated = replace(&mut is_over, true);
            match send(messenger, Message::bare(number)).await {
                // The dialler has left, with an earlier acknowledgement.
                Err(_) if is_repeated => return Ok(arriving.arrival),
                sent => sent?,
            }
            continue;
        }
        // A gap is a loss, which the numbers of both ends show. Before message 0, the dialler sends nothing
        // else; no stack reorders messages.
        if number < expected || (expected == 0 && number > 0) {
            return Err(Error::MessageLost {
                expected,
                got: number,
            });
        }
        arriving.count(got, number)?;
        expected = number + 1;
        if number == 0 {
            clock = clock_of(got);
            send(messenger, Message::bare(0)).await?;
        } else {
            record_one_way(times, got, clock, &arriving.arrival);
        }
    }
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{histogram::recorder, workload::MessageMode};

    use super::{
        super::{open, testing::*},
        *,
    };
    use crate::wire::testing::*;

    #[tokio::test(start_paused = true)]
    async fn a_broadcast_counts_lost_and_refused_messages() {
        let load = Messages {
            mode: MessageMode::Broadcast,
            receivers: 3,
            ..load(100, 1, 50)
        };
        let mut servers = tokio::task::JoinSet::new();
        let mut messengers: Vec<BoxMessenger> = vec![];
        let lost: [fn(u64) -> bool; 3] = [
            |_| false,
            |number| number % 10 == 3,
            |number| number & LAST == 0 && number > 0,
        ];
        for lost in lost {
            let (ours, theirs) = pair(1 << 20);
            messengers.push(Box::new(Losing {
                inner: ours,
                lost,
                refused: |number| number == 7,
            }));
            servers.spawn(async move {
                let mut theirs = theirs;
                let mut times = recorder();
                let served = serve_broadcast(&mut theirs, &load, &Counters::default(), &mut times).await;
                (served.unwrap().bytes / 100, times.len())
            });
        }
        for messenger in &mut messengers {
            open(&mut **messenger, Some(0)).await.unwrap();
        }
        let counters = Counters::default();
        let sent = broadcast(&mut messengers, None, &load, &counters).await.unwrap();
        assert_eq!((sent.sent, sent.refused), (50, 3));
        assert_eq!(counted(&counters), (0, (50 - 1) * 3 * 100));
        drop(messengers);
        let mut arrived = servers.join_all().await;
        arrived.sort_unstable();
        assert_eq!(arrived, [(0, 0), (44, 44), (49, 49)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_broadcast_is_repeated_until_it_is_acknowledged() {
        let load = Messages {
            mode: MessageMode::Broadcast,
            ..load(16, 1, 2)
        };
        let (ours, mut theirs) = pair(1 << 20);
        let mut messengers: Vec<BoxMessenger> = vec![Box::new(ours)];
        let listen = async {
            let mut numbers = vec![];
            while numbers.iter().filter(|number| **number & LAST != 0).count() < 3 {
                let got = poll_fn(|cx| theirs.poll_receive(cx)).await.unwrap().unwrap();
                numbers.push(got.sequence);
            }
            send(&mut theirs, Message::bare(2)).await.unwrap();
            numbers
        };
        let counters = Counters::default();
        let (sent, numbers) = tokio::join!(broadcast(&mut messengers, None, &load, &counters), listen);
        assert_eq!(sent.unwrap().sent, 2);
        assert_eq!(numbers, [1, 2, 2 | LAST, 2 | LAST, 2 | LAST]);
    }

    #[tokio::test]
    async fn an_old_message_of_a_broadcast_is_an_error() {
        let load = load(16, 1, 2);
        let (mut ours, mut theirs) = pair(1 << 20);
        for number in [0, 2, 1] {
            send(&mut ours, numbered(number, 16)).await.unwrap();
        }
        let served = serve_broadcast(&mut theirs, &load, &Counters::default(), &mut recorder()).await;
        assert!(
            matches!(served, Err(Error::MessageLost { expected: 3, got: 1 })),
            "{served:?}"
        );
    }
}
