//! Two network namespaces joined by veth.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    panic,
    process::{self, Command},
    thread,
};

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// The address of the sender, whose eth0 is impaired.
pub(super) const NEAR: &str = "10.79.0.1";
/// The address of the receiver.
pub(super) const FAR: &str = "10.79.0.2";

/// The least, default and largest buffer of a socket, in bytes.
const BUFFERS: &str = "4096 131072 268435456";

pub(super) struct Pair {
    pub near: Namespace,
    pub far: Namespace,
}

impl Pair {
    pub(super) fn create() -> Result<Self> {
        let (near, far) = (Namespace::new()?, Namespace::new()?);
        let peer = format!("/proc/{}/fd/{}", process::id(), far.0.as_raw_fd());
        near.ip(&[
            "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", &peer,
        ])?;
        for (namespace, address) in [(&near, NEAR), (&far, FAR)] {
            namespace.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"])?;
            namespace.ip(&["link", "set", "eth0", "up"])?;
            for buffers in ["tcp_rmem", "tcp_wmem"] {
                let file = format!("/proc/sys/net/ipv4/{buffers}");
                namespace
                    .run(|| fs::write(&file, BUFFERS))
                    .with_context(|| format!("failed to write {file}"))?;
            }
        }
        Ok(Self { near, far })
    }
}

/// A network namespace without a name, which exists as long as this value.
pub(super) struct Namespace(OwnedFd);

impl Namespace {
    fn new() -> Result<Self> {
        let make = || -> io::Result<Self> {
            // SAFETY: only the network namespace changes; the file descriptor table stays shared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(Self(File::open("/proc/thread-self/ns/net")?.into()))
        };
        let made = thread::scope(|scope| scope.spawn(make).join());
        made.unwrap_or_else(|panic| panic::resume_unwind(panic))
            .context("failed to create a network namespace: run as root")
    }

    /// Runs a function on a thread in this namespace. Sockets that it opens stay there.
    pub(super) fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("a process may enter a namespace that it has created");
            act()
        };
        thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|panic| panic::resume_unwind(panic))
    }

    fn ip(&self, arguments: &[&str]) -> Result<()> {
        let output = self
            .run(|| Command::new("ip").args(arguments).output())
            .context("failed to start ip: install the package iproute2")?;
        ensure!(
            output.status.success(),
            "ip {arguments:?} failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}
