//! An interface whose links are impaired, by either backend.

use std::{error, iter};

use perfrun_link::{ActiveBackend, Backend, LinkState, OutgoingLinks, Unsupported};
use rustix::io::Errno;
use thiserror::Error;

use crate::{
    abilities,
    interface::{self, Interface},
    kernel::{self, Kernel},
    tc::EGRESS,
    userspace::{self, Userspace},
};

/// Options that are not part of the link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The backend to use.
    pub backend: Backend,
    /// Makes the random decisions of the user-space backend repeat themselves each time links are set. netem
    /// has its own randomness.
    pub seed: Option<u64>,
}

/// Why a link is not as configured.
#[derive(Debug, Error)]
pub enum Error {
    /// No backend works here, or the requested one does not.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The interface is out of reach, or its filters are not as set.
    #[error(transparent)]
    Interface(#[from] interface::Error),
    /// The kernel backend failed.
    #[error("the link in the kernel")]
    Kernel(#[from] kernel::Error),
    /// The user-space backend failed.
    #[error("the link in user space")]
    Userspace(#[from] userspace::Error),
}

impl Error {
    /// Whether a capability is missing.
    pub fn is_denied(&self) -> bool {
        let mut causes = iter::successors(Some(self as &(dyn error::Error + 'static)), |error| {
            error.source()
        });
        causes.any(|cause| cause.downcast_ref() == Some(&Errno::PERM))
    }
}

/// The impairment of the links of an interface. Dropping it removes the impairment.
///
/// All calls block for some milliseconds at most. After [`Emulator::start`] they can come from any thread,
/// whatever its network namespace.
#[derive(Debug)]
pub struct Emulator(Inner);

#[derive(Debug)]
enum Inner {
    Kernel(Kernel),
    Userspace(Userspace),
}

/// Removes what a killed emulator has left on this interface of the calling thread's network namespace.
/// Returns whether there was anything. Also removes the impairment of an emulator that still runs.
pub fn clear(interface: &str) -> Result<bool, Error> {
    let mut interface = Interface::open(interface, EGRESS)?;
    let kernel = kernel::clear(&mut interface)?;
    let userspace = userspace::clear(&mut interface)?;
    Ok(kernel || userspace)
}

impl Emulator {
    /// Impairs what leaves this interface of the calling thread's network namespace. Takes over what a killed
    /// emulator has left there.
    pub fn start(interface: &str, links: &OutgoingLinks, options: Options) -> Result<Self, Error> {
        let kind = match options.backend {
            Backend::Kernel => ActiveBackend::Kernel,
            Backend::Userspace => ActiveBackend::Userspace,
            Backend::Auto => abilities::detect(interface).choose(links)?,
        };
        let mut cleared = Interface::open(interface, EGRESS)?;
        // What the other backend has left is removed last, so that no packet passes unimpaired in between.
        Ok(Self(match kind {
            ActiveBackend::Kernel => {
                let kernel = Kernel::start(interface, links)?;
                userspace::clear(&mut cleared)?;
                Inner::Kernel(kernel)
            }
            ActiveBackend::Userspace => {
                let userspace = Userspace::start(interface, links, options.seed)?;
                kernel::clear(&mut cleared)?;
                Inner::Userspace(userspace)
            }
        }))
    }

    /// Replaces the links without an interruption. Packets in flight arrive as decided when they were sent,
    /// unless the mode changes in the kernel: then they are lost.
    ///
    /// Links that impair nothing leave nothing on the interface.
    pub fn set(&mut self, links: &OutgoingLinks) -> Result<(), Error> {
        match &mut self.0 {
            Inner::Kernel(kernel) => Ok(kernel.set(links)?),
            Inner::Userspace(userspace) => Ok(userspace.set(links)?),
        }
    }

    /// Resets the counts of [`Emulator::state`]. The links and the packets in flight stay as they are.
    pub fn reset_counts(&mut self) -> Result<(), Error> {
        match &mut self.0 {
            Inner::Kernel(kernel) => Ok(kernel.reset_counts()?),
            Inner::Userspace(userspace) => Ok(userspace.reset_counts()?),
        }
    }

    /// Starts the random decisions of this seed: equal packets have the same fate after equal seeds. The
    /// links, the counts and the packets in flight stay as they are. netem ignores it before Linux 6.6.
    pub fn reseed(&mut self, seed: u64) -> Result<(), Error> {
        match &mut self.0 {
            Inner::Kernel(kernel) => Ok(kernel.reseed(seed)?),
            Inner::Userspace(userspace) => Ok(userspace.reseed(seed)?),
        }
    }

    /// Checks that the configured links are still in place: another program may have changed the interface.
    pub fn verify(&mut self) -> Result<(), Error> {
        match &mut self.0 {
            Inner::Kernel(kernel) => Ok(kernel.verify()?),
            Inner::Userspace(userspace) => Ok(userspace.verify()?),
        }
    }

    /// The state of the links. Counts begin when the links are set, or at the last
    /// [`Emulator::reset_counts`].
    pub fn state(&mut self) -> Result<LinkState, Error> {
        match &mut self.0 {
            Inner::Kernel(kernel) => Ok(kernel.state()?),
            Inner::Userspace(userspace) => Ok(userspace.state()?),
        }
    }

    /// Leaves the links impaired, to be inspected, changed or [`clear`]ed later. The kernel continues on its
    /// own. An emulator in user space is returned, and impairs the links as long as it is kept.
    #[must_use = "dropping the returned emulator ends the impairment"]
    pub fn leave(self) -> Option<Self> {
        match self.0 {
            Inner::Kernel(kernel) => {
                kernel.leave();
                None
            }
            Inner::Userspace(_) => Some(self),
        }
    }

    /// Ends the emulator as if its process had been killed: the kernel keeps impairing the link; in user
    /// space the link is closed.
    pub fn abandon(self) {
        match self.0 {
            Inner::Kernel(kernel) => kernel.leave(),
            Inner::Userspace(userspace) => userspace.abandon(),
        }
    }

    /// Ends the impairment, as dropping does, and reports what could not be removed.
    pub fn remove(mut self) -> Result<(), Error> {
        match &mut self.0 {
            Inner::Kernel(kernel) => Ok(kernel.remove()?),
            Inner::Userspace(userspace) => Ok(userspace.remove()?),
        }
    }
}
