//! Messages between two peers, as stacks that pass messages have them, and as others frame them on a stream.

use std::{
    io,
    task::{Context, Poll},
};

use perfrun_contract::{limits::MESSAGE_MIN, parameters::Messages};
use tokio_util::bytes::BufMut;

/// A message: its sequence number, its stamp if it is long enough, both big-endian in eight bytes, and zeros
/// up to its length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Message {
    /// The number by which both ends know what arrived.
    pub sequence: u64,
    /// When the message was due, in nanoseconds of the sender's clock. In the first message, how far the
    /// receiver's clock is ahead of the sender's. Zero in messages that have no room for a stamp.
    pub stamp: u64,
    /// The length, at least [`Self::LEAST`].
    pub bytes: usize,
}

impl Message {
    /// Bytes of a message that has nothing but its number.
    pub const LEAST: usize = MESSAGE_MIN.0 as usize;

    /// Fewest bytes of a message with a stamp.
    pub const STAMPED: usize = Messages::STAMPED.0 as usize;

    /// A message that has nothing but its number.
    pub fn bare(sequence: u64) -> Self {
        Self {
            sequence,
            stamp: 0,
            bytes: Self::LEAST,
        }
    }

    /// Reads the head of a message of `bytes` bytes, and returns its length, too. `None` before all of it is
    /// there.
    pub fn parsed(from: &[u8], bytes: usize) -> Option<(Self, usize)> {
        let (sequence, rest) = from.split_first_chunk()?;
        let (stamp, head) = match bytes {
            ..Self::STAMPED => (0, Self::LEAST),
            _ => (u64::from_be_bytes(*rest.first_chunk()?), Self::STAMPED),
        };
        let sequence = u64::from_be_bytes(*sequence);
        let message = Self {
            sequence,
            stamp,
            bytes,
        };
        Some((message, head))
    }

    /// Writes the head of the message, and returns its length.
    pub fn write_head(&self, to: &mut impl BufMut) -> usize {
        to.put_u64(self.sequence);
        if self.bytes < Self::STAMPED {
            return Self::LEAST;
        }
        to.put_u64(self.stamp);
        Self::STAMPED
    }
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

    /// Whether a message that the stack accepted may be lost while the connection lasts.
    fn may_lose(&self) -> bool {
        false
    }
}

/// An owned messenger.
pub type BoxMessenger = Box<dyn Messenger>;

/// Gives a stack messages for all peers that a host has dialled.
pub trait Broadcaster: Send {
    /// Gives the stack a message. Ready with the number of peers to which the stack has agreed to send it,
    /// which does not prove that it does. While it is pending, the message must stay the same.
    fn poll_broadcast(&mut self, cx: &mut Context<'_>, message: Message) -> Poll<io::Result<u64>>;
}
