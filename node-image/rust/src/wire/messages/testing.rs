//! What tests of exchanges have in common.

use std::{
    io,
    task::{Context, Poll},
};

use perfrun_contract::{
    parameters::{Amount, Messages},
    quantity::ByteSize,
    workload::MessageMode,
};
use perfrun_stack::messenger::{Message, Messenger};
use tokio::io::{DuplexStream, duplex};

use super::Framed;

/// A window of messages.
pub(super) fn load(bytes: u64, window: u32, count: u64) -> Messages {
    Messages {
        mode: MessageMode::Stream,
        message_bytes: ByteSize(bytes),
        amount: Amount::Count(count),
        window,
        rate: None,
        priority: false,
        receivers: 1,
    }
}

/// A message without a stamp.
pub(super) fn numbered(sequence: u64, bytes: usize) -> Message {
    Message {
        sequence,
        stamp: 0,
        bytes,
    }
}

/// A pipe of `capacity` bytes with messages framed on both ends.
pub(super) fn pair(capacity: usize) -> (Framed<DuplexStream>, Framed<DuplexStream>) {
    let (ours, theirs) = duplex(capacity);
    (Framed::new(ours), Framed::new(theirs))
}

/// An end that loses some of the messages given to it, by their sequence numbers, and refuses others.
pub(super) struct Losing<F> {
    pub(super) inner: Framed<DuplexStream>,
    pub(super) lost: F,
    pub(super) refused: fn(u64) -> bool,
}

impl<F: FnMut(u64) -> bool + Send + Unpin> Messenger for Losing<F> {
    fn poll_send(&mut self, cx: &mut Context<'_>, message: Message) -> Poll<io::Result<bool>> {
        match message.sequence {
            number if (self.refused)(number) => Poll::Ready(Ok(false)),
            number if (self.lost)(number) => Poll::Ready(Ok(true)),
            _ => self.inner.poll_send(cx, message),
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
