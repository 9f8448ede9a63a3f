//! The parts of a lab, and their names on the command line.

use std::{fmt, str::FromStr};

use anyhow::{Error, anyhow};
use serde::{Deserialize, Serialize};

/// A machine, or a program on one, in the order in which they are started.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Part {
    ControlPlane,
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    Dns,
    Node(u8),
    Containerd(u8),
    Kubelet(u8),
    Proxy(u8),
}

pub(crate) const ON_CONTROL_PLANE: [Part; 5] = [
    Part::Etcd,
    Part::ApiServer,
    Part::ControllerManager,
    Part::Scheduler,
    Part::Dns,
];

impl Part {
    pub(crate) fn on_node(node: u8) -> [Self; 3] {
        [Self::Containerd(node), Self::Kubelet(node), Self::Proxy(node)]
    }

    /// The machine that this part is, or runs on.
    pub(crate) fn machine(self) -> Self {
        match self {
            Self::ControlPlane
            | Self::Etcd
            | Self::ApiServer
            | Self::ControllerManager
            | Self::Scheduler
            | Self::Dns => Self::ControlPlane,
            Self::Node(node) | Self::Containerd(node) | Self::Kubelet(node) | Self::Proxy(node) => {
                Self::Node(node)
            }
        }
    }

    pub(crate) fn node(self) -> Option<u8> {
        match self.machine() {
            Self::Node(node) => Some(node),
            _ => None,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlPlane => f.write_str("control-plane"),
            Self::Etcd => f.write_str("etcd"),
            Self::ApiServer => f.write_str("apiserver"),
            Self::ControllerManager => f.write_str("controller-manager"),
            Self::Scheduler => f.write_str("scheduler"),
            Self::Dns => f.write_str("dns"),
            Self::Node(node) => write!(f, "node-{node}"),
            Self::Containerd(node) => write!(f, "node-{node}/containerd"),
            Self::Kubelet(node) => write!(f, "node-{node}/kubelet"),
            Self::Proxy(node) => write!(f, "node-{node}/proxy"),
        }
    }
}

impl FromStr for Part {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || {
            anyhow!(
                "unable to find a part {text:?}; there are etcd, apiserver, controller-manager, scheduler, dns, \
                 node-N, node-N/containerd, node-N/kubelet and node-N/proxy"
            )
        };
        if let Some(rest) = text.strip_prefix("node-") {
            let (number, program) = match rest.split_once('/') {
                Some((number, program)) => (number, Some(program)),
                None => (rest, None),
            };
            let node = number.parse().map_err(|_| unknown())?;
            return match program {
                None => Ok(Self::Node(node)),
                Some("containerd") => Ok(Self::Containerd(node)),
                Some("kubelet") => Ok(Self::Kubelet(node)),
                Some("proxy") => Ok(Self::Proxy(node)),
                Some(_) => Err(unknown()),
            };
        }
        [Self::ControlPlane]
            .into_iter()
            .chain(ON_CONTROL_PLANE)
            .find(|part| part.to_string() == text)
            .ok_or_else(unknown)
    }
}

impl TryFrom<String> for Part {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Part> for String {
    fn from(part: Part) -> Self {
        part.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{ON_CONTROL_PLANE, Part};

    #[test]
    fn names_are_read_as_they_are_written() {
        let parts = [Part::ControlPlane, Part::Node(2)].into_iter();
        for part in parts.chain(ON_CONTROL_PLANE).chain(Part::on_node(12)) {
            assert_eq!(part.to_string().parse::<Part>().unwrap(), part);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        for text in ["", "kubelet", "node-", "node-x", "node-1/", "node-1/etcd"] {
            let error = text.parse::<Part>().unwrap_err().to_string();
            assert!(error.contains("node-N/kubelet"), "{text}: {error}");
        }
    }

    #[test]
    fn every_program_is_on_a_machine() {
        assert_eq!(Part::Dns.machine(), Part::ControlPlane);
        assert_eq!(Part::Kubelet(3).machine(), Part::Node(3));
        assert_eq!((Part::Proxy(4).node(), Part::Etcd.node()), (Some(4), None));
    }
}
