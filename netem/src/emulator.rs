//! The links of an interface at work, whoever does it.

use std::error;

use perfrun_link::{Backend, Kind, Link, State, Unsupported};
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
    /// Makes chance repeat itself in the user-space back end. netem has its own.
    pub seed: Option<u64>,
}

/// Why a link is not as it was asked for.
#[derive(Debug, Error)]
pub enum Error {
    /// Neither back end works here, or not the one that was asked for.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// netem.
    #[error("failed to impair the link in the kernel")]
    Kernel(#[from] kernel::Error),
    /// A thread of this process.
    #[error("failed to impair the link in user space")]
    Userspace(#[from] userspace::Error),
}

impl Error {
    /// The whole story in one line, for people.
    pub fn explained(&self) -> String {
        let mut line = self.to_string();
        let mut cause = error::Error::source(self);
        while let Some(error) = cause {
            line = format!("{line}: {error}");
            cause = error.source();
        }
        line
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
    let kernel = kernel::clear(&mut netlink, found.index).map_err(kernel::Error::Connect)?;
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
        let seed = options.seed.unwrap_or_else(rand::random);
        let kind = match options.backend {
            Backend::Kernel => Kind::Kernel,
            Backend::Userspace => Kind::Userspace,
            Backend::Auto => capabilities::probe().choose(link)?,
        };
        Ok(Self(match kind {
            Kind::Kernel => Inner::Kernel(Kernel::start(interface, link)?),
            Kind::Userspace => Inner::Userspace(Userspace::start(interface, link, seed)?),
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

    /// Ends the impairment, as dropping does, and says if something could not be removed.
    pub fn remove(mut self) -> Result<(), Error> {
        match &mut self.0 {
            Inner::Kernel(kernel) => Ok(kernel.remove()?),
            Inner::Userspace(userspace) => Ok(userspace.remove()?),
        }
    }
}
