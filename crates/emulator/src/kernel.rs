//! Impairment by the kernel's own netem.
//!
//! ```text
//! prio 7065:
//! ├─ class 1: all other traffic, a plain queue
//! ├─ class 2: netem of the first route; super-packets pass as one
//! └─ class 3: tbf, which splits super-packets ─ netem, which decides about packets
//! ```
//!
//! `prio` is the only queueing discipline that has classes, lets a class hold packets back, and leaves
//! unclassified packets as they are. `tbf` limits nothing: it is there because it splits super-packets before
//! netem sees them. None of this needs the process: if it is killed, the link stays impaired, and the next
//! emulator takes it over.

mod inspect;
pub(crate) mod netem;

use std::fmt;

use perfrun_link::{
    ActiveBackend,
    ability::KERNEL_ROUTES_MAX,
    impairment::{Impairment, Mode},
    route::{InvalidOutgoingLinks, OutgoingLinks, Prefix},
    state::{LinkState, Traffic},
};
use rtnetlink::{
    packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE},
    packet_route::{
        RouteNetlinkMessage,
        tc::{TcHandle, TcMessage},
    },
};
use thiserror::Error;

pub(crate) use self::inspect::inspect;
use self::netem::Netem;
use crate::{
    interface::{self, Interface},
    netlink::{self, Netlink},
    rules,
    tc::{self, Action, OWN_MAJOR, Qdisc, QdiscStats},
};

const ROOT: TcHandle = tc::handle(OWN_MAJOR, 0);

/// The number of bands of prio, and 16 priorities that all map to the first.
const BANDS: u32 = 16;

/// Major numbers of the qdiscs below the root, counted from these by route. They are unique on an interface.
const TBF: u16 = 0x7100;
const NETEM_BELOW_TBF: u16 = 0x7200;
const NETEM: u16 = 0x7300;

/// 1 Tbit/s, which limits nothing.
const TBF_BYTES_PER_SECOND: u64 = 125_000_000_000;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;

/// The link header and a VLAN tag.
const ETHERNET: u32 = 14 + 4;

/// Why the kernel does not impair a link.
#[derive(Debug, Error)]
pub enum Error {
    /// The interface is out of reach, or its filters are not as set.
    #[error(transparent)]
    Interface(#[from] interface::Error),
    /// prio has sixteen classes, and all other traffic needs one.
    #[error(
        "unable to impair {0} routes differently in the kernel, which supports {KERNEL_ROUTES_MAX}: merge some, or use the user-space backend"
    )]
    TooManyRoutes(usize),
    /// Another program has configured the interface.
    #[error(
        "{interface} already has a queueing discipline ({kind}): remove it (`tc qdisc del dev {interface} root`), or use the user-space backend"
    )]
    RootTaken {
        /// The interface.
        interface: String,
        /// The kind of its queueing discipline.
        kind: String,
    },
    /// Adding prio, tbf or netem failed: its module may be missing.
    #[error("failed to add {kind} to {interface} (`modprobe sch_{kind}` as root, if it is a module)")]
    Add {
        /// The kind of queueing discipline.
        kind: &'static str,
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: netlink::Error,
    },
    /// An old kernel ignores parameters that it does not know, or another program has changed the qdisc.
    #[error(
        "the kernel's link to {peer} is {has}, but {wanted} was set: if no other program has changed it, use the user-space \
         backend or a newer kernel"
    )]
    NotAsSet {
        /// The first peer of the link.
        peer: Prefix,
        /// The parameters that were set.
        wanted: String,
        /// The parameters that the kernel has.
        has: String,
    },
    /// A person or another version of perfrun has changed the queueing disciplines.
    #[error(
        "the queueing disciplines of {interface} are not those that perfrun sets: remove them with `perfrun link clear`"
    )]
    Altered {
        /// The interface.
        interface: String,
        /// Why they are impossible.
        source: InvalidOutgoingLinks,
    },
    /// Removing the root failed.
    #[error("failed to remove the impairment of {interface}")]
    Remove {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: netlink::Error,
    },
}

/// Impairment by netem. Dropping it removes the impairment.
pub(crate) struct Kernel {
    interface: Interface,
    links: OutgoingLinks,
    /// The counts of netem when counting began, for each of the routes: netem never resets them.
    counts_before: Vec<QdiscStats>,
    /// Whether this emulator has set the root. If so, the root is removed with this value.
    owns_root: bool,
}

impl Kernel {
    /// Impairs what leaves the interface, which is in the network namespace of the calling thread.
    pub(crate) fn start(interface: &str, links: &OutgoingLinks) -> Result<Self, Error> {
        let mut kernel = Self {
            interface: Interface::open(interface, ROOT)?,
            links: OutgoingLinks::default(),
            counts_before: Vec::new(),
            owns_root: false,
        };
        kernel.prepare_root()?;
        kernel.set(links)?;
        Ok(kernel)
    }

    /// Prepares the root for routes, or takes over that of a killed emulator.
    fn prepare_root(&mut self) -> Result<(), Error> {
        let qdiscs = qdiscs(&mut self.interface)?;
        if let Some(kind) = foreign_root(&qdiscs) {
            return Err(Error::RootTaken {
                interface: self.interface.name.clone(),
                kind,
            });
        }
        if has_own_root(&qdiscs) {
            tracing::warn!(
                interface = self.interface.name,
                "taking over the link of an emulator that was killed"
            );
        } else {
            let index = self.interface.rules.index;
            let prio = tc::qdisc(index, TcHandle::ROOT, ROOT, "prio", Some(prio_options()));
            self.add("prio", prio)?;
        }
        // From here on, what was added is removed if a later step fails.
        self.owns_root = true;
        self.interface.rules.classifier = self.interface.filters(|rules, netlink| {
            netlink
                .classifier(rules.index, rules.parent)
                .map_err(rules::Error::Add)
        })?;
        let passed = self
            .interface
            .filters(|rules, netlink| rules.set_passes(netlink, None));
        Ok(passed?)
    }

    /// Replaces the links. If only parameters change, packets in flight arrive as decided.
    pub(crate) fn set(&mut self, links: &OutgoingLinks) -> Result<(), Error> {
        let routes = links.routes();
        if routes.len() > KERNEL_ROUTES_MAX {
            return Err(Error::TooManyRoutes(routes.len()));
        }
        if !links.impairs() {
            self.remove()?;
            self.links = links.clone();
            return self.reset_counts();
        }
        if !self.owns_root {
            self.prepare_root()?;
        }
        let before = self.set_routes(links, None)?;
        let peers = rules::impaired(links).into_iter().map(|(peer, route)| {
            let class = if links.routes()[route].impairment.is_none() {
                1
            } else {
                class(route as u16)
            };
            (peer, Action::Class(class))
        });
        self.interface
            .filters(|rules, netlink| rules.set_peers(netlink, peers))?;
        // No filter leads to these classes now.
        for qdisc in &before {
            let number = qdisc.parent.minor.wrapping_sub(class(0));
            if qdisc.parent.major == OWN_MAJOR
                && usize::from(number) >= routes.len()
                && qdisc.handle.major != 0
            {
                self.remove_route(number)?;
            }
        }
        self.links = links.clone();
        self.verify()?;
        self.reset_counts()
    }

    /// Resets the counts; nothing else changes.
    pub(crate) fn reset_counts(&mut self) -> Result<(), Error> {
        self.counts_before = self.stats()?;
        Ok(())
    }

    /// Starts the random decisions of this seed.
    pub(crate) fn reseed(&mut self, seed: u64) -> Result<(), Error> {
        self.set_routes(&self.links.clone(), Some(seed)).map(drop)
    }

    /// The state of the links since counting began.
    pub(crate) fn state(&mut self) -> Result<LinkState, Error> {
        let traffic = |(stats, before): (QdiscStats, &QdiscStats)| Traffic::Kernel {
            packets_out: stats.packets.saturating_sub(before.packets),
            // The counter has only 32 bits and wraps.
            dropped: stats.dropped.wrapping_sub(before.dropped).into(),
            held: stats.queued,
        };
        Ok(LinkState {
            link: self.links.clone(),
            backend: ActiveBackend::Kernel,
            mode: mode(&self.links),
            traffic: self
                .stats()?
                .into_iter()
                .zip(&self.counts_before)
                .map(traffic)
                .collect(),
            worker: None,
        })
    }

    /// The counts of netem since it was added, for each of the routes.
    fn stats(&mut self) -> Result<Vec<QdiscStats>, Error> {
        let qdiscs = qdiscs(&mut self.interface)?;
        let stats = |number| {
            find(&qdiscs, number, mode(&self.links))
                .and_then(|qdisc| qdisc.stats)
                .unwrap_or_default()
        };
        Ok((0..).take(self.links.routes().len()).map(stats).collect())
    }

    /// Keeps the impairment, which does not need this process.
    pub(crate) fn leave(mut self) {
        self.owns_root = false;
    }

    /// Ends the impairment. Packets in flight are lost.
    pub(crate) fn remove(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.owns_root) {
            return Ok(());
        }
        self.delete(root_message(self.interface.rules.index))
    }

    /// Sets the parameters of all routes. Returns the queueing disciplines that were there before.
    fn set_routes(&mut self, links: &OutgoingLinks, seed: Option<u64>) -> Result<Vec<Qdisc>, Error> {
        let before = qdiscs(&mut self.interface)?;
        for (number, route) in (0..).zip(links.routes()) {
            if !route.impairment.is_none() {
                let mut options = Netem::of(&route.impairment).encode(&route.impairment);
                if let Some(seed) = seed {
                    options.extend(netem::seed(seed.wrapping_add(number.into())));
                }
                self.set_route(number, options, mode(links), &before)?;
            }
        }
        Ok(before)
    }

    fn set_route(
        &mut self,
        number: u16,
        options: Vec<u8>,
        mode: Mode,
        before: &[Qdisc],
    ) -> Result<(), Error> {
        let parent = tc::handle(OWN_MAJOR, class(number));
        let index = self.interface.rules.index;
        let (parent, handle) = match mode {
            Mode::SuperPackets => (parent, tc::handle(NETEM + number, 0)),
            Mode::PerPacket => {
                let tbf = tc::handle(TBF + number, 0);
                if before.iter().all(|qdisc| qdisc.handle != tbf) {
                    let options = tbf_options(self.interface.mtu + ETHERNET);
                    let message = tc::qdisc(index, parent, tbf, "tbf", Some(options));
                    self.add("tbf", message)?;
                }
                let below = tc::handle(tbf.major, 1);
                (below, tc::handle(NETEM_BELOW_TBF + number, 0))
            }
        };
        self.add("netem", tc::qdisc(index, parent, handle, "netem", Some(options)))
    }

    fn remove_route(&mut self, number: u16) -> Result<(), Error> {
        let parent = tc::handle(OWN_MAJOR, class(number));
        let mut message = TcMessage::with_index(self.interface.rules.index as i32);
        message.header.parent = parent;
        self.delete(message)
    }

    /// Compares the kernel's parameters with the configured ones.
    pub(crate) fn verify(&mut self) -> Result<(), Error> {
        self.interface.verify(&self.links)?;
        let qdiscs = qdiscs(&mut self.interface)?;
        for (number, route) in (0..).zip(self.links.routes()) {
            if route.impairment.is_none() {
                continue;
            }
            let wanted = Netem::of(&route.impairment);
            let has =
                find(&qdiscs, number, mode(&self.links)).and_then(|qdisc| Netem::decode(&qdisc.options));
            if has != Some(wanted) {
                return Err(Error::NotAsSet {
                    peer: route.peers[0],
                    wanted: format!("{wanted:?}"),
                    has: has.map_or_else(|| "none".to_owned(), |has| format!("{has:?}")),
                });
            }
        }
        Ok(())
    }

    fn add(&mut self, kind: &'static str, message: TcMessage) -> Result<(), Error> {
        add(&mut self.interface.netlink, &self.interface.name, kind, message)
    }

    fn delete(&mut self, message: TcMessage) -> Result<(), Error> {
        delete(&mut self.interface.netlink, &self.interface.name, message)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(interface = self.interface.name, %error, "failed to remove the impairment of a link");
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("interface", &self.interface.name)
            .field("links", &self.links)
            .finish_non_exhaustive()
    }
}

/// netem's limit counts merged packets as one, and would make the queue as many times as long.
fn mode(links: &OutgoingLinks) -> Mode {
    let mut routes = links.routes().iter();
    if routes.any(|route| route.impairment.rate_bits_per_second.is_some()) {
        return Mode::PerPacket;
    }
    links.mode()
}

/// The kind of the queueing discipline that another program has given the interface. `None` if there is none.
pub(crate) fn root_taken(netlink: &mut Netlink, interface: u32) -> Result<Option<String>, netlink::Error> {
    Ok(foreign_root(&netlink.qdiscs(interface)?))
}

fn foreign_root(qdiscs: &[Qdisc]) -> Option<String> {
    // The kernel's default qdisc has no number.
    let is_foreign =
        |qdisc: &&Qdisc| qdisc.parent == TcHandle::ROOT && qdisc.handle != ROOT && qdisc.handle.major != 0;
    qdiscs.iter().find(is_foreign).map(|qdisc| qdisc.kind.clone())
}

/// Whether an emulator has set the root: this one, another, or one that was killed.
fn has_own_root(qdiscs: &[Qdisc]) -> bool {
    let is_own = |qdisc: &Qdisc| qdisc.parent == TcHandle::ROOT && qdisc.handle == ROOT;
    qdiscs.iter().any(is_own)
}

/// Removes what a killed emulator has left. Returns whether there was anything.
pub(crate) fn clear(interface: &mut Interface) -> Result<bool, Error> {
    if !has_own_root(&qdiscs(interface)?) {
        return Ok(false);
    }
    let root = root_message(interface.rules.index);
    delete(&mut interface.netlink, &interface.name, root)?;
    Ok(true)
}

fn qdiscs(interface: &mut Interface) -> Result<Vec<Qdisc>, Error> {
    let qdiscs = interface.netlink.qdiscs(interface.rules.index);
    Ok(qdiscs.map_err(interface::Error::Connect)?)
}

fn root_message(interface: u32) -> TcMessage {
    tc::qdisc(interface, TcHandle::ROOT, ROOT, "prio", None)
}

/// Adds a queueing discipline, or changes the one with this handle.
fn add(netlink: &mut Netlink, interface: &str, kind: &'static str, message: TcMessage) -> Result<(), Error> {
    let added = netlink.execute(
        RouteNetlinkMessage::NewQueueDiscipline(message),
        NLM_F_CREATE | NLM_F_REPLACE,
    );
    added.map_err(|source| Error::Add {
        kind,
        interface: interface.to_owned(),
        source,
    })
}

fn delete(netlink: &mut Netlink, interface: &str, message: TcMessage) -> Result<(), Error> {
    let deleted = netlink.execute(RouteNetlinkMessage::DelQueueDiscipline(message), 0);
    deleted.map_err(|source| Error::Remove {
        interface: interface.to_owned(),
        source,
    })
}

/// The class of a route. Classes count from 1, and the first is that of all other traffic.
fn class(route: u16) -> u16 {
    route + 2
}

fn find(qdiscs: &[Qdisc], route: u16, mode: Mode) -> Option<&Qdisc> {
    let base = match mode {
        Mode::SuperPackets => NETEM,
        Mode::PerPacket => NETEM_BELOW_TBF,
    };
    qdiscs.iter().find(|qdisc| qdisc.handle.major == base + route)
}

/// `struct tc_prio_qopt`
fn prio_options() -> Vec<u8> {
    let mut options = BANDS.to_ne_bytes().to_vec();
    options.extend([0; 16]);
    options
}

/// `struct tc_tbf_qopt` and the attributes that replace most of its fields.
fn tbf_options(largest_frame: u32) -> Vec<u8> {
    const RATE_FIELD: usize = 8;
    const LIMIT_FIELD: usize = 24;
    const LINK_LAYER_FIELD: usize = 1;
    let mut parameters = vec![0; 36];
    parameters[LINK_LAYER_FIELD] = 1; // Ethernet; otherwise the kernel expects a table of times
    parameters[RATE_FIELD..RATE_FIELD + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
    // The queue's size, which does not matter: netem replaces the queue immediately.
    parameters[LIMIT_FIELD..LIMIT_FIELD + 4].copy_from_slice(&1u32.to_ne_bytes());
    netem::emitted(&[
        DefaultNla::new(TCA_TBF_PARMS, parameters),
        DefaultNla::new(TCA_TBF_RATE64, TBF_BYTES_PER_SECOND.to_ne_bytes().to_vec()),
        // Whatever is larger than the burst is split. One frame, or pairs would stay merged.
        DefaultNla::new(TCA_TBF_BURST, largest_frame.to_ne_bytes().to_vec()),
    ])
}

/// Tries netem and all that it needs on a scratch device. An error if this kernel lacks anything.
pub(crate) fn try_on_scratch_device(netlink: &mut Netlink, interface: u32) -> Result<(), Error> {
    let impairment = Impairment {
        delay: std::time::Duration::from_millis(1),
        ..Impairment::default()
    };
    let device = "a test device";
    let options = Netem::of(&impairment).encode(&impairment);
    // First on its own, so that a kernel that lacks netem and the other modules is reported to lack netem.
    let handle = tc::handle(NETEM, 0);
    let alone = tc::qdisc(interface, TcHandle::ROOT, handle, "netem", Some(options.clone()));
    add(netlink, device, "netem", alone)?;
    let alone = tc::qdisc(interface, TcHandle::ROOT, handle, "netem", None);
    delete(netlink, device, alone)?;
    let prio = tc::qdisc(interface, TcHandle::ROOT, ROOT, "prio", Some(prio_options()));
    add(netlink, device, "prio", prio)?;
    let parent = |minor| tc::handle(OWN_MAJOR, minor);
    let netem = tc::qdisc(interface, parent(2), handle, "netem", Some(options));
    add(netlink, device, "netem", netem)?;
    let options = Some(tbf_options(1518));
    let tbf = tc::qdisc(interface, parent(3), tc::handle(TBF, 0), "tbf", options);
    add(netlink, device, "tbf", tbf)?;
    let classifier = netlink.classifier(interface, ROOT).map_err(rules::Error::Add);
    classifier.map_err(interface::Error::of_filters(device))?;
    Ok(())
}
