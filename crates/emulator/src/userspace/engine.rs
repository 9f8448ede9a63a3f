//! The thread that holds frames: it reads them, decides their fate, and writes them when they are due.

mod alarm;

use std::{
    collections::HashMap,
    fmt, io,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender},
    },
};

use hdrhistogram::Histogram;
use perfrun_link::{
    Scheduling,
    fate::{Departure, DueQueue, ImpairedRoute, Nanos, Packet, PacketCounts, Random},
    route::{OutgoingLinks, Prefix},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    time::{ClockId, Timespec, clock_gettime},
};

use self::alarm::Alarm;
use crate::{frame, realtime, tap::Tap};

/// The number of frames read or written before the other direction gets its turn.
const BATCH: usize = 64;

/// From this size on, a frame keeps the buffer that it was read into, and is not copied. Smaller frames would
/// waste most of the buffer.
const KEEP_BUFFER_MIN: usize = 16 << 10;

/// The number of buffers kept for later frames.
const SPARE_BUFFERS_MAX: usize = 1024;

/// The largest lateness that is counted, in nanoseconds.
const LATENESS_MAX: u64 = 60_000_000_000;

/// The significant digits of a lateness: two are enough to judge a percentile.
const LATENESS_DIGITS: u8 = 2;

/// No frames and no commands.
const NOTHING: (bool, bool) = (false, false);

/// A command to the thread.
pub(super) enum Command {
    /// Replaces the routes. Packets in flight arrive as decided.
    Set(Box<ImpairedRoutes>),
    /// Resets the counts.
    ResetCounts,
    /// Starts the random decisions of this seed.
    Reseed(u64),
    /// Requests a report.
    ReadCounts(SyncSender<EngineCounts>),
    /// Drops the frames that it holds, and ends.
    Stop,
}

/// Routes, ready to decide about packets, and the peers that each leads to.
pub(super) struct ImpairedRoutes {
    impaired: Vec<ImpairedRoute>,
    by_address: HashMap<IpAddr, usize>,
    /// Longer prefixes first.
    by_prefix: Vec<(Prefix, usize)>,
}

impl ImpairedRoutes {
    pub(super) fn new(links: &OutgoingLinks, seed: u64) -> Self {
        let impaired = links
            .routes()
            .iter()
            .zip(0..)
            .map(|(route, number)| ImpairedRoute::new(&route.impairment, random(seed, number)))
            .collect();
        let (hosts, by_prefix): (Vec<_>, _) = links.peers().into_iter().partition(|(peer, _)| peer.is_host());
        Self {
            impaired,
            by_address: hosts
                .into_iter()
                .map(|(peer, route)| (peer.address(), route))
                .collect(),
            by_prefix,
        }
    }

    fn route_towards(&self, address: IpAddr) -> Option<usize> {
        let by_prefix = || {
            let mut peers = self.by_prefix.iter();
            peers
                .find(|(peer, _)| peer.contains(address))
                .map(|(_, route)| *route)
        };
        self.by_address.get(&address).copied().or_else(by_prefix)
    }
}

/// The random numbers of a route.
fn random(seed: u64, route: u64) -> Random {
    Random::new(seed.wrapping_add(route))
}

/// The counts since counting began.
pub(super) struct EngineCounts {
    pub(super) counts: Vec<PacketCounts>,
    pub(super) unmatched: u64,
    pub(super) refused: u64,
    pub(super) lateness: Histogram<u64>,
    pub(super) scheduling: Scheduling,
    /// CPU time of the thread.
    pub(super) cpu: Nanos,
}

/// A frame in flight.
struct HeldFrame {
    /// The buffer, which may be longer than the frame.
    buffer: Box<[u8]>,
    length: usize,
    packet: Packet,
    /// The number of the route. `None` for frames to peers that are not impaired.
    route: Option<usize>,
    /// The generation of the routes when the frame arrived.
    generation: u64,
}

pub(super) struct Engine {
    tap: Arc<Tap>,
    wake: OwnedFd,
    commands: Receiver<Command>,
    scheduling: Scheduling,
    routes: ImpairedRoutes,
    generation: u64,
    queue: DueQueue<HeldFrame>,
    alarm: Alarm,
    /// The buffer for the next frame.
    buffer: Box<[u8]>,
    spare_buffers: Vec<Box<[u8]>>,
    unmatched: u64,
    refused: u64,
    lateness: Histogram<u64>,
    /// CPU time of the thread when counting began.
    cpu_before: Nanos,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("tap", &self.tap)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Makes an engine. `wake` becomes readable when there are commands.
    pub(super) fn new(
        tap: Arc<Tap>,
        wake: OwnedFd,
        commands: Receiver<Command>,
        routes: ImpairedRoutes,
    ) -> Self {
        Self {
            tap,
            wake,
            commands,
            scheduling: Scheduling::Ordinary,
            routes,
            generation: 0,
            queue: DueQueue::default(),
            alarm: Alarm::default(),
            buffer: new_buffer(),
            spare_buffers: Vec::new(),
            unmatched: 0,
            refused: 0,
            lateness: no_lateness(),
            cpu_before: 0,
        }
    }

    /// Serves the links until the request to stop, or until the TAP is gone.
    pub(super) fn run(mut self) -> io::Result<()> {
        self.scheduling = realtime::acquire();
        loop {
            self.write_due()?;
            let (readable, woken) = self.wait()?;
            if woken && self.execute_commands()? {
                return Ok(());
            }
            if readable {
                self.read()?;
            }
        }
    }

    /// Waits until a frame arrives, a frame is due, or there are commands.
    fn wait(&mut self) -> io::Result<(bool, bool)> {
        let Some(due) = self.queue.next_due() else {
            return self.sleep(None);
        };
        let began = now();
        let alarm = self.alarm.before(due, began);
        let mut happened = self.sleep(Some(alarm.saturating_sub(began)))?;
        let woke = now();
        // The thread may also have been woken by a signal, long before the frame is due.
        if happened != NOTHING || woke < alarm {
            return Ok(happened);
        }
        if alarm > began {
            self.alarm.add_lateness(woke - alarm);
        }
        while happened == NOTHING && now() < due {
            happened = self.sleep(Some(0))?;
        }
        Ok(happened)
    }

    /// Sleeps until a frame arrives or there are commands, for `at_most` nanoseconds.
    fn sleep(&self, at_most: Option<Nanos>) -> io::Result<(bool, bool)> {
        let timeout = at_most.map(|nanoseconds| Timespec {
            tv_sec: (nanoseconds / 1_000_000_000) as i64,
            tv_nsec: (nanoseconds % 1_000_000_000) as _,
        });
        let mut fds = [
            PollFd::new(&*self.tap, PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => return Ok(NOTHING),
            polled => polled?,
        };
        // Errors also make a descriptor readable: reading reports them.
        let [readable, woken] = fds.map(|fd| !fd.revents().is_empty());
        Ok((readable, woken))
    }

    /// Carries out the commands. Returns true if the thread must end.
    fn execute_commands(&mut self) -> io::Result<bool> {
        let mut count = [0; 8];
        match rustix::io::read(self.wake.as_fd(), &mut count) {
            Err(Errno::AGAIN) => {}
            read => {
                read?;
            }
        }
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Set(routes) => {
                    self.routes = *routes;
                    self.generation += 1;
                    self.reset_counts();
                }
                Command::ResetCounts => self.reset_counts(),
                Command::Reseed(seed) => {
                    for (state, number) in self.routes.impaired.iter_mut().zip(0..) {
                        state.reseed(random(seed, number));
                    }
                }
                Command::ReadCounts(to) => {
                    // The requester may have stopped waiting.
                    let _ = to.try_send(EngineCounts {
                        counts: self.routes.impaired.iter().map(ImpairedRoute::counts).collect(),
                        unmatched: self.unmatched,
                        refused: self.refused,
                        lateness: self.lateness.clone(),
                        scheduling: self.scheduling,
                        cpu: cpu() - self.cpu_before,
                    });
                }
                Command::Stop => return Ok(true),
            }
        }
        Ok(false)
    }

    fn reset_counts(&mut self) {
        self.routes
            .impaired
            .iter_mut()
            .for_each(ImpairedRoute::reset_counts);
        (self.unmatched, self.refused) = (0, 0);
        self.lateness.reset();
        self.cpu_before = cpu();
    }

    fn read(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            let length = match self.tap.read(&mut self.buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.accept(length, now());
        }
        Ok(())
    }

    /// Decides about the frame in the buffer.
    fn accept(&mut self, length: usize, now: Nanos) {
        let frame = &self.buffer[..length];
        // The kernel sends multicast through the TAP of its own accord, which must not reach the link.
        let Some(destination) = frame::destination(frame).filter(|address| !address.is_multicast()) else {
            return;
        };
        let packet = frame::measure(frame);
        let Some(route) = self.routes.route_towards(destination) else {
            // Filters and links change one after the other; a peer that was just removed is not impaired.
            self.unmatched += u64::from(packet.packets);
            let buffer = frame.into();
            self.hold(buffer, length, packet, None, now);
            return;
        };
        let [copy, original] = self.routes.impaired[route].decide(packet, now);
        if let Some(Departure { due, corrupt }) = copy {
            let mut buffer: Box<[u8]> = self.buffer[..length].into();
            if let Some(random) = corrupt {
                frame::corrupt(&mut buffer, random);
            }
            self.hold(buffer, length, packet, Some(route), due);
        }
        if let Some(Departure { due, corrupt }) = original {
            if let Some(random) = corrupt {
                frame::corrupt(&mut self.buffer[..length], random);
            }
            let buffer = self.take(length);
            self.hold(buffer, length, packet, Some(route), due);
        }
    }

    /// Takes the frame out of the buffer, or the buffer with the frame.
    fn take(&mut self, length: usize) -> Box<[u8]> {
        if length < KEEP_BUFFER_MIN {
            return self.buffer[..length].into();
        }
        let next = self.spare_buffers.pop().unwrap_or_else(new_buffer);
        std::mem::replace(&mut self.buffer, next)
    }

    fn hold(&mut self, buffer: Box<[u8]>, length: usize, packet: Packet, route: Option<usize>, due: Nanos) {
        let held = HeldFrame {
            buffer,
            length,
            packet,
            route,
            generation: self.generation,
        };
        self.queue.push(due, held);
    }

    fn write_due(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            let now = now();
            let Some((due, held)) = self.queue.pop_due(now) else {
                break;
            };
            let written = match self.tap.write(&held.buffer[..held.length]) {
                Ok(()) => true,
                // The device is gone, or another program has set it down.
                Err(error @ (Errno::BADFD | Errno::IO | Errno::NODEV)) => return Err(error.into()),
                Err(_) => false,
            };
            if held.buffer.len() == frame::LARGEST && self.spare_buffers.len() < SPARE_BUFFERS_MAX {
                self.spare_buffers.push(held.buffer);
            }
            if held.generation != self.generation {
                continue;
            }
            self.refused += u64::from(!written);
            // A frame that passes unimpaired immediately has no due time to compare with.
            if let Some(route) = held.route {
                self.lateness.saturating_record(now - due);
                let state = &mut self.routes.impaired[route];
                if written {
                    state.release(held.packet);
                } else {
                    state.discard(held.packet);
                }
            }
        }
        Ok(())
    }
}

fn new_buffer() -> Box<[u8]> {
    vec![0; frame::LARGEST].into_boxed_slice()
}

fn no_lateness() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENESS_MAX, LATENESS_DIGITS).expect("the bounds are valid")
}

fn now() -> Nanos {
    read(ClockId::Monotonic)
}

/// CPU time of the calling thread.
fn cpu() -> Nanos {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
