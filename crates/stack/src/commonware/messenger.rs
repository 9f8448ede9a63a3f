//! One end of an exchange of messages, and messages to all peers.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
};

use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{CheckedSender as _, LimitedSender as _, Recipients, Sender as _};
use commonware_runtime::{IoBuf, IoBufs};
use tokio_util::{
    bytes::BytesMut,
    sync::{CancellationToken, DropGuard},
};

use super::{inbox::Inbox, network::Sender, peers::Registration};
use crate::messenger::{Broadcaster, Message, Messenger};

/// An exchange with one peer.
///
/// It sends and receives on the caller's thread. commonware's own threads only read and write sockets.
pub(super) struct Exchange {
    pub(super) key: PublicKey,
    pub(super) registration: Registration,
    pub(super) sender: Sender,
    pub(super) inbox: Arc<Inbox>,
    pub(super) bodies: Bodies,
    pub(super) priority: bool,
    /// Whether commonware's network has stopped.
    pub(super) stopped: CancellationToken,
    /// Ends the peer's end, at a dialler.
    pub(super) _end: Option<DropGuard>,
}

impl Messenger for Exchange {
    fn poll_send(&mut self, _: &mut Context<'_>, message: Message) -> Poll<io::Result<bool>> {
        if self.stopped.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        let body = self.bodies.of(message)?;
        let is_accepted = match self.sender.check(Recipients::One(self.key.clone())) {
            Ok(checked) => checked.send(body, self.priority).accepted(),
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
        self.inbox.poll_receive(&self.key, self.registration, cx)
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.inbox.poll_ended(&self.key, self.registration, cx)
    }

    fn may_lose(&self) -> bool {
        true
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.inbox.close(&self.key, self.registration);
    }
}

/// Sends each message to all peers that the host has dialled.
pub(super) struct NetworkBroadcaster {
    pub(super) sender: Sender,
    pub(super) bodies: Bodies,
    /// Whether commonware's network has stopped.
    pub(super) stopped: CancellationToken,
    pub(super) priority: bool,
}

impl Broadcaster for NetworkBroadcaster {
    fn poll_broadcast(&mut self, _: &mut Context<'_>, message: Message) -> Poll<io::Result<u64>> {
        if self.stopped.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        let body = self.bodies.of(message)?;
        let accepted = self.sender.send(Recipients::All, body, self.priority);
        Poll::Ready(Ok(accepted.len() as u64))
    }
}

/// Messages as bytes.
pub(super) struct Bodies {
    /// Room for the heads of messages. One allocation is enough for 64 of them.
    heads: BytesMut,
    /// As many zeros as any message needs.
    zeros: IoBuf,
}

impl Bodies {
    const TOGETHER: usize = 64 * Message::STAMPED;

    pub(super) fn new(zeros: IoBuf) -> Self {
        Self {
            heads: BytesMut::with_capacity(Self::TOGETHER),
            zeros,
        }
    }

    fn of(&mut self, message: Message) -> io::Result<IoBufs> {
        let announced = Message::LEAST..=Message::LEAST + self.zeros.len();
        if !announced.contains(&message.bytes) {
            // commonware panics at longer ones.
            let error = format!("a message of {} bytes was not announced", message.bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let zeros = message.bytes - message.write_head(&mut self.heads);
        let head = self.heads.split().freeze();
        Ok(IoBufs::from([IoBuf::from(head), self.zeros.slice(..zeros)]))
    }
}
