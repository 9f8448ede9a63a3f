//! Whether this machine is quiet enough to measure on it.

use std::{
    collections::VecDeque,
    fs,
    io::{Write, stderr},
    time::Duration,
};

use anyhow::ensure;
use perfrun_contract::machine::MachineTime;
use tokio::time::{Instant, sleep, sleep_until};

/// How long to look at the machine before a run.
const LOOK: Duration = Duration::from_millis(500);

/// How long it is quiet before a run that waits for it begins, in looks.
const QUIET_LOOKS: usize = 4;

/// A machine whose other processes use more than this share of its CPUs is busy.
const MOST_FOREIGN: f64 = 0.10;

/// A machine whose hypervisor gives more than this share of its CPUs' time to others is busy.
const MOST_STEAL: f64 = 0.05;

/// A look at the machine that has begun. It takes no time of its own while something else is done.
pub(super) struct Look {
    begun: Instant,
    before: Option<MachineTime>,
}

impl Look {
    pub(super) fn begin() -> Self {
        Self {
            begun: Instant::now(),
            before: read(),
        }
    }

    /// Says on standard error if the machine is busy, unless `is_silent`. With `wait`, waits at most that
    /// long until it is quiet.
    pub(super) async fn end(self, wait: Option<Duration>, is_silent: bool) -> anyhow::Result<()> {
        match wait {
            Some(limit) => until_quiet(read, limit).await,
            None if is_silent => Ok(()),
            None => {
                sleep_until(self.begun + LOOK).await;
                if let Some(why) = self
                    .before
                    .zip(read())
                    .and_then(|(before, now)| busy(&now.since(&before)))
                {
                    let _ = writeln!(
                        stderr(),
                        "this machine is busy: {why}; results will be noisy. Wait, or use --wait-quiet 60s"
                    );
                }
                Ok(())
            }
        }
    }
}

/// CPU time of this machine since it was started. None where the kernel does not tell.
fn read() -> Option<MachineTime> {
    MachineTime::since_boot(&fs::read_to_string("/proc/stat").ok()?, None)
}

/// Waits until the machine is quiet for [`QUIET_LOOKS`]. An error if it is not within the limit.
async fn until_quiet(read: impl Fn() -> Option<MachineTime>, limit: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    let mut readings = VecDeque::from_iter(read());
    let mut said = false;
    while !readings.is_empty() {
        sleep(LOOK).await;
        readings.extend(read());
        if readings.len() <= QUIET_LOOKS {
            continue;
        }
        let looked = readings[QUIET_LOOKS].since(&readings[0]);
        readings.pop_front();
        let Some(why) = busy(&looked) else {
            break;
        };
        ensure!(
            Instant::now() < deadline,
            "this machine was not quiet within {limit:?}: {why}. End what uses it, or run without --wait-quiet"
        );
        if !said {
            let _ = writeln!(stderr(), "waiting until this machine is quiet: {why}");
            said = true;
        }
    }
    Ok(())
}

/// Why a machine is busy. None if it is quiet.
fn busy(time: &MachineTime) -> Option<String> {
    let (foreign, steal) = (time.foreign(0.0), time.steal());
    let foreign =
        (foreign > MOST_FOREIGN).then(|| format!("other processes use {:.0} % of its CPUs", foreign * 100.0));
    let steal = (steal > MOST_STEAL).then(|| {
        let percent = steal * 100.0;
        format!("its hypervisor gives {percent:.0} % of their time to other machines")
    });
    match (foreign, steal) {
        (Some(foreign), Some(steal)) => Some(format!("{foreign}, and {steal}")),
        (foreign, steal) => foreign.or(steal),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Two CPUs for half a second, of which others use these shares.
    fn look(foreign: f64, steal: f64) -> MachineTime {
        MachineTime {
            cpus: 2,
            total_seconds: 1.0,
            busy_seconds: foreign + 0.02,
            steal_seconds: steal + 0.01,
            ..MachineTime::default()
        }
    }

    #[test]
    fn a_busy_machine_is_described() {
        assert_eq!(busy(&look(0.1, 0.05)), None);
        assert_eq!(
            busy(&look(0.43, 0.0)).unwrap(),
            "other processes use 43 % of its CPUs"
        );
        assert_eq!(
            busy(&look(0.43, 0.08)).unwrap(),
            "other processes use 43 % of its CPUs, and its hypervisor gives 8 % of their time to other machines"
        );
        assert!(
            busy(&look(0.0, 0.08))
                .unwrap()
                .starts_with("its hypervisor gives 8 %")
        );
    }

    /// Readings of a machine that is busy for a number of looks.
    fn machine(busy_looks: u32) -> impl Fn() -> Option<MachineTime> {
        let looks = Cell::new(0);
        move || {
            let now = looks.replace(looks.get() + 1);
            Some(MachineTime {
                cpus: 2,
                total_seconds: f64::from(now),
                busy_seconds: 0.505 * f64::from(now.min(busy_looks)),
                ..MachineTime::default()
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_waits_until_the_machine_is_quiet_for_two_seconds() {
        for (busy_looks, seconds) in [(0, 2.0), (6, 5.0)] {
            let begun = Instant::now();
            until_quiet(machine(busy_looks), Duration::from_secs(60))
                .await
                .unwrap();
            assert!(
                (begun.elapsed().as_secs_f64() - seconds).abs() < 0.1,
                "{:?}",
                begun.elapsed()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_does_not_wait_longer_than_it_may() {
        let begun = Instant::now();
        let refused = until_quiet(machine(u32::MAX), Duration::from_secs(10))
            .await
            .unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(11));
        assert_eq!(
            refused.to_string(),
            "this machine was not quiet within 10s: other processes use 50 % of its CPUs. End what uses it, or run \
             without --wait-quiet"
        );
    }

    #[tokio::test]
    async fn a_machine_that_does_not_tell_is_taken_for_quiet() {
        until_quiet(|| None, Duration::ZERO).await.unwrap();
    }
}
