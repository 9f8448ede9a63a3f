//! The network between local nodes: a bridge in a namespace of its own, and a namespace per node joined to it.
//!
//! ```text
//!   perfrun's own namespace        "switch"                    a node's
//!   (untouched)                    bridge0 ── port1 ════════ eth0  10.99.0.1/24, fd70:6572:6672::1/64
//!                                        └─── port2 ════════ eth0  10.99.0.2/24, fd70:6572:6672::2/64
//! ```

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;

use futures::TryStreamExt;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags};
use rtnetlink::packet_route::link::{BridgeStpState, InfoBridge, InfoData, InfoKind, InfoVeth};
use rtnetlink::{Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth};
use strum::{Display, EnumString};
use thiserror::Error;
use tokio::sync::oneshot;

use super::namespace::Namespace;

/// Nodes that fit the addresses and, with room to spare, a bridge's 1023 ports.
pub const NODES_MAX: usize = 250;

/// What a real Ethernet carries, so that packet counts mean something.
const MTU: u32 = 1500;

/// The index that the kernel gives the loopback link of every namespace.
const LOOPBACK_INDEX: u32 = 1;

/// What separates the nodes of a local run from each other.
#[derive(Clone, Copy, Debug, Display, EnumString, Eq, PartialEq)]
#[strum(serialize_all = "lowercase")]
pub enum Isolation {
    /// A network namespace each, joined by veth pairs and a bridge.
    Namespaces,
    /// Nothing but an address each, 127.0.1.N. Results say so: this measures the loopback device.
    Loopback,
}

/// Why the network could not be made.
#[derive(Debug, Error)]
pub enum Error {
    /// More nodes than one bridge and one /24 are meant for.
    #[error("unable to place {0} nodes on one machine, {NODES_MAX} is the limit")]
    Place(usize),
    /// The thread or runtime that makes the namespaces.
    #[error("failed to start making the network")]
    Start(#[source] io::Error),
    /// unshare, see [`super::privilege::acquire`].
    #[error("failed to make the network namespace of {place}")]
    MakeNamespace {
        /// Whose.
        place: Place,
        /// What the kernel said.
        source: io::Error,
    },
    /// The socket through which links are made.
    #[error("failed to open a netlink socket in the network namespace of {place}")]
    OpenNetlink {
        /// Whose.
        place: Place,
        /// What the kernel said.
        source: io::Error,
    },
    /// The bridge driver may be missing: a user namespace cannot load it.
    #[error("failed to add a bridge (`modprobe bridge` as root, if the driver is a module)")]
    AddBridge(#[source] io::Error),
    /// The veth driver may be missing: a user namespace cannot load it.
    #[error("failed to add the veth pair of {place} (`modprobe veth` as root, if the driver is a module)")]
    AddPair {
        /// Whose.
        place: Place,
        /// What the kernel said.
        source: io::Error,
    },
    /// A link that was just made.
    #[error("failed to find link {link} of {place}")]
    FindLink {
        /// Its name.
        link: &'static str,
        /// Whose.
        place: Place,
        /// What the kernel said.
        source: io::Error,
    },
    /// lo or eth0.
    #[error("failed to set up a link of {place}")]
    SetUp {
        /// Whose.
        place: Place,
        /// What the kernel said.
        source: io::Error,
    },
    /// IPv4; IPv6 is left out where it does not work.
    #[error("failed to add address {address} to {place}")]
    AddAddress {
        /// The address.
        address: Ipv4Addr,
        /// Whose.
        place: Place,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A namespace of the network, by its part in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// Where the bridge is.
    Switch,
    /// Where a node is, counted from 0.
    Node(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch => write!(f, "the switch"),
            Self::Node(index) => write!(f, "node {index}"),
        }
    }
}

/// A kernel setting that stayed as it was, which the results record.
#[derive(Debug, Error)]
#[error("failed to set {key} = {value} for {place}")]
pub struct Unset {
    /// In which namespace.
    pub place: Place,
    /// As sysctl(8) spells it.
    pub key: &'static str,
    /// What it should have been.
    pub value: Cow<'static, str>,
    /// What the kernel said.
    pub source: io::Error,
}

/// Where one node runs, and what others dial.
#[derive(Debug)]
pub struct Slot {
    addresses: Addresses,
    namespace: Option<Namespace>,
}

/// The addresses of a node, at which it listens and is dialled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Addresses {
    /// 10.99.0.N, or 127.0.1.N on loopback.
    pub v4: Ipv4Addr,
    /// Absent where the kernel has no IPv6, and on loopback, where there is only one.
    pub v6: Option<Ipv6Addr>,
}

/// The network of one run. Dropped, it is gone, as soon as the nodes in it are.
#[derive(Debug)]
pub struct Network {
    isolation: Isolation,
    slots: Vec<Slot>,
    unset: Vec<Unset>,
    /// Keeps bridge and ports; nodes must not hold it, or it would outlive perfrun with one of them.
    _switch: Option<Namespace>,
}

impl Network {
    /// Makes a network with a slot for each of the nodes, whose TCP connections may have windows of so many bytes, or as
    /// many as the kernel lets them by itself.
    pub async fn create(
        isolation: Isolation,
        nodes: usize,
        tcp_window_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        if nodes > NODES_MAX {
            return Err(Error::Place(nodes));
        }
        match isolation {
            Isolation::Loopback => Ok(Self::on_loopback(nodes)),
            Isolation::Namespaces => {
                let (done, network) = oneshot::channel();
                // A thread that ends afterwards: it moves from namespace to namespace and never needs to return.
                thread::Builder::new()
                    .name("perfrun-network".to_owned())
                    .spawn(move || done.send(Self::in_namespaces(nodes, tcp_window_bytes)))
                    .map_err(Error::Start)?;
                let panicked = |_| Error::Start(io::Error::other("the thread that makes it panicked"));
                network.await.map_err(panicked)?
            }
        }
    }

    /// What separates its nodes.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// A place for a node. A slot can be used again after its node has ended.
    pub fn slot(&self, index: usize) -> Option<&Slot> {
        self.slots.get(index)
    }

    /// All of them, in order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Settings that the kernel did not take. The network works without them.
    pub fn unset(&self) -> &[Unset] {
        &self.unset
    }

    fn on_loopback(nodes: usize) -> Self {
        let slots = (0..nodes)
            .map(|index| Slot {
                addresses: loopback(index),
                namespace: None,
            })
            .collect();
        Self {
            isolation: Isolation::Loopback,
            slots,
            unset: Vec::new(),
            _switch: None,
        }
    }

    /// Leaves the calling thread in the last namespace made.
    fn in_namespaces(nodes: usize, tcp_window_bytes: Option<u64>) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(Error::Start)?;
        runtime.block_on(async {
            let mut unset = Vec::new();
            let switch = Site::make(Place::Switch, SWITCH_SETTINGS, &mut unset)?;
            let bridge = switch.add_bridge().await?;
            let mut slots = Vec::with_capacity(nodes);
            for index in 0..nodes {
                let mut node_settings = NODE_SETTINGS.to_vec();
                node_settings.extend(tcp_window_bytes.into_iter().flat_map(tcp_windows));
                let node = Site::make(Place::Node(index), &node_settings, &mut unset)?;
                switch.join(bridge, &node, index).await?;
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
                isolation: Isolation::Namespaces,
                slots,
                unset,
                _switch: Some(switch.namespace),
            })
        })
    }
}

impl Slot {
    /// Where the node of this slot is reached by the others.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Its namespace, if the network has any.
    pub fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }
}

fn loopback(index: usize) -> Addresses {
    Addresses {
        v4: Ipv4Addr::new(127, 0, 1, host(index)),
        v6: None,
    }
}

fn in_run_subnet(index: usize) -> Addresses {
    let v6 = Ipv6Addr::new(0xfd70, 0x6572, 0x6672, 0, 0, 0, 0, host(index).into());
    Addresses {
        v4: Ipv4Addr::new(10, 99, 0, host(index)),
        v6: Some(v6),
    }
}

/// Hosts count from 1.
fn host(index: usize) -> u8 {
    u8::try_from(index + 1).expect("NODES_MAX fits the last byte of an address")
}

const _: () = assert!(NODES_MAX < 255);

/// A namespace under construction: its settings are written and a netlink socket is open in it.
struct Site {
    place: Place,
    namespace: Namespace,
    netlink: Handle,
}

impl Site {
    /// Moves the calling thread into the new namespace, where the sockets and settings it opens belong.
    fn make(place: Place, settings: &[Setting], unset: &mut Vec<Unset>) -> Result<Self, Error> {
        let namespace = Namespace::enter_new().map_err(|source| Error::MakeNamespace { place, source })?;
        unset.extend(settings.iter().filter_map(|setting| setting.write(place).err()));
        let (connection, netlink, _) =
            rtnetlink::new_connection().map_err(|source| Error::OpenNetlink { place, source })?;
        tokio::spawn(connection);
        Ok(Self {
            place,
            namespace,
            netlink,
        })
    }

    async fn add_bridge(&self) -> Result<u32, Error> {
        let bridge = LinkBridge::new("bridge0")
            .mtu(MTU)
            .stp_state(BridgeStpState::Disabled) // ports forward at once, there are no loops
            .append_info_data(InfoBridge::MulticastSnooping(false)) // needs a querier to work
            .build();
        let added = self.netlink.link().add(bridge).execute().await;
        added.map_err(|error| Error::AddBridge(reported(error)))?;
        self.index_of("bridge0").await
    }

    /// One message makes both ends, each in its namespace and named; the node's has yet to be set up.
    async fn join(&self, bridge: u32, node: &Self, index: usize) -> Result<(), Error> {
        let eth0 = LinkMessageBuilder::<LinkUnspec>::new()
            .name("eth0")
            .mtu(MTU)
            .setns_by_fd(node.namespace.as_fd().as_raw_fd())
            .build(); // not up: veth refuses an end to be up before the other exists
        let pair = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
            .name(format!("port{}", index + 1))
            .mtu(MTU)
            .controller(bridge)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(eth0)))
            .up()
            .build();
        let added = self.netlink.link().add(pair).execute().await;
        added.map_err(|error| Error::AddPair {
            place: node.place,
            source: reported(error),
        })
    }

    async fn set_up(&self, link: u32) -> Result<(), Error> {
        let up = LinkUnspec::new_with_index(link).up().build();
        let set = self.netlink.link().set(up).execute().await;
        set.map_err(|error| Error::SetUp {
            place: self.place,
            source: reported(error),
        })
    }

    /// Gives eth0 its addresses; returns those that it has taken.
    async fn add_addresses(&self, eth0: u32, wanted: Addresses) -> Result<Addresses, Error> {
        let Addresses { v4, v6 } = wanted;
        let added = self.netlink.address().add(eth0, v4.into(), 24).execute().await;
        added.map_err(|error| Error::AddAddress {
            address: v4,
            place: self.place,
            source: reported(error),
        })?;

        let Some(v6) = v6 else { return Ok(wanted) };
        let mut request = self.netlink.address().add(eth0, v6.into(), 64);
        // Usable at once: duplicates are impossible here, and looking for them takes a second.
        let message = request.message_mut();
        message.header.flags |= AddressHeaderFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(
            AddressFlags::Nodad | AddressFlags::Permanent,
        ));
        match request.execute().await {
            Ok(()) => Ok(wanted),
            Err(error) => {
                tracing::debug!(place = %self.place, error = %reported(error), "no IPv6 on this network");
                Ok(Addresses { v6: None, ..wanted })
            }
        }
    }

    async fn index_of(&self, name: &'static str) -> Result<u32, Error> {
        let mut links = self.netlink.link().get().match_name(name.to_owned()).execute();
        let source = match links.try_next().await {
            Ok(Some(link)) => return Ok(link.header.index),
            Ok(None) => io::ErrorKind::NotFound.into(),
            Err(error) => reported(error),
        };
        Err(Error::FindLink {
            link: name,
            place: self.place,
            source,
        })
    }
}

/// What the kernel said, without the bytes of the message it said it about.
fn reported(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other),
    }
}

/// One kernel setting, of which every network namespace has its own.
#[derive(Clone)]
struct Setting {
    key: &'static str,
    value: Cow<'static, str>,
    /// Whether a kernel without the setting needs it at all.
    optional: bool,
}

const fn needed(key: &'static str, value: &'static str) -> Setting {
    Setting {
        key,
        value: Cow::Borrowed(value),
        optional: false,
    }
}

const fn optional(key: &'static str, value: &'static str) -> Setting {
    Setting {
        key,
        value: Cow::Borrowed(value),
        optional: true,
    }
}

/// A handshake benchmark opens thousands of connections to one address; waiting ports must not run out.
const NODE_SETTINGS: &[Setting] = &[
    needed("net.ipv4.ip_local_port_range", "1024 65535"),
    needed("net.ipv4.tcp_tw_reuse", "1"),
    // A connection must not begin with what an earlier trial's connection learnt about the path.
    optional("net.ipv4.tcp_no_metrics_save", "1"),
    // No search for duplicates and routers: it would send packets during the first trials.
    optional("net.ipv6.conf.default.accept_dad", "0"),
    optional("net.ipv6.conf.default.router_solicitations", "0"),
];

/// Windows that grow up to so many bytes, from where they would begin anyway: the least, the initial and the largest.
fn tcp_windows(most: u64) -> [Setting; 2] {
    let window = |key, initial| Setting {
        key,
        value: Cow::Owned(format!("4096 {initial} {most}")),
        optional: false,
    };
    [
        window("net.ipv4.tcp_rmem", 131_072),
        window("net.ipv4.tcp_wmem", 16_384),
    ]
}

/// The switch only forwards: no address, no firewall.
const SWITCH_SETTINGS: &[Setting] = &[
    optional("net.ipv6.conf.default.disable_ipv6", "1"),
    // br_netfilter, where it is loaded, would take each forwarded packet through netfilter's IP hooks.
    optional("net.bridge.bridge-nf-call-arptables", "0"),
    optional("net.bridge.bridge-nf-call-ip6tables", "0"),
    optional("net.bridge.bridge-nf-call-iptables", "0"),
];

impl Setting {
    /// Writes it for the namespace that the calling thread is in.
    fn write(&self, place: Place) -> Result<(), Unset> {
        match fs::write(
            format!("/proc/sys/{}", self.key.replace('.', "/")),
            self.value.as_bytes(),
        ) {
            Err(source) if !(self.optional && source.kind() == io::ErrorKind::NotFound) => Err(Unset {
                place,
                key: self.key,
                value: self.value.clone(),
                source,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn loopback_gives_each_node_its_own_address() {
        let network = Network::create(Isolation::Loopback, NODES_MAX, None)
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

    #[tokio::test]
    async fn more_nodes_than_addresses_are_refused() {
        let error = Network::create(Isolation::Namespaces, 251, None)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "unable to place 251 nodes on one machine, 250 is the limit"
        );
    }
}
