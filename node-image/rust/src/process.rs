//! The usage of this process, read from the kernel.

use std::{fs, sync::OnceLock, time::Duration};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use parking_lot::Mutex;
use perf_event::{Builder, Counter, events::Hardware};
use perfrun_contract::{
    machine::{MachineTime, control_group},
    node::Resources,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::allocator;

/// A reading of counters that only grow. [`Usage::since`] gives the usage between two readings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    user: f64,
    system: f64,
    rss: u64,
    allocated: Option<u64>,
    cycles: Option<u64>,
    voluntary: u64,
    involuntary: u64,
    throttled: Option<f64>,
    retransmits: Option<u64>,
    interfaces: Option<InterfaceBytes>,
    machine: Option<MachineTime>,
}

/// Bytes that interfaces received and sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InterfaceBytes {
    /// Received.
    pub received: u64,
    /// Sent.
    pub sent: u64,
}

impl InterfaceBytes {
    /// The bytes since an earlier reading. `None` if interfaces have gone since then.
    pub(crate) fn since(self, then: Self) -> Option<Self> {
        Some(Self {
            received: self.received.checked_sub(then.received)?,
            sent: self.sent.checked_sub(then.sent)?,
        })
    }
}

impl Usage {
    /// Reads the kernel's counters: CPU time and context switches of the process, throttling of its control
    /// group, TCP retransmissions of its network namespace, CPU time of the machine.
    pub fn now() -> Self {
        let (user, system, voluntary, involuntary) = match getrusage(UsageWho::RUSAGE_SELF) {
            Ok(usage) => (
                usage.user_time().num_microseconds() as f64 / 1e6,
                usage.system_time().num_microseconds() as f64 / 1e6,
                usage.voluntary_context_switches().unsigned_abs(),
                usage.involuntary_context_switches().unsigned_abs(),
            ),
            Err(_) => Default::default(),
        };
        Self {
            user,
            system,
            rss: resident(),
            allocated: allocator::allocated(),
            cycles: cycles(),
            voluntary,
            involuntary,
            throttled: throttled().map(|time| time.as_secs_f64()),
            retransmits: retransmits(),
            interfaces: interfaces(),
            machine: machine(),
        }
    }

    /// Resident memory, in bytes.
    pub fn rss(&self) -> u64 {
        self.rss
    }

    /// Memory that the program has allocated, in bytes. `None` without statistics of the allocator.
    pub fn allocated(&self) -> Option<u64> {
        self.allocated
    }

    /// CPU time in user mode and in the kernel, in seconds.
    pub fn cpu_modes(&self) -> [(&'static str, f64); 2] {
        [("user", self.user), ("system", self.system)]
    }

    /// Voluntary and involuntary context switches.
    pub fn context_switches(&self) -> [(&'static str, u64); 2] {
        [("voluntary", self.voluntary), ("involuntary", self.involuntary)]
    }

    /// Time for which the control group throttled the process, in seconds.
    pub fn throttled(&self) -> Option<f64> {
        self.throttled
    }

    /// Bytes that interfaces sent and received, without loopback and the emulator's device.
    pub fn interfaces(&self) -> Option<[(&'static str, u64); 2]> {
        let InterfaceBytes { received, sent } = self.interfaces?;
        Some([("sent", sent), ("received", received)])
    }

    /// Retransmitted TCP segments.
    pub fn retransmits(&self) -> Option<u64> {
        self.retransmits
    }

    /// The usage since an earlier reading, with the peaks of the time between.
    pub fn since(&self, start: &Self, peak: u64, allocated_peak: Option<u64>) -> Resources {
        let interfaces = self
            .interfaces
            .zip(start.interfaces)
            .and_then(|(now, then)| now.since(then));
        Resources {
            machine: self
                .machine
                .zip(start.machine)
                .map(|(now, then)| now.since(&then)),
            interface_received_bytes: interfaces.map(|bytes| bytes.received),
            interface_sent_bytes: interfaces.map(|bytes| bytes.sent),
            cpu_user_seconds: self.user - start.user,
            cpu_system_seconds: self.system - start.system,
            rss_start_bytes: start.rss,
            rss_peak_bytes: peak.max(start.rss).max(self.rss),
            allocated_peak_bytes: allocated_peak,
            cpu_cycles: self.cycles.zip(start.cycles).map(|(now, then)| now - then),
            context_switches_voluntary: self.voluntary - start.voluntary,
            context_switches_involuntary: self.involuntary - start.involuntary,
            throttled_seconds: self.throttled.zip(start.throttled).map(|(now, then)| now - then),
            tcp_retransmits: self
                .retransmits
                .zip(start.retransmits)
                .map(|(now, then)| now - then),
        }
    }
}

/// CPU time of the process, user and system together, in seconds.
pub fn cpu() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
    })
}

/// Cycles that this process has spent in user mode.
static CYCLES: OnceLock<Option<Mutex<Counter>>> = OnceLock::new();

/// Starts to count the CPU cycles of the calling thread and of the threads that it starts, so call it before
/// it starts any. Many machines, among them most virtual ones, do not allow a program to count cycles.
pub fn count_cycles() {
    CYCLES.get_or_init(|| {
        let mut counter = Builder::new(Hardware::CPU_CYCLES).inherit(true).build();
        let enabled = counter
            .as_mut()
            .map_err(|error| error.to_string())
            .and_then(|counter| counter.enable().map_err(|error| error.to_string()));
        if let Err(error) = enabled {
            tracing::debug!(error, "CPU cycles cannot be counted on this machine");
        }
        counter.ok().map(Mutex::new)
    });
}

fn cycles() -> Option<u64> {
    let counter = CYCLES.get()?.as_ref()?;
    counter.lock().read().ok()
}

/// Raises the limit of open files to the most that the system allows: every connection is an open file, and
/// the default of 1024 would end a run with many peers.
pub fn raise_descriptor_limit() {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "failed to raise the limit of open files");
    }
}

/// The limit of open files of this process. `None` if there is no limit.
pub fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns free memory and resets the peak, so that a trial's memory is not charged to the next. `false` if
/// the kernel cannot reset the peak, which then comes from samples.
pub fn reset_peak() -> bool {
    allocator::purge();
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Most resident memory since [`reset_peak`], in bytes.
pub fn peak() -> Option<u64> {
    status_field("VmHWM:")
}

/// Resident memory, in bytes. `statm` would be less exact, because the kernel updates it in batches for each
/// thread.
pub fn resident() -> u64 {
    status_field("VmRSS:").unwrap_or(0)
}

fn status_field(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim()
        .strip_suffix(" kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

/// The folder of this process's control group for `controller`, in a unified (v2) or a legacy (v1) hierarchy.
fn group_folder(controller: &str) -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    control_group::folders(&groups, controller)
        .into_iter()
        .find(|folder| fs::metadata(folder).is_ok())
}

/// Time for which the control group throttled its processes (cgroup v2 `throttled_usec`, v1 `throttled_time`
/// in ns).
fn throttled() -> Option<Duration> {
    let stat = fs::read_to_string(format!("{}/cpu.stat", group_folder("cpu")?)).ok()?;
    parse_throttled(&stat)
}

fn parse_throttled(stat: &str) -> Option<Duration> {
    stat.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let value = value.trim().parse().ok()?;
        match name {
            "throttled_usec" => Some(Duration::from_micros(value)),
            "throttled_time" => Some(Duration::from_nanos(value)),
            _ => None,
        }
    })
}

/// CPUs that the control group allows. `None` without a limit.
pub fn cpu_limit() -> Option<f64> {
    control_group::cpu_limit(files_of_group("cpu")?)
}

/// Memory that the control group allows, in bytes. `None` without a limit.
pub fn memory_limit() -> Option<u64> {
    control_group::memory_limit(files_of_group("memory")?)
}

/// Reads files of the control group for `controller`, by their names.
fn files_of_group(controller: &str) -> Option<impl Fn(&str) -> Option<String>> {
    let folder = group_folder(controller)?;
    Some(move |file: &str| fs::read_to_string(format!("{folder}/{file}")).ok())
}

/// TCP segments retransmitted in this network namespace (`RetransSegs` of RFC 4022).
fn retransmits() -> Option<u64> {
    parse_snmp(
        &fs::read_to_string("/proc/self/net/snmp").ok()?,
        "Tcp:",
        "RetransSegs",
    )
}

/// Bytes that the interfaces of the network namespace have received and sent, without loopback and the
/// emulator's device.
pub fn interfaces() -> Option<InterfaceBytes> {
    parse_interfaces(&fs::read_to_string("/proc/self/net/dev").ok()?)
}

/// CPU time that the machine has used since it was started.
fn machine() -> Option<MachineTime> {
    let pressure = fs::read_to_string("/proc/pressure/memory").ok();
    MachineTime::since_boot(&fs::read_to_string("/proc/stat").ok()?, pressure.as_deref())
}

/// Bytes received and sent by the interfaces of `/proc/net/dev`, except loopback and the emulator's device,
/// through which packets pass a second time. `None` if there are no others.
fn parse_interfaces(text: &str) -> Option<InterfaceBytes> {
    let counted = text.lines().filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        let mut numbers = numbers.split_whitespace();
        let received: u64 = numbers.next()?.parse().ok()?;
        // The first number after the eight of the receiving side.
        let sent: u64 = numbers.nth(7)?.parse().ok()?;
        (!["lo", perfrun_emulator::DEVICE].contains(&name.trim()))
            .then_some(InterfaceBytes { received, sent })
    });
    counted.reduce(|a, b| InterfaceBytes {
        received: a.received + b.received,
        sent: a.sent + b.sent,
    })
}

/// A value of `/proc/net/snmp`, which has a line of names and a line of values for each protocol.
fn parse_snmp(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let position = names.split_whitespace().position(|n| n == name)?;
    values.split_whitespace().nth(position)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_is_read_from_both_versions_of_control_groups() {
        let v2 = "usage_usec 5\nnr_throttled 2\nthrottled_usec 1500\n";
        let v1 = "nr_periods 9\nnr_throttled 2\nthrottled_time 1500000\n";
        assert_eq!(parse_throttled(v2), Some(Duration::from_micros(1500)));
        assert_eq!(parse_throttled(v1), Some(Duration::from_micros(1500)));
        assert_eq!(parse_throttled("usage_usec 5\n"), None);
    }

    #[test]
    fn retransmissions_are_read_by_name() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoMin RetransSegs InErrs\nTcp: 200 17 3\n";
        assert_eq!(parse_snmp(text, "Tcp:", "RetransSegs"), Some(17));
        assert_eq!(parse_snmp("Udp: A\nUdp: 1\n", "Tcp:", "RetransSegs"), None);
    }

    #[test]
    fn bytes_of_interfaces_do_not_include_loopback() {
        let heading = "Inter-|   Receive   |  Transmit\n face |bytes packets errs |bytes packets\n";
        let lo = "    lo: 900 9 0 0 0 0 0 0 900 9 0 0 0 0 0 0\n";
        let eth0 = "  eth0: 100 1 0 0 0 0 0 0 30 1 0 0 0 0 0 0\n";
        let tap = "perfrun0: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n";
        let eth1 = "  eth1:20 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n";
        assert_eq!(parse_interfaces(&[heading, lo].concat()), None);
        assert_eq!(
            parse_interfaces(&[heading, lo, eth0, tap, eth1].concat()),
            Some(InterfaceBytes {
                received: 120,
                sent: 35
            })
        );
    }

    #[test]
    fn usage_includes_work() {
        let start = Usage::now();
        let mut sum = 0u64;
        let begun = std::time::Instant::now();
        while cpu() < start.user + start.system + 0.02 && begun.elapsed() < Duration::from_secs(30) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let used = Usage::now().since(&start, 0, None);
        assert!(
            used.cpu_user_seconds + used.cpu_system_seconds > 0.015,
            "{used:?}"
        );
        assert!(used.rss_peak_bytes > 1 << 20, "{used:?}");
        let machine = used.machine.expect("every Linux has /proc/stat");
        assert!(machine.cpus > 0 && machine.total_seconds > 0.0, "{machine:?}");
    }
}
