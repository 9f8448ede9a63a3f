//! When the lines of an echo are due.

use std::time::Duration;

use perfrun_contract::parameters::{Echo, Pace};
use tokio::time::Instant;

/// How late a timer may be that nothing delays: tokio rounds its moment up to a millisecond, and so does
/// `epoll_wait`, by which it waits.
const TIMER_LATENESS_MAX: Duration = Duration::from_millis(2);

/// When the lines of all streams are due.
#[derive(Debug)]
pub(super) enum Pacer {
    /// Each after the answer to the last one.
    Pause(Duration),
    /// At fixed times, spread over the streams.
    Period {
        begun: Instant,
        period: Duration,
        streams: u64,
    },
}

impl Pacer {
    /// The pacer of a load that begins at a moment.
    pub(super) fn new(load: &Echo, begun: Instant) -> Self {
        match load.pace {
            Pace::Pause(seconds) => Self::Pause(Duration::from_secs_f64(seconds)),
            Pace::Period(seconds) => Self::Period {
                begun,
                period: Duration::from_secs_f64(seconds),
                streams: load.streams(),
            },
        }
    }

    /// When the first line is due on a stream that was opened at a moment. `number` counts the streams of all
    /// connections, from 0 on.
    ///
    /// Streams start at multiples of an interval. If periods began with them, the lines of most streams would
    /// be due at the same few moments. So the streams share each period evenly.
    pub(super) fn first(&self, number: u32, opened: Instant) -> Instant {
        match self {
            Self::Pause(_) => opened,
            Self::Period {
                begun,
                period,
                streams,
            } => {
                let phase = *begun + period.mul_f64(f64::from(number) / *streams as f64);
                let elapsed = opened.saturating_duration_since(phase).as_nanos();
                let periods = elapsed.div_ceil(period.as_nanos());
                phase + *period * u32::try_from(periods).unwrap_or(u32::MAX)
            }
        }
    }

    /// When the next line is due after one that was due, and whose answer came, at these moments.
    pub(super) fn next(&self, due: Instant, answered: Instant) -> Instant {
        match self {
            Self::Pause(pause) => answered + *pause,
            Self::Period { period, .. } => due + *period,
        }
    }

    /// From when the round trip counts of a line that was due and sent at these moments.
    ///
    /// With a period, a slow answer or a busy client delays lines without lowering their rate, so the delay
    /// must be part of the round trip. What a timer added to it does not belong to the stack.
    pub(super) fn counts_from(&self, due: Instant, sent: Instant, added: Duration) -> Instant {
        match self {
            Self::Pause(_) => sent,
            Self::Period { .. } => sent.min(due + added),
        }
    }
}

/// What a timer added to the wait for a line that was due at one moment, if the stream woke at the other.
pub(super) fn added_by_timer(due: Instant, woken: Instant) -> Duration {
    woken.saturating_duration_since(due).min(TIMER_LATENESS_MAX)
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{matrix::Identity, quantity::ByteSize};

    use super::*;

    fn load(pace: Pace) -> Echo {
        Echo {
            connections: 2,
            streams_per_connection: 4,
            connection_interval_seconds: 0.1,
            stream_interval_seconds: 0.1,
            message_bytes: ByteSize(64),
            pace,
            deadline_seconds: 5.0,
            duration_seconds: 10.0,
            identity: Identity::Ed25519,
            sample_interval_seconds: 1.0,
        }
    }

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_pause_begins_with_the_answer() {
        let begun = Instant::now();
        let pacer = Pacer::new(&load(Pace::Pause(0.5)), begun);
        assert_eq!(pacer.first(7, begun + ms(30)), begun + ms(30));
        assert_eq!(pacer.next(begun + ms(30), begun + ms(99)), begun + ms(599));
        assert_eq!(pacer.counts_from(begun, begun + ms(9), ms(1)), begun + ms(9));
    }

    #[test]
    fn a_timer_adds_at_most_two_milliseconds() {
        let due = Instant::now() + ms(10);
        for (woken, added) in [(0, 0), (10, 0), (11, 1), (12, 2), (13, 2), (900, 2)] {
            let woken = due - ms(10) + ms(woken);
            assert_eq!(added_by_timer(due, woken), ms(added), "{woken:?}");
        }
    }

    #[test]
    fn late_lines_with_a_period_count_from_their_due_time_without_timer_delay() {
        let due = Instant::now();
        let pacer = Pacer::new(&load(Pace::Period(0.8)), due);
        for (late, added, counted) in [
            (0, 0, 0),
            (900, 0, 0),
            (1, 1, 1),
            (900, 1, 1),
            (1, 2, 1),
            (900, 2, 2),
        ] {
            assert_eq!(
                pacer.counts_from(due, due + ms(late), ms(added)),
                due + ms(counted),
                "{late} {added}"
            );
        }
    }

    #[test]
    fn periods_of_all_streams_are_spread_evenly_and_ignore_answers() {
        let begun = Instant::now();
        let pacer = Pacer::new(&load(Pace::Period(0.8)), begun);
        let first = |number: u32, opened: Duration| pacer.first(number, begun + opened) - begun;
        let phases = [0, 1, 2, 3, 4, 5, 6, 7].map(|number| first(number, ms(0)));
        assert_eq!(phases, [0, 100, 200, 300, 400, 500, 600, 700].map(ms));
        // The first of these times that has not passed when the stream is open.
        assert_eq!(first(1, ms(99)), ms(100));
        assert_eq!(first(1, ms(100)), ms(100));
        assert_eq!(first(1, ms(101)), ms(900));
        assert_eq!(first(1, ms(8101)), ms(8900));
        assert_eq!(pacer.next(begun + ms(900), begun + ms(5000)), begun + ms(1700));
    }

    #[test]
    fn the_shortest_and_the_longest_period_do_not_panic() {
        let begun = Instant::now();
        for seconds in [1e-9, 366.0 * 86_400.0] {
            let pacer = Pacer::new(&load(Pace::Period(seconds)), begun);
            let first = pacer.first(7, begun + ms(10_000));
            assert!(pacer.next(first, first) >= first, "{seconds}");
        }
    }
}
