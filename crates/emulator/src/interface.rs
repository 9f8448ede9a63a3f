//! An interface of the calling thread's network namespace, as both backends use it.

use perfrun_link::OutgoingLinks;
use rtnetlink::packet_route::tc::TcHandle;
use thiserror::Error;

use crate::{
    netlink::{self, Device, Netlink},
    rules::{self, Rules},
};

/// Why an interface is out of reach, or its filters are not as they should be, whichever backend sets them.
#[derive(Debug, Error)]
pub enum Error {
    /// The netlink socket failed, or a request to list something.
    #[error("failed to reach the kernel's network settings")]
    Connect(#[source] netlink::Error),
    /// The name is wrong, or the network namespace is.
    #[error("failed to find interface {name:?} in this network namespace")]
    FindInterface {
        /// The name.
        name: String,
        /// The kernel's error.
        source: netlink::Error,
    },
    /// Listing, adding or removing a filter failed.
    #[error("failed to set the filters of {interface}")]
    SetFilters {
        /// The interface.
        interface: String,
        /// Which step failed.
        source: rules::Error,
    },
    /// A person or another program has removed the filters.
    #[error("filters of {interface} were removed by another program: packets pass unimpaired")]
    Removed {
        /// The interface.
        interface: String,
    },
}

impl Error {
    /// The error of an interface whose filters failed.
    pub(crate) fn of_filters(interface: &str) -> impl FnOnce(rules::Error) -> Self {
        move |source| Self::SetFilters {
            interface: interface.to_owned(),
            source,
        }
    }
}

/// An interface, and the filters of a backend on it.
pub(crate) struct Interface {
    pub(crate) netlink: Netlink,
    pub(crate) name: String,
    pub(crate) mtu: u32,
    pub(crate) rules: Rules,
}

impl Interface {
    /// Looks up an interface, whose filters have this parent, and opens a netlink socket.
    pub(crate) fn open(name: &str, parent: TcHandle) -> Result<Self, Error> {
        let mut netlink = Netlink::open().map_err(Error::Connect)?;
        let device = find(&mut netlink, name)?;
        Ok(Self {
            netlink,
            name: name.to_owned(),
            mtu: device.mtu,
            rules: Rules::new(device.index, parent),
        })
    }

    /// Does something with the filters.
    pub(crate) fn filters<T>(
        &mut self,
        act: impl FnOnce(&Rules, &mut Netlink) -> Result<T, rules::Error>,
    ) -> Result<T, Error> {
        act(&self.rules, &mut self.netlink).map_err(Error::of_filters(&self.name))
    }

    /// Checks that filters still catch the packets that a link impairs.
    pub(crate) fn verify(&mut self, links: &OutgoingLinks) -> Result<(), Error> {
        if links.impairs() && !self.filters(|rules, netlink| rules.has_catching_filters(netlink))? {
            return Err(Error::Removed {
                interface: self.name.clone(),
            });
        }
        Ok(())
    }
}

/// A device by its name.
pub(crate) fn find(netlink: &mut Netlink, name: &str) -> Result<Device, Error> {
    netlink.device(name).map_err(|source| Error::FindInterface {
        name: name.to_owned(),
        source,
    })
}
