//! What this machine, container or namespace lets us do, found out by doing it on a device that nobody uses.

use std::io;

use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::{LinkDummy, LinkMessageBuilder, LinkUnspec};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use thiserror::Error;

use crate::emulator::Kind;
use crate::kernel;
use crate::link::Link;
use crate::netlink::{self, Netlink};
use crate::realtime;
use crate::tap::{self, Tap};
use crate::tc::{EGRESS, Filter, INGRESS, Match, Then};

/// The kernel puts a number in.
const SCRATCH_TAP: &str = "netemtry%d";
/// For containers without /dev/net/tun.
const SCRATCH_DUMMY: &str = "netemtry";

/// What works here.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
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
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
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
#[derive(Clone, Copy, Debug, Deserialize, Eq, Error, IntoStaticStr, PartialEq, Serialize)]
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
        "/dev/net/tun may not be opened: the container's device rules forbid it (runc 1.2.0 to 1.2.3 do, crun did): update the runtime, or use a device plugin"
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
    /// None of the known ones.
    #[error("the kernel refused for a reason of its own")]
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
    /// Tries, in the network namespace of the calling thread. Takes some milliseconds and leaves nothing.
    pub fn probe() -> Self {
        Self {
            kernel: try_kernel().into(),
            userspace: try_userspace().into(),
            real_time: realtime::probe().map_err(Refusal::of_priority).into(),
        }
    }

    /// The kernel where it can do it, this process otherwise.
    pub fn choose(&self, link: &Link) -> Result<Kind, Unsupported> {
        let fits = link.routes().len() <= kernel::ROUTES_MAX;
        match (&self.kernel, &self.userspace) {
            (Ability::Available, _) if fits => Ok(Kind::Kernel),
            (_, Ability::Available) => Ok(Kind::Userspace),
            // The kernel then says how many it can.
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

/// A reason and its circumstances.
#[derive(Debug)]
struct Refusal {
    reason: Reason,
    detail: String,
}

impl From<Result<(), Refusal>> for Ability {
    fn from(tried: Result<(), Refusal>) -> Self {
        match tried {
            Ok(()) => Self::Available,
            Err(Refusal { reason, detail }) => Self::Unavailable { reason, detail },
        }
    }
}

impl Refusal {
    fn new(reason: Reason, step: &str, errno: Option<Errno>, error: &dyn std::error::Error) -> Self {
        // Without the capability everything is refused alike, whatever was tried.
        let reason = match errno {
            Some(Errno::PERM | Errno::ACCESS) => Reason::NotPermitted,
            // What a missing module looks like: an unknown kind, or no such family of filters.
            Some(Errno::NOENT | Errno::OPNOTSUPP | Errno::AFNOSUPPORT) => reason,
            _ => Reason::Other,
        };
        let errno = errno.map(|errno| format!(": {errno}")).unwrap_or_default();
        Self {
            reason,
            detail: format!("{step}: {error}{errno}"),
        }
    }

    fn of_netlink(reason: Reason, step: &str) -> impl FnOnce(netlink::Error) -> Self {
        move |error| Self::new(reason, step, error.errno(), &error)
    }

    fn of_tap(error: tap::Error) -> Self {
        let reason = match (&error, error.errno()) {
            (tap::Error::Open(_), Errno::NOENT) => Reason::NoTunDevice,
            (tap::Error::Open(_), Errno::PERM | Errno::ACCESS) => Reason::TunForbidden,
            (tap::Error::Open(_), Errno::NODEV | Errno::NXIO) => Reason::NoTunDriver,
            (_, Errno::PERM | Errno::ACCESS) => Reason::NotPermitted,
            _ => Reason::Other,
        };
        let errno = error.errno();
        Self {
            reason,
            detail: format!("{error}: {errno}"),
        }
    }

    fn of_priority(error: io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::PermissionDenied => Reason::NoRealTime,
            _ => Reason::Other,
        };
        Self {
            reason,
            detail: format!("sched_setscheduler: {error}"),
        }
    }
}

fn try_kernel() -> Result<(), Refusal> {
    let mut scratch = Scratch::make()?;
    let index = scratch.index;
    kernel::probe(&mut scratch.netlink, index).map_err(|error| match &error {
        kernel::Error::Add {
            kind: "netem",
            source,
            ..
        } => Refusal::new(Reason::NoNetem, "netem", source.errno(), source),
        kernel::Error::Add { kind, source, .. } => {
            Refusal::new(Reason::NoClasses, kind, source.errno(), source)
        }
        kernel::Error::SetFilters { source, .. } => Refusal::new(
            Reason::NoFilters,
            "filter",
            source.cause().errno(),
            source.cause(),
        ),
        error => Refusal {
            reason: Reason::Other,
            detail: error.to_string(),
        },
    })
}

fn try_userspace() -> Result<(), Refusal> {
    let mut netlink = connect()?;
    let (_tap, name) = Tap::create(SCRATCH_TAP).map_err(Refusal::of_tap)?;
    let refused = |reason, step| Refusal::of_netlink(reason, step);
    let index = netlink
        .device(&name)
        .map_err(refused(Reason::Other, "device"))?
        .index;
    netlink
        .add_clsact(index)
        .map_err(refused(Reason::NoClsact, "clsact"))?;
    let filters = [
        (INGRESS, Match::Everything, Then::Redirect { to: index }),
        (EGRESS, Match::From(name), Then::Class(1)),
    ];
    for (parent, matches, then) in filters {
        let filter = Filter {
            parent,
            priority: 1,
            matches,
            then,
        };
        netlink
            .add_first(index, &filter)
            .map_err(refused(Reason::NoFilters, "filter"))?;
    }
    Ok(())
}

fn connect() -> Result<Netlink, Refusal> {
    Netlink::open().map_err(Refusal::of_netlink(Reason::Other, "netlink"))
}

/// A device to try things on.
struct Scratch {
    netlink: Netlink,
    index: u32,
    /// Takes the device with it.
    tap: Option<Tap>,
}

impl Scratch {
    fn make() -> Result<Self, Refusal> {
        let mut netlink = connect()?;
        let (tap, name) = match Tap::create(SCRATCH_TAP) {
            Ok((tap, name)) => (Some(tap), name),
            Err(_) => {
                let dummy = LinkMessageBuilder::<LinkDummy>::new(SCRATCH_DUMMY).build();
                netlink
                    .execute(RouteNetlinkMessage::NewLink(dummy), NLM_F_CREATE | NLM_F_EXCL)
                    .map_err(Refusal::of_netlink(Reason::NoScratchDevice, "dummy"))?;
                (None, SCRATCH_DUMMY.to_owned())
            }
        };
        let device = netlink
            .device(&name)
            .map_err(Refusal::of_netlink(Reason::Other, "device"))?;
        Ok(Self {
            netlink,
            index: device.index,
            tap,
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.tap.is_none() {
            let dummy = LinkUnspec::new_with_index(self.index).build();
            // It carries nothing; at worst the next attempt finds its name taken, and says so.
            let _ = self.netlink.execute(RouteNetlinkMessage::DelLink(dummy), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::impairment::Impairment;
    use crate::link::Route;

    fn refused(errno: Errno) -> netlink::Error {
        netlink::Error::Refused {
            explanation: Some("Specified qdisc kind is unknown".to_owned()),
            source: errno,
        }
    }

    #[test]
    fn refusals_become_reasons_with_what_to_do() {
        let cases = [
            (Errno::PERM, Reason::NotPermitted, "NET_ADMIN"),
            (Errno::NOENT, Reason::NoNetem, "modprobe sch_netem"),
            (Errno::OPNOTSUPP, Reason::NoNetem, "modprobe sch_netem"),
            (Errno::NOBUFS, Reason::Other, "refused"),
        ];
        for (errno, reason, words) in cases {
            let refusal = Refusal::of_netlink(Reason::NoNetem, "netem")(refused(errno));
            assert_eq!(refusal.reason, reason);
            assert!(reason.to_string().contains(words), "{reason}");
            assert!(
                refusal.detail.starts_with("netem: the kernel refused: Specified"),
                "{}",
                refusal.detail
            );
        }
    }

    #[test]
    fn every_way_not_to_have_a_tap_has_its_reason() {
        let create = |source| tap::Error::Create {
            name: "netem0".to_owned(),
            source,
        };
        let cases = [
            (tap::Error::Open(Errno::NOENT), Reason::NoTunDevice),
            (tap::Error::Open(Errno::PERM), Reason::TunForbidden),
            (tap::Error::Open(Errno::NODEV), Reason::NoTunDriver),
            (create(Errno::PERM), Reason::NotPermitted),
            (create(Errno::BUSY), Reason::Other),
        ];
        for (error, reason) in cases {
            assert_eq!(Refusal::of_tap(error).reason, reason);
        }
    }

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
