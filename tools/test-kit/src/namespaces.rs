//! Network namespaces, and a link between two of them.

use std::{
    io::{self, ErrorKind},
    os::fd::{AsFd, AsRawFd},
    process::{self, Command},
};

use anyhow::{Context, Result, ensure};
pub use perfrun_local::namespace::Namespace;

use crate::skip::{Need, skip};

/// Makes two namespaces. Returns `None`, and reports a part of the test as skipped, without the right to.
pub fn pair(part: &str) -> io::Result<Option<(Namespace, Namespace)>> {
    let made = Namespace::create().and_then(|near| Ok((near, Namespace::create()?)));
    match made {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            skip(Need::Root, part, "needs root, to make network namespaces");
            Ok(None)
        }
        made => made.map(Some),
    }
}

/// Joins two namespaces by a link. Its ends are called eth0 and have these addresses.
pub fn join(near: (&Namespace, &[&str]), far: (&Namespace, &[&str])) -> Result<()> {
    let peer = path(far.0);
    let link = [
        "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", &peer,
    ];
    ip(near.0, &link)?;
    for (namespace, addresses) in [near, far] {
        for address in addresses {
            let address = format!("{address}/24");
            ip(namespace, &["address", "add", &address, "dev", "eth0"])?;
        }
        ip(namespace, &["link", "set", "eth0", "up"])?;
    }
    Ok(())
}

/// A file that stands for a namespace of this process.
pub fn path(namespace: &Namespace) -> String {
    format!("/proc/{}/fd/{}", process::id(), namespace.as_fd().as_raw_fd())
}

/// Runs `ip` in a namespace; returns its output.
pub fn ip(namespace: &Namespace, arguments: &[&str]) -> Result<String> {
    let output = namespace
        .run(|| Command::new("ip").args(arguments).output())
        .context("failed to start ip: install the package iproute2")?;
    ensure!(
        output.status.success(),
        "ip {arguments:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}
