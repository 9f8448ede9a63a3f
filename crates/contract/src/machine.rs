//! CPU time of a whole machine: of all its processes, and of the hypervisor's other guests. Also the limits
//! and the mitigations of its kernel.

pub mod control_group;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kernel counts CPU time for programs in ticks (`USER_HZ`), of which a second has 100 wherever Rust
/// runs.
const TICKS_PER_SECOND: f64 = 100.0;

/// A tick, in seconds.
const TICK_SECONDS: f64 = 1.0 / TICKS_PER_SECOND;

/// A machine whose hypervisor gives more than this share of its CPUs' time to others is busy.
pub const BUSY_STEAL: f64 = 0.05;

/// A machine whose other processes use more than this share of its CPUs is busy.
pub const BUSY_FOREIGN: f64 = 0.10;

/// CPU time of all processes of a machine over some time, of all its CPUs together.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineTime {
    /// CPUs that are online.
    pub cpus: u32,
    /// Time of these CPUs, idle or not, in seconds.
    pub total_seconds: f64,
    /// Time of processes, in user mode and in the kernel, in seconds.
    pub busy_seconds: f64,
    /// Time of interrupts, soft ones included, in seconds: packets are received there, for any process.
    pub interrupt_seconds: f64,
    /// Time that the hypervisor gave to others, in seconds.
    pub steal_seconds: f64,
    /// Time for which all processes that had work waited for memory, in seconds, where the kernel counts it.
    /// (It counts none for CPUs: some process always has them.)
    pub memory_stalled_seconds: Option<f64>,
}

impl MachineTime {
    /// Counts since the machine was started, from the content of `/proc/stat` (proc_stat(5)) and of
    /// `/proc/pressure/memory`, if there is one. `None` if the first has no such counts.
    pub fn since_boot(stat: &str, memory_pressure: Option<&str>) -> Option<Self> {
        let ticks = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // User mode includes guests.
        let ticks: Vec<u64> = ticks
            .split_whitespace()
            .map_while(|count| count.parse().ok())
            .take(8)
            .collect();
        let [user, nice, system, idle, wait, interrupt, soft, steal] = ticks.try_into().ok()?;
        let seconds = |counts: &[u64]| counts.iter().sum::<u64>() as f64 / TICKS_PER_SECOND;
        let is_cpu = |line: &&str| {
            let number = line.strip_prefix("cpu");
            number.is_some_and(|number| number.starts_with(|first: char| first.is_ascii_digit()))
        };
        Some(Self {
            cpus: stat.lines().filter(is_cpu).count() as u32,
            total_seconds: seconds(&[user, nice, system, idle, wait, interrupt, soft, steal]),
            busy_seconds: seconds(&[user, nice, system]),
            interrupt_seconds: seconds(&[interrupt, soft]),
            steal_seconds: seconds(&[steal]),
            memory_stalled_seconds: memory_pressure.and_then(full_stall),
        })
    }

    /// What was used between an earlier reading and this one, in whole ticks. The kernel may take back time
    /// of waiting.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let between = |of: fn(&Self) -> f64| {
            let ticks = (of(self) - of(earlier)) * TICKS_PER_SECOND;
            ticks.round().max(0.0) / TICKS_PER_SECOND
        };
        Self {
            cpus: self.cpus,
            total_seconds: between(|time| time.total_seconds),
            busy_seconds: between(|time| time.busy_seconds),
            interrupt_seconds: between(|time| time.interrupt_seconds),
            steal_seconds: between(|time| time.steal_seconds),
            memory_stalled_seconds: self
                .memory_stalled_seconds
                .zip(earlier.memory_stalled_seconds)
                .map(|(now, then)| now - then),
        }
    }

    /// The share of all CPUs' time that the hypervisor gave to others. A tick is rounding.
    pub fn steal(&self) -> f64 {
        self.share(self.steal_seconds - TICK_SECONDS)
    }

    /// The share of all CPUs' time that processes used beside those that used `own_seconds`. Most kernels
    /// sample this at the ticks of each CPU, so one tick of each may be chance.
    pub fn foreign(&self, own_seconds: f64) -> f64 {
        self.share(self.busy_seconds - own_seconds - f64::from(self.cpus) * TICK_SECONDS)
    }

    fn share(&self, seconds: f64) -> f64 {
        if self.total_seconds > 0.0 {
            (seconds.max(0.0) / self.total_seconds).min(1.0)
        } else {
            0.0
        }
    }
}

/// Time for which all processes waited, of a file in `/proc/pressure` (Documentation/accounting/psi.rst of
/// Linux).
fn full_stall(pressure: &str) -> Option<f64> {
    let full = pressure.lines().find_map(|line| line.strip_prefix("full "))?;
    let microseconds = full
        .split_whitespace()
        .find_map(|field| field.strip_prefix("total="))?;
    Some(microseconds.parse::<u64>().ok()? as f64 / 1e6)
}

/// The vulnerabilities that are mitigated, and those that are not, from the content of the files in
/// `/sys/devices/system/cpu/vulnerabilities` by their names. `None` if the CPU has no vulnerability.
pub fn mitigations(states: &BTreeMap<String, String>) -> Option<String> {
    let parts = [("Mitigation", "on for"), ("Vulnerable", "off for")].map(|(state, words)| {
        let those = states.iter().filter(|(_, text)| text.starts_with(state));
        let names: Vec<&str> = those.map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{words} {}", names.join(", ")))
    });
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "\
cpu  1000 200 300 4000 50 10 40 400 100 20
cpu0 500 100 150 2000 25 5 20 200 50 10
cpu1 500 100 150 2000 25 5 20 200 50 10
intr 3441461 0 0
ctxt 10501457
";

    #[test]
    fn time_is_read_from_the_sum_of_all_cpus() {
        let pressure = "some avg10=0.17 avg60=0.43 avg300=0.43 total=17290348\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=5500000\n";
        let expected = MachineTime {
            cpus: 2,
            total_seconds: 60.0,
            busy_seconds: 15.0,
            interrupt_seconds: 0.5,
            steal_seconds: 4.0,
            memory_stalled_seconds: Some(5.5),
        };
        assert_eq!(MachineTime::since_boot(STAT, Some(pressure)), Some(expected));
        let unknown = MachineTime::since_boot(STAT, None).unwrap();
        assert_eq!(unknown.memory_stalled_seconds, None);
    }

    #[test]
    fn a_stat_file_without_counts_gives_no_machine_time() {
        for stat in [
            "",
            "cpu0 1 2 3 4 5 6 7 8\n",
            "cpu  1 2 3 4\n",
            "cpu  1 2 3 4 x 6 7 8\n",
        ] {
            assert_eq!(MachineTime::since_boot(stat, None), None, "{stat:?}");
        }
        let odd = MachineTime::since_boot(STAT, Some("nonsense")).unwrap();
        assert_eq!(odd.memory_stalled_seconds, None);
    }

    #[test]
    fn foreign_use_is_a_share_of_the_time_between_two_readings() {
        let start = MachineTime::since_boot(STAT, None).unwrap();
        let end = MachineTime {
            total_seconds: start.total_seconds + 2.0,
            busy_seconds: start.busy_seconds + 1.5,
            steal_seconds: start.steal_seconds + 0.11,
            ..start
        };
        let used = end.since(&start);
        let is_near = |share: f64, expected: f64| assert!((share - expected).abs() < 1e-9, "{share}");
        // 0.02 s, a tick of each of two CPUs, may be chance.
        is_near(used.foreign(1.0), 0.24);
        is_near(used.foreign(1.5), 0.0);
        is_near(used.foreign(9.0), 0.0);
        is_near(used.steal(), 0.05);
    }

    #[test]
    fn an_interval_of_one_tick_gives_shares_of_zero() {
        let moment = MachineTime {
            cpus: 2,
            total_seconds: 0.01,
            busy_seconds: 0.01,
            steal_seconds: 0.01,
            ..MachineTime::default()
        };
        assert_eq!([moment.foreign(0.0), moment.steal()], [0.0, 0.0]);
        let nothing = MachineTime::default();
        assert_eq!([nothing.foreign(0.0), nothing.steal()], [0.0, 0.0]);
    }

    #[test]
    fn mitigations_are_named_in_order() {
        let states = |all: &[(&str, &str)]| {
            let owned = all
                .iter()
                .map(|(name, text)| ((*name).to_owned(), format!("{text}\n")));
            mitigations(&owned.collect())
        };
        let some = states(&[
            ("spectre_v2", "Mitigation: Retpolines; STIBP: disabled"),
            ("meltdown", "Not affected"),
            ("spec_store_bypass", "Vulnerable"),
            ("spectre_v1", "Mitigation: usercopy/swapgs barriers"),
        ]);
        assert_eq!(
            some.as_deref(),
            Some("on for spectre_v1, spectre_v2; off for spec_store_bypass")
        );
        assert_eq!(states(&[("meltdown", "Not affected")]), None);
    }
}
