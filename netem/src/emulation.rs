//! What happens to a packet and when it arrives: netem's rules as functions of values, without sockets or clocks.
//!
//! Times are nanoseconds of a monotonic clock that begins anywhere.

mod link;
mod queue;
mod random;
mod rate;

pub use link::Tally;
pub(crate) use link::{Departure, LinkState, Packet};
pub(crate) use queue::DueQueue;
pub(crate) use random::Random;

/// Nanoseconds of a monotonic clock.
pub(crate) type Nanos = u64;
