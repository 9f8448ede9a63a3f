//! What happens to a packet and when it arrives: netem's rules as functions of values, without sockets or clocks.
//!
//! Times are nanoseconds of a monotonic clock that begins anywhere.

mod link;
mod queue;
mod random;
mod rate;

pub use link::Tally;
pub use link::{Departure, LinkState, Packet};
pub use queue::DueQueue;
pub use random::Random;

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;
