//! Two network namespaces joined by veth.

use std::{
    fs,
    os::fd::{AsFd, AsRawFd},
    process::{self, Command},
};

use anyhow::{Context, Result, ensure};
use perfrun_local::namespace::Namespace;

/// The address of the sender, whose eth0 is impaired.
pub(super) const NEAR: &str = "10.79.0.1";
/// The address of the receiver.
pub(super) const FAR: &str = "10.79.0.2";

/// The least, default and largest buffer of a socket, in bytes.
const BUFFERS: &str = "4096 131072 268435456";

pub(super) struct VethPair {
    pub near: Namespace,
    pub far: Namespace,
}

impl VethPair {
    pub(super) fn create() -> Result<Self> {
        let create = || Namespace::create().context("failed to create a network namespace: run as root");
        let (near, far) = (create()?, create()?);
        let peer = format!("/proc/{}/fd/{}", process::id(), far.as_fd().as_raw_fd());
        ip(
            &near,
            &[
                "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", &peer,
            ],
        )?;
        for (namespace, address) in [(&near, NEAR), (&far, FAR)] {
            ip(
                namespace,
                &["address", "add", &format!("{address}/24"), "dev", "eth0"],
            )?;
            ip(namespace, &["link", "set", "eth0", "up"])?;
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

fn ip(namespace: &Namespace, arguments: &[&str]) -> Result<()> {
    let output = namespace
        .run(|| Command::new("ip").args(arguments).output())
        .context("failed to start ip: install the package iproute2")?;
    ensure!(
        output.status.success(),
        "ip {arguments:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
