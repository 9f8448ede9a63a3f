//! Impairment by the kernel's own netem.
//!
//! ```text
//!   prio 7065:  ── class 1: everybody else, a plain queue
//!               ── class 2: netem of the first route                           (super-packets pass as one)
//!               ── class 3: tbf, which cuts super-packets ── netem             (netem decides about packets)
//! ```
//!
//! `prio` is the one queueing discipline that has classes, lets a class hold packets back, and leaves unclassified
//! packets as they are. `tbf` has no limit to speak of: it is there because it cuts super-packets before netem sees them.
//! Nothing of this needs the process: if it is killed, the link stays impaired, and the next one takes it over.

mod inspect;
mod netem;

use std::fmt;

use rtnetlink::packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{TcHandle, TcMessage};
use thiserror::Error;

use crate::netlink::{self, Netlink};
use crate::rules::{self, Rules};
use crate::tc::{self, Classifier, OURS, Qdisc, QdiscStats, Then};
use crate::userspace;
pub(crate) use inspect::inspect;
use netem::Netem;
use perfrun_link::Kind;
use perfrun_link::ability::KERNEL_ROUTES_MAX;
use perfrun_link::impairment::{Impairment, Mode};
use perfrun_link::route::{BadLink, Link, Prefix};
use perfrun_link::state::{State, Traffic};

const ROOT: TcHandle = TcHandle {
    major: OURS,
    minor: 0,
};

/// Bands of prio, and 16 priorities that all lead to the first.
const BANDS: u32 = 16;

/// Major numbers of qdiscs below, counted from these by route. They are unique on an interface.
const TBF: u16 = 0x7100;
const NETEM_BELOW_TBF: u16 = 0x7200;
const NETEM: u16 = 0x7300;

/// 1 Tbit/s, which is no limit.
const TBF_BYTES_PER_SECOND: u64 = 125_000_000_000;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;

/// Link header, and a tag.
const ETHERNET: u32 = 14 + 4;

/// Why the kernel does not impair.
#[derive(Debug, Error)]
pub enum Error {
    /// Opening a socket, or asking.
    #[error("failed to reach the kernel's network settings")]
    Connect(#[source] netlink::Error),
    /// A mistake in its name, or the wrong network namespace.
    #[error("failed to find interface {name:?} in this network namespace")]
    FindInterface {
        /// The name.
        name: String,
        /// What the kernel said.
        source: netlink::Error,
    },
    /// prio has sixteen classes, and everybody else needs one.
    #[error(
        "unable to impair {0} routes differently in the kernel, {KERNEL_ROUTES_MAX} is the limit: merge some, or use the user-space back end"
    )]
    TooManyRoutes(usize),
    /// Somebody has configured the interface.
    #[error(
        "{device} has a queueing discipline already ({kind}): remove it (`tc qdisc del dev {device} root`), or use the user-space back end"
    )]
    RootTaken {
        /// Which interface.
        device: String,
        /// What it has.
        kind: String,
    },
    /// sch_prio, sch_tbf, sch_netem.
    #[error("failed to add {kind} to {device} (`modprobe sch_{kind}` as root, if it is a module)")]
    Add {
        /// Its kind.
        kind: &'static str,
        /// Where.
        device: String,
        /// What the kernel said.
        source: netlink::Error,
    },
    /// See [`rules::Error`].
    #[error("failed to set the filters of {device}")]
    SetFilters {
        /// Where.
        device: String,
        /// Which.
        source: rules::Error,
    },
    /// An old kernel overlooks what it does not know; or somebody else has changed it since.
    #[error(
        "the kernel has another link to {peer} than was set ({has}, not {wanted}): has somebody changed it? If not, use the \
         user-space back end, or a later kernel"
    )]
    NotAsSet {
        /// The first of its peers.
        peer: Prefix,
        /// What was set.
        wanted: String,
        /// What there is.
        has: String,
    },
    /// By hand, or by another program.
    #[error("somebody has removed filters of {device}: packets pass unimpaired")]
    Removed {
        /// Where.
        device: String,
    },
    /// By hand, or by another version.
    #[error(
        "the queueing disciplines of {device} are not as perfrun has set them: remove them with `perfrun link clear`"
    )]
    Altered {
        /// Which interface.
        device: String,
        /// What is impossible about them.
        source: BadLink,
    },
    /// The root.
    #[error("failed to remove the impairment of {device}")]
    Remove {
        /// Where.
        device: String,
        /// What the kernel said.
        source: netlink::Error,
    },
}

/// netem at work. Dropped, it is gone.
pub(crate) struct Kernel {
    netlink: Netlink,
    device: String,
    mtu: u32,
    rules: Rules,
    link: Link,
    /// What netem had counted, for each of the routes, when counting began: it never goes back itself.
    before: Vec<QdiscStats>,
    /// Whether the root is ours; if so, it is removed with this value.
    rooted: bool,
}

impl Kernel {
    /// Impairs what leaves the interface, which is in the network namespace of the calling thread.
    pub(crate) fn start(device: &str, link: &Link) -> Result<Self, Error> {
        let mut netlink = Netlink::open().map_err(Error::Connect)?;
        let interface = netlink.device(device).map_err(|source| Error::FindInterface {
            name: device.to_owned(),
            source,
        })?;
        let mut kernel = Self {
            netlink,
            device: device.to_owned(),
            mtu: interface.mtu,
            rules: Rules {
                interface: interface.index,
                parent: ROOT,
                classifier: Classifier::U32,
            },
            link: Link::default(),
            before: Vec::new(),
            rooted: false,
        };
        kernel.root()?;
        kernel.set(link)?;
        let cleared = userspace::clear(&mut kernel.netlink, interface.index);
        cleared.map_err(|source| Error::SetFilters {
            device: device.to_owned(),
            source,
        })?;
        Ok(kernel)
    }

    /// Makes the root ready for routes, or takes over that of an emulator which was killed.
    fn root(&mut self) -> Result<(), Error> {
        let qdiscs = self.qdiscs()?;
        if let Some(kind) = foreign_root(&qdiscs) {
            return Err(Error::RootTaken {
                device: self.device.clone(),
                kind,
            });
        }
        if qdiscs.iter().any(|qdisc| qdisc.handle == ROOT) {
            tracing::warn!(
                device = self.device,
                "taking over the link that another emulator has left behind"
            );
        } else {
            let interface = self.rules.interface;
            let prio = tc::qdisc(interface, TcHandle::ROOT, ROOT, "prio", Some(prio_options()));
            add(&mut self.netlink, &self.device, "prio", prio)?;
        }
        // From here on, what was added is removed if something fails.
        self.rooted = true;
        self.rules.classifier = self.filters(|rules, netlink| {
            let found = netlink.classifier(rules.interface, rules.parent);
            found.map_err(rules::Error::Add)
        })?;
        self.filters(|rules, netlink| rules.set_passes(netlink, None))
    }

    /// Other links from now on. Where only figures change, what is on its way arrives as it was decided.
    pub(crate) fn set(&mut self, link: &Link) -> Result<(), Error> {
        let routes = link.routes();
        if routes.len() > KERNEL_ROUTES_MAX {
            return Err(Error::TooManyRoutes(routes.len()));
        }
        if !link.impairs() {
            self.remove()?;
            self.link = link.clone();
            return self.recount();
        }
        if !self.rooted {
            self.root()?;
        }
        let before = self.qdiscs()?;
        for (number, route) in (0..).zip(routes) {
            self.set_route(number, &route.impairment, mode(link), &before)?;
        }
        let peers = rules::impaired(link).into_iter().map(|(peer, route)| {
            let class = if link.routes()[route].impairment.is_none() {
                1
            } else {
                class(route as u16)
            };
            (peer, Then::Class(class))
        });
        self.filters(|rules, netlink| rules.set_peers(netlink, peers))?;
        // Nobody is led there any more.
        for qdisc in &before {
            let number = qdisc.parent.minor.wrapping_sub(class(0));
            if qdisc.parent.major == OURS && usize::from(number) >= routes.len() && qdisc.handle.major != 0 {
                self.remove_route(number)?;
            }
        }
        self.link = link.clone();
        self.verify()?;
        self.recount()
    }

    /// Counts from nought; nothing else changes.
    pub(crate) fn recount(&mut self) -> Result<(), Error> {
        self.before = self.stats()?;
        Ok(())
    }

    /// How it is going since counting began.
    pub(crate) fn state(&mut self) -> Result<State, Error> {
        let traffic = |(stats, before): (QdiscStats, &QdiscStats)| Traffic::Kernel {
            packets_out: stats.packets.saturating_sub(before.packets),
            // 32 bits are few.
            dropped: stats.dropped.wrapping_sub(before.dropped).into(),
            held: stats.queued,
        };
        Ok(State {
            link: self.link.clone(),
            backend: Kind::Kernel,
            mode: mode(&self.link),
            traffic: self.stats()?.into_iter().zip(&self.before).map(traffic).collect(),
            worker: None,
        })
    }

    /// What netem has counted since it was added, for each of the routes.
    fn stats(&mut self) -> Result<Vec<QdiscStats>, Error> {
        let qdiscs = self.qdiscs()?;
        let stats = |number| {
            let found = find(&qdiscs, number, mode(&self.link));
            found.and_then(|qdisc| qdisc.stats).unwrap_or_default()
        };
        Ok((0..).take(self.link.routes().len()).map(stats).collect())
    }

    /// Nothing of it needs this process.
    pub(crate) fn leave(mut self) {
        self.rooted = false;
    }

    /// Ends the impairment; what is on its way is lost.
    pub(crate) fn remove(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.rooted) {
            return Ok(());
        }
        self.delete(root(self.rules.interface))
    }

    fn set_route(
        &mut self,
        number: u16,
        impairment: &Impairment,
        mode: Mode,
        before: &[Qdisc],
    ) -> Result<(), Error> {
        if impairment.is_none() {
            return Ok(());
        }
        let parent = TcHandle {
            major: OURS,
            minor: class(number),
        };
        let interface = self.rules.interface;
        let (parent, handle) = match mode {
            Mode::SuperPackets => (
                parent,
                TcHandle {
                    major: NETEM + number,
                    minor: 0,
                },
            ),
            Mode::PerPacket => {
                let tbf = TcHandle {
                    major: TBF + number,
                    minor: 0,
                };
                if before.iter().all(|qdisc| qdisc.handle != tbf) {
                    let options = tbf_options(self.mtu + ETHERNET);
                    let message = tc::qdisc(interface, parent, tbf, "tbf", Some(options));
                    add(&mut self.netlink, &self.device, "tbf", message)?;
                }
                let below = TcHandle {
                    major: tbf.major,
                    minor: 1,
                };
                (
                    below,
                    TcHandle {
                        major: NETEM_BELOW_TBF + number,
                        minor: 0,
                    },
                )
            }
        };
        let options = Netem::of(impairment).encode(impairment);
        let message = tc::qdisc(interface, parent, handle, "netem", Some(options));
        add(&mut self.netlink, &self.device, "netem", message)
    }

    fn remove_route(&mut self, number: u16) -> Result<(), Error> {
        let parent = TcHandle {
            major: OURS,
            minor: class(number),
        };
        let mut message = TcMessage::with_index(self.rules.interface as i32);
        message.header.parent = parent;
        self.delete(message)
    }

    /// Compares what the kernel has with what it was asked for.
    pub(crate) fn verify(&mut self) -> Result<(), Error> {
        if self.link.impairs() && !self.filters(|rules, netlink| rules.catch(netlink))? {
            return Err(Error::Removed {
                device: self.device.clone(),
            });
        }
        let qdiscs = self.qdiscs()?;
        for (number, route) in (0..).zip(self.link.routes()) {
            if route.impairment.is_none() {
                continue;
            }
            let wanted = Netem::of(&route.impairment);
            let has = find(&qdiscs, number, mode(&self.link)).and_then(|qdisc| Netem::decode(&qdisc.options));
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

    fn qdiscs(&mut self) -> Result<Vec<Qdisc>, Error> {
        self.netlink.qdiscs(self.rules.interface).map_err(Error::Connect)
    }

    fn filters<T>(
        &mut self,
        act: impl FnOnce(&Rules, &mut Netlink) -> Result<T, rules::Error>,
    ) -> Result<T, Error> {
        act(&self.rules, &mut self.netlink).map_err(|source| Error::SetFilters {
            device: self.device.clone(),
            source,
        })
    }

    fn delete(&mut self, message: TcMessage) -> Result<(), Error> {
        let deleted = self
            .netlink
            .execute(RouteNetlinkMessage::DelQueueDiscipline(message), 0);
        deleted.map_err(|source| Error::Remove {
            device: self.device.clone(),
            source,
        })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(device = self.device, %error, "failed to remove the impairment of a link");
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("device", &self.device)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

/// netem's limit counts packets that the sender has merged as one, and would make a queue of as many times the length.
fn mode(link: &Link) -> Mode {
    let mut routes = link.routes().iter();
    if routes.any(|route| route.impairment.rate_bits_per_second.is_some()) {
        return Mode::PerPacket;
    }
    link.mode()
}

/// The kind of the queueing discipline that somebody else has given the interface, if so.
pub(crate) fn root_taken(netlink: &mut Netlink, interface: u32) -> Result<Option<String>, netlink::Error> {
    Ok(foreign_root(&netlink.qdiscs(interface)?))
}

fn foreign_root(qdiscs: &[Qdisc]) -> Option<String> {
    // The kernel's own choice has no number.
    let is_foreign =
        |qdisc: &&Qdisc| qdisc.parent == TcHandle::ROOT && qdisc.handle != ROOT && qdisc.handle.major != 0;
    qdiscs.iter().find(is_foreign).map(|qdisc| qdisc.kind.clone())
}

/// Removes what an emulator that was killed has left behind; true if it did.
pub(crate) fn clear(netlink: &mut Netlink, interface: u32) -> Result<bool, netlink::Error> {
    let is_ours = |qdisc: &Qdisc| qdisc.parent == TcHandle::ROOT && qdisc.handle == ROOT;
    if !netlink.qdiscs(interface)?.iter().any(is_ours) {
        return Ok(false);
    }
    netlink.execute(RouteNetlinkMessage::DelQueueDiscipline(root(interface)), 0)?;
    Ok(true)
}

fn root(interface: u32) -> TcMessage {
    tc::qdisc(interface, TcHandle::ROOT, ROOT, "prio", None)
}

/// Adds a queueing discipline, or changes the one that has this handle.
fn add(netlink: &mut Netlink, device: &str, kind: &'static str, message: TcMessage) -> Result<(), Error> {
    let added = netlink.execute(
        RouteNetlinkMessage::NewQueueDiscipline(message),
        NLM_F_CREATE | NLM_F_REPLACE,
    );
    added.map_err(|source| Error::Add {
        kind,
        device: device.to_owned(),
        source,
    })
}

/// The class of a route. The first class is that of everybody else, and classes count from 1.
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

/// `struct tc_tbf_qopt` and what has replaced most of its fields.
fn tbf_options(largest_frame: u32) -> Vec<u8> {
    const RATE_FIELD: usize = 8;
    const LIMIT_FIELD: usize = 24;
    const LINK_LAYER_FIELD: usize = 1;
    let mut parameters = vec![0; 36];
    parameters[LINK_LAYER_FIELD] = 1; // Ethernet; otherwise a table of times is expected
    parameters[RATE_FIELD..RATE_FIELD + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
    // Room in the queue that netem replaces at once: for nothing.
    parameters[LIMIT_FIELD..LIMIT_FIELD + 4].copy_from_slice(&1u32.to_ne_bytes());
    netem::emitted(&[
        DefaultNla::new(TCA_TBF_PARMS, parameters),
        DefaultNla::new(TCA_TBF_RATE64, TBF_BYTES_PER_SECOND.to_ne_bytes().to_vec()),
        // What is larger than the burst is cut. One frame, or pairs would stay merged.
        DefaultNla::new(TCA_TBF_BURST, largest_frame.to_ne_bytes().to_vec()),
    ])
}

/// Whether this kernel has netem, tried on a device of one's own.
pub(crate) fn probe(netlink: &mut Netlink, interface: u32) -> Result<(), Error> {
    let impairment = Impairment {
        delay: std::time::Duration::from_millis(1),
        ..Impairment::default()
    };
    let device = "a device made for trying";
    let options = Netem::of(&impairment).encode(&impairment);
    // First by itself: a kernel that lacks netem and what it needs around it lacks netem.
    let handle = TcHandle {
        major: NETEM,
        minor: 0,
    };
    let alone = tc::qdisc(interface, TcHandle::ROOT, handle, "netem", Some(options.clone()));
    add(netlink, device, "netem", alone)?;
    netlink
        .execute(
            RouteNetlinkMessage::DelQueueDiscipline(tc::qdisc(
                interface,
                TcHandle::ROOT,
                handle,
                "netem",
                None,
            )),
            0,
        )
        .map_err(|source| Error::Remove {
            device: device.to_owned(),
            source,
        })?;
    let prio = tc::qdisc(interface, TcHandle::ROOT, ROOT, "prio", Some(prio_options()));
    add(netlink, device, "prio", prio)?;
    let parent = |minor| TcHandle { major: OURS, minor };
    add(
        netlink,
        device,
        "netem",
        tc::qdisc(interface, parent(2), handle, "netem", Some(options)),
    )?;
    let handle = TcHandle { major: TBF, minor: 0 };
    add(
        netlink,
        device,
        "tbf",
        tc::qdisc(interface, parent(3), handle, "tbf", Some(tbf_options(1518))),
    )?;
    netlink
        .classifier(interface, ROOT)
        .map(drop)
        .map_err(|source| Error::SetFilters {
            device: device.to_owned(),
            source: rules::Error::Add(source),
        })
}
