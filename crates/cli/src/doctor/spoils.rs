//! What would spoil numbers. What the kernel does not report spoils nothing.

use perfrun_contract::{
    machine,
    units::{self, Unit},
};
use perfrun_link::Ability;
use perfrun_local::{network::NODES_MAX, open_files as files_limit};

use super::{
    facts::{Facts, Files},
    finding::Finding,
};
use crate::load::why_busy;

const UNKNOWN: &str = "the kernel does not report it";

/// What stacks want for QUIC, in bytes: 7 MiB of go-libp2p, and what the flag `UdpBuffersLimited` advises.
const UDP_BUFFERS: u64 = 7_500_000;

/// A run may have a link agent beside each node.
const PER_NODE: usize = 2;

/// Threads of a node besides one for each CPU.
const OTHER_THREADS: usize = 4;

/// Less available memory than this may be too little for one pair of nodes.
const MEMORY_MIN: u64 = 1 << 30;

/// Less swapped memory than this belongs to processes that sleep.
const SWAP_MAX: u64 = 64 << 20;

/// Clock sources that take microseconds to read.
const SLOW_CLOCKS: [&str; 5] = ["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"];

/// Other processes, and the hypervisor's other guests.
pub(super) fn load(facts: &Facts) -> Finding {
    let Some(load) = &facts.load else {
        return Finding::good(UNKNOWN);
    };
    match why_busy(load) {
        Some(why) => Finding::hint(why, "perfrun run FILE --wait-quiet 60s"),
        None => Finding::good(format!(
            "other processes use {:.0} % of the CPUs, and the hypervisor gives {:.0} % to other machines",
            load.foreign(0.0) * 1e2,
            load.steal() * 1e2
        )),
    }
}

/// CPUs that client and server need not share.
pub(super) fn cpus(facts: &Facts) -> Finding {
    match facts.cpus {
        None => Finding::good(UNKNOWN),
        Some(1) => Finding::hint(
            "one CPU, which client and server share",
            "use a machine with more, or remove a restriction: `taskset -p $$` shows it",
        ),
        Some(cpus) => Finding::good(format!("{cpus} CPUs")),
    }
}

/// The quota of the control group, which holds nodes back.
pub(super) fn cpu_limit(facts: &Facts) -> Finding {
    match (facts.limits.cpus, facts.cpus) {
        (None, _) => Finding::good("the control group has no limit"),
        (Some(limit), Some(cpus)) if limit < cpus as f64 => Finding::hint(
            format!("the control group allows {limit} of {cpus} CPUs, and holds nodes back"),
            "remove the limit: `--cpus` of docker, `CPUQuota` of a systemd unit, `limits.cpu` of a pod",
        ),
        (Some(limit), _) => Finding::good(format!("the control group allows {limit} CPUs")),
    }
}

/// The governor of the frequencies.
pub(super) fn governor(facts: &Facts) -> Finding {
    let governors = &facts.files.governors;
    let mut others: Vec<&str> = governors.iter().map(String::as_str).collect();
    others.retain(|governor| *governor != "performance");
    others.sort_unstable();
    others.dedup();
    match (governors.is_empty(), others.is_empty()) {
        (true, _) => Finding::good("this kernel does not set frequencies"),
        (false, true) => Finding::good("performance"),
        (false, false) => Finding::hint(
            format!("{}: frequencies follow the load", others.join(", ")),
            "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        ),
    }
}

/// CPUs that share a core.
pub(super) fn smt(facts: &Facts) -> Finding {
    match facts.files.smt_active.as_deref() {
        None => Finding::good(UNKNOWN),
        Some("1") => Finding::hint(
            "on: two CPUs share a core, and slow down each other",
            "echo off | sudo tee /sys/devices/system/cpu/smt/control",
        ),
        Some(_) => Finding::good("off"),
    }
}

/// The clock that all times come from.
pub(super) fn clock_source(facts: &Facts) -> Finding {
    let Files {
        clock_source,
        clock_sources,
        ..
    } = &facts.files;
    let Some(current) = clock_source.as_deref() else {
        return Finding::good(UNKNOWN);
    };
    if !SLOW_CLOCKS.contains(&current) {
        return Finding::good(current);
    }
    let mut available = clock_sources.as_deref().unwrap_or_default().split_whitespace();
    let mend = match available.find(|name| !SLOW_CLOCKS.contains(name)) {
        Some(better) => format!(
            "echo {better} | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
        ),
        None => "sudo dmesg | grep -i -e tsc -e clocksource    # says why the kernel trusts no faster one"
            .to_owned(),
    };
    Finding::hint(format!("{current}, which takes microseconds to read"), mend)
}

/// The largest buffers of UDP sockets.
pub(super) fn udp_buffers(facts: &Facts) -> Finding {
    let bytes = |text: &Option<String>| text.as_ref()?.parse::<u64>().ok();
    let (Some(receive), Some(send)) = (bytes(&facts.files.rmem_max), bytes(&facts.files.wmem_max)) else {
        return Finding::good(UNKNOWN);
    };
    if receive.min(send) >= UDP_BUFFERS {
        return Finding::good(format!("up to {receive} bytes to receive, {send} to send"));
    }
    Finding::hint(
        format!("up to {receive} bytes to receive, {send} to send: QUIC may lose bursts"),
        format!("sudo sysctl -w net.core.rmem_max={UDP_BUFFERS} net.core.wmem_max={UDP_BUFFERS}"),
    )
}

/// The priority of links that a process impairs.
pub(super) fn real_time(facts: &Facts) -> Finding {
    let Some(abilities) = &facts.abilities else {
        return Finding::good("there are no links");
    };
    match (&abilities.kernel, &abilities.real_time) {
        (Ability::Available, _) => Finding::good("not needed: the kernel impairs links"),
        (_, Ability::Available) => Finding::good("impaired links have real-time priority"),
        (_, Ability::Unavailable { .. }) => Finding::hint(
            "impaired links have no real-time priority, so packets are late if all CPUs are busy",
            "sudo perfrun run FILE",
        ),
    }
}

/// Open files, as many as the largest run takes.
pub(super) fn open_files(facts: &Facts) -> Finding {
    let needed = |nodes| files_limit::needed(PER_NODE * nodes);
    let mend = || {
        let files = needed(NODES_MAX);
        format!("ulimit -n {files}    # as root; a service has LimitNOFILE={files} in its unit")
    };
    match facts.limits.open_files {
        None => Finding::good("no limit"),
        Some(limit) if limit < needed(2) => {
            Finding::missing(format!("{limit}, and two nodes need {}", needed(2)), mend())
        }
        Some(limit) if limit < needed(NODES_MAX) => Finding::hint(
            format!("{limit}, and {NODES_MAX} nodes need {}", needed(NODES_MAX)),
            mend(),
        ),
        Some(limit) => Finding::good(limit.to_string()),
    }
}

/// Processes and threads, as many as the largest run takes.
pub(super) fn processes(facts: &Facts) -> Finding {
    let per_node = PER_NODE * (facts.cpus.unwrap_or(1) + OTHER_THREADS);
    let needed = (NODES_MAX * per_node) as u64;
    match facts.limits.processes {
        None => Finding::good("no limit"),
        Some(limit) if limit < needed => Finding::hint(
            format!("{limit} processes and threads, and {NODES_MAX} nodes need about {needed}"),
            "raise the limit: `ulimit -u`, `--pids-limit` of docker, or `TasksMax` of a systemd unit",
        ),
        Some(limit) => Finding::good(format!("{limit} processes and threads")),
    }
}

/// Memory that is available, and that the control group allows.
pub(super) fn memory(facts: &Facts) -> Finding {
    let available = kibibytes(&facts.files, "MemAvailable:");
    let Some(bytes) = available.into_iter().chain(facts.limits.memory).min() else {
        return Finding::good(UNKNOWN);
    };
    match bytes < MEMORY_MIN {
        true => Finding::hint(
            format!("{} available", size(bytes)),
            "ps -eo rss,pid,args --sort=-rss | head    # shows what to end; a container may have a limit",
        ),
        false => Finding::good(format!("{} available", size(bytes))),
    }
}

/// Memory that the kernel has moved to a disk.
pub(super) fn swap(facts: &Facts) -> Finding {
    let total = kibibytes(&facts.files, "SwapTotal:");
    let Some((total, free)) = total.zip(kibibytes(&facts.files, "SwapFree:")) else {
        return Finding::good(UNKNOWN);
    };
    match total.saturating_sub(free) {
        0 => Finding::good("none in use"),
        used if used > SWAP_MAX => Finding::hint(format!("{} in use", size(used)), "sudo swapoff -a"),
        used => Finding::good(format!("{} in use", size(used))),
    }
}

/// The congestion control of TCP, for people who compare machines.
pub(super) fn congestion_control(facts: &Facts) -> Finding {
    let Files {
        congestion_control,
        congestion_controls,
        ..
    } = &facts.files;
    match (congestion_control, congestion_controls) {
        (None, _) => Finding::good(UNKNOWN),
        (Some(current), None) => Finding::good(current.as_str()),
        (Some(current), Some(all)) => Finding::good(format!("{current}; available: {all}")),
    }
}

/// Mitigations, for people who compare machines.
pub(super) fn mitigations(facts: &Facts) -> Finding {
    let vulnerabilities = &facts.files.vulnerabilities;
    Finding::good(match machine::mitigations(vulnerabilities) {
        Some(mitigations) => mitigations,
        None if vulnerabilities.is_empty() => UNKNOWN.to_owned(),
        None => "none needed".to_owned(),
    })
}

/// A line of `/proc/meminfo`, in bytes.
fn kibibytes(files: &Files, name: &str) -> Option<u64> {
    let mut lines = files.meminfo.as_ref()?.lines();
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    let number: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(number * 1024)
}

fn size(bytes: u64) -> String {
    units::text(Unit::Bytes, bytes as f64)
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{machine::MachineTime, record::Flag};
    use perfrun_link::{Abilities, Obstacle};
    use strum::EnumMessage;

    use super::{super::facts::Limits, *};

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    /// Makes a check on a machine with these files, on which all else is well.
    fn with_files(check: fn(&Facts) -> Finding, change: impl FnOnce(&mut Files)) -> Finding {
        let mut facts = Facts::good();
        change(&mut facts.files);
        check(&facts)
    }

    /// Makes a check on a machine with these limits, on which all else is well.
    fn with_limits(check: fn(&Facts) -> Finding, limits: Limits) -> Finding {
        check(&Facts {
            limits,
            ..Facts::good()
        })
    }

    fn is_good(finding: &Finding, found: &str) {
        assert_eq!(*finding, Finding::good(found));
    }

    fn is_hint(finding: &Finding, found: &str, mend: &str) {
        let is_hint = matches!(finding, Finding::Hint { .. });
        let mended = finding.mend().unwrap_or_default();
        assert!(
            is_hint && finding.found().contains(found) && mended.contains(mend),
            "{found}, {mend}: {finding:?}"
        );
    }

    #[test]
    fn a_good_machine_spoils_nothing() {
        let facts = Facts::good();
        is_good(
            &load(&facts),
            "other processes use 0 % of the CPUs, and the hypervisor gives 0 % to other machines",
        );
        is_good(&cpus(&facts), "8 CPUs");
        is_good(&cpu_limit(&facts), "the control group has no limit");
        is_good(&governor(&facts), "performance");
        is_good(&smt(&facts), "off");
        is_good(&clock_source(&facts), "tsc");
        is_good(
            &udp_buffers(&facts),
            "up to 7500000 bytes to receive, 7500000 to send",
        );
        is_good(&real_time(&facts), "not needed: the kernel impairs links");
        is_good(&open_files(&facts), "1048576");
        is_good(&processes(&facts), "126000 processes and threads");
        is_good(&memory(&facts), "11.4 GiB available");
        is_good(&swap(&facts), "none in use");
        is_good(&congestion_control(&facts), "cubic; available: reno cubic bbr");
        is_good(&mitigations(&facts), "on for spectre_v2");
    }

    #[test]
    fn what_the_kernel_does_not_report_spoils_nothing() {
        let facts = Facts {
            load: None,
            cpus: None,
            limits: Limits::default(),
            files: Files::default(),
            ..Facts::good()
        };
        for check in [
            load,
            cpus,
            cpu_limit,
            governor,
            smt,
            clock_source,
            udp_buffers,
            open_files,
            processes,
            memory,
            swap,
            congestion_control,
            mitigations,
        ] {
            let finding = check(&facts);
            assert!(matches!(finding, Finding::Good(_)), "{finding:?}");
        }
    }

    #[test]
    fn a_busy_machine_is_a_hint() {
        let busy = MachineTime {
            cpus: 2,
            total_seconds: 2.0,
            busy_seconds: 0.86,
            steal_seconds: 0.21,
            ..MachineTime::default()
        };
        let finding = load(&Facts {
            load: Some(busy),
            ..Facts::good()
        });
        is_hint(&finding, "other processes use 42 %", "--wait-quiet");
        is_hint(&finding, "its hypervisor gives 10 %", "--wait-quiet");
    }

    #[test]
    fn too_few_cpus_are_a_hint() {
        let of = |cpus, limit| {
            let facts = Facts {
                cpus,
                limits: Limits {
                    cpus: limit,
                    ..Limits::default()
                },
                ..Facts::good()
            };
            [super::cpus(&facts), cpu_limit(&facts)]
        };
        let [one, _] = of(Some(1), None);
        is_hint(&one, "one CPU", "more");
        let [_, limited] = of(Some(4), Some(1.5));
        is_hint(&limited, "allows 1.5 of 4 CPUs", "limits.cpu");
        let [_, enough] = of(Some(4), Some(4.0));
        is_good(&enough, "the control group allows 4 CPUs");
    }

    #[test]
    fn a_governor_that_follows_the_load_is_a_hint() {
        let with = |governors: &[&str]| {
            with_files(governor, |files| {
                files.governors = governors.iter().map(|governor| (*governor).to_owned()).collect();
            })
        };
        is_hint(
            &with(&["schedutil", "performance", "powersave", "schedutil"]),
            "powersave, schedutil: ",
            "echo performance | sudo tee",
        );
        is_good(&with(&[]), "this kernel does not set frequencies");
    }

    #[test]
    fn cpus_that_share_a_core_are_a_hint() {
        let shared = with_files(smt, |files| files.smt_active = some("1"));
        is_hint(&shared, "two CPUs share a core", "smt/control");
    }

    #[test]
    fn a_slow_clock_is_a_hint_that_names_a_faster_one() {
        let with = |current: &str, available: &str| {
            with_files(clock_source, |files| {
                files.clock_source = some(current);
                files.clock_sources = some(available);
            })
        };
        is_hint(&with("hpet", "hpet acpi_pm tsc"), "hpet", "echo tsc | sudo tee");
        is_hint(&with("acpi_pm", "hpet acpi_pm"), "acpi_pm", "dmesg");
        is_good(&with("kvm-clock", "kvm-clock tsc acpi_pm"), "kvm-clock");
    }

    #[test]
    fn small_buffers_of_udp_are_a_hint() {
        let one = with_files(udp_buffers, |files| files.wmem_max = some("212992"));
        is_hint(
            &one,
            "7500000 bytes to receive, 212992 to send",
            "sysctl -w net.core.rmem_max=7500000 net.core.wmem_max=7500000",
        );
    }

    /// The flag of a trial that had too small buffers advises the same.
    #[test]
    fn the_flag_of_small_buffers_advises_the_same_size() {
        let advice = Flag::UdpBuffersLimited.get_message().unwrap();
        assert!(advice.contains(&UDP_BUFFERS.to_string()), "{advice}");
    }

    #[test]
    fn links_without_real_time_priority_are_a_hint_in_user_space() {
        let unavailable = |reason| Ability::Unavailable {
            reason,
            detail: String::new(),
        };
        let with = |kernel: Ability| {
            real_time(&Facts {
                abilities: Some(Abilities {
                    kernel,
                    userspace: Ability::Available,
                    real_time: unavailable(Obstacle::NoRealTime),
                }),
                ..Facts::good()
            })
        };
        is_hint(
            &with(unavailable(Obstacle::NoNetem)),
            "no real-time",
            "sudo perfrun",
        );
        is_good(&with(Ability::Available), "not needed: the kernel impairs links");
    }

    #[test]
    fn limits_below_the_largest_run_are_hints() {
        let files = |open_files| {
            let limits = Limits {
                open_files: Some(open_files),
                ..Limits::default()
            };
            with_limits(super::open_files, limits)
        };
        is_hint(&files(1024), "1024, and 250 nodes need 4100", "ulimit -n 4100");
        is_good(&files(4100), "4100");
        assert_eq!(files(100).found(), "100, and two nodes need 132");
        assert!(matches!(files(100), Finding::Missing { .. }));

        let limits = Limits {
            processes: Some(1000),
            ..Limits::default()
        };
        is_hint(
            &with_limits(processes, limits),
            "1000 processes and threads, and 250 nodes need about 6000",
            "ulimit -u",
        );
    }

    #[test]
    fn little_memory_is_a_hint() {
        let little = with_files(memory, |files| files.meminfo = some("MemAvailable:  524288 kB"));
        is_hint(&little, "512 MiB available", "ps -eo");
        let limits = Limits {
            memory: Some(256 << 20),
            ..Limits::default()
        };
        is_hint(&with_limits(memory, limits), "256 MiB available", "ps -eo");
    }

    #[test]
    fn swap_in_use_is_a_hint() {
        let with = |free: u64| {
            let meminfo = format!("SwapTotal:  2097152 kB\nSwapFree:  {free} kB");
            with_files(swap, |files| files.meminfo = Some(meminfo))
        };
        is_hint(&with(1_048_576), "1.00 GiB in use", "swapoff");
        is_good(&with(2_096_128), "1.00 MiB in use");
    }
}
