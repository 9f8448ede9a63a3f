//! The network between local nodes: a bridge in its own namespace, and a namespace per node, joined to the
//! bridge.
//!
//! ```text
//!   perfrun's own namespace        "switch"                    a node's
//!   (untouched)                    bridge0 ── port1 ════════ eth0  10.99.0.1/24, fd70:6572:6672::1/64
//!                                        └─── port2 ════════ eth0  10.99.0.2/24, fd70:6572:6672::2/64
//! ```

mod settings;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;

use futures::TryStreamExt;
use perfrun_contract::matrix::IpFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags};
use rtnetlink::packet_route::link::{BridgeStpState, InfoBridge, InfoData, InfoKind, InfoVeth};
use rtnetlink::{Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth};
use strum::{Display, EnumString};
use thiserror::Error;
use tokio::sync::oneshot;

pub use self::settings::RejectedSetting;
use self::settings::{KernelSetting, NODE_SETTINGS, SWITCH_SETTINGS, tcp_windows};
use super::namespace::Namespace;
use super::privilege::{self, RefusalCause};

/// The most nodes of a network: limited by the addresses, and well below the 1023 ports of a bridge.
pub const NODES_MAX: usize = 250;

/// The MTU of Ethernet, so that packet counts are comparable with real networks.
const MTU: u32 = 1500;

/// The index that the kernel gives the loopback interface of every namespace.
const LOOPBACK_INDEX: u32 = 1;

/// What separates the nodes of a local run from each other.
#[derive(Clone, Copy, Debug, Display, EnumString, Eq, PartialEq)]
#[strum(serialize_all = "lowercase")]
pub enum LocalIsolation {
    /// A network namespace each, joined by veth pairs and a bridge.
    Namespaces,
    /// Only their addresses, 127.0.1.N, or with IPv6 only their ports. Results record this: such a run
    /// measures the loopback interface.
    Loopback,
}

/// Why a network could not be created.
#[derive(Debug, Error)]
pub enum Error {
    /// More nodes than one bridge and one /24 are meant for.
    #[error("unable to place {0} nodes on one machine: the limit is {NODES_MAX}")]
    TooManyNodes(usize),
    /// The thread or runtime that creates the namespaces failed.
    #[error("failed to start creating the network")]
    Start(#[source] io::Error),
    /// `unshare` failed, see [`super::privilege::acquire`].
    #[error("failed to create the network namespace of {owner}")]
    MakeNamespace {
        /// The namespace.
        owner: NamespaceOwner,
        /// The kernel's error.
        source: io::Error,
    },
    /// There are as many network namespaces as this machine, or its user namespace, allows.
    #[error("failed to create the network namespace of {owner}: {limit}")]
    TooManyNamespaces {
        /// The namespace.
        owner: NamespaceOwner,
        /// The limit.
        limit: RefusalCause,
    },
    /// The socket for configuring interfaces could not be opened.
    #[error("failed to open a netlink socket in the network namespace of {owner}")]
    OpenNetlink {
        /// The namespace.
        owner: NamespaceOwner,
        /// The kernel's error.
        source: io::Error,
    },
    /// The bridge driver may be missing: a user namespace cannot load it.
    #[error("failed to add a bridge (`modprobe bridge` as root, if the driver is a module)")]
    AddBridge(#[source] io::Error),
    /// The veth driver may be missing: a user namespace cannot load it.
    #[error("failed to add the veth pair of {owner} (`modprobe veth` as root, if the driver is a module)")]
    AddPair {
        /// The namespace.
        owner: NamespaceOwner,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel gives the nodes no address of an IP family that the plan needs.
    #[error(
        "nodes cannot have IPv6 addresses here: the kernel has no IPv6, or net.ipv6.conf.all.disable_ipv6 is 1; \
         enable IPv6, or set matrix.ipFamilies: [IPv4]"
    )]
    NoIpv6,
    /// An interface that was just created does not appear.
    #[error("failed to find interface {interface} of {owner}")]
    FindInterface {
        /// The name of the interface.
        interface: &'static str,
        /// The namespace.
        owner: NamespaceOwner,
        /// The kernel's error.
        source: io::Error,
    },
    /// `lo` or `eth0` could not be set up.
    #[error("failed to set up an interface of {owner}")]
    SetUp {
        /// The namespace.
        owner: NamespaceOwner,
        /// The kernel's error.
        source: io::Error,
    },
    /// An IPv4 address was refused. IPv6 is left out where it does not work.
    #[error("failed to add address {address} to {owner}")]
    AddAddress {
        /// The refused address.
        address: Ipv4Addr,
        /// The namespace.
        owner: NamespaceOwner,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A namespace of the network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NamespaceOwner {
    /// The namespace of the bridge.
    Switch,
    /// The namespace of a node, counted from 0.
    Node(usize),
}

impl fmt::Display for NamespaceOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch => write!(f, "the switch"),
            Self::Node(index) => write!(f, "node {index}"),
        }
    }
}

/// The place of one node in a network.
#[derive(Debug)]
pub struct Slot {
    addresses: Addresses,
    namespace: Option<Namespace>,
}

/// The addresses at which a node listens, and which others dial.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Addresses {
    /// 10.99.0.N, or 127.0.1.N on loopback.
    pub v4: Ipv4Addr,
    /// fd70:6572:6672::N, or ::1 on loopback, which has no other IPv6 address. `None` if the kernel has no
    /// IPv6, or does not use it.
    pub v6: Option<Ipv6Addr>,
}

impl Addresses {
    /// The address of this IP family.
    pub fn of(self, ip_family: IpFamily) -> Result<IpAddr, Error> {
        match ip_family {
            IpFamily::IPv4 => Ok(self.v4.into()),
            IpFamily::IPv6 => self.v6.map(IpAddr::from).ok_or(Error::NoIpv6),
        }
    }
}

/// The network of one run. It is removed when this value is dropped and the nodes in it have exited.
#[derive(Debug)]
pub struct LocalNetwork {
    isolation: LocalIsolation,
    slots: Vec<Slot>,
    rejected_settings: Vec<RejectedSetting>,
    /// Keeps the bridge and its ports. Nodes must not hold it, or one of them could keep it alive after
    /// perfrun.
    _switch: Option<Namespace>,
}

impl LocalNetwork {
    /// Creates a network with a slot for each node. TCP windows may grow to `tcp_window_bytes`, or up to the
    /// default of the kernel if `None`.
    pub async fn create(
        isolation: LocalIsolation,
        nodes: usize,
        tcp_window_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        if nodes > NODES_MAX {
            return Err(Error::TooManyNodes(nodes));
        }
        match isolation {
            LocalIsolation::Loopback => Ok(Self::on_loopback(nodes)),
            LocalIsolation::Namespaces => {
                let (done, network) = oneshot::channel();
                // A dedicated thread: it moves from namespace to namespace and never has to return.
                thread::Builder::new()
                    .name("perfrun-network".to_owned())
                    .spawn(move || done.send(Self::in_namespaces(nodes, tcp_window_bytes)))
                    .map_err(Error::Start)?;
                let panicked = |_| Error::Start(io::Error::other("the thread that creates it panicked"));
                network.await.map_err(panicked)?
            }
        }
    }

    /// What separates the nodes.
    pub fn isolation(&self) -> LocalIsolation {
        self.isolation
    }

    /// The slot of a node, counted from 0. A slot can be used again after its node has exited.
    pub fn slot(&self, index: usize) -> Option<&Slot> {
        self.slots.get(index)
    }

    /// All slots in order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Settings that the kernel did not accept. The network works without them.
    pub fn rejected_settings(&self) -> &[RejectedSetting] {
        &self.rejected_settings
    }

    fn on_loopback(nodes: usize) -> Self {
        // Fails if the interface has no such address, or no socket can have one.
        let has_v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        let slots = (0..nodes)
            .map(|index| Slot {
                addresses: Addresses {
                    v4: Ipv4Addr::new(127, 0, 1, host(index)),
                    v6: has_v6.then_some(Ipv6Addr::LOCALHOST),
                },
                namespace: None,
            })
            .collect();
        Self {
            isolation: LocalIsolation::Loopback,
            slots,
            rejected_settings: Vec::new(),
            _switch: None,
        }
    }

    /// Leaves the calling thread in the last namespace that it creates.
    fn in_namespaces(nodes: usize, tcp_window_bytes: Option<u64>) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(Error::Start)?;
        runtime.block_on(async {
            let mut rejected_settings = Vec::new();
            let switch = NewNamespace::make(NamespaceOwner::Switch, SWITCH_SETTINGS, &mut rejected_settings)?;
            let bridge = switch.add_bridge().await?;
            let mut slots = Vec::with_capacity(nodes);
            for index in 0..nodes {
                let mut node_settings = NODE_SETTINGS.to_vec();
                node_settings.extend(tcp_window_bytes.into_iter().flat_map(tcp_windows));
                let node = NewNamespace::make(
                    NamespaceOwner::Node(index),
                    &node_settings,
                    &mut rejected_settings,
                )?;
                switch.connect_node(bridge, &node, index).await?;
                node.set_up(LOOPBACK_INDEX).await?;
                let eth0 = node.index_of("eth0").await?;
                node.set_up(eth0).await?;
                let addresses = node.add_addresses(eth0, in_run_subnet(index)).await?;
                slots.push(Slot {
                    addresses,
                    namespace: Some(node.namespace),
                });
            }
            Ok(Self {
                isolation: LocalIsolation::Namespaces,
                slots,
                rejected_settings,
                _switch: Some(switch.namespace),
            })
        })
    }
}

impl Slot {
    /// The addresses at which other nodes reach the node of this slot.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The namespace of this slot. `None` on loopback.
    pub fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }
}

fn in_run_subnet(index: usize) -> Addresses {
    let v6 = Ipv6Addr::new(0xfd70, 0x6572, 0x6672, 0, 0, 0, 0, host(index).into());
    Addresses {
        v4: Ipv4Addr::new(10, 99, 0, host(index)),
        v6: Some(v6),
    }
}

/// The last byte of an address: hosts count from 1.
fn host(index: usize) -> u8 {
    u8::try_from(index + 1).expect("NODES_MAX fits the last byte of an address")
}

const _: () = assert!(NODES_MAX < 255);

/// A namespace under construction, with its settings written and a netlink socket open in it.
struct NewNamespace {
    owner: NamespaceOwner,
    namespace: Namespace,
    netlink: Handle,
}

impl NewNamespace {
    /// Moves the calling thread into the new namespace. Sockets and settings that it opens then belong there.
    fn make(
        owner: NamespaceOwner,
        settings: &[KernelSetting],
        rejected: &mut Vec<RejectedSetting>,
    ) -> Result<Self, Error> {
        let namespace = Namespace::enter_new().map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull => Error::TooManyNamespaces {
                owner,
                limit: privilege::net_namespace_limit(),
            },
            _ => Error::MakeNamespace { owner, source },
        })?;
        rejected.extend(settings.iter().filter_map(|setting| setting.write(owner).err()));
        let (connection, netlink, _) =
            rtnetlink::new_connection().map_err(|source| Error::OpenNetlink { owner, source })?;
        tokio::spawn(connection);
        Ok(Self {
            owner,
            namespace,
            netlink,
        })
    }

    async fn add_bridge(&self) -> Result<u32, Error> {
        let bridge = LinkBridge::new("bridge0")
            .mtu(MTU)
            .stp_state(BridgeStpState::Disabled) // no loops here, and ports forward immediately
            .append_info_data(InfoBridge::MulticastSnooping(false)) // needs a querier to work
            .build();
        let added = self.netlink.link().add(bridge).execute().await;
        added.map_err(|error| Error::AddBridge(kernel_error(error)))?;
        self.index_of("bridge0").await
    }

    /// Connects a node to the bridge. One message creates both ends, each in its namespace and with its name.
    /// The end of the node is set up later.
    async fn connect_node(&self, bridge: u32, node: &Self, index: usize) -> Result<(), Error> {
        let eth0 = LinkMessageBuilder::<LinkUnspec>::new()
            .name("eth0")
            .mtu(MTU)
            .setns_by_fd(node.namespace.as_fd().as_raw_fd())
            .build(); // not up yet: veth refuses that before the other end exists
        let pair = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
            .name(format!("port{}", index + 1))
            .mtu(MTU)
            .controller(bridge)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(eth0)))
            .up()
            .build();
        let added = self.netlink.link().add(pair).execute().await;
        added.map_err(|error| Error::AddPair {
            owner: node.owner,
            source: kernel_error(error),
        })
    }

    async fn set_up(&self, interface: u32) -> Result<(), Error> {
        let up = LinkUnspec::new_with_index(interface).up().build();
        let set = self.netlink.link().set(up).execute().await;
        set.map_err(|error| Error::SetUp {
            owner: self.owner,
            source: kernel_error(error),
        })
    }

    /// Adds the addresses to eth0. Returns those that it has accepted.
    async fn add_addresses(&self, eth0: u32, wanted: Addresses) -> Result<Addresses, Error> {
        let Addresses { v4, v6 } = wanted;
        let added = self.netlink.address().add(eth0, v4.into(), 24).execute().await;
        added.map_err(|error| Error::AddAddress {
            address: v4,
            owner: self.owner,
            source: kernel_error(error),
        })?;

        let Some(v6) = v6 else { return Ok(wanted) };
        let mut request = self.netlink.address().add(eth0, v6.into(), 64);
        // Usable immediately: duplicates are impossible here, and detecting them takes a second.
        let message = request.message_mut();
        message.header.flags |= AddressHeaderFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(
            AddressFlags::Nodad | AddressFlags::Permanent,
        ));
        match request.execute().await {
            Ok(()) => Ok(wanted),
            Err(error) => {
                tracing::debug!(owner = %self.owner, error = %kernel_error(error), "this network has no IPv6");
                Ok(Addresses { v6: None, ..wanted })
            }
        }
    }

    async fn index_of(&self, name: &'static str) -> Result<u32, Error> {
        let mut interfaces = self.netlink.link().get().match_name(name.to_owned()).execute();
        let source = match interfaces.try_next().await {
            Ok(Some(interface)) => return Ok(interface.header.index),
            Ok(None) => io::ErrorKind::NotFound.into(),
            Err(error) => kernel_error(error),
        };
        Err(Error::FindInterface {
            interface: name,
            owner: self.owner,
            source,
        })
    }
}

/// The kernel's error, without the bytes of the message that it refers to.
fn kernel_error(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn loopback_gives_each_node_its_own_address() {
        let network = LocalNetwork::create(LocalIsolation::Loopback, NODES_MAX, None)
            .await
            .unwrap();
        let addresses: Vec<_> = network
            .slots()
            .iter()
            .map(|slot| slot.addresses().v4.to_string())
            .collect();
        assert_eq!(addresses[..2], ["127.0.1.1", "127.0.1.2"]);
        assert_eq!(addresses[NODES_MAX - 1], "127.0.1.250");
        assert!(network.slot(NODES_MAX).is_none());
    }

    #[test]
    fn an_address_of_a_family_that_the_kernel_lacks_is_refused() {
        let addresses = in_run_subnet(2);
        let of = |addresses: Addresses, ip_family| {
            let address = addresses.of(ip_family).map(|address| address.to_string());
            address.map_err(|error| error.to_string())
        };
        assert_eq!(of(addresses, IpFamily::IPv4).unwrap(), "10.99.0.3");
        assert_eq!(of(addresses, IpFamily::IPv6).unwrap(), "fd70:6572:6672::3");
        let without = Addresses {
            v6: None,
            ..addresses
        };
        assert_eq!(
            of(without, IpFamily::IPv6).unwrap_err(),
            "nodes cannot have IPv6 addresses here: the kernel has no IPv6, or net.ipv6.conf.all.disable_ipv6 is 1; \
             enable IPv6, or set matrix.ipFamilies: [IPv4]"
        );
    }

    #[tokio::test]
    async fn more_nodes_than_addresses_are_refused() {
        let error = LocalNetwork::create(LocalIsolation::Namespaces, 251, None)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "unable to place 251 nodes on one machine: the limit is 250"
        );
    }
}
