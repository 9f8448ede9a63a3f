//! The offset of each node's clock to the conductor's, which is a [`LocalClock`].
//!
//! Nodes' clocks are monotonic and begin anywhere. A round trip to a node tells the offset of its clock to
//! within half of the round-trip time, since the node read its clock at some moment between the two. From
//! then on the two clocks drift apart. The round trip with the least sum of both uncertainties counts.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::client::{self, NodeClient};

/// Readings that are remembered of a node.
const READINGS_MAX: usize = 16;

/// How far two clocks may drift apart, in nanoseconds per second: 50 ppm each is what quartz is good for.
const DRIFT_NANOSECONDS_PER_SECOND: i64 = 100_000;

/// The clock of the conductor: nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalClock(Instant);

impl LocalClock {
    /// A clock that shows zero now.
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// What it shows now.
    pub(crate) fn nanoseconds(&self) -> i64 {
        i64::try_from(self.0.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }
}

/// One reading of a node's clock. In nanoseconds of the local clock, except `node`, which is in those of the
/// node's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ClockReading {
    /// When the request was sent.
    pub sent: i64,
    /// When the answer arrived.
    pub received: i64,
    /// What the node's clock showed in between.
    pub node: u64,
}

impl ClockReading {
    /// The time from the request to the answer.
    pub(crate) fn duration(&self) -> i64 {
        self.received - self.sent
    }

    /// The node's clock less the local one, if it was read half-way.
    pub(crate) fn offset(&self) -> i64 {
        i64::try_from(self.node)
            .unwrap_or(i64::MAX)
            .saturating_sub(self.middle())
    }

    /// How wrong [`Self::offset`] may be at a time of the local clock.
    pub(crate) fn uncertainty(&self, at: i64) -> i64 {
        let age = (at - self.middle()).abs();
        self.duration() / 2
            + age / 1_000_000_000 * DRIFT_NANOSECONDS_PER_SECOND
            + age % 1_000_000_000 * DRIFT_NANOSECONDS_PER_SECOND / 1_000_000_000
    }

    fn middle(&self) -> i64 {
        self.sent + self.duration() / 2
    }
}

/// What is known of a node's clock.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct NodeClock {
    readings: VecDeque<ClockReading>,
}

/// The offset of a node's clock at some moment, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Offset {
    /// The node's clock less the local one.
    pub nanoseconds: i64,
    /// How wrong that may be.
    pub uncertainty: i64,
}

impl Offset {
    /// This clock less another, where both are offsets from the local one.
    pub(crate) fn since(self, other: Self) -> Self {
        Self {
            nanoseconds: self.nanoseconds.saturating_sub(other.nanoseconds),
            uncertainty: self.uncertainty.saturating_add(other.uncertainty),
        }
    }

    /// A moment of the local clock as the node's clock shows it.
    pub(crate) fn to_node(self, local: i64) -> u64 {
        u64::try_from(local.saturating_add(self.nanoseconds)).unwrap_or(0)
    }

    /// A moment of the node's clock as the local one shows it.
    pub(crate) fn to_local(self, node: u64) -> i64 {
        i64::try_from(node)
            .unwrap_or(i64::MAX)
            .saturating_sub(self.nanoseconds)
    }
}

impl NodeClock {
    /// Adds a reading. One that contradicts what was known means another clock (the node was restarted) or
    /// one that drifts faster than it should: then what was known is forgotten.
    pub(crate) fn add(&mut self, reading: ClockReading) {
        if let Some(known) = self.offset(reading.received) {
            let apart = reading
                .offset()
                .saturating_sub(known.nanoseconds)
                .saturating_abs();
            if apart
                > reading
                    .uncertainty(reading.received)
                    .saturating_add(known.uncertainty)
            {
                self.readings.clear();
            }
        }
        if self.readings.len() == READINGS_MAX {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
    }

    /// The offset at a moment of the local clock. `None` if the node has never been measured.
    pub(crate) fn offset(&self, at: i64) -> Option<Offset> {
        let best = self
            .readings
            .iter()
            .min_by_key(|reading| reading.uncertainty(at))?;
        Some(Offset {
            nanoseconds: best.offset(),
            uncertainty: best.uncertainty(at),
        })
    }

    /// The median round-trip time: what a call to this node usually takes.
    pub(crate) fn round_trip(&self) -> Option<i64> {
        let mut durations: Vec<i64> = self.readings.iter().map(ClockReading::duration).collect();
        durations.sort_unstable();
        durations.get(durations.len() / 2).copied()
    }
}

/// Reads a node's clock several times, one after the other.
pub(crate) async fn readings(
    node: &NodeClient,
    clock: LocalClock,
    times: usize,
) -> Result<Vec<ClockReading>, client::Error> {
    let mut readings = Vec::with_capacity(times);
    for _ in 0..times {
        let sent = clock.nanoseconds();
        let answer = node.clock().await?;
        readings.push(ClockReading {
            sent,
            received: clock.nanoseconds(),
            node: answer.nanoseconds,
        });
    }
    Ok(readings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * 1_000_000_000;
    const MILLISECOND: i64 = 1_000_000;

    fn reading(sent: i64, received: i64, node: i64) -> ClockReading {
        ClockReading {
            sent,
            received,
            node: u64::try_from(node).unwrap(),
        }
    }

    fn clock(readings: &[ClockReading]) -> NodeClock {
        let mut clock = NodeClock::default();
        readings.iter().for_each(|reading| clock.add(*reading));
        clock
    }

    #[test]
    fn a_clock_an_hour_ahead_has_that_offset() {
        let clock = clock(&[reading(1000, 3000, HOUR + 2000)]);
        assert_eq!(
            clock.offset(2000),
            Some(Offset {
                nanoseconds: HOUR,
                uncertainty: 1000
            })
        );
    }

    #[test]
    fn a_clock_an_hour_behind_has_that_offset() {
        let clock = clock(&[reading(2 * HOUR, 2 * HOUR + 2000, HOUR + 1000)]);
        let offset = clock.offset(2 * HOUR + 1000).unwrap();
        assert_eq!(
            offset,
            Offset {
                nanoseconds: -HOUR,
                uncertainty: 1000
            }
        );
        assert_eq!(offset.to_node(3 * HOUR), 2 * HOUR as u64);
        assert_eq!(offset.to_local(2 * HOUR as u64), 3 * HOUR);
    }

    #[test]
    fn the_quickest_round_trip_counts() {
        let slow = reading(0, 8 * MILLISECOND, HOUR + MILLISECOND);
        let quick = reading(
            10 * MILLISECOND,
            11 * MILLISECOND,
            HOUR + 10 * MILLISECOND + MILLISECOND / 2,
        );
        let expected = Offset {
            nanoseconds: HOUR,
            uncertainty: MILLISECOND / 2,
        };
        assert_eq!(clock(&[quick, slow]).offset(quick.middle()), Some(expected));
        assert_eq!(clock(&[slow, quick]).offset(quick.middle()), Some(expected));
    }

    #[test]
    fn a_new_round_trip_counts_more_than_an_old_one_that_was_quicker() {
        let old = reading(0, 2000, 1000);
        let new = reading(HOUR, HOUR + 20 * MILLISECOND, HOUR + 60 * MILLISECOND);
        let drifted = Offset {
            nanoseconds: 50 * MILLISECOND,
            uncertainty: 10 * MILLISECOND,
        };
        assert_eq!(clock(&[old, new]).offset(new.middle()), Some(drifted));
        assert_eq!(
            old.uncertainty(HOUR + 1000),
            1000 + 360 * MILLISECOND,
            "100 ppm of an hour"
        );
    }

    #[test]
    fn readings_from_before_a_restart_of_a_clock_do_not_count() {
        let before = reading(0, 2000, HOUR);
        let after = reading(MILLISECOND, MILLISECOND + 8000, 17);
        assert_eq!(clock(&[before, after]), clock(&[after]));
    }

    #[test]
    fn a_start_before_the_zero_of_a_nodes_clock_is_at_its_zero() {
        assert_eq!(
            Offset {
                nanoseconds: -HOUR,
                uncertainty: 0
            }
            .to_node(5),
            0
        );
    }

    #[test]
    fn only_the_last_round_trips_are_remembered() {
        let readings: Vec<_> = (0..100)
            .map(|i| reading(i * 1000, i * 1000 + 10, i * 1000 + 5))
            .collect();
        let clock = clock(&readings);
        assert_eq!(clock.readings, &readings[100 - READINGS_MAX..]);
        assert_eq!(clock.round_trip(), Some(10));
    }
}
