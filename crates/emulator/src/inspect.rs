//! What is at work on an interface, whoever has set it up.

use perfrun_link::State;
use perfrun_link::route::Prefix;

use crate::caught::caught;
use crate::emulator::{Error, find};
use crate::netlink::Netlink;
use crate::tc::EGRESS;
use crate::{kernel, status, userspace};

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// Packets leave as they are, as far as this crate has a hand in it.
    Nothing,
    /// netem, as it was read back. It does not tell the distribution of a jitter, which is given as the default one;
    /// counted is since it was set up.
    Kernel(State),
    /// Another process, or this one, which was asked.
    Userspace {
        /// What it said.
        state: State,
        /// Which, if it is visible from here.
        process: Option<u32>,
    },
    /// A process that does not answer when it is asked.
    Silent {
        /// Who is impaired.
        peers: Vec<Prefix>,
    },
    /// The process has died, and the link is closed: nothing passes until it is cleared or set up again.
    Closed {
        /// To whom nothing passes.
        peers: Vec<Prefix>,
    },
}

/// Looks at an interface of the calling thread's network namespace.
pub fn inspect(interface: &str) -> Result<Found, Error> {
    let (mut netlink, found) = find(interface)?;
    // Filters of user space are looked at before netem is reached.
    if userspace::is_at(&mut netlink, found.index).map_err(|source| userspace::Error::SetFilters {
        device: interface.to_owned(),
        source,
    })? {
        if let Ok((state, process)) = status::ask(interface) {
            return Ok(Found::Userspace { state, process });
        }
        let caught = caught(&mut netlink, found.index, EGRESS).map_err(kernel::Error::Connect)?;
        let peers = caught.into_iter().map(|caught| caught.peer).collect();
        // The device lives as long as the process that serves it.
        return Ok(if netlink.device(userspace::DEVICE).is_ok() {
            Found::Silent { peers }
        } else {
            Found::Closed { peers }
        });
    }
    let state = kernel::inspect(&mut netlink, interface, found)?;
    Ok(state.map_or(Found::Nothing, Found::Kernel))
}

/// The interfaces of the calling thread's network namespace.
pub fn interfaces() -> Result<Vec<String>, Error> {
    let mut netlink = Netlink::open().map_err(kernel::Error::Connect)?;
    Ok(netlink.devices().map_err(kernel::Error::Connect)?)
}
