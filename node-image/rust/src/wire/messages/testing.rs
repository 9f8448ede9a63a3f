//! What tests of exchanges have in common.

use perfrun_contract::{
    parameters::{Amount, Messages},
    quantity::ByteSize,
    workload::MessageMode,
};
use tokio::io::{DuplexStream, duplex};

use super::Framed;
use crate::messenger::Message;

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
