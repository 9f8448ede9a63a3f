//! Two network namespaces joined by veth.

use std::fs;

use anyhow::{Context, Result};
use perfrun_test_kit::namespaces::{Namespace, join};

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
        join((&near, &[NEAR]), (&far, &[FAR]))?;
        for namespace in [&near, &far] {
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
