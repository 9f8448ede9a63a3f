//! Alarms that compensate for CPUs that are slow to wake up.

use perfrun_link::fate::Nanos;

/// Above this lateness the CPU was busy with other threads, and an earlier alarm would not have helped.
const WAKE_UP_MAX: Nanos = 250_000;

/// The average has this number of parts: the last alarm contributes one, the earlier ones the rest.
const AVERAGE_PARTS: Nanos = 8;

/// One part of this number is the share of the time that may be spent busy-waiting. The kernel stops a thread
/// with real-time priority that never sleeps for 5 % of the time.
const BUSY_WAIT_PART: Nanos = 8;

/// An alarm that is set earlier by its usual lateness.
///
/// On a virtual machine whose host is busy, a timer that finds its CPU asleep is 0.1 ms late, and so is each
/// frame that waits for it, on either side of a link. A thread that wakes up too early busy-waits until the
/// frame is due. While CPUs do not sleep, alarms are hardly late, and hardly early either.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    usually_late: Nanos,
}

impl Alarm {
    /// When to wake up for a frame that is due at `due`.
    pub(super) fn before(&self, due: Nanos, now: Nanos) -> Nanos {
        due - self.usually_late.min(due.saturating_sub(now) / BUSY_WAIT_PART)
    }

    /// Adds how late an alarm was.
    pub(super) fn add_lateness(&mut self, late: Nanos) {
        if late <= WAKE_UP_MAX {
            self.usually_late = (self.usually_late * (AVERAGE_PARTS - 1) + late) / AVERAGE_PARTS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn early_after(alarms: &[Nanos], wait: Nanos) -> Nanos {
        const NOW: Nanos = 1_000_000;
        let mut alarm = Alarm::default();
        alarms.iter().for_each(|late| alarm.add_lateness(*late));
        NOW + wait - alarm.before(NOW + wait, NOW)
    }

    #[test]
    fn alarms_are_as_early_as_they_were_late() {
        assert_eq!(early_after(&[], 4_000_000), 0);
        let early = early_after(&[100_000; 30], 4_000_000);
        assert!((95_000..=100_000).contains(&early), "{early}");
    }

    #[test]
    fn a_cpu_that_has_woken_up_is_noticed_soon() {
        let early = early_after(&[[100_000; 30], [3_000; 30]].concat(), 4_000_000);
        assert!(early < 6_000, "{early}");
    }

    #[test]
    fn waiting_for_other_threads_changes_nothing() {
        assert_eq!(early_after(&[5_000_000; 30], 4_000_000), 0);
    }

    #[test]
    fn frames_that_follow_closely_are_not_waited_for_awake() {
        assert_eq!(early_after(&[100_000; 30], 64_000), 8_000);
    }

    #[test]
    fn an_overdue_moment_is_not_waited_for() {
        let alarm = Alarm {
            usually_late: 100_000,
        };
        assert_eq!(alarm.before(5, 7), 5);
    }
}
