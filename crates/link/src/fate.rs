//! What happens to a packet and when it arrives: netem's rules as functions of values, without sockets or
//! clocks.
//!
//! Times are nanoseconds of a monotonic clock with any starting point.

mod impaired_route;
mod queue;
mod random;
mod rate;

pub use self::{
    impaired_route::{Departure, ImpairedRoute, Packet, PacketCounts},
    queue::DueQueue,
    random::Random,
};

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;
