//! What this machine can do for a run.

use std::{error::Error, path::PathBuf};

use perfrun_link::{Abilities, Ability, Obstacle};
use perfrun_local::{
    network,
    privilege::{self, Privilege, RefusalCause},
};

use super::{
    facts::{Facts, Files, NoNamespaces},
    finding::Finding,
};
use crate::profile;

/// What runs without network namespaces.
const LOOPBACK: &str = "perfrun run FILE --loopback";

/// Lets an ordinary user sample processes and count their cycles.
const PARANOID: &str = "sudo sysctl -w kernel.perf_event_paranoid=2";

/// A network namespace for each node, a bridge and veth pairs.
pub(super) fn namespaces(facts: &Facts) -> Finding {
    let namespaces = match &facts.namespaces {
        Ok(namespaces) => namespaces,
        Err(NoNamespaces::Privilege(error)) => return no_privilege(error),
        Err(NoNamespaces::Network(error)) => return no_network(error),
    };
    if let Some((first, others)) = namespaces.rejected.split_first() {
        let more = match others.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return Finding::hint(
            format!("each node gets its own, but perfrun {first}{more}"),
            "make /proc/sys writable: a container needs `docker run --privileged`",
        );
    }
    let how = match namespaces.privilege {
        Privilege::Capabilities => "with the capabilities of this user",
        Privilege::UserNamespace => "without root, in a user namespace",
    };
    let families = match namespaces.has_ipv6 {
        true => "IPv4 and IPv6",
        false => "IPv4 only",
    };
    Finding::good(format!("each node gets its own, {how}; {families}"))
}

fn no_privilege(error: &privilege::Error) -> Finding {
    match error {
        privilege::Error::MakeNamespace { reason, .. } => {
            Finding::missing(without_advice(&reason.to_string()), mend_refusal(*reason))
        }
        other => Finding::missing(other.to_string(), LOOPBACK),
    }
}

fn no_network(error: &network::Error) -> Finding {
    let mend = match error {
        network::Error::AddBridge(_) | network::Error::AddPair { .. } => "sudo modprobe -a bridge veth",
        network::Error::TooManyNamespaces { limit, .. } => mend_refusal(*limit),
        _ => LOOPBACK,
    };
    let found = without_advice(&error.to_string());
    match error.source() {
        Some(source) => Finding::missing(format!("{found}: {source}"), mend),
        None => Finding::missing(found, mend),
    }
}

fn mend_refusal(cause: RefusalCause) -> &'static str {
    match cause {
        RefusalCause::NoUserNamespaces | RefusalCause::Other(_) => "sudo perfrun run FILE",
        RefusalCause::NoNetworkNamespaces => LOOPBACK,
        RefusalCause::UnprivilegedOff => "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        RefusalCause::UserNamespaceLimit(_) => "sudo sysctl -w user.max_user_namespaces=10000",
        RefusalCause::NetNamespaceLimit(_) => "sudo sysctl -w user.max_net_namespaces=10000",
        RefusalCause::AppArmor => "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        RefusalCause::Seccomp => "start the container with `--cap-add SYS_ADMIN --cap-add NET_ADMIN`",
    }
}

/// A message without the advice in parentheses at its end, which the mend has.
fn without_advice(message: &str) -> String {
    match message.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
        Some((text, _)) => text.to_owned(),
        None => message.to_owned(),
    }
}

/// The program of most nodes.
pub(super) fn node(facts: &Facts) -> Finding {
    program(&facts.node, "cargo build --release -p perfrun-node")
}

/// The program of nodes of go-libp2p.
pub(super) fn go_node(facts: &Facts) -> Finding {
    program(&facts.go_node, "cargo xtask go --release")
}

fn program(found: &Result<PathBuf, String>, mend: &str) -> Finding {
    match found {
        Ok(path) => Finding::good(path.display().to_string()),
        Err(why) => Finding::missing(why, mend),
    }
}

/// netem, the kernel's own way to impair links.
pub(super) fn netem(facts: &Facts) -> Finding {
    backend(facts, |abilities| (&abilities.kernel, &abilities.userspace))
}

/// The TAP device of the links that a process impairs.
pub(super) fn tun(facts: &Facts) -> Finding {
    backend(facts, |abilities| (&abilities.userspace, &abilities.kernel))
}

/// A backend is missing only if the other one cannot take its place.
fn backend(facts: &Facts, of: fn(&Abilities) -> (&Ability, &Ability)) -> Finding {
    let Some(abilities) = &facts.abilities else {
        return Finding::missing(
            "there are no namespaces, and so no links",
            "mend the namespaces first",
        );
    };
    match of(abilities) {
        (Ability::Available, _) => Finding::good("can impair links"),
        (Ability::Unavailable { reason, .. }, other) => {
            let (found, mend) = obstacle(*reason);
            match other {
                Ability::Available => {
                    Finding::hint(format!("{found}; the other backend takes its place"), mend)
                }
                Ability::Unavailable { .. } => Finding::missing(found, mend),
            }
        }
    }
}

/// An obstacle in words, and what removes it.
fn obstacle(reason: Obstacle) -> (String, String) {
    let message = reason.to_string();
    let (found, advice) = message
        .split_once(": ")
        .unwrap_or((message.as_str(), "try again"));
    let command = match reason {
        Obstacle::NoNetem => "sudo modprobe sch_netem",
        Obstacle::NoClasses => "sudo modprobe -a sch_prio sch_tbf",
        Obstacle::NoClsact => "sudo modprobe sch_ingress",
        Obstacle::NoFilters => "sudo modprobe -a cls_u32 act_mirred",
        Obstacle::NoTunDevice | Obstacle::NoTunDriver => "sudo modprobe tun",
        Obstacle::NoScratchDevice => "sudo modprobe dummy",
        _ => advice,
    };
    (found.to_owned(), command.to_owned())
}

/// `perf`, as `--profile` uses it.
pub(super) fn perf(facts: &Facts) -> Finding {
    match &facts.perf {
        None => Finding::hint(
            "`perf` did not answer in time",
            "try again when the machine is quiet",
        ),
        Some(Ok(())) if sees_kernel(facts) => Finding::good("`perf` may sample nodes"),
        Some(Ok(())) => Finding::hint(
            "`perf` may sample nodes, but not the kernel",
            "sudo sysctl -w kernel.perf_event_paranoid=1",
        ),
        Some(Err(profile::Error::Refused { reason, now })) => Finding::missing(
            format!("`perf` may not sample processes here: {reason}{now}"),
            match is_privileged(facts) {
                true => {
                    "give the container the capability PERFMON, and a seccomp profile that allows perf_event_open"
                }
                false => PARANOID,
            },
        ),
        Some(Err(profile::Error::FindPerf)) => {
            Finding::missing("there is no `perf` on PATH", install_perf(&facts.files))
        }
        Some(Err(other)) => Finding::missing(other.to_string(), install_perf(&facts.files)),
    }
}

/// The command that installs `perf`, by the name of the distribution in `/etc/os-release`.
fn install_perf(files: &Files) -> &'static str {
    let mut lines = files.os_release.as_deref().unwrap_or_default().lines();
    let id = lines.find_map(|line| line.strip_prefix("ID="));
    match id.map(|id| id.trim_matches('"')) {
        Some("debian") => "sudo apt-get install linux-perf",
        Some("ubuntu") => "sudo apt-get install linux-tools-generic",
        Some("fedora" | "rhel" | "centos" | "rocky" | "almalinux") => "sudo dnf install perf",
        Some("arch") => "sudo pacman -S perf",
        Some("opensuse-leap" | "opensuse-tumbleweed") => "sudo zypper install perf",
        _ => "install the package that has `perf`, for this kernel",
    }
}

/// The counters of the CPU, from which nodes take cycles in user mode.
pub(super) fn counters(facts: &Facts) -> Finding {
    // Intel, AMD and IBM Z; the cores of Arm and Apple.
    const OF_CPU: [&str; 4] = ["cpu", "armv", "apple_", "arm_cortex"];
    let mut sources = facts.files.event_sources.iter();
    if !sources.any(|source| OF_CPU.iter().any(|start| source.starts_with(start))) {
        return Finding::hint(
            "the kernel knows no counters of this CPU, as in most virtual machines, so no result has CPU cycles per byte",
            "use a machine, or a kind of virtual machine, that has them",
        );
    }
    match paranoid(&facts.files) {
        Some(level) if level > 2 && !is_privileged(facts) => Finding::missing(
            format!("nodes may not count CPU cycles (kernel.perf_event_paranoid is {level})"),
            PARANOID,
        ),
        _ => Finding::good("nodes may count CPU cycles"),
    }
}

/// Whether `perf` may look into the kernel.
fn sees_kernel(facts: &Facts) -> bool {
    is_privileged(facts) || paranoid(&facts.files).is_none_or(|level| level < 2)
}

fn paranoid(files: &Files) -> Option<i32> {
    files.perf_event_paranoid.as_ref()?.parse().ok()
}

/// Whether perfrun has capabilities without a user namespace of its own.
fn is_privileged(facts: &Facts) -> bool {
    let namespaces = facts.namespaces.as_ref();
    namespaces.is_ok_and(|namespaces| namespaces.privilege == Privilege::Capabilities)
}

#[cfg(test)]
mod tests {
    use std::io;

    use perfrun_local::privilege::Step;

    use super::{super::facts::Namespaces, *};

    fn is_good(finding: &Finding, found: &str) {
        assert_eq!(*finding, Finding::good(found));
    }

    fn is_hint(finding: &Finding, found: &str, mend: &str) {
        assert_eq!(*finding, Finding::hint(found, mend));
    }

    fn is_missing(finding: &Finding, found: &str, mend: &str) {
        assert_eq!(*finding, Finding::missing(found, mend));
    }

    fn in_user_namespace() -> Facts {
        Facts {
            namespaces: Ok(Namespaces {
                privilege: Privilege::UserNamespace,
                has_ipv6: false,
                rejected: vec![],
            }),
            ..Facts::good()
        }
    }

    fn refused(reason: RefusalCause) -> Facts {
        let error = privilege::Error::MakeNamespace {
            reason,
            source: io::ErrorKind::PermissionDenied.into(),
        };
        Facts {
            namespaces: Err(NoNamespaces::Privilege(error)),
            abilities: None,
            ..Facts::good()
        }
    }

    fn unavailable(reason: Obstacle) -> Ability {
        Ability::Unavailable {
            reason,
            detail: "tried".to_owned(),
        }
    }

    /// What the checks of both backends find.
    fn backends(kernel: Ability, userspace: Ability) -> [Finding; 2] {
        let facts = Facts {
            abilities: Some(Abilities {
                kernel,
                userspace,
                real_time: Ability::Available,
            }),
            ..Facts::good()
        };
        [netem(&facts), tun(&facts)]
    }

    #[test]
    fn namespaces_say_by_what_right_they_are_made() {
        is_good(
            &namespaces(&Facts::good()),
            "each node gets its own, with the capabilities of this user; IPv4 and IPv6",
        );
        is_good(
            &namespaces(&in_user_namespace()),
            "each node gets its own, without root, in a user namespace; IPv4 only",
        );
    }

    #[test]
    fn refused_namespaces_name_the_command_that_permits_them() {
        is_missing(
            &namespaces(&refused(RefusalCause::AppArmor)),
            "AppArmor removes the capabilities from user namespaces",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        );
        is_missing(
            &namespaces(&refused(RefusalCause::UnprivilegedOff)),
            "only root may create user namespaces here",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        );
        is_missing(
            &namespaces(&refused(RefusalCause::Other(Step::MapUser))),
            "the kernel refused to map the user",
            "sudo perfrun run FILE",
        );
    }

    #[test]
    fn a_missing_driver_of_the_network_names_its_module() {
        let error = network::Error::AddBridge(io::Error::other("not supported"));
        let facts = Facts {
            namespaces: Err(NoNamespaces::Network(error)),
            ..Facts::good()
        };
        is_missing(
            &namespaces(&facts),
            "failed to add a bridge: not supported",
            "sudo modprobe -a bridge veth",
        );
    }

    #[test]
    fn settings_that_the_kernel_refuses_are_a_hint() {
        let rejected = ["failed to set net.ipv4.tcp_tw_reuse = 1 for node 0", "another"];
        let facts = Facts {
            namespaces: Ok(Namespaces {
                privilege: Privilege::Capabilities,
                has_ipv6: true,
                rejected: rejected.map(str::to_owned).into(),
            }),
            ..Facts::good()
        };
        is_hint(
            &namespaces(&facts),
            "each node gets its own, but perfrun failed to set net.ipv4.tcp_tw_reuse = 1 for node 0 and 1 more",
            "make /proc/sys writable: a container needs `docker run --privileged`",
        );
    }

    #[test]
    fn a_missing_program_names_the_command_that_builds_it() {
        is_good(&node(&Facts::good()), "/opt/perfrun/perfrun-node");
        is_good(&go_node(&Facts::good()), "/opt/perfrun/perfrun-node-go");
        let none = Facts {
            node: Err("there is no /opt/perfrun/perfrun-node".to_owned()),
            go_node: Err("there is no /opt/perfrun/perfrun-node-go".to_owned()),
            ..Facts::good()
        };
        is_missing(
            &node(&none),
            "there is no /opt/perfrun/perfrun-node",
            "cargo build --release -p perfrun-node",
        );
        is_missing(
            &go_node(&none),
            "there is no /opt/perfrun/perfrun-node-go",
            "cargo xtask go --release",
        );
    }

    #[test]
    fn links_need_one_of_two_backends() {
        let [kernel, userspace] = backends(Ability::Available, Ability::Available);
        is_good(&kernel, "can impair links");
        is_good(&userspace, "can impair links");

        let [kernel, userspace] = backends(unavailable(Obstacle::NoNetem), Ability::Available);
        is_hint(
            &kernel,
            "this kernel has no netem; the other backend takes its place",
            "sudo modprobe sch_netem",
        );
        is_good(&userspace, "can impair links");

        let [kernel, userspace] =
            backends(unavailable(Obstacle::NoNetem), unavailable(Obstacle::NoTunDevice));
        is_missing(&kernel, "this kernel has no netem", "sudo modprobe sch_netem");
        is_missing(&userspace, "/dev/net/tun does not exist", "sudo modprobe tun");

        let [kernel, _] = backends(unavailable(Obstacle::NotPermitted), Ability::Available);
        assert!(kernel.mend().is_some_and(|mend| mend.starts_with("run as root")));
        is_missing(
            &netem(&refused(RefusalCause::Seccomp)),
            "there are no namespaces, and so no links",
            "mend the namespaces first",
        );
    }

    #[test]
    fn perf_says_what_it_may_see() {
        is_good(&perf(&Facts::good()), "`perf` may sample nodes");
        is_hint(
            &perf(&in_user_namespace()),
            "`perf` may sample nodes, but not the kernel",
            "sudo sysctl -w kernel.perf_event_paranoid=1",
        );
        let mut open = in_user_namespace();
        open.files.perf_event_paranoid = Some("-1".to_owned());
        is_good(&perf(&open), "`perf` may sample nodes");
        let slow = Facts {
            perf: None,
            ..Facts::good()
        };
        is_hint(
            &perf(&slow),
            "`perf` did not answer in time",
            "try again when the machine is quiet",
        );
    }

    #[test]
    fn perf_that_does_not_work_says_why() {
        let error = || profile::Error::Refused {
            reason: "Access is limited".to_owned(),
            now: " (now 4)".to_owned(),
        };
        let forbidden = Facts {
            perf: Some(Err(error())),
            ..in_user_namespace()
        };
        is_missing(
            &perf(&forbidden),
            "`perf` may not sample processes here: Access is limited (now 4)",
            "sudo sysctl -w kernel.perf_event_paranoid=2",
        );
        let container = Facts {
            perf: Some(Err(error())),
            ..Facts::good()
        };
        let finding = perf(&container);
        assert!(
            finding.mend().is_some_and(|mend| mend.contains("PERFMON")),
            "{finding:?}"
        );
    }

    #[test]
    fn perf_is_installed_by_the_command_of_the_distribution() {
        for (os_release, command) in [
            ("ID=debian", "sudo apt-get install linux-perf"),
            (
                "NAME=Ubuntu\nID=ubuntu\nID_LIKE=debian",
                "sudo apt-get install linux-tools-generic",
            ),
            ("ID=\"rocky\"", "sudo dnf install perf"),
            ("", "install the package that has `perf`, for this kernel"),
        ] {
            let mut facts = Facts::good();
            facts.perf = Some(Err(profile::Error::FindPerf));
            facts.files.os_release = Some(os_release.to_owned());
            is_missing(&perf(&facts), "there is no `perf` on PATH", command);
        }
    }

    #[test]
    fn cycles_need_counters_and_the_right_to_read_them() {
        is_good(&counters(&Facts::good()), "nodes may count CPU cycles");
        let mut hybrid = in_user_namespace();
        hybrid.files.event_sources = vec!["cpu_atom".to_owned(), "cpu_core".to_owned()];
        is_good(&counters(&hybrid), "nodes may count CPU cycles");

        let mut guest = Facts::good();
        guest.files.event_sources = vec!["software".to_owned(), "msr".to_owned()];
        assert!(matches!(counters(&guest), Finding::Hint { .. }));

        let mut strict = in_user_namespace();
        strict.files.perf_event_paranoid = Some("4".to_owned());
        is_missing(
            &counters(&strict),
            "nodes may not count CPU cycles (kernel.perf_event_paranoid is 4)",
            "sudo sysctl -w kernel.perf_event_paranoid=2",
        );
        let mut root = Facts::good();
        root.files.perf_event_paranoid = Some("4".to_owned());
        is_good(&counters(&root), "nodes may count CPU cycles");
    }
}
