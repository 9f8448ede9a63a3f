//! Messages between two peers, as stacks that pass messages have them, and as others frame them on a stream.

use std::{
    io,
    task::{Context, Poll},
};

/// A message: its sequence number, big-endian in its first eight bytes, and zeros up to its length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Message {
    /// The number by which both ends know what arrived.
    pub sequence: u64,
    /// The length, at least [`Self::LEAST`].
    pub bytes: usize,
}

impl Message {
    /// Bytes of a message that has nothing but its number.
    pub const LEAST: usize = 8;
}

/// One end of an exchange of messages with one peer.
///
/// Messages that arrive are whole and in order. Whether all arrive depends on the stack: only an
/// acknowledgement proves it.
pub trait Messenger: Send + Unpin {
    /// Gives the stack a message; `false` if the stack refuses to send it. Pending while the stack has no
    /// room.
    fn poll_send(&mut self, cx: &mut Context<'_>, message: Message) -> Poll<io::Result<bool>>;

    /// Makes the stack send what it was given.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Takes the next message that arrived. `None` after the last one, if the stack reports that the peer has
    /// ended.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Message>>>;

    /// Ready when the peer has ended. Stacks that do not report it are ready immediately.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// An owned messenger.
pub type BoxMessenger = Box<dyn Messenger>;
