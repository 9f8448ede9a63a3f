//! What a node reports about itself and its machine.

use std::{collections::BTreeMap, fs, net::IpAddr, thread};

use perfrun_contract::{
    capabilities::Capabilities,
    matrix::{Stack, Transport},
    node::{CONTRACT, Info},
    support,
};

use crate::{clock, process};

/// Reads the properties of the build and of the machine.
pub(crate) fn info(listen_ip: IpAddr) -> Info {
    let uname = rustix::system::uname();
    let line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let buffer = |path: &str| line(path)?.parse().ok();
    // The file has the smallest, the initial and the largest window.
    let window = |path: &str| line(path)?.split_whitespace().nth(2)?.parse().ok();
    let stacks = stacks();
    Info {
        contract: CONTRACT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        capabilities: capabilities(stacks.keys()),
        stacks: stacks
            .into_iter()
            .map(|(stack, version)| (stack.to_string(), version))
            .collect(),
        profile: if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        }
        .to_owned(),
        listen_ip,
        clock: clock::name(),
        host: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        cpu: cpu_model(&line("/proc/cpuinfo").unwrap_or_default()),
        cpus: thread::available_parallelism().map_or(1, |n| n.get() as u32),
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        congestion_control: line("/proc/sys/net/ipv4/tcp_congestion_control"),
        cpu_limit: process::cpu_limit(),
        memory_limit_bytes: process::memory_limit(),
        socket_buffer_limits_bytes: buffer("/proc/sys/net/core/rmem_max")
            .zip(buffer("/proc/sys/net/core/wmem_max"))
            .map(|(receive, send)| [receive, send]),
        tcp_window_limits_bytes: window("/proc/sys/net/ipv4/tcp_rmem")
            .zip(window("/proc/sys/net/ipv4/tcp_wmem"))
            .map(|(receive, send)| [receive, send]),
    }
}

/// What the stacks of this program can do, as it was built.
fn capabilities<'a>(stacks: impl Iterator<Item = &'a Stack>) -> BTreeMap<String, Capabilities> {
    let built = |stack: &Stack| {
        let mut capabilities = support::capabilities(*stack)?;
        if cfg!(not(feature = "webrtc")) {
            capabilities.transports.remove(Transport::WebrtcDirect.as_ref());
        }
        Some((stack.to_string(), capabilities))
    };
    stacks.filter_map(built).collect()
}

/// Versions of the stacks in this program, from the lock file of its build.
fn stacks() -> BTreeMap<Stack, String> {
    BTreeMap::from([
        (
            Stack::Libp2p,
            concat!(
                env!("LIBP2P_VERSION"),
                " (yamux ",
                env!("LIBP2P_YAMUX_VERSION"),
                ", quinn ",
                env!("QUINN_VERSION"),
                ")"
            )
            .to_owned(),
        ),
        (
            Stack::Litep2p,
            concat!(
                env!("LITEP2P_VERSION"),
                " (yamux ",
                env!("LITEP2P_YAMUX_VERSION"),
                ", quinn ",
                env!("LITEP2P_QUINN_VERSION"),
                ")"
            )
            .to_owned(),
        ),
        #[cfg(feature = "commonware")]
        (Stack::Commonware, env!("COMMONWARE_VERSION").to_owned()),
        (Stack::Raw, format!("kernel TCP, quinn {}", env!("QUINN_VERSION"))),
    ])
}

fn cpu_model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        cpuinfo
            .lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split_once(':'))
    };
    field("model name")
        .or_else(|| field("CPU part"))
        .map_or("unknown", |(_, value)| value.trim())
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_knows_its_stacks_and_machine() {
        let info = info(IpAddr::from([127, 0, 0, 1]));
        assert!(info.stacks["libp2p"].starts_with("0."), "{info:?}");
        assert!(info.stacks["raw"].contains("quinn 0.11"), "{info:?}");
        assert!(info.cpus >= 1);
    }

    #[test]
    fn cpu_models_of_two_architectures_are_read() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"),
            "Some CPU @ 2 GHz"
        );
        assert_eq!(cpu_model("CPU part\t: 0xd0c\n"), "0xd0c");
        assert_eq!(cpu_model(""), "unknown");
    }
}
