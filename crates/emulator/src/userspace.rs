//! Impairment without netem: packets to peers make a detour through a thread of this process.
//!
//! ```text
//!   eth0, egress:   to a peer? ── redirect ──► perfrun0 (a TAP) ──► thread, holds it until it is due
//!                       ▲                                            │
//!                       └── redirect ◄── perfrun0, ingress ◄───────────┘
//!   and out: filters let packets from perfrun0 pass
//! ```
//!
//! Filters of tc decide which packets make the detour, so all others never leave the kernel. If the process
//! dies, its TAP goes and the filters stay: they then lead nowhere, and the link is closed rather than
//! unimpaired. The next emulator takes it over. This needs CAP_NET_ADMIN and /dev/net/tun, nothing else.

mod engine;

use std::{
    fmt, io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread,
    thread::JoinHandle,
    time::Duration,
};

use perfrun_link::{
    ActiveBackend,
    impairment::Mode,
    route::OutgoingLinks,
    state::{Lateness, LinkState, Traffic, Worker},
};
use rtnetlink::{
    LinkUnspec,
    packet_core::{NLM_F_CREATE, NLM_F_REPLACE},
    packet_route::{
        RouteNetlinkMessage,
        link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkMessage},
        tc::TcHandle,
    },
};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};
use thiserror::Error;

use self::engine::{Command, Engine, EngineCounts, ImpairedRoutes};
use crate::{
    interface::{self, Interface},
    netlink::{self, Netlink},
    rules,
    tap::{self, Tap},
    tc::{self, Action, Classifier, EGRESS, Filter, INGRESS, Match},
};

/// The name of the TAP. There is one in a network namespace.
pub const DEVICE: &str = "perfrun0";

/// The number of frames that the TAP holds until the thread reads them: about 50 ms of small packets.
const RING_FRAMES: u32 = 10_000;

/// How long the thread may take to reply: longer than any wake-up. A thread that takes longer has ended.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why packets cannot make the detour.
#[derive(Debug, Error)]
pub enum Error {
    /// The interface is out of reach, or its filters are not as set.
    #[error(transparent)]
    Interface(#[from] interface::Error),
    /// Creating the TAP failed.
    #[error("failed to create a TAP")]
    MakeTap(#[source] tap::Error),
    /// Another process, or another emulator in this one, uses the TAP.
    #[error("another emulator is running in this network namespace ({DEVICE} is taken): stop it first")]
    Taken,
    /// Setting the MTU, the queue length or the state of the TAP failed.
    #[error("failed to set up {DEVICE}")]
    SetUpTap(#[source] netlink::Error),
    /// Adding clsact failed: CONFIG_NET_CLS_ACT or sch_ingress may be missing.
    #[error("failed to add clsact to {interface} (`modprobe sch_ingress` as root, if it is a module)")]
    AddClsact {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: netlink::Error,
    },
    /// Removing clsact failed. Everything else has been removed.
    #[error("failed to remove clsact from {interface}")]
    RemoveClsact {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: netlink::Error,
    },
    /// The machine is out of threads or descriptors.
    #[error("failed to start the thread that serves the link")]
    Start(#[source] io::Error),
    /// The TAP was removed, or the thread panicked. The link is closed.
    #[error(
        "the thread that serves the link has ended: nothing passes until the link is set up again, or cleared (`perfrun link clear`)"
    )]
    Ended(#[source] io::Error),
}

/// Impairment by a detour. Dropping it removes the impairment.
pub(crate) struct Userspace {
    interface: Interface,
    clsact_is_own: bool,
    tap: Arc<Tap>,
    tap_index: u32,
    links: OutgoingLinks,
    seed: Option<u64>,
    /// The TAP's count of dropped frames when counting began.
    overflowed_before: u64,
    worker: Option<Thread>,
}

/// The thread, and the means to send it commands.
struct Thread {
    commands: Sender<Command>,
    wake: OwnedFd,
    handle: JoinHandle<io::Result<()>>,
}

impl Userspace {
    /// Impairs what leaves the interface, which is in the network namespace of the calling thread.
    pub(crate) fn start(interface: &str, links: &OutgoingLinks, seed: Option<u64>) -> Result<Self, Error> {
        let mut interface = Interface::open(interface, EGRESS)?;
        let (tap, _) = Tap::create(DEVICE).map_err(|error| match error.errno() {
            Errno::BUSY => Error::Taken,
            _ => Error::MakeTap(error),
        })?;
        tap.keep_super_packets(links.mode() == Mode::SuperPackets)
            .map_err(Error::MakeTap)?;
        let tap_index = set_up(&mut interface.netlink, interface.mtu)?;
        let index = interface.rules.index;
        interface.rules.classifier = add_return(&mut interface.netlink, tap_index, index)?;
        let tap = Arc::new(tap);
        let worker = Thread::spawn(Arc::clone(&tap), impaired_routes(links, seed)).map_err(Error::Start)?;
        let mut detour = Self {
            interface,
            clsact_is_own: false,
            tap,
            tap_index,
            links: links.clone(),
            seed,
            overflowed_before: 0,
            worker: Some(worker),
        };
        // Redirects last: if an earlier step fails, packets still pass.
        detour.take_over()?;
        detour.redirect(links)?;
        Ok(detour)
    }

    /// Replaces the links. Packets in flight arrive as decided.
    ///
    /// If the new links impair nothing, the TAP and the thread stay idle: removing a device takes the kernel
    /// longer than everything else.
    pub(crate) fn set(&mut self, links: &OutgoingLinks) -> Result<(), Error> {
        let keep = links.mode() == Mode::SuperPackets;
        if !keep {
            self.tap.keep_super_packets(false).map_err(Error::MakeTap)?;
        }
        self.send(Command::Set(Box::new(impaired_routes(links, self.seed))))?;
        // The reply comes after the links have been replaced.
        self.read_counts()?;
        if keep {
            self.tap.keep_super_packets(true).map_err(Error::MakeTap)?;
        }
        if links.impairs() && !self.links.impairs() {
            self.take_over()?;
        }
        self.redirect(links)?;
        self.links = links.clone();
        self.overflowed_before = self.overflowed()?;
        Ok(())
    }

    /// Resets the counts; nothing else changes.
    pub(crate) fn reset_counts(&mut self) -> Result<(), Error> {
        self.send(Command::ResetCounts)?;
        // The reply comes after the counts have been reset.
        self.read_counts()?;
        self.overflowed_before = self.overflowed()?;
        Ok(())
    }

    /// Starts the random decisions of this seed.
    pub(crate) fn reseed(&mut self, seed: u64) -> Result<(), Error> {
        self.send(Command::Reseed(seed))?;
        // The reply comes after the seed has been set.
        self.read_counts().map(drop)
    }

    /// The state of the links since counting began.
    pub(crate) fn state(&mut self) -> Result<LinkState, Error> {
        let counts = self.read_counts()?;
        let overflowed = self.overflowed()?;
        Ok(LinkState {
            link: self.links.clone(),
            backend: ActiveBackend::Userspace,
            mode: self.links.mode(),
            traffic: counts.counts.into_iter().map(Traffic::Userspace).collect(),
            worker: Some(Worker {
                scheduling: counts.scheduling,
                lateness: Lateness {
                    frames: counts.lateness.len(),
                    p50_ns: counts.lateness.value_at_percentile(50.0),
                    p99_ns: counts.lateness.value_at_percentile(99.0),
                    max_ns: counts.lateness.max(),
                },
                overflowed: overflowed.saturating_sub(self.overflowed_before),
                unmatched: counts.unmatched,
                refused: counts.refused,
                cpu_ns: counts.cpu,
            }),
        })
    }

    /// Checks that the filters are still in place.
    pub(crate) fn verify(&mut self) -> Result<(), Error> {
        Ok(self.interface.verify(&self.links)?)
    }

    /// Ends the detour. Packets in flight are lost.
    pub(crate) fn remove(&mut self) -> Result<(), Error> {
        let Some(worker) = self.worker.take() else {
            return Ok(());
        };
        let removed = self.remove_rules();
        // Also if filters stay: then the link is closed, as if the process had been killed.
        worker.stop();
        removed
    }

    /// Ends the thread, and leaves filters that lead nowhere.
    pub(crate) fn abandon(mut self) {
        if let Some(worker) = self.worker.take() {
            worker.stop();
        }
    }

    /// Prepares the interface for redirects. Those of a predecessor stay, and keep the link closed.
    fn take_over(&mut self) -> Result<(), Error> {
        let index = self.interface.rules.index;
        let added = self.interface.netlink.add_clsact(index);
        let added = added.map_err(|source| Error::AddClsact {
            interface: self.interface.name.clone(),
            source,
        })?;
        let left_behind = self
            .interface
            .filters(|rules, netlink| rules.own_filters(netlink))?;
        self.clsact_is_own = added || !left_behind.is_empty();
        if !left_behind.is_empty() {
            tracing::warn!(
                interface = self.interface.name,
                "taking over the link of an emulator that was killed"
            );
        }
        let passed = self
            .interface
            .filters(|rules, netlink| rules.set_passes(netlink, Some(DEVICE)));
        Ok(passed?)
    }

    /// Redirects exactly the packets that the links impair.
    fn redirect(&mut self, links: &OutgoingLinks) -> Result<(), Error> {
        if !links.impairs() {
            return self.remove_rules();
        }
        let to = self.tap_index;
        let peers = rules::impaired(links)
            .into_iter()
            .map(|(peer, _)| (peer, Action::Redirect { to }));
        Ok(self
            .interface
            .filters(|rules, netlink| rules.set_peers(netlink, peers))?)
    }

    fn remove_rules(&mut self) -> Result<(), Error> {
        self.interface.filters(|rules, netlink| rules.remove(netlink))?;
        if self.clsact_is_own {
            let removed = remove_unused_clsact(&mut self.interface.netlink, self.interface.rules.index);
            removed.map_err(|source| Error::RemoveClsact {
                interface: self.interface.name.clone(),
                source,
            })?;
        }
        Ok(())
    }

    /// The number of frames that the TAP has dropped since it was made.
    fn overflowed(&mut self) -> Result<u64, Error> {
        Ok(interface::find(&mut self.interface.netlink, DEVICE)?.tx_dropped)
    }

    fn read_counts(&mut self) -> Result<EngineCounts, Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.send(Command::ReadCounts(sender))?;
        receiver
            .recv_timeout(ANSWER_TIMEOUT)
            .map_err(|_| self.thread_error())
    }

    fn send(&mut self, command: Command) -> Result<(), Error> {
        let sent = self.worker.as_ref().is_some_and(|worker| worker.send(command));
        if sent { Ok(()) } else { Err(self.thread_error()) }
    }

    /// Why the thread does not reply.
    fn thread_error(&mut self) -> Error {
        let finished = self.worker.take_if(|worker| worker.handle.is_finished());
        Error::Ended(match finished.map(|worker| worker.handle.join()) {
            Some(Ok(Err(error))) => error,
            Some(Err(_)) => io::Error::other("it panicked"),
            Some(Ok(Ok(()))) | None => io::ErrorKind::TimedOut.into(),
        })
    }
}

impl Drop for Userspace {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(interface = self.interface.name, %error, "failed to remove the impairment of a link");
        }
    }
}

impl fmt::Debug for Userspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Userspace")
            .field("interface", &self.interface.name)
            .field("links", &self.links)
            .finish_non_exhaustive()
    }
}

impl Thread {
    fn spawn(tap: Arc<Tap>, routes: ImpairedRoutes) -> io::Result<Self> {
        let (commands, received) = mpsc::channel();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let engine = Engine::new(tap, wake.try_clone()?, received, routes);
        let handle = thread::Builder::new()
            .name("netem".to_owned())
            .spawn(move || engine.run())?;
        Ok(Self {
            commands,
            wake,
            handle,
        })
    }

    /// Returns false if the thread has ended.
    fn send(&self, command: Command) -> bool {
        self.commands.send(command).is_ok() && rustix::io::write(&self.wake, &1u64.to_ne_bytes()).is_ok()
    }

    fn stop(self) {
        self.send(Command::Stop);
        // If it had ended before, its state has already shown why.
        let _ = self.handle.join();
    }
}

/// Routes that no packet has passed yet. Without `seed`, each call draws another one: iterations that lose
/// the same packets would count as one.
fn impaired_routes(links: &OutgoingLinks, seed: Option<u64>) -> ImpairedRoutes {
    ImpairedRoutes::new(links, seed.unwrap_or_else(rand::random))
}

/// Whether packets that leave the interface make a detour.
pub(crate) fn is_active_on(interface: &mut Interface) -> Result<bool, interface::Error> {
    interface.filters(|rules, netlink| Ok(!rules.own_filters(netlink)?.is_empty()))
}

/// Removes what a killed emulator has left. Returns whether there was anything.
pub(crate) fn clear(interface: &mut Interface) -> Result<bool, interface::Error> {
    interface.filters(|rules, netlink| {
        if rules.own_filters(netlink)?.is_empty() {
            return Ok(false);
        }
        rules.remove(netlink)?;
        remove_unused_clsact(netlink, rules.index).map_err(rules::Error::Remove)?;
        Ok(true)
    })
}

/// Other programs may have added filters of their own.
fn remove_unused_clsact(netlink: &mut Netlink, interface: u32) -> Result<(), netlink::Error> {
    let unused =
        netlink.filters(interface, EGRESS)?.is_empty() && netlink.filters(interface, INGRESS)?.is_empty();
    if unused {
        netlink.remove_clsact(interface)
    } else {
        Ok(())
    }
}

/// Prepares the TAP; returns its index.
fn set_up(netlink: &mut Netlink, mtu: u32) -> Result<u32, Error> {
    let index = interface::find(netlink, DEVICE)?.index;
    // Without an address, the TAP sends nothing of its own. The request is refused where the kernel has no
    // IPv6.
    let _ = netlink.execute(RouteNetlinkMessage::SetLink(without_addresses(index)), 0);
    // A frame that does not fit the ring is lost: nothing may queue in front of the ring.
    let no_queue = tc::qdisc(index, TcHandle::ROOT, TcHandle::UNSPEC, "noqueue", None);
    netlink
        .execute(
            RouteNetlinkMessage::NewQueueDiscipline(no_queue),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
        .map_err(Error::SetUpTap)?;
    let up = LinkUnspec::new_with_index(index)
        .mtu(mtu)
        .txqueuelen(RING_FRAMES)
        .arp(false)
        .up()
        .build();
    netlink
        .execute(RouteNetlinkMessage::SetLink(up), 0)
        .map_err(Error::SetUpTap)?;
    Ok(index)
}

fn without_addresses(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    message
        .attributes
        .push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]));
    message
}

/// Redirects what the thread writes to the interface; returns the kind of filters that this kernel has.
pub(crate) fn add_return(netlink: &mut Netlink, tap: u32, interface: u32) -> Result<Classifier, Error> {
    netlink.add_clsact(tap).map_err(|source| Error::AddClsact {
        interface: DEVICE.to_owned(),
        source,
    })?;
    let filter = Filter {
        parent: INGRESS,
        priority: 1,
        matches: Match::Everything,
        action: Action::Redirect { to: interface },
    };
    let added = netlink.add_first(tap, &filter).map_err(rules::Error::Add);
    Ok(added.map_err(interface::Error::of_filters(DEVICE))?)
}
