//! What this machine, container or namespace permits, found by trying it on a scratch device.

use std::io;

use perfrun_link::{Abilities, Ability, Obstacle};
use rtnetlink::{
    LinkDummy, LinkMessageBuilder, LinkUnspec, LinkVeth,
    packet_core::{NLM_F_CREATE, NLM_F_EXCL},
    packet_route::RouteNetlinkMessage,
};
use rustix::io::Errno;

use crate::{
    interface, kernel,
    netlink::{self, Netlink},
    realtime,
    tap::{self, Tap},
    tc::{Action, EGRESS, Filter, INGRESS, Match},
};

/// The kernel replaces `%d` by a number.
const SCRATCH_TAP: &str = "netemtry%d";
/// For containers without /dev/net/tun.
const SCRATCH: &str = "netemtry";
const SCRATCH_PEER: &str = "netemtrypeer";

/// Tries each backend in the network namespace of the calling thread, and checks that nothing on this
/// interface is in the way. Takes some milliseconds and leaves nothing.
pub fn detect(interface: &str) -> Abilities {
    let index = find(interface);
    let kernel = |index| try_kernel().and_then(|()| check_root_is_free(interface, index));
    Abilities {
        kernel: ability(index.clone().and_then(kernel)),
        userspace: ability(index.and_then(|_| try_userspace())),
        real_time: ability(realtime::try_acquire().map_err(Refusal::of_priority)),
    }
}

/// A reason with its details.
#[derive(Clone, Debug)]
struct Refusal {
    reason: Obstacle,
    detail: String,
}

fn ability(tried: Result<(), Refusal>) -> Ability {
    match tried {
        Ok(()) => Ability::Available,
        Err(Refusal { reason, detail }) => Ability::Unavailable { reason, detail },
    }
}

impl Refusal {
    fn of(reason: Obstacle, step: &str, error: &netlink::Error) -> Self {
        let errno = error.errno();
        let reason = match (error, errno) {
            (netlink::Error::Garbled | netlink::Error::Overrun, _) => Obstacle::Unreadable,
            // Without the capability the kernel refuses every step in the same way.
            (_, Some(Errno::PERM | Errno::ACCESS)) => Obstacle::NotPermitted,
            // A missing module shows as an unknown kind, or as an unknown family of filters.
            (_, Some(Errno::NOENT | Errno::OPNOTSUPP | Errno::AFNOSUPPORT)) => reason,
            _ => Obstacle::Other,
        };
        let errno = errno.map(|errno| format!(": {errno}")).unwrap_or_default();
        Self {
            reason,
            detail: format!("{step}: {error}{errno}"),
        }
    }

    fn of_netlink(reason: Obstacle, step: &str) -> impl FnOnce(netlink::Error) -> Self {
        move |error| Self::of(reason, step, &error)
    }

    fn of_tap(error: tap::Error) -> Self {
        let reason = match (&error, error.errno()) {
            (tap::Error::Open(_), Errno::NOENT) => Obstacle::NoTunDevice,
            (tap::Error::Open(_), Errno::PERM | Errno::ACCESS) => Obstacle::TunForbidden,
            (tap::Error::Open(_), Errno::NODEV | Errno::NXIO) => Obstacle::NoTunDriver,
            (_, Errno::PERM | Errno::ACCESS) => Obstacle::NotPermitted,
            _ => Obstacle::Other,
        };
        let errno = error.errno();
        Self {
            reason,
            detail: format!("{error}: {errno}"),
        }
    }

    fn of_priority(error: io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::PermissionDenied => Obstacle::NoRealTime,
            _ => Obstacle::Other,
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
    kernel::try_on_scratch_device(&mut scratch.netlink, index).map_err(|error| match &error {
        kernel::Error::Add {
            kind: "netem",
            source,
            ..
        } => Refusal::of(Obstacle::NoNetem, "netem", source),
        kernel::Error::Add { kind, source, .. } => Refusal::of(Obstacle::NoClasses, kind, source),
        kernel::Error::Interface(interface::Error::SetFilters { source, .. }) => {
            Refusal::of(Obstacle::NoFilters, "filter", source.cause())
        }
        error => Refusal {
            reason: Obstacle::Other,
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
        .map_err(refused(Obstacle::Other, "device"))?
        .index;
    netlink
        .add_clsact(index)
        .map_err(refused(Obstacle::NoClsact, "clsact"))?;
    let filters = [
        (INGRESS, Match::Everything, Action::Redirect { to: index }),
        (EGRESS, Match::From(name), Action::Class(1)),
    ];
    for (parent, matches, action) in filters {
        let filter = Filter {
            parent,
            priority: 1,
            matches,
            action,
        };
        netlink
            .add_first(index, &filter)
            .map_err(refused(Obstacle::NoFilters, "filter"))?;
    }
    Ok(())
}

/// The index of the interface.
fn find(interface: &str) -> Result<u32, Refusal> {
    let device = connect()?.device(interface);
    let device = device.map_err(|error| match error.errno() {
        Some(Errno::NODEV) => Refusal {
            reason: Obstacle::NoInterface,
            detail: interface.to_owned(),
        },
        _ => Refusal::of_netlink(Obstacle::Other, "interface")(error),
    })?;
    Ok(device.index)
}

fn check_root_is_free(interface: &str, index: u32) -> Result<(), Refusal> {
    let taken = kernel::root_taken(&mut connect()?, index);
    match taken.map_err(Refusal::of_netlink(Obstacle::Other, "qdisc"))? {
        None => Ok(()),
        Some(kind) => Err(Refusal {
            reason: Obstacle::RootTaken,
            detail: format!("{interface} has {kind}"),
        }),
    }
}

fn connect() -> Result<Netlink, Refusal> {
    Netlink::open().map_err(Refusal::of_netlink(Obstacle::Other, "netlink"))
}

/// A device for trying things out.
struct Scratch {
    netlink: Netlink,
    index: u32,
    /// Dropping it removes the device.
    tap: Option<Tap>,
}

impl Scratch {
    fn make() -> Result<Self, Refusal> {
        let mut netlink = connect()?;
        let (tap, name) = match Tap::create(SCRATCH_TAP) {
            Ok((tap, name)) => (Some(tap), name),
            Err(_) => {
                let dummy = LinkMessageBuilder::<LinkDummy>::new(SCRATCH).build();
                // The networks of containers consist of veth pairs, so a machine without any other device has
                // these.
                let pair = LinkMessageBuilder::<LinkVeth>::new(SCRATCH, SCRATCH_PEER).build();
                let mut add =
                    |link| netlink.execute(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL);
                add(dummy)
                    .or_else(|_| add(pair))
                    .map_err(Refusal::of_netlink(Obstacle::NoScratchDevice, "dummy and veth"))?;
                (None, SCRATCH.to_owned())
            }
        };
        let device = netlink
            .device(&name)
            .map_err(Refusal::of_netlink(Obstacle::Other, "device"))?;
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
            // Removing one end of a pair removes the other.
            let link = LinkUnspec::new_with_index(self.index).build();
            // The device carries nothing. At worst the next attempt reports that its name is taken.
            let _ = self.netlink.execute(RouteNetlinkMessage::DelLink(link), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: Errno) -> netlink::Error {
        netlink::Error::Refused {
            explanation: Some("Specified qdisc kind is unknown".to_owned()),
            source: errno,
        }
    }

    #[test]
    fn a_refusal_of_the_kernel_becomes_a_reason_that_names_its_remedy() {
        let cases = [
            (Errno::PERM, Obstacle::NotPermitted, "NET_ADMIN"),
            (Errno::NOENT, Obstacle::NoNetem, "modprobe sch_netem"),
            (Errno::OPNOTSUPP, Obstacle::NoNetem, "modprobe sch_netem"),
            (Errno::NOBUFS, Obstacle::Other, "try again"),
        ];
        for (errno, reason, words) in cases {
            let refusal = Refusal::of_netlink(Obstacle::NoNetem, "netem")(refused(errno));
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
    fn unreadable_answers_are_not_taken_for_refusals() {
        for error in [netlink::Error::Garbled, netlink::Error::Overrun] {
            let refusal = Refusal::of_netlink(Obstacle::NoNetem, "netem")(error);
            assert_eq!(refusal.reason, Obstacle::Unreadable);
            assert!(refusal.detail.starts_with("netem: "), "{}", refusal.detail);
        }
    }

    #[test]
    fn every_way_not_to_have_a_tap_has_its_reason() {
        let create = |source| tap::Error::Create {
            name: "perfrun0".to_owned(),
            source,
        };
        let cases = [
            (tap::Error::Open(Errno::NOENT), Obstacle::NoTunDevice),
            (tap::Error::Open(Errno::PERM), Obstacle::TunForbidden),
            (tap::Error::Open(Errno::NODEV), Obstacle::NoTunDriver),
            (create(Errno::PERM), Obstacle::NotPermitted),
            (create(Errno::BUSY), Obstacle::Other),
        ];
        for (error, reason) in cases {
            assert_eq!(Refusal::of_tap(error).reason, reason);
        }
    }
}
