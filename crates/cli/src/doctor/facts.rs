//! What the checks look at. Nothing here judges what it reads.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use perfrun_contract::machine::{MachineTime, control_group};
use perfrun_emulator::abilities;
use perfrun_link::Abilities;
use perfrun_local::{
    LocalIsolation, LocalNetwork, network,
    nodes::{self, Program},
    privilege::{self, Privilege},
};
use rustix::{
    process::{Resource, getrlimit},
    thread::sched_getaffinity,
};
use tokio::time::{sleep, timeout};

use crate::{
    executable, load,
    profile::{self, CallGraph},
};

/// How long the load of the machine is measured.
const LOAD_TIME: Duration = Duration::from_secs(1);

/// How long `perf` may take to sample a program that does nothing.
const PERF_TIMEOUT: Duration = Duration::from_millis(1500);

/// What the checks look at.
#[derive(Debug)]
pub(super) struct Facts {
    pub namespaces: Result<Namespaces, NoNamespaces>,
    /// What can impair links. `None` without namespaces, in which there would be links.
    pub abilities: Option<Abilities>,
    /// The node programs, or why there are none.
    pub node: Result<PathBuf, String>,
    pub go_node: Result<PathBuf, String>,
    /// Whether `perf` may sample. `None` if it did not answer in time.
    pub perf: Option<Result<(), profile::Error>>,
    /// What the machine used while it was observed. `None` if its kernel does not count it.
    pub load: Option<MachineTime>,
    /// CPUs that this process may use. `None` if the kernel does not report them.
    pub cpus: Option<usize>,
    pub limits: Limits,
    pub files: Files,
}

/// Network namespaces as nodes get them.
#[derive(Debug)]
pub(super) struct Namespaces {
    pub privilege: Privilege,
    pub has_ipv6: bool,
    /// Settings that the kernel did not accept, as sentences.
    pub rejected: Vec<String>,
}

/// Why there are no network namespaces.
#[derive(Debug)]
pub(super) enum NoNamespaces {
    Privilege(privilege::Error),
    Network(network::Error),
}

/// Limits of this process and of its control group. `None` stands for no limit.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub cpus: Option<f64>,
    /// In bytes.
    pub memory: Option<u64>,
    pub open_files: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
}

/// Files of the kernel and of the system. A file that does not exist is `None` or empty.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub rmem_max: Option<String>,
    pub wmem_max: Option<String>,
    pub congestion_control: Option<String>,
    pub congestion_controls: Option<String>,
    pub perf_event_paranoid: Option<String>,
    pub smt_active: Option<String>,
    pub clock_source: Option<String>,
    pub clock_sources: Option<String>,
    pub meminfo: Option<String>,
    pub os_release: Option<String>,
    /// The governor of each CPU that has one.
    pub governors: Vec<String>,
    /// Names of what `perf_event_open` can count with.
    pub event_sources: Vec<String>,
    /// What the kernel does about each vulnerability of the CPU.
    pub vulnerabilities: BTreeMap<String, String>,
}

impl Facts {
    /// Reads files, and tries what a run does.
    pub(super) async fn read(privilege: Result<Privilege, privilege::Error>) -> Self {
        // Before everything else, which would be a part of it.
        let load = observe().await;
        let is_limited = !matches!(privilege, Ok(Privilege::Capabilities));
        let (namespaces, abilities) = try_network(privilege).await;
        let perf = timeout(PERF_TIMEOUT, profile::check(CallGraph::Dwarf)).await;
        Self {
            namespaces,
            abilities,
            node: program(Program::beside_this_one("--node")),
            go_node: program(Program::go_beside_this_one()),
            perf: perf.ok(),
            load,
            cpus: sched_getaffinity(None).ok().map(|cpus| cpus.count() as usize),
            limits: Limits::read(is_limited),
            files: Files::read(),
        }
    }
}

/// What the machine uses while nothing else is done here.
async fn observe() -> Option<MachineTime> {
    let before = load::read()?;
    sleep(LOAD_TIME).await;
    Some(load::read()?.since(&before))
}

/// Makes the network of a run with two nodes, and finds out what can impair its links.
async fn try_network(
    privilege: Result<Privilege, privilege::Error>,
) -> (Result<Namespaces, NoNamespaces>, Option<Abilities>) {
    let privilege = match privilege {
        Ok(privilege) => privilege,
        Err(error) => return (Err(NoNamespaces::Privilege(error)), None),
    };
    let network = match LocalNetwork::create(LocalIsolation::Namespaces, 2, None).await {
        Ok(network) => network,
        Err(error) => return (Err(NoNamespaces::Network(error)), None),
    };
    let slot = network.slot(0);
    let namespaces = Namespaces {
        privilege,
        has_ipv6: slot.is_some_and(|slot| slot.addresses().v6.is_some()),
        rejected: network
            .rejected_settings()
            .iter()
            .map(ToString::to_string)
            .collect(),
    };
    let namespace = slot.and_then(|slot| slot.namespace());
    let abilities = namespace.map(|namespace| namespace.run(|| abilities::detect("eth0")));
    (Ok(namespaces), abilities)
}

/// The file of a node program, if it can be executed.
fn program(found: Result<PathBuf, nodes::Error>) -> Result<PathBuf, String> {
    let path = found.map_err(|error| match error {
        nodes::Error::FindNode { file, .. } | nodes::Error::FindGoNode(file) => {
            format!("there is no {}", file.display())
        }
        other => other.to_string(),
    })?;
    executable::at(&path).map_err(|error| format!("{} cannot be executed: {error}", path.display()))
}

impl Limits {
    /// The kernel does not apply the limit of a user's processes to root.
    fn read(is_limited: bool) -> Self {
        let of_user = getrlimit(Resource::Nproc).current.filter(|_| is_limited);
        let of_group = files_of_group("pids").and_then(control_group::process_limit);
        Self {
            cpus: files_of_group("cpu").and_then(control_group::cpu_limit),
            memory: files_of_group("memory").and_then(control_group::memory_limit),
            // perfrun and its nodes raise their limits up to this one.
            open_files: getrlimit(Resource::Nofile).maximum,
            processes: of_user.into_iter().chain(of_group).min(),
        }
    }
}

/// Reads files of the control group for `controller`, by their names.
fn files_of_group(controller: &str) -> Option<impl Fn(&str) -> Option<String>> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut folders = control_group::folders(&groups, controller).into_iter();
    let folder = folders.find(|folder| Path::new(folder).exists())?;
    Some(move |file: &str| fs::read_to_string(format!("{folder}/{file}")).ok())
}

impl Files {
    fn read() -> Self {
        const CPUS: &str = "/sys/devices/system/cpu";
        const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0";
        let governor = |cpu: String| text(format!("{CPUS}/{cpu}/cpufreq/scaling_governor"));
        let vulnerability = |name: String| {
            let state = text(format!("{CPUS}/vulnerabilities/{name}"))?;
            Some((name, state))
        };
        Self {
            rmem_max: text("/proc/sys/net/core/rmem_max"),
            wmem_max: text("/proc/sys/net/core/wmem_max"),
            congestion_control: text("/proc/sys/net/ipv4/tcp_congestion_control"),
            congestion_controls: text("/proc/sys/net/ipv4/tcp_available_congestion_control"),
            perf_event_paranoid: text("/proc/sys/kernel/perf_event_paranoid"),
            smt_active: text(format!("{CPUS}/smt/active")),
            clock_source: text(format!("{CLOCK}/current_clocksource")),
            clock_sources: text(format!("{CLOCK}/available_clocksource")),
            meminfo: text("/proc/meminfo"),
            os_release: text("/etc/os-release"),
            governors: names(CPUS).into_iter().filter_map(governor).collect(),
            event_sources: names("/sys/bus/event_source/devices"),
            vulnerabilities: names(&format!("{CPUS}/vulnerabilities"))
                .into_iter()
                .filter_map(vulnerability)
                .collect(),
        }
    }
}

/// The content of a file, without white space around it.
fn text(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// The names in a folder.
fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

#[cfg(test)]
impl Facts {
    /// A machine on which all is well.
    pub(super) fn good() -> Self {
        use perfrun_link::Ability;

        let some = |text: &str| Some(text.to_owned());
        Self {
            namespaces: Ok(Namespaces {
                privilege: Privilege::Capabilities,
                has_ipv6: true,
                rejected: vec![],
            }),
            abilities: Some(Abilities {
                kernel: Ability::Available,
                userspace: Ability::Available,
                real_time: Ability::Available,
            }),
            node: Ok("/opt/perfrun/perfrun-node".into()),
            go_node: Ok("/opt/perfrun/perfrun-node-go".into()),
            perf: Some(Ok(())),
            load: Some(MachineTime {
                cpus: 8,
                total_seconds: 8.0,
                busy_seconds: 0.1,
                ..MachineTime::default()
            }),
            cpus: Some(8),
            limits: Limits {
                open_files: Some(1_048_576),
                processes: Some(126_000),
                ..Limits::default()
            },
            files: Files {
                rmem_max: some("7500000"),
                wmem_max: some("7500000"),
                congestion_control: some("cubic"),
                congestion_controls: some("reno cubic bbr"),
                perf_event_paranoid: some("2"),
                smt_active: some("0"),
                clock_source: some("tsc"),
                clock_sources: some("tsc hpet acpi_pm"),
                meminfo: some(
                    "MemTotal:  16000000 kB\nMemAvailable:  12000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB",
                ),
                os_release: some("NAME=\"Debian GNU/Linux\"\nID=debian"),
                governors: vec!["performance".to_owned(); 8],
                event_sources: ["breakpoint", "cpu", "software"].map(str::to_owned).into(),
                vulnerabilities: [
                    ("spectre_v2", "Mitigation: Retpolines"),
                    ("meltdown", "Not affected"),
                ]
                .map(|(name, state)| (name.to_owned(), state.to_owned()))
                .into(),
            },
        }
    }
}
