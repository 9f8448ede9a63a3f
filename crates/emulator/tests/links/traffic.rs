//! Datagrams of these tests, counted and timed without the crate under test.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::lab::Lab;

const READ_TIMEOUT: Duration = Duration::from_millis(20);
/// After this number of reads in a row without a packet, no more are expected: 400 ms, enough for packets
/// behind the delay. A timeout alone would end before packets arrive that waited while the machine paused.
const SILENT_READS: u32 = 20;
const RECEIVE_BUFFER: usize = 64 << 20;
/// Ethernet, IPv4 and UDP, around the payload of a datagram.
pub(crate) const HEADERS: usize = 14 + 20 + 8;

/// Gives the calling thread priority, if permitted: the link is measured, not the competition for a core.
pub(crate) fn go_first() {
    // Below the emulator's own.
    let parameters = libc::sched_param { sched_priority: 5 };
    // SAFETY: 0 is the calling thread, and the parameters outlive the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
}

/// A socket whose reads end soon. It has room for what arrives while the machine pauses: packets that its
/// reader is too slow for must not look like loss on the link.
fn receiving(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).unwrap();
    socket
}

/// Sends every datagram back.
pub(crate) struct Echo {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    pub(crate) fn start(lab: &Lab, address: IpAddr) -> Self {
        let socket = lab.far.run(|| receiving((address, 0).into()));
        let address = socket.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            go_first();
            let mut buffer = [0; 2048];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..length], from);
                }
            }
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Round trips in milliseconds, in the order of sending; `None` for lost datagrams.
pub(crate) fn round_trips(lab: &Lab, echo: &Echo, count: usize, interval: Duration) -> Vec<Option<f64>> {
    let any: IpAddr = match echo.address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = lab.near.run(|| receiving((any, 0).into()));
    socket.connect(echo.address).unwrap();
    let begin = Instant::now();
    let all_sent = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            go_first();
            let mut round_trips = vec![None; count];
            let mut buffer = [0; 64];
            let (mut answered, mut silent) = (0, 0);
            while answered < count && silent < SILENT_READS {
                if let Ok(16) = socket.recv(&mut buffer) {
                    let now = begin.elapsed().as_nanos() as u64;
                    let word = |at: usize| u64::from_be_bytes(buffer[at..at + 8].try_into().unwrap());
                    let round_trip = &mut round_trips[word(0) as usize];
                    answered += usize::from(round_trip.is_none());
                    round_trip.get_or_insert((now - word(8)) as f64 / 1e6);
                    silent = 0;
                } else if all_sent.load(Ordering::Relaxed) {
                    silent += 1;
                }
            }
            round_trips
        });
        let sender = scope.spawn(|| {
            go_first();
            for number in 0..count {
                let due = begin + interval * number as u32;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let mut datagram = [0; 16];
                datagram[..8].copy_from_slice(&(number as u64).to_be_bytes());
                datagram[8..].copy_from_slice(&(begin.elapsed().as_nanos() as u64).to_be_bytes());
                let _ = socket.send(&datagram);
            }
        });
        sender.join().unwrap();
        all_sent.store(true, Ordering::Relaxed);
        receiver.join().unwrap()
    })
}

/// What arrived of a stream of datagrams.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Numbers in the order of arrival, with repetitions.
    pub numbers: Vec<u32>,
    /// The number of datagrams with a wrong payload.
    pub wrong: usize,
    /// The bits per second of arrival in whole Ethernet frames, from the first to the last.
    pub bits_per_second: f64,
    /// The bits per second of sending. A link never holds a sender up: if a machine sends too slowly, it has
    /// no time for more.
    pub sent_bits_per_second: f64,
    /// When the sender had sent each of its packets, since the beginning.
    pub sent_at: Vec<Duration>,
}

impl Arrivals {
    /// Datagrams that came at least once.
    pub(crate) fn distinct(&self) -> usize {
        let mut numbers = self.numbers.clone();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len()
    }

    /// The bits per second at which a link of this rate passes on what was sent. It is less than the rate if
    /// the sender of a busy machine paused for longer than packets waited.
    pub(crate) fn passed_on(&self, rate: f64) -> f64 {
        let all = self.sent_bits_per_second * self.sent_at.last().map_or(0.0, Duration::as_secs_f64);
        let each = all / self.sent_at.len() as f64;
        let mut passed = vec![];
        for sent in &self.sent_at {
            let before = passed.last().copied().unwrap_or_default();
            passed.push(sent.as_secs_f64().max(before) + each / rate);
        }
        match passed[..] {
            [first, .., last] => (all - each) / (last - first),
            _ => f64::NAN,
        }
    }
}

#[test]
fn a_link_passes_nothing_on_while_the_sender_pauses() {
    let sent = |seconds: [u64; 3]| Arrivals {
        sent_bits_per_second: 30.0 / seconds[2] as f64,
        sent_at: seconds.map(Duration::from_secs).to_vec(),
        ..Arrivals::default()
    };
    assert_eq!(sent([1, 1, 1]).passed_on(5.0), 5.0);
    assert_eq!(sent([1, 2, 11]).passed_on(5.0), 2.0);
}

/// Sends numbered datagrams over IPv4, some in every millisecond, and takes what comes.
pub(crate) fn stream(lab: &Lab, to: IpAddr, count: u32, bytes: usize, per_millisecond: u32) -> Arrivals {
    stream_merged(lab, to, count, bytes, per_millisecond, 1)
}

/// Datagrams, several of them in each super-packet, which the kernel cuts where it must.
pub(crate) fn stream_merged(
    lab: &Lab,
    to: IpAddr,
    count: u32,
    bytes: usize,
    per_millisecond: u32,
    merged: u32,
) -> Arrivals {
    let receiver = lab.far.run(|| receiving((to, 0).into()));
    let address = receiver.local_addr().unwrap();
    let sender = lab.near.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    sender.connect(address).unwrap();
    if merged > 1 {
        cut_into(&sender, bytes);
    }
    let all_sent = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, bytes, &all_sent));
        let begin = Instant::now();
        let mut sent_at = vec![];
        for first in (0..count).step_by(merged as usize) {
            let due = begin + Duration::from_millis((first / per_millisecond).into());
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let datagrams = (first..first + merged).flat_map(|number| payload(number, bytes));
            let datagrams: Vec<u8> = datagrams.collect();
            while sender.send(&datagrams).is_err() {
                thread::yield_now(); // a full queue of the device
            }
            sent_at.push(begin.elapsed());
        }
        let sending = sent_at.last().copied().unwrap_or_default();
        all_sent.store(true, Ordering::Relaxed);
        Arrivals {
            sent_bits_per_second: bits_per_second(count as usize, bytes, sending),
            sent_at,
            ..receiving.join().unwrap()
        }
    })
}

/// The bits per second of these datagrams, in whole Ethernet frames.
fn bits_per_second(datagrams: usize, bytes: usize, time: Duration) -> f64 {
    (datagrams * (bytes + HEADERS) * 8) as f64 / time.as_secs_f64()
}

/// What is sent in one call is a super-packet of datagrams of this size.
fn cut_into(socket: &UdpSocket, bytes: usize) {
    let size = libc::c_int::try_from(bytes).unwrap();
    // SAFETY: the socket is open, and the option's value is an integer that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            size_of_val(&size) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

fn receive(socket: &UdpSocket, bytes: usize, all_sent: &AtomicBool) -> Arrivals {
    let mut arrivals = Arrivals::default();
    let mut times: Option<(Instant, Instant)> = None;
    let mut silent = 0;
    let mut buffer = [0; 2048];
    while silent < SILENT_READS {
        if let Ok(length) = socket.recv(&mut buffer) {
            let now = Instant::now();
            times = Some((times.map_or(now, |(first, _)| first), now));
            silent = 0;
            let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
            arrivals.numbers.push(number);
            arrivals.wrong += usize::from(buffer[..length] != payload(number, bytes));
        } else if all_sent.load(Ordering::Relaxed) {
            silent += 1;
        }
    }
    if let Some((first, last)) = times {
        arrivals.bits_per_second = bits_per_second(arrivals.numbers.len() - 1, bytes, last - first);
    }
    arrivals
}

fn payload(number: u32, bytes: usize) -> Vec<u8> {
    let mut payload = vec![number as u8; bytes];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload
}

/// Bytes per second that a TCP connection carries after its start, as its receiver sees them.
pub(crate) fn tcp_bytes_per_second(lab: &Lab, to: IpAddr, warm_up: Duration, time: Duration) -> f64 {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    let listener = lab.far.run(|| TcpListener::bind((to, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = vec![0; 1 << 20];
            let accepted = Instant::now();
            let (mut begin, mut bytes) = (None, 0);
            loop {
                let length = stream.read(&mut buffer).unwrap();
                assert!(length > 0, "the connection ended early");
                let now = Instant::now();
                match begin {
                    None if now - accepted >= warm_up => begin = Some(now),
                    None => {}
                    Some(begin) => {
                        bytes += length;
                        if now - begin >= time {
                            return bytes as f64 / (now - begin).as_secs_f64();
                        }
                    }
                }
            }
        });
        let mut stream = lab.near.run(|| TcpStream::connect(address)).unwrap();
        let chunk = vec![0; 256 << 10];
        // Until the receiver has seen enough and closes.
        while stream.write_all(&chunk).is_ok() {}
        receiving.join().unwrap()
    })
}
