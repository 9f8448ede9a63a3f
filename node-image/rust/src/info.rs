//! What a node reports about itself and its machine.

mod machine;
mod program;

use std::{collections::BTreeMap, fs, net::IpAddr, thread};

use perfrun_contract::{
    capabilities::Capabilities,
    matrix::{Stack, Transport},
    node::{CONTRACT, Info},
    support,
};

pub(crate) use self::program::{Digest, program_digest};
use crate::{allocator, clock, process, restart};

/// Reads the properties of the build and of the machine, except the digest of the program, which takes time.
pub(crate) fn info(listen_ip: IpAddr) -> Info {
    let uname = rustix::system::uname();
    let line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let buffer = |path: &str| line(path)?.parse().ok();
    // The file has the smallest, the initial and the largest window.
    let window = |path: &str| line(path)?.split_whitespace().nth(2)?.parse().ok();
    let stacks = stacks();
    let cpuinfo = line("/proc/cpuinfo").unwrap_or_default();
    Info {
        contract: CONTRACT,
        instance: Some(restart::instance()),
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
        program_sha256: None,
        commit: option_env!("PERFRUN_COMMIT").map(str::to_owned),
        label: option_env!("PERFRUN_LABEL").map(str::to_owned),
        compiler: Some(env!("COMPILER").to_owned()),
        target_features: Some(env!("TARGET_FEATURES").to_owned()).filter(|features| !features.is_empty()),
        allocator: Some(allocator::NAME.to_owned()),
        listen_ip,
        clock: clock::name(),
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        host: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        cpu: machine::cpu_model(&cpuinfo),
        cpus: thread::available_parallelism().map_or(1, |n| n.get() as u32),
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        hypervisor: machine::hypervisor(line("/sys/hypervisor/type"), &cpuinfo),
        smt: line("/sys/devices/system/cpu/smt/active").map(|active| active == "1"),
        mitigations: machine::mitigations(),
        mtu_bytes: machine::mtu(listen_ip),
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

/// Versions of the stacks in this program, which its build read.
fn stacks() -> BTreeMap<Stack, String> {
    let read = |stack: &str| {
        let (name, version) = stack.split_once('=')?;
        Some((name.parse().ok()?, version.to_owned()))
    };
    env!("STACKS").split(';').filter_map(read).collect()
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
        assert!(info.compiler.unwrap().starts_with("rustc 1."));
        assert_eq!(info.boot_id.unwrap().len(), 36);
    }
}
