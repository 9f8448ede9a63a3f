//! Impairment without netem: what is sent to peers makes a detour through a thread of this process.
//!
//! ```text
//!   eth0, egress:   to a peer? ── redirect ──► netem0 (a TAP) ──► thread, holds it until its time
//!                       ▲                                            │
//!                       └── redirect ◄── netem0, ingress ◄───────────┘
//!   and out, since what came in through netem0 is let pass
//! ```
//!
//! Filters of tc decide who makes the detour, so everything else never leaves the kernel. Filters stay when the process
//! dies and its TAP with it: then they lead nowhere, and the link is closed rather than unimpaired. The next emulator
//! takes it over. Needs CAP_NET_ADMIN and /dev/net/tun, nothing else.

mod engine;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io, thread};

use rtnetlink::LinkUnspec;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkMessage};
use rtnetlink::packet_route::tc::TcHandle;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use thiserror::Error;

use crate::kernel;
use crate::netlink::{self, Device, Netlink};
use crate::rules::{self, Rules};
use crate::tap::{self, Tap};
use crate::tc::{self, Classifier, EGRESS, Filter, INGRESS, Match, Then};
use engine::{Command, Engine, Links, Report};
use perfrun_link::Kind;
use perfrun_link::impairment::Mode;
use perfrun_link::route::Link;
use perfrun_link::state::{Lateness, State, Traffic, Worker};

/// The TAP's name. There is one in a network namespace.
pub const DEVICE: &str = "netem0";

/// Frames that the TAP holds until the thread reads them: some 50 ms of small packets.
const RING_FRAMES: u32 = 10_000;

/// Longer than any wake-up; a thread that takes longer to answer is gone.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why packets cannot make the detour.
#[derive(Debug, Error)]
pub enum Error {
    /// Opening a socket.
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
    /// See [`tap::Error`].
    #[error("failed to make a TAP")]
    MakeTap(#[source] tap::Error),
    /// Another process, or another emulator in this one.
    #[error("another emulator is at work in this network namespace ({DEVICE} is taken): stop it first")]
    Taken,
    /// MTU, queue length, up.
    #[error("failed to set up {DEVICE}")]
    SetUpTap(#[source] netlink::Error),
    /// CONFIG_NET_CLS_ACT, sch_ingress.
    #[error("failed to add clsact to {device} (`modprobe sch_ingress` as root, if it is a module)")]
    AddClsact {
        /// Where.
        device: String,
        /// What the kernel said.
        source: netlink::Error,
    },
    /// Nothing is left of it but this.
    #[error("failed to remove clsact from {device}")]
    RemoveClsact {
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
    /// Out of threads or descriptors.
    #[error("failed to start the thread that serves the link")]
    Start(#[source] io::Error),
    /// The TAP was taken away, or the thread panicked. The link is closed.
    #[error(
        "the thread that serves the link has ended: nothing passes until the link is set up again, or cleared (`perfrun link clear`)"
    )]
    Ended(#[source] io::Error),
    /// By hand, or by another program.
    #[error("somebody has removed filters of {device}: packets pass unimpaired")]
    Removed {
        /// Where.
        device: String,
    },
}

/// A detour at work. Dropped, it is gone.
pub(crate) struct Userspace {
    netlink: Netlink,
    device: String,
    rules: Rules,
    clsact_is_ours: bool,
    tap: Arc<Tap>,
    tap_index: u32,
    link: Link,
    seed: Option<u64>,
    /// The TAP's count when counting began.
    overflowed_before: u64,
    worker: Option<Thread>,
}

/// The thread, and how it is told.
struct Thread {
    commands: Sender<Command>,
    wake: OwnedFd,
    handle: JoinHandle<io::Result<()>>,
}

impl Userspace {
    /// Impairs what leaves the interface, which is in the network namespace of the calling thread.
    pub(crate) fn start(device: &str, link: &Link, seed: Option<u64>) -> Result<Self, Error> {
        let mut netlink = Netlink::open().map_err(Error::Connect)?;
        let interface = find(&mut netlink, device)?;
        let (tap, _) = Tap::create(DEVICE).map_err(|error| match error.errno() {
            Errno::BUSY => Error::Taken,
            _ => Error::MakeTap(error),
        })?;
        tap.keep_super_packets(link.mode() == Mode::SuperPackets)
            .map_err(Error::MakeTap)?;
        let tap_index = set_up(&mut netlink, interface.mtu)?;
        let classifier = add_return(&mut netlink, tap_index, interface.index)?;
        let tap = Arc::new(tap);
        let worker = Thread::spawn(Arc::clone(&tap), links(link, seed)).map_err(Error::Start)?;
        let mut detour = Self {
            netlink,
            device: device.to_owned(),
            rules: Rules {
                interface: interface.index,
                parent: EGRESS,
                classifier,
            },
            clsact_is_ours: false,
            tap,
            tap_index,
            link: link.clone(),
            seed,
            overflowed_before: 0,
            worker: Some(worker),
        };
        // Redirects last: if anything fails before, packets still find their way.
        detour.take_over()?;
        detour.lead(link)?;
        kernel::clear(&mut detour.netlink, interface.index).map_err(Error::Connect)?;
        Ok(detour)
    }

    /// Other links from now on. What is on its way arrives as it was decided.
    ///
    /// Where nothing is impaired any more the TAP and the thread rest: to remove a device takes the kernel longer than all
    /// the rest.
    pub(crate) fn set(&mut self, link: &Link) -> Result<(), Error> {
        let keep = link.mode() == Mode::SuperPackets;
        if !keep {
            self.tap.keep_super_packets(false).map_err(Error::MakeTap)?;
        }
        self.tell(Command::Set(Box::new(links(link, self.seed))))?;
        // The answer comes after the links have been exchanged.
        self.report()?;
        if keep {
            self.tap.keep_super_packets(true).map_err(Error::MakeTap)?;
        }
        if link.impairs() && !self.link.impairs() {
            self.take_over()?;
        }
        self.lead(link)?;
        self.link = link.clone();
        self.overflowed_before = find(&mut self.netlink, DEVICE)?.tx_dropped;
        Ok(())
    }

    /// Counts from nought; nothing else changes.
    pub(crate) fn recount(&mut self) -> Result<(), Error> {
        self.tell(Command::Recount)?;
        // The answer comes after counting has begun.
        self.report()?;
        self.overflowed_before = find(&mut self.netlink, DEVICE)?.tx_dropped;
        Ok(())
    }

    /// How it is going since counting began.
    pub(crate) fn state(&mut self) -> Result<State, Error> {
        let report = self.report()?;
        let tap = find(&mut self.netlink, DEVICE)?;
        Ok(State {
            link: self.link.clone(),
            backend: Kind::Userspace,
            mode: self.link.mode(),
            traffic: report.tallies.into_iter().map(Traffic::Userspace).collect(),
            worker: Some(Worker {
                scheduling: report.scheduling,
                lateness: Lateness {
                    frames: report.lateness.len(),
                    p50_ns: report.lateness.value_at_percentile(50.0),
                    p99_ns: report.lateness.value_at_percentile(99.0),
                    max_ns: report.lateness.max(),
                },
                overflowed: tap.tx_dropped.saturating_sub(self.overflowed_before),
                unmatched: report.unmatched,
                refused: report.refused,
            }),
        })
    }

    /// Whether packets are still led here.
    pub(crate) fn verify(&mut self) -> Result<(), Error> {
        if self.link.impairs() && !self.filters(|rules, netlink| rules.catch(netlink))? {
            return Err(Error::Removed {
                device: self.device.clone(),
            });
        }
        Ok(())
    }

    /// Ends the detour; what is on its way is lost.
    pub(crate) fn remove(&mut self) -> Result<(), Error> {
        let Some(worker) = self.worker.take() else {
            return Ok(());
        };
        let removed = self.remove_rules();
        // Also if rules stay: then the link is closed, as it would be had the process been killed.
        worker.stop();
        removed
    }

    /// Ends the thread, and leaves redirects that lead nowhere.
    pub(crate) fn abandon(mut self) {
        if let Some(worker) = self.worker.take() {
            worker.stop();
        }
    }

    /// Makes the interface ready for redirects. Those of a predecessor stay, and keep the link closed.
    fn take_over(&mut self) -> Result<(), Error> {
        let added = self.netlink.add_clsact(self.rules.interface);
        let added = added.map_err(|source| Error::AddClsact {
            device: self.device.clone(),
            source,
        })?;
        let left_behind = self.filters(|rules, netlink| rules.ours(netlink))?;
        self.clsact_is_ours = added || !left_behind.is_empty();
        if !left_behind.is_empty() {
            tracing::warn!(
                device = self.device,
                "taking over the link of an emulator that was killed"
            );
        }
        self.filters(|rules, netlink| rules.set_passes(netlink, Some(DEVICE)))
    }

    /// Has exactly what is impaired make the detour.
    fn lead(&mut self, link: &Link) -> Result<(), Error> {
        if !link.impairs() {
            return self.remove_rules();
        }
        let to = self.tap_index;
        let peers = rules::impaired(link)
            .into_iter()
            .map(|(peer, _)| (peer, Then::Redirect { to }));
        self.filters(|rules, netlink| rules.set_peers(netlink, peers))
    }

    fn remove_rules(&mut self) -> Result<(), Error> {
        self.filters(|rules, netlink| rules.remove(netlink))?;
        if self.clsact_is_ours {
            let removed = remove_unused_clsact(&mut self.netlink, self.rules.interface);
            removed.map_err(|source| Error::RemoveClsact {
                device: self.device.clone(),
                source,
            })?;
        }
        Ok(())
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

    fn report(&mut self) -> Result<Report, Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.tell(Command::Report(sender))?;
        receiver.recv_timeout(ANSWER_TIMEOUT).map_err(|_| self.ended())
    }

    fn tell(&mut self, command: Command) -> Result<(), Error> {
        let told = self.worker.as_ref().is_some_and(|worker| worker.tell(command));
        if told { Ok(()) } else { Err(self.ended()) }
    }

    /// Why the thread does not answer.
    fn ended(&mut self) -> Error {
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
            tracing::warn!(device = self.device, %error, "failed to remove the impairment of a link");
        }
    }
}

impl fmt::Debug for Userspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Userspace")
            .field("device", &self.device)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

impl Thread {
    fn spawn(tap: Arc<Tap>, links: Links) -> io::Result<Self> {
        let (commands, received) = mpsc::channel();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let engine = Engine::new(tap, wake.try_clone()?, received, links);
        let handle = thread::Builder::new()
            .name("netem".to_owned())
            .spawn(move || engine.run())?;
        Ok(Self {
            commands,
            wake,
            handle,
        })
    }

    /// False if it has ended.
    fn tell(&self, command: Command) -> bool {
        self.commands.send(command).is_ok() && rustix::io::write(&self.wake, &1u64.to_ne_bytes()).is_ok()
    }

    fn stop(self) {
        self.tell(Command::Stop);
        // How it ended, if before, was to be seen in its state.
        let _ = self.handle.join();
    }
}

/// Links that have seen no packet. Other dice each time: repetitions that lose the same packets would be one.
fn links(link: &Link, seed: Option<u64>) -> Links {
    Links::new(link, seed.unwrap_or_else(rand::random))
}

/// Whether somebody's packets are to make a detour.
pub(crate) fn is_at(netlink: &mut Netlink, interface: u32) -> Result<bool, rules::Error> {
    Ok(!rules_of(interface).ours(netlink)?.is_empty())
}

/// To look at, or to remove.
fn rules_of(interface: u32) -> Rules {
    Rules {
        interface,
        parent: EGRESS,
        classifier: Classifier::U32, // for adding, and nothing is added
    }
}

/// Removes what an emulator that was killed has left behind; true if it did.
pub(crate) fn clear(netlink: &mut Netlink, interface: u32) -> Result<bool, rules::Error> {
    let rules = rules_of(interface);
    if rules.ours(netlink)?.is_empty() {
        return Ok(false);
    }
    rules.remove(netlink)?;
    remove_unused_clsact(netlink, interface).map_err(rules::Error::Remove)?;
    Ok(true)
}

/// Others may have put filters of their own beside ours.
fn remove_unused_clsact(netlink: &mut Netlink, interface: u32) -> Result<(), netlink::Error> {
    let unused =
        netlink.filters(interface, EGRESS)?.is_empty() && netlink.filters(interface, INGRESS)?.is_empty();
    if unused {
        netlink.remove_clsact(interface)
    } else {
        Ok(())
    }
}

fn find(netlink: &mut Netlink, name: &str) -> Result<Device, Error> {
    netlink.device(name).map_err(|source| Error::FindInterface {
        name: name.to_owned(),
        source,
    })
}

/// Readies the TAP; returns its index.
fn set_up(netlink: &mut Netlink, mtu: u32) -> Result<u32, Error> {
    let index = find(netlink, DEVICE)?.index;
    // Without an address of its own it has nothing to say on the link. Refused where the kernel has no IPv6.
    let _ = netlink.execute(RouteNetlinkMessage::SetLink(without_addresses(index)), 0);
    // Full means lost: nothing may wait in front of the ring.
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

/// Leads what the thread writes to the interface; returns the kind of filters that this kernel has.
pub(crate) fn add_return(netlink: &mut Netlink, tap: u32, interface: u32) -> Result<Classifier, Error> {
    netlink.add_clsact(tap).map_err(|source| Error::AddClsact {
        device: DEVICE.to_owned(),
        source,
    })?;
    let filter = Filter {
        parent: INGRESS,
        priority: 1,
        matches: Match::Everything,
        then: Then::Redirect { to: interface },
    };
    netlink
        .add_first(tap, &filter)
        .map_err(|source| Error::SetFilters {
            device: DEVICE.to_owned(),
            source: rules::Error::Add(source),
        })
}
