//! What bounds the time of a trial from below, besides its load.

use std::{num::NonZeroU64, time::Duration};

use super::{Amount, bounds::duration};
use crate::workload::Direction;

/// The way from a client to its server and back, with all links of a relay. A packet is never faster than
/// this.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Way {
    /// The shortest round trip.
    pub round_trip: Duration,
    /// The fewest round trips of a dial.
    pub dial_round_trips: u32,
    /// Peers of a client.
    pub peers: u32,
    /// Peers of a client that talk to the same server, at least.
    pub peers_on_link: u32,
    /// The rate to the server. `None` without a limit.
    pub to_server_bits_per_second: Option<NonZeroU64>,
    /// The rate to the client. `None` without a limit.
    pub to_client_bits_per_second: Option<NonZeroU64>,
}

impl Way {
    /// The time of round trips that follow each other.
    pub(super) fn time_of_round_trips(&self, count: u64) -> Duration {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.round_trip.saturating_mul(count)
    }

    /// The time that the payload of a [transfer](super::Workload::transfer) takes at the rate of the way. Its
    /// directions may overlap. Zero if its bytes are not known before the trial.
    pub(super) fn time_of_transfer(&self, transfer: (Direction, Amount, u32)) -> Duration {
        let (direction, Amount::Count(bytes), streams) = transfer else {
            return Duration::ZERO;
        };
        let (to_server, to_client) = (self.to_server_bits_per_second, self.to_client_bits_per_second);
        let rate = match direction {
            Direction::Upload => to_server,
            Direction::Download => to_client,
            Direction::Both => to_server.into_iter().chain(to_client).min(),
        };
        let bits = 8.0 * bytes as f64 * f64::from(streams) * f64::from(self.peers_on_link);
        rate.map_or(Duration::ZERO, |rate| duration(bits / rate.get() as f64))
    }
}
