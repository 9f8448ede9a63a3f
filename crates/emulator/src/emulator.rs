//! The links of an interface at work, whoever does it.

use std::{error, iter};

use perfrun_link::{Backend, Kind, Link, State, Unsupported};
use rustix::io::Errno;
use thiserror::Error;

use crate::capabilities;
use crate::kernel::{self, Kernel};
use crate::netlink::{Device, Netlink};
use crate::userspace::{self, Userspace};

/// Choices that have nothing to do with the link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Who shall impair.
    pub backend: Backend,
    /// Makes chance repeat itself in the user-space back end, whenever links are set. netem has its own.
    pub seed: Option<u64>,
}

/// Why a link is not as it was asked for.
#[derive(Debug, Error)]
pub enum Error {
    /// Neither back end works here, or not the one that was asked for.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// netem.
    #[error("the link in the kernel")]
    Kernel(#[from] kernel::Error),
    /// A thread of this process.
    #[error("the link in user space")]
    Userspace(#[from] userspace::Error),
}

impl Error {
    /// Whether a capability is missing.
    pub fn is_denied(&self) -> bool {
        self.causes()
            .any(|cause| cause.downcast_ref() == Some(&Errno::PERM))
    }

    /// The whole story in one line, for people.
    pub fn explained(&self) -> String {
        let words: Vec<_> = self.causes().map(ToString::to_string).collect();
        words.join(": ")
    }

    /// This error, and what it came from.
    fn causes(&self) -> impl Iterator<Item = &(dyn error::Error + 'static)> {
        iter::successors(Some(self as &(dyn error::Error + 'static)), |error| {
            error.source()
        })
    }
}

/// An interface whose links are impaired. Dropped, they are as they were.
///
/// All calls block for some milliseconds at most. After [`Emulator::start`] they can come from any thread, in whichever
/// network namespace it is.
#[derive(Debug)]
pub struct Emulator(Inner);

#[derive(Debug)]
enum Inner {
    Kernel(Kernel),
    Userspace(Userspace),
}

/// An interface of the calling thread's network namespace, and a socket to talk about it.
pub(crate) fn find(interface: &str) -> Result<(Netlink, Device), Error> {
    let mut netlink = Netlink::open().map_err(kernel::Error::Connect)?;
    let found = netlink
        .device(interface)
        .map_err(|source| kernel::Error::FindInterface {
            name: interface.to_owned(),
            source,
        })?;
    Ok((netlink, found))
}

/// Removes what an emulator that was killed has left on this interface of the calling thread's network namespace; true
/// if there was something. Also opens the link of one that is alive.
pub fn clear(interface: &str) -> Result<bool, Error> {
    let (mut netlink, found) = find(interface)?;
    let kernel = kernel::clear(&mut netlink, found.index).map_err(|source| kernel::Error::Remove {
        device: interface.to_owned(),
        source,
    })?;
    let detour =
        userspace::clear(&mut netlink, found.index).map_err(|source| userspace::Error::SetFilters {
            device: interface.to_owned(),
            source,
        })?;
    Ok(kernel || detour)
}

impl Emulator {
    /// Impairs what leaves this interface of the calling thread's network namespace. Of an emulator that was killed,
    /// what it left behind is taken over.
    pub fn start(interface: &str, link: &Link, options: Options) -> Result<Self, Error> {
        let kind = match options.backend {
            Backend::Kernel => Kind::Kernel,
            Backend::Userspace => Kind::Userspace,
            Backend::Auto => capabilities::probe(interface).choose(link)?,
        };
        Ok(Self(match kind {
            Kind::Kernel => Inner::Kernel(Kernel::start(interface, link)?),
            Kind::Userspace => Inner::Userspace(Userspace::start(interface, link, options.seed)?),
        }))
    }

    /// Other links from now on, without an interruption. Packets on their way arrive as it was decided when they were
    /// sent, unless the mode changes in the kernel: then they are lost.
    ///
    /// Links that impair nothing leave nothing on the interface, which is as it would be without an emulator.
    pub fn set(&mut self, link: &Link) -> Result<(), Error> {
        match &mut self.0 {
            Inner::Kernel(kernel) => Ok(kernel.set(link)?),
            Inner::Userspace(userspace) => Ok(userspace.set(link)?),
        }
    }

    /// Begins to count anew, so that [`Emulator::state`] is about what comes from now on. The links stay as they are, and
    /// so does what is on its way.
    pub fn recount(&mut self) -> Result<(), Error> {
        match &mut self.0 {
            Inner::Kernel(kernel) => Ok(kernel.recount()?),
            Inner::Userspace(userspace) => Ok(userspace.recount()?),
        }
    }

    /// Whether what was set is still there: somebody else may have changed the interface.
    pub fn verify(&mut self) -> Result<(), Error> {
        match &mut self.0 {
            Inner::Kernel(kernel) => Ok(kernel.verify()?),
            Inner::Userspace(userspace) => Ok(userspace.verify()?),
        }
    }

    /// How it is going since the links were last set, or since the last recount.
    pub fn state(&mut self) -> Result<State, Error> {
        match &mut self.0 {
            Inner::Kernel(kernel) => Ok(kernel.state()?),
            Inner::Userspace(userspace) => Ok(userspace.state()?),
        }
    }

    /// Leaves the links impaired, for whoever comes next to inspect, change or [`clear`] them. Only the kernel goes on by
    /// itself: an emulator in user space is handed back, and goes on as long as it is kept.
    #[must_use = "what is handed back and dropped no longer impairs anything"]
    pub fn leave(self) -> Option<Self> {
        match self.0 {
            Inner::Kernel(kernel) => {
                kernel.leave();
                None
            }
            Inner::Userspace(_) => Some(self),
        }
    }

    /// Ends it as if its process had been killed: the link stays impaired, or closed where that takes a process.
    pub fn abandon(self) {
        match self.0 {
            Inner::Kernel(kernel) => kernel.leave(),
            Inner::Userspace(userspace) => userspace.abandon(),
        }
    }

    /// Ends the impairment, as dropping does, and says if something could not be removed.
    pub fn remove(mut self) -> Result<(), Error> {
        match &mut self.0 {
            Inner::Kernel(kernel) => Ok(kernel.remove()?),
            Inner::Userspace(userspace) => Ok(userspace.remove()?),
        }
    }
}
