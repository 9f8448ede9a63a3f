//! When a packet has left a link with a rate.

use super::Nanos;

/// How late packets may arrive before the link counts as idle in between.
///
/// The thread that serves the link wakes up some tens of microseconds late. If each wake-up cost capacity, a
/// link of 1 Gbit/s would carry 0.8 Gbit/s (measured). The credit also bounds bursts: no interval carries
/// more than its length plus the credit.
const LATENESS_CREDIT: Nanos = 1_000_000;

/// The time at which the link has sent everything that it was given.
#[derive(Clone, Debug)]
pub(super) struct RateClock {
    bits_per_second: u64,
    free_at: Nanos,
}

impl RateClock {
    pub(super) fn new(bits_per_second: u64) -> Self {
        Self {
            bits_per_second,
            free_at: 0,
        }
    }

    /// How long a packet that reaches the link at `arrival` queues before its first bit is sent.
    pub(super) fn wait(&self, arrival: Nanos) -> Nanos {
        self.free_at.saturating_sub(arrival)
    }

    /// When the last bit of a packet that reaches the link at `arrival` has been sent; never before its
    /// arrival.
    pub(super) fn send(&mut self, arrival: Nanos, wire_bytes: u64) -> Nanos {
        let busy = self.free_at + LATENESS_CREDIT >= arrival;
        let start = if busy { self.free_at } else { arrival };
        let duration = u128::from(wire_bytes) * 8 * 1_000_000_000 / u128::from(self.bits_per_second);
        // The slowest link sends the largest super-packet in a little more than a minute.
        self.free_at = start + u64::try_from(duration).expect("rates have a minimum and packets a maximum");
        self.free_at.max(arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Nanos = 5_000_000_000;
    /// 1250 bytes at 1 Gbit/s.
    const DURATION: Nanos = 10_000;

    fn gigabit() -> RateClock {
        RateClock::new(1_000_000_000)
    }

    #[test]
    fn packets_leave_one_after_the_other() {
        let mut clock = gigabit();
        for number in 1..=100 {
            assert_eq!(clock.send(START, 1250), START + number * DURATION);
        }
        // An idle link sends immediately, and earns nothing for its idle time.
        let later = START + 1_000_000_000;
        assert_eq!(clock.send(later, 1250), later + DURATION);
    }

    #[test]
    fn lateness_costs_no_capacity() {
        let mut clock = gigabit();
        // Packets that should arrive every 10 µs arrive in groups of five, 50 µs apart and with some delay.
        let last = (0..1000u64)
            .map(|number| clock.send(START + (number / 5 + 1) * 5 * DURATION + 13_000, 1250))
            .last();
        let first_arrival = START + 5 * DURATION + 13_000;
        assert_eq!(last, Some(first_arrival + 1000 * DURATION));
    }

    #[test]
    fn no_interval_carries_more_than_the_rate_and_a_millisecond() {
        let mut clock = gigabit();
        let mut sent = Vec::new();
        // Bursts with pauses that are just short enough to be credited.
        let mut now = START;
        for burst in 0..200u64 {
            for _ in 0..(burst * 7) % 90 {
                sent.push(clock.send(now, 1250));
            }
            now += 900_000;
        }
        for (index, begin) in sent.iter().enumerate() {
            for (later, end) in sent.iter().enumerate().skip(index) {
                let carried = (later - index) as u64 * DURATION;
                assert!(carried <= end - begin + LATENESS_CREDIT, "{index} {later}");
            }
        }
    }

    #[test]
    fn nothing_leaves_before_it_arrives() {
        let mut clock = gigabit();
        clock.send(START, 1250);
        let arrival = START + 500_000;
        assert_eq!(clock.send(arrival, 1250), arrival);
    }
}
