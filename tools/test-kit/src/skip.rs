//! How a test reports that it, or a part of it, cannot run here, or why it failed.
#![expect(clippy::print_stderr, reason = "a test prints the reason to its output")]

use std::{env, fs, io::Write, thread};

use strum::{Display, EnumString};

/// The variable that names the log of skips. `cargo xtask test` sets it and lists what the log holds.
pub const LOG: &str = "PERFRUN_SKIP_LOG";

/// The variable that names the log of failures. `cargo xtask test` sets it and lists what the log holds.
pub const FAILURES: &str = "PERFRUN_FAILURE_LOG";

/// The variable that lists what must be there, by the names of [`Need`] with commas in between. A test that
/// is skipped for one of these needs fails.
pub const REQUIRE: &str = "PERFRUN_REQUIRE";

/// What a test needs of the machine.
#[derive(Clone, Copy, Debug, Display, EnumString, Eq, PartialEq)]
#[strum(serialize_all = "kebab-case")]
pub enum Need {
    /// A browser with its driver.
    Browser,
    /// The cluster of `cargo xtask e2e`.
    Cluster,
    /// Two CPUs that this process may use.
    Cpus,
    /// perfrun-node-go, which needs Go.
    Go,
    /// IPv6 in this kernel.
    Ipv6,
    /// The right to kill processes of the cluster, as in a lab.
    Lab,
    /// Links that can be impaired in user space: `/dev/net/tun`.
    Links,
    /// Namespaces that this user may make: network, user, mount and time.
    Namespaces,
    /// A kernel with sch_netem.
    Netem,
    /// A kernel without sch_netem.
    NoNetem,
    /// The right to some ten thousand open files.
    OpenFiles,
    /// perf, and the right to sample processes.
    Perf,
    /// ping, iperf3, script and the tables of iproute2.
    Programs,
    /// A Prometheus.
    Prometheus,
    /// Real-time priority for pods.
    RealTime,
    /// The user root.
    Root,
    /// A machine that is fast and idle enough for a measurement. No machine can promise to be.
    Speed,
    /// user-mode-linux.
    UserModeLinux,
}

/// Reports why the test of this thread, or a part of it, is skipped: on standard error and, as a line, in the
/// log of skips.
///
/// # Panics
///
/// If [`REQUIRE`] lists the need, or lists a name that no need has.
pub fn skip(need: Need, part: &str, reason: &str) {
    let line = format!("{} ({part}): {reason}\n", test());
    let required = env::var(REQUIRE).unwrap_or_default();
    assert!(
        !lists(&required, need),
        "{REQUIRE} lists `{need}`, so this must not be skipped: {line}"
    );
    eprint!("skipped: {line}");
    append(LOG, &line);
}

/// Reports why the test of this thread fails: as a line in the log of failures, without the end of a long
/// reason. The output of the test may be too long for a reader to find the reason there.
pub fn fails(reason: &str) {
    let words: Vec<_> = reason.split_whitespace().collect();
    let reason: String = words.join(" ").chars().take(500).collect();
    append(FAILURES, &format!("  {}: {reason}\n", test()));
}

fn test() -> String {
    thread::current().name().unwrap_or("unknown test").to_owned()
}

fn append(variable: &str, line: &str) {
    let Some(path) = env::var_os(variable) else { return };
    let log = fs::OpenOptions::new().create(true).append(true).open(&path);
    if let Err(error) = log.and_then(|mut log| log.write_all(line.as_bytes())) {
        eprintln!("failed to write to {}: {error}", path.display());
    }
}

#[expect(clippy::panic, reason = "a misspelt need would require nothing")]
fn lists(required: &str, need: Need) -> bool {
    let names = required.split(',').map(str::trim).filter(|name| !name.is_empty());
    let needs: Vec<Need> = names
        .map(|name| {
            name.parse()
                .unwrap_or_else(|_| panic!("{REQUIRE} lists `{name}`, which is not the name of a need"))
        })
        .collect();
    needs.contains(&need)
}

#[cfg(test)]
mod tests {
    use super::{Need, lists};

    #[test]
    fn a_need_is_required_when_it_is_listed() {
        let required = "root, no-netem,user-mode-linux";
        for need in [Need::Root, Need::NoNetem, Need::UserModeLinux] {
            assert!(lists(required, need), "{need}");
        }
        assert!(!lists(required, Need::Netem));
        assert!(!lists("", Need::Root));
    }

    #[test]
    #[should_panic(expected = "lists `rooot`, which is not the name of a need")]
    fn a_misspelt_need_is_refused() {
        lists("root,rooot", Need::Cluster);
    }
}
