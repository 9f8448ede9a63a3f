//! A network namespace without a name.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{panic, thread};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// A network namespace that exists as long as this value, or a process in it.
///
/// Only a file descriptor holds it: `ip netns` does not list it, and it never has to be deleted.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// Makes a namespace. The calling thread stays in its own.
    pub fn create() -> io::Result<Self> {
        on_another_thread(Self::enter_new)
    }

    /// Runs a function on a thread in this namespace. Sockets and processes that it makes stay there.
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        on_another_thread(|| {
            self.enter()
                .expect("a process may enter a namespace that it has created");
            act()
        })
    }

    /// Makes a namespace and moves only the calling thread into it.
    ///
    /// Use a dedicated thread: returning needs a file descriptor of the former namespace.
    pub(super) fn enter_new() -> io::Result<Self> {
        // SAFETY: only the network namespace changes; the file descriptor table stays shared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        // Not /proc/self, which is the main thread: that one stays in its namespace.
        Ok(Self(File::open("/proc/thread-self/ns/net")?.into()))
    }

    /// The number that `/proc/PID/ns/net` shows for processes in this namespace.
    pub fn id(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.0)?.st_ino)
    }

    /// Another descriptor of this namespace, for starting a process in it.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Moves the calling thread into this namespace. Makes one system call, so it may run between fork and
    /// exec.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(
            self.0.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn on_another_thread<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(act).join()).unwrap_or_else(|panic| panic::resume_unwind(panic))
}
