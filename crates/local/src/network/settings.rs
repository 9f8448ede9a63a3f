//! Settings of the kernel in network namespaces.

use std::borrow::Cow;
use std::fs;
use std::io;

use perfrun_contract::plan::tcp_window_settings;
use thiserror::Error;

use super::NamespaceOwner;

/// A kernel setting that could not be changed.
#[derive(Debug, Error)]
#[error("failed to set {key} = {value} for {owner}")]
pub struct RejectedSetting {
    /// The namespace of the setting.
    pub owner: NamespaceOwner,
    /// The name of the setting for sysctl(8).
    pub key: &'static str,
    /// The value that the kernel did not accept.
    pub value: Cow<'static, str>,
    /// The kernel's error.
    pub source: io::Error,
}

/// A kernel setting that every network namespace has for itself.
#[derive(Clone)]
pub(super) struct KernelSetting {
    key: &'static str,
    value: Cow<'static, str>,
    /// Whether the setting is unnecessary on a kernel that does not have it.
    optional: bool,
}

const fn required(key: &'static str, value: &'static str) -> KernelSetting {
    KernelSetting {
        key,
        value: Cow::Borrowed(value),
        optional: false,
    }
}

const fn optional(key: &'static str, value: &'static str) -> KernelSetting {
    KernelSetting {
        key,
        value: Cow::Borrowed(value),
        optional: true,
    }
}

/// A handshake benchmark opens thousands of connections to one address, and must not run out of ports in
/// TIME_WAIT.
pub(super) const NODE_SETTINGS: &[KernelSetting] = &[
    required("net.ipv4.ip_local_port_range", "1024 65535"),
    required("net.ipv4.tcp_tw_reuse", "1"),
    // A connection must not start with what an earlier trial learned about the path.
    optional("net.ipv4.tcp_no_metrics_save", "1"),
    // Only a machine whose namespaces inherit its settings needs this.
    optional("net.ipv6.conf.all.disable_ipv6", "0"),
    // Detecting duplicates and searching for routers would send packets during the first trials.
    optional("net.ipv6.conf.default.accept_dad", "0"),
    optional("net.ipv6.conf.default.router_solicitations", "0"),
];

/// Lets TCP windows grow up to this number of bytes.
pub(super) fn tcp_windows(most: u64) -> [KernelSetting; 2] {
    tcp_window_settings(most).map(|(key, value)| KernelSetting {
        key,
        value: value.into(),
        optional: false,
    })
}

/// The switch only forwards: it needs no address and no firewall.
pub(super) const SWITCH_SETTINGS: &[KernelSetting] = &[
    optional("net.ipv6.conf.default.disable_ipv6", "1"),
    // If br_netfilter is loaded, it would pass each forwarded packet through the IP hooks of netfilter.
    optional("net.bridge.bridge-nf-call-arptables", "0"),
    optional("net.bridge.bridge-nf-call-ip6tables", "0"),
    optional("net.bridge.bridge-nf-call-iptables", "0"),
];

impl KernelSetting {
    /// Writes the setting for the namespace of the calling thread.
    pub(super) fn write(&self, owner: NamespaceOwner) -> Result<(), RejectedSetting> {
        match fs::write(
            format!("/proc/sys/{}", self.key.replace('.', "/")),
            self.value.as_bytes(),
        ) {
            Err(source) if !(self.optional && source.kind() == io::ErrorKind::NotFound) => {
                Err(RejectedSetting {
                    owner,
                    key: self.key,
                    value: self.value.clone(),
                    source,
                })
            }
            _ => Ok(()),
        }
    }
}
