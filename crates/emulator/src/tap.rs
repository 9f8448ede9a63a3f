//! A TAP device: a program reads the frames that are sent through it from a file descriptor, and writes those
//! that it receives.
//!
//! See linux/if_tun.h and Documentation/networking/tuntap.rst of the kernel. The device exists as long as its
//! descriptor.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use thiserror::Error;

use crate::frame;

/// The device file that creates TAPs.
const CLONE_DEVICE: &str = "/dev/net/tun";

const TUNSETIFF: libc::Ioctl = 0x4004_54ca as libc::Ioctl;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0 as libc::Ioctl;
const TUNSETSNDBUF: libc::Ioctl = 0x4004_54d4 as libc::Ioctl;
const TUNSETVNETHDRSZ: libc::Ioctl = 0x4004_54d8 as libc::Ioctl;

const IFF_TAP: libc::c_short = 0x0002;
const IFF_NO_PI: libc::c_short = 0x1000;
const IFF_VNET_HDR: libc::c_short = 0x4000;

const TUN_F_CSUM: u32 = 0x01;
const TUN_F_TSO: u32 = 0x02 | 0x04 | 0x08; // TSO4, TSO6, TSO_ECN
const TUN_F_USO: u32 = 0x20 | 0x40; // USO4, USO6: since Linux 6.2

/// Why a TAP could not be created.
#[derive(Debug, Error)]
pub enum Error {
    /// Opening the device file failed.
    #[error("failed to open {CLONE_DEVICE}")]
    Open(#[source] Errno),
    /// TUNSETIFF failed.
    #[error("failed to create the TAP {name}")]
    Create {
        /// The name of the device.
        name: String,
        /// The kernel's error.
        source: Errno,
    },
    /// Another ioctl failed.
    #[error("failed to set up the TAP: {setting}")]
    SetUp {
        /// The setting that failed.
        setting: &'static str,
        /// The kernel's error.
        source: Errno,
    },
}

impl Error {
    /// The kernel's error.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Open(source) | Self::Create { source, .. } | Self::SetUp { source, .. } => *source,
        }
    }
}

/// An open TAP.
#[derive(Debug)]
pub(crate) struct Tap(OwnedFd);

impl Tap {
    /// Creates the device in the network namespace of the calling thread, and returns its name: the kernel
    /// replaces `%d`.
    pub(crate) fn create(name: &str) -> Result<(Self, String), Error> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(CLONE_DEVICE, flags, Mode::empty()).map_err(Error::Open)?;
        let tap = Self(file);
        let create = |source| Error::Create {
            name: name.to_owned(),
            source,
        };
        let mut request = libc::ifreq {
            ifr_name: [0; libc::IFNAMSIZ],
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_flags: IFF_TAP | IFF_NO_PI | IFF_VNET_HDR,
            },
        };
        if name.len() >= libc::IFNAMSIZ {
            return Err(create(Errno::NAMETOOLONG));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, which this is.
        unsafe { tap.ioctl(TUNSETIFF, (&raw mut request).cast()) }.map_err(create)?;

        tap.set_value(
            TUNSETVNETHDRSZ,
            frame::HEADER as libc::c_int,
            "size of the virtio header",
        )?;
        // Otherwise writing blocks while receivers hold frames.
        tap.set_value(TUNSETSNDBUF, libc::c_int::MAX, "send buffer")?;
        let name = request
            .ifr_name
            .iter()
            .map(|byte| *byte as u8)
            .take_while(|byte| *byte != 0);
        Ok((tap, name.map(char::from).collect()))
    }

    /// Whether super-packets are read as they are, or split into packets by the kernel before.
    pub(crate) fn keep_super_packets(&self, keep: bool) -> Result<(), Error> {
        let offloads = if keep {
            [TUN_F_CSUM | TUN_F_TSO | TUN_F_USO, TUN_F_CSUM | TUN_F_TSO].as_slice()
        } else {
            &[TUN_F_CSUM]
        };
        let mut outcome = Ok(());
        for offload in offloads {
            // SAFETY: TUNSETOFFLOAD takes its argument by value.
            outcome = unsafe { self.ioctl(TUNSETOFFLOAD, *offload as usize as *mut libc::c_void) };
            if outcome.is_ok() {
                break;
            }
        }
        outcome.map_err(|source| Error::SetUp {
            setting: "offloads",
            source,
        })
    }

    /// Reads one frame into the buffer; `WouldBlock` if there is none.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, buffer)?)
    }

    /// Writes one frame, as if the device had received it.
    pub(crate) fn write(&self, frame: &[u8]) -> Result<(), Errno> {
        rustix::io::write(&self.0, frame).map(drop)
    }

    fn set_value(
        &self,
        request: libc::Ioctl,
        mut value: libc::c_int,
        setting: &'static str,
    ) -> Result<(), Error> {
        // SAFETY: both requests that use this function read an `int`.
        unsafe { self.ioctl(request, (&raw mut value).cast()) }
            .map_err(|source| Error::SetUp { setting, source })
    }

    /// # Safety
    ///
    /// The argument must be what the request expects.
    unsafe fn ioctl(&self, request: libc::Ioctl, argument: *mut libc::c_void) -> Result<(), Errno> {
        // SAFETY: the descriptor is open; the caller vouches for the argument.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        }
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
