//! What a machine, container or namespace permits, and why not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use thiserror::Error;

use crate::{route::OutgoingLinks, state::ActiveBackend};

/// The number of routes that the kernel's netem can impair differently: the bands of a prio qdisc, minus one
/// for all other traffic.
pub const KERNEL_ROUTES_MAX: usize = 15;

/// What is available in one place.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Abilities {
    /// netem and the modules that it needs.
    pub kernel: Ability,
    /// A TAP device, and the filters that redirect packets to it and back.
    pub userspace: Ability,
    /// Real-time priority. Without it the user-space backend is late when other processes are busy.
    pub real_time: Ability,
}

/// Whether something is available.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "state")]
pub enum Ability {
    /// It is available.
    Available,
    /// It is not available.
    Unavailable {
        /// Why it is not available, and what to do.
        reason: Obstacle,
        /// Which step was refused, and the kernel's message.
        detail: String,
    },
}

/// Why something is not available, and what to do.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Error, IntoStaticStr, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::enum_variant_names, reason = "most reasons are an absence")]
pub enum Obstacle {
    /// CAP_NET_ADMIN is missing.
    #[error(
        "changing network settings is not permitted here: run as root, or add the capability NET_ADMIN with uid 0"
    )]
    NotPermitted,
    /// CAP_SYS_NICE is missing, or belongs to a user namespace.
    #[error(
        "real-time priority is not permitted: add the capability SYS_NICE, or leave a core to the emulator"
    )]
    NoRealTime,
    /// sch_netem is missing.
    #[error("this kernel has no netem: run `modprobe sch_netem` on the host, or use the user-space backend")]
    NoNetem,
    /// sch_prio or sch_tbf is missing.
    #[error(
        "this kernel has netem, but not the modules that it needs: run `modprobe -a sch_prio sch_tbf` on the host, or use the user-space backend"
    )]
    NoClasses,
    /// sch_ingress is missing.
    #[error("this kernel has no clsact: run `modprobe sch_ingress` on the host")]
    NoClsact,
    /// cls_u32 and cls_flower are missing, or act_mirred is.
    #[error(
        "this kernel has no filters that can select packets: run `modprobe -a cls_u32 act_mirred` on the host"
    )]
    NoFilters,
    /// The device file is missing.
    #[error(
        "/dev/net/tun does not exist: run `modprobe tun` on the host; in a container create it (`mkdir -p /dev/net; mknod /dev/net/tun c 10 200`, capability MKNOD)"
    )]
    NoTunDevice,
    /// The device file exists, but opening it is not permitted.
    #[error(
        "opening /dev/net/tun is not permitted: run as root; a container's device rules may forbid it (those of runc 1.2.0 to 1.2.3 and of older crun do): update the runtime, or use a device plugin"
    )]
    TunForbidden,
    /// The device file exists, but no driver is behind it.
    #[error("/dev/net/tun exists but no driver is behind it: run `modprobe tun` on the host")]
    NoTunDriver,
    /// Neither a TAP nor a dummy device can be created.
    #[error(
        "no device can be created to try netem on: run `modprobe dummy` on the host, or provide /dev/net/tun"
    )]
    NoScratchDevice,
    /// The interface is in another network namespace, or its name is wrong.
    #[error(
        "the interface does not exist here: `ip link` lists the existing ones, --interface selects the one that leads to peers"
    )]
    NoInterface,
    /// Another program has configured the interface.
    #[error(
        "the interface already has a queueing discipline: remove it (`tc qdisc del dev INTERFACE root`), or use the user-space backend"
    )]
    RootTaken,
    /// The kernel's answer was truncated or lost, or has another format.
    #[error("the kernel's answer could not be read: try again, or use the other backend")]
    Unreadable,
    /// Any other reason.
    #[error("the kernel refused for another reason: try again, or use the other backend")]
    Other,
}

/// No backend can impair links here.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(
    "links cannot be impaired here; by the kernel: {kernel} ({kernel_detail}); in user space: {userspace} ({userspace_detail})"
)]
pub struct Unsupported {
    /// Why the kernel cannot.
    pub kernel: Obstacle,
    /// The kernel's message.
    pub kernel_detail: String,
    /// Why user space cannot.
    pub userspace: Obstacle,
    /// The message of the user-space backend.
    pub userspace_detail: String,
}

impl Abilities {
    /// Chooses the kernel if it can impair the link, otherwise this process.
    pub fn choose(&self, links: &OutgoingLinks) -> Result<ActiveBackend, Unsupported> {
        // Some kernels (6.12.50, 6.18) refuse a netem that duplicates beside another one, because two could
        // feed each other.
        let routes = || links.routes().iter().map(|route| &route.impairment);
        let duplicates = routes().any(|impairment| impairment.duplicate.is_some());
        let alone = routes().filter(|impairment| !impairment.is_none()).count() <= 1;
        let fits = links.routes().len() <= KERNEL_ROUTES_MAX && (alone || !duplicates);
        match (&self.kernel, &self.userspace) {
            (Ability::Available, _) if fits => Ok(ActiveBackend::Kernel),
            (_, Ability::Available) => Ok(ActiveBackend::Userspace),
            // The kernel backend then reports why it cannot.
            (Ability::Available, _) => Ok(ActiveBackend::Kernel),
            (
                Ability::Unavailable {
                    reason: kernel,
                    detail: kernel_detail,
                },
                Ability::Unavailable {
                    reason: userspace,
                    detail: userspace_detail,
                },
            ) => Err(Unsupported {
                kernel: *kernel,
                kernel_detail: kernel_detail.clone(),
                userspace: *userspace,
                userspace_detail: userspace_detail.clone(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        impairment::{Chance, Impairment},
        ratio::Ratio,
        route::Route,
    };

    #[test]
    fn the_kernel_is_preferred_if_it_can_impair_the_link() {
        let unavailable = |reason| Ability::Unavailable {
            reason,
            detail: "tried".to_owned(),
        };
        let abilities = |kernel: &Ability, userspace: &Ability| Abilities {
            kernel: kernel.clone(),
            userspace: userspace.clone(),
            real_time: Ability::Available,
        };
        let routes = |count: u8| {
            let route = |number| Route {
                peers: vec![format!("10.0.0.{number}").parse().unwrap()],
                impairment: Impairment::default(),
            };
            OutgoingLinks::new((1..=count).map(route).collect()).unwrap()
        };
        let (yes, no) = (Ability::Available, unavailable(Obstacle::NoNetem));
        assert_eq!(
            abilities(&yes, &yes).choose(&routes(15)),
            Ok(ActiveBackend::Kernel)
        );
        assert_eq!(
            abilities(&yes, &yes).choose(&routes(16)),
            Ok(ActiveBackend::Userspace)
        );
        assert_eq!(
            abilities(&no, &yes).choose(&routes(1)),
            Ok(ActiveBackend::Userspace)
        );
        let copying = Route {
            peers: vec!["10.0.1.1".parse().unwrap()],
            impairment: Impairment {
                duplicate: Some(Chance {
                    ratio: Ratio::from_percent(1.0).unwrap(),
                    correlation: Ratio::ZERO,
                }),
                ..Impairment::default()
            },
        };
        let slow = Route {
            peers: vec!["10.0.1.2".parse().unwrap()],
            impairment: Impairment {
                delay: Duration::from_millis(10),
                ..Impairment::default()
            },
        };
        let alone = OutgoingLinks::new(vec![copying.clone()]).unwrap();
        let beside = OutgoingLinks::new(vec![copying, slow]).unwrap();
        assert_eq!(abilities(&yes, &yes).choose(&alone), Ok(ActiveBackend::Kernel));
        assert_eq!(
            abilities(&yes, &yes).choose(&beside),
            Ok(ActiveBackend::Userspace)
        );
        let neither = abilities(&no, &unavailable(Obstacle::NoTunDevice))
            .choose(&routes(1))
            .unwrap_err();
        assert_eq!(
            (neither.kernel, neither.userspace),
            (Obstacle::NoNetem, Obstacle::NoTunDevice)
        );
        assert!(
            neither.to_string().contains("mknod /dev/net/tun c 10 200"),
            "{neither}"
        );
    }
}
