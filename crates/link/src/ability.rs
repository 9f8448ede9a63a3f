//! What a machine, container or namespace lets one do, and why not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use thiserror::Error;

use crate::route::Link;
use crate::state::Kind;

/// Routes that the kernel's netem can impair differently: bands of a prio qdisc, less one for everybody else.
pub const KERNEL_ROUTES_MAX: usize = 15;

/// What works here.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// netem, and what it needs around it.
    pub kernel: Ability,
    /// A TAP, and the filters that lead to it and back.
    pub userspace: Ability,
    /// Real-time priority. Without it the user-space back end is late when other processes are busy.
    pub real_time: Ability,
}

/// Whether something works.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "state")]
pub enum Ability {
    /// It does.
    Available,
    /// It does not.
    Unavailable {
        /// Why, and what to do.
        reason: Reason,
        /// What exactly was refused, and what the kernel said.
        detail: String,
    },
}

/// Why something does not work, and what to do.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Error, IntoStaticStr, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::enum_variant_names, reason = "most reasons are an absence")]
pub enum Reason {
    /// CAP_NET_ADMIN is missing.
    #[error(
        "network settings may not be changed here: run as root, or add the capability NET_ADMIN with uid 0"
    )]
    NotPermitted,
    /// CAP_SYS_NICE is missing, or it is of a user namespace.
    #[error(
        "real-time priority is not permitted: add the capability SYS_NICE, or leave a core to the emulator"
    )]
    NoRealTime,
    /// sch_netem is missing.
    #[error(
        "this kernel has no netem: `modprobe sch_netem` on the machine itself, or use the user-space back end"
    )]
    NoNetem,
    /// sch_prio or sch_tbf is missing.
    #[error(
        "this kernel has netem, but not what it needs around it: `modprobe -a sch_prio sch_tbf` on the machine itself, or use the user-space back end"
    )]
    NoClasses,
    /// sch_ingress is missing.
    #[error("this kernel has no clsact: `modprobe sch_ingress` on the machine itself")]
    NoClsact,
    /// Neither cls_u32 nor cls_flower, or no act_mirred.
    #[error("this kernel has no filters for this: `modprobe -a cls_u32 act_mirred` on the machine itself")]
    NoFilters,
    /// The file is missing.
    #[error(
        "there is no /dev/net/tun: `modprobe tun` on the machine itself; in a container make it (`mkdir -p /dev/net; mknod /dev/net/tun c 10 200`, capability MKNOD)"
    )]
    NoTunDevice,
    /// The file is there, and may not be opened.
    #[error(
        "/dev/net/tun may not be opened: run as root; in a container its device rules may forbid it (those of runc 1.2.0 to 1.2.3 and of older crun do): update the runtime, or use a device plugin"
    )]
    TunForbidden,
    /// The file is there, and nothing is behind it.
    #[error("/dev/net/tun leads nowhere: `modprobe tun` on the machine itself")]
    NoTunDriver,
    /// Neither a TAP nor a dummy.
    #[error(
        "there is no device to try netem on: `modprobe dummy` on the machine itself, or provide /dev/net/tun"
    )]
    NoScratchDevice,
    /// The interface is another's, or its name is wrong.
    #[error(
        "there is no such interface here: `ip link` lists those that there are, --interface says which leads to peers"
    )]
    NoInterface,
    /// Somebody has configured the interface.
    #[error(
        "the interface has a queueing discipline already: remove it (`tc qdisc del dev INTERFACE root`), or use the user-space back end"
    )]
    RootTaken,
    /// Its answer was cut short or lost, or is of another kind.
    #[error("the kernel's answer could not be read: try again, or use the other back end")]
    Unreadable,
    /// None of the known ones.
    #[error("the kernel refused for a reason of its own: try again, or use the other back end")]
    Other,
}

/// Links cannot be impaired here.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(
    "links cannot be impaired here; by the kernel: {kernel} ({kernel_detail}); in user space: {userspace} ({userspace_detail})"
)]
pub struct Unsupported {
    /// Why not by the kernel.
    pub kernel: Reason,
    /// In detail.
    pub kernel_detail: String,
    /// Why not in user space.
    pub userspace: Reason,
    /// In detail.
    pub userspace_detail: String,
}

impl Capabilities {
    /// The kernel where it can do it, this process otherwise.
    pub fn choose(&self, link: &Link) -> Result<Kind, Unsupported> {
        // Some kernels (6.12.50, 6.18) refuse a netem that duplicates beside another, lest they feed each other.
        let routes = || link.routes().iter().map(|route| &route.impairment);
        let duplicates = routes().any(|impairment| impairment.duplicate.is_some());
        let alone = routes().filter(|impairment| !impairment.is_none()).count() <= 1;
        let fits = link.routes().len() <= KERNEL_ROUTES_MAX && (alone || !duplicates);
        match (&self.kernel, &self.userspace) {
            (Ability::Available, _) if fits => Ok(Kind::Kernel),
            (_, Ability::Available) => Ok(Kind::Userspace),
            // The kernel then says why it cannot.
            (Ability::Available, _) => Ok(Kind::Kernel),
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
    use crate::impairment::{Chance, Impairment};
    use crate::ratio::Ratio;
    use crate::route::Route;

    #[test]
    fn the_kernel_is_preferred_where_it_can() {
        let unavailable = |reason| Ability::Unavailable {
            reason,
            detail: "tried".to_owned(),
        };
        let capabilities = |kernel: &Ability, userspace: &Ability| Capabilities {
            kernel: kernel.clone(),
            userspace: userspace.clone(),
            real_time: Ability::Available,
        };
        let routes = |count: u8| {
            let route = |number| Route {
                peers: vec![format!("10.0.0.{number}").parse().unwrap()],
                impairment: Impairment::default(),
            };
            Link::new((1..=count).map(route).collect()).unwrap()
        };
        let (yes, no) = (Ability::Available, unavailable(Reason::NoNetem));
        assert_eq!(capabilities(&yes, &yes).choose(&routes(15)), Ok(Kind::Kernel));
        assert_eq!(capabilities(&yes, &yes).choose(&routes(16)), Ok(Kind::Userspace));
        assert_eq!(capabilities(&no, &yes).choose(&routes(1)), Ok(Kind::Userspace));
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
        let alone = Link::new(vec![copying.clone()]).unwrap();
        let beside = Link::new(vec![copying, slow]).unwrap();
        assert_eq!(capabilities(&yes, &yes).choose(&alone), Ok(Kind::Kernel));
        assert_eq!(capabilities(&yes, &yes).choose(&beside), Ok(Kind::Userspace));
        let neither = capabilities(&no, &unavailable(Reason::NoTunDevice))
            .choose(&routes(1))
            .unwrap_err();
        assert_eq!(
            (neither.kernel, neither.userspace),
            (Reason::NoNetem, Reason::NoTunDevice)
        );
        assert!(
            neither.to_string().contains("mknod /dev/net/tun c 10 200"),
            "{neither}"
        );
    }
}
