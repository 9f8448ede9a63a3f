//! One end of an exchange of messages.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
};

use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{CheckedSender as _, LimitedSender as _, Recipients};
use commonware_runtime::{IoBuf, IoBufs};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{inbox::Inbox, network::Sender, peers::Session};
use crate::messenger::{Message, Messenger};

/// Messages of a dialler whose numbers are written in advance, in one allocation. A listener's
/// acknowledgements may leave numbers out.
pub(super) const DIALLER_AHEAD: u64 = 64;

/// See [`DIALLER_AHEAD`].
pub(super) const LISTENER_AHEAD: u64 = 1;

/// An exchange with one peer.
///
/// It sends and receives on the caller's thread. commonware's own threads only read and write sockets.
pub(super) struct Exchange {
    pub(super) key: PublicKey,
    pub(super) session: Session,
    pub(super) sender: Sender,
    pub(super) inbox: Arc<Inbox>,
    pub(super) numbers: Numbers,
    /// As many as any message needs.
    pub(super) zeros: IoBuf,
    /// Whether commonware's runtime has stopped.
    pub(super) stopped: CancellationToken,
    /// Ends the peer's end, at a dialler.
    pub(super) _end: Option<DropGuard>,
}

impl Messenger for Exchange {
    fn poll_send(&mut self, _: &mut Context<'_>, message: Message) -> Poll<io::Result<bool>> {
        if self.stopped.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        let zeros = message.bytes.checked_sub(Message::LEAST);
        let Some(zeros) = zeros.filter(|zeros| *zeros <= self.zeros.len()) else {
            // commonware panics at longer ones.
            let error = format!("a message of {} bytes was not announced", message.bytes);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidInput, error)));
        };
        let body = IoBufs::from([self.numbers.take(message.sequence), self.zeros.slice(..zeros)]);
        let is_accepted = match self.sender.check(Recipients::One(self.key.clone())) {
            Ok(checked) => checked.send(body, false).accepted(),
            // Beyond the quota.
            Err(_) => false,
        };
        Poll::Ready(Ok(is_accepted))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // commonware sends what it is given.
        Poll::Ready(Ok(()))
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Message>>> {
        self.inbox.poll_receive(&self.key, self.session, cx)
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.inbox.poll_ended(&self.key, self.session, cx)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.inbox.close(&self.key, self.session);
    }
}

/// Numbers of messages as bytes.
pub(super) struct Numbers {
    ahead: u64,
    written: IoBuf,
    next: u64,
}

impl Numbers {
    pub(super) fn new(ahead: u64) -> Self {
        Self {
            ahead,
            written: IoBuf::default(),
            next: 0,
        }
    }

    fn take(&mut self, sequence: u64) -> IoBuf {
        if self.written.is_empty() || sequence != self.next {
            let numbers = (0..self.ahead).map(|n| sequence.wrapping_add(n));
            self.written = numbers.flat_map(u64::to_be_bytes).collect::<Vec<u8>>().into();
        }
        self.next = sequence.wrapping_add(1);
        self.written.split_to(Message::LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right_in_and_out_of_order() {
        for ahead in [DIALLER_AHEAD, LISTENER_AHEAD] {
            let mut numbers = Numbers::new(ahead);
            for sequence in (0..200).chain([500, 501, 3, u64::MAX, 0]) {
                assert_eq!(numbers.take(sequence).as_ref(), sequence.to_be_bytes());
            }
        }
    }
}
