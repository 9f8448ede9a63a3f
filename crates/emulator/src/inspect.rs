//! The impairment of an interface, by any process.

use std::net::IpAddr;

use perfrun_link::{LinkState, route::Prefix};

use crate::{
    caught::caught_peers,
    emulator::Error,
    interface::{self, Interface},
    kernel,
    netlink::{KernelRoute, Netlink},
    status,
    tc::EGRESS,
    userspace,
};

/// The impairment of an interface.
#[derive(Clone, Debug, PartialEq)]
pub enum Inspection {
    /// Packets leave unimpaired, as far as this crate can tell.
    Unimpaired,
    /// netem, as read back from the kernel. The kernel does not report the distribution of a jitter, which is
    /// given as the default one. Counts begin when the link was set up.
    Kernel(LinkState),
    /// A process, this one or another, which reported its state.
    Userspace {
        /// The state that the process reported.
        state: LinkState,
        /// The process. `None` if it is not visible from here.
        process: Option<u32>,
    },
    /// A process that does not reply.
    Silent {
        /// The impaired peers.
        peers: Vec<Prefix>,
    },
    /// The process has ended, and the link is closed: nothing passes until the link is cleared or set up
    /// again.
    Closed {
        /// The peers that no packet reaches.
        peers: Vec<Prefix>,
    },
}

/// Inspects an interface of the calling thread's network namespace.
pub fn inspect(interface: &str) -> Result<Inspection, Error> {
    let mut interface = Interface::open(interface, EGRESS)?;
    // The filters of the user-space backend come before netem.
    if userspace::is_active_on(&mut interface)? {
        if let Ok((state, process)) = status::fetch(&interface.name) {
            return Ok(Inspection::Userspace { state, process });
        }
        let caught = caught_peers(&mut interface.netlink, interface.rules.index, EGRESS)
            .map_err(interface::Error::Connect)?;
        let peers = caught.into_iter().map(|caught| caught.peer).collect();
        // The device exists as long as the process that serves it.
        return Ok(if interface.netlink.device(userspace::DEVICE).is_ok() {
            Inspection::Silent { peers }
        } else {
            Inspection::Closed { peers }
        });
    }
    let state = kernel::inspect(&mut interface)?;
    Ok(state.map_or(Inspection::Unimpaired, Inspection::Kernel))
}

/// Where an address is, seen from an interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AddressLocation {
    /// Packets to the address leave through the interface.
    Behind,
    /// The address belongs to the calling thread's network namespace: packets to it pass no interface.
    Own,
    /// Packets to the address leave through another interface, or it has no route.
    Elsewhere,
}

/// Where an address is, seen from an interface of the calling thread's network namespace.
pub fn locate(interface: &str, address: IpAddr) -> Result<AddressLocation, Error> {
    let mut interface = Interface::open(interface, EGRESS)?;
    let route = interface
        .netlink
        .route_to(address)
        .map_err(interface::Error::Connect)?;
    Ok(match route {
        Some(KernelRoute::Own) => AddressLocation::Own,
        Some(KernelRoute::Out(index)) if index == interface.rules.index => AddressLocation::Behind,
        Some(KernelRoute::Out(_)) | None => AddressLocation::Elsewhere,
    })
}

/// The names of all interfaces of the calling thread's network namespace.
pub fn interfaces() -> Result<Vec<String>, Error> {
    let mut netlink = Netlink::open().map_err(interface::Error::Connect)?;
    Ok(netlink.devices().map_err(interface::Error::Connect)?)
}
