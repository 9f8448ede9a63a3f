//! Whether this machine is quiet enough to measure on it.

use std::{collections::VecDeque, time::Duration};

use anyhow::ensure;
use perfrun_contract::machine::MachineTime;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    load::{read, why_busy},
    output::write_line_to_stderr,
};

/// How long the load of the machine is measured before a run.
const CHECK_TIME: Duration = Duration::from_millis(500);

/// How often in a row the machine is quiet before a run that waits for it begins.
const QUIET_CHECKS: usize = 4;

/// A check of the load that has begun. It takes no time of its own while something else is done.
pub(super) struct LoadCheck {
    started: Instant,
    before: Option<MachineTime>,
}

impl LoadCheck {
    pub(super) fn begin() -> Self {
        Self {
            started: Instant::now(),
            before: read(),
        }
    }

    /// Says on standard error if the machine is busy, unless `is_silent`. With `wait`, waits at most that
    /// long until it is quiet, and says so.
    pub(super) async fn end(self, wait: Option<Duration>, is_silent: bool) -> anyhow::Result<()> {
        match wait {
            Some(limit) => {
                if !is_silent {
                    write_line_to_stderr(format_args!(
                        "waiting until this machine has been quiet for {:?} (--wait-quiet {limit:?})",
                        CHECK_TIME * QUIET_CHECKS as u32
                    ));
                }
                until_quiet(read, limit).await
            }
            None if is_silent => Ok(()),
            None => {
                sleep_until(self.started + CHECK_TIME).await;
                if let Some(why) = self
                    .before
                    .zip(read())
                    .and_then(|(before, now)| why_busy(&now.since(&before)))
                {
                    write_line_to_stderr(format_args!(
                        "this machine is busy: {why}; results will be noisy. Wait, or use --wait-quiet 60s"
                    ));
                }
                Ok(())
            }
        }
    }
}

/// Waits until the machine is quiet for [`QUIET_CHECKS`]. An error if it is not within the limit.
async fn until_quiet(read: impl Fn() -> Option<MachineTime>, limit: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    let mut readings = VecDeque::from_iter(read());
    let mut is_announced = false;
    while !readings.is_empty() {
        sleep(CHECK_TIME).await;
        readings.extend(read());
        if readings.len() <= QUIET_CHECKS {
            continue;
        }
        let load = readings[QUIET_CHECKS].since(&readings[0]);
        readings.pop_front();
        let Some(why) = why_busy(&load) else {
            break;
        };
        ensure!(
            Instant::now() < deadline,
            "this machine was not quiet within {limit:?}: {why}. End what uses it, or run without --wait-quiet"
        );
        if !is_announced {
            write_line_to_stderr(format_args!("this machine is not quiet yet: {why}"));
            is_announced = true;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Readings of a machine that is busy for a number of checks.
    fn machine(busy_checks: u32) -> impl Fn() -> Option<MachineTime> {
        let checks = Cell::new(0);
        move || {
            let now = checks.replace(checks.get() + 1);
            Some(MachineTime {
                cpus: 2,
                total_seconds: f64::from(now),
                busy_seconds: 0.505 * f64::from(now.min(busy_checks)),
                ..MachineTime::default()
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_waits_until_the_machine_is_quiet_for_two_seconds() {
        for (busy_checks, seconds) in [(0, 2.0), (6, 5.0)] {
            let started = Instant::now();
            until_quiet(machine(busy_checks), Duration::from_secs(60))
                .await
                .unwrap();
            assert!(
                (started.elapsed().as_secs_f64() - seconds).abs() < 0.1,
                "{:?}",
                started.elapsed()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_does_not_wait_longer_than_it_may() {
        let started = Instant::now();
        let refused = until_quiet(machine(u32::MAX), Duration::from_secs(10))
            .await
            .unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(11));
        assert_eq!(
            refused.to_string(),
            "this machine was not quiet within 10s: other processes use 50 % of its CPUs. End what uses it, or run \
             without --wait-quiet"
        );
    }

    #[tokio::test]
    async fn a_machine_without_counts_is_taken_for_quiet() {
        until_quiet(|| None, Duration::ZERO).await.unwrap();
    }
}
