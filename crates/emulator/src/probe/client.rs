//! The client of a probe: the end that measures.

use std::{io, net::SocketAddr, time::Duration};

use perfrun_link::probe::{
    Delivery, Fill, HEADER_BYTES, InvalidPlan, Measurement, ProbePlan, QUERIES, Rate, RoundTrip,
};
use thiserror::Error;
use tokio::{
    net::UdpSocket,
    time::{Instant, MissedTickBehavior, interval, timeout_at},
};

use super::{
    server::{DATAGRAM_MAX, enlarge},
    wire::{Counts, Datagram, LENGTH, Message, NumberSet},
};

/// The interval at which datagrams that fill the link are sent. Their number follows from the time, so that
/// lateness is made up for.
const FILL_TICK: Duration = Duration::from_millis(1);

/// The shortest time between two requests of the server's counts. On slow links it is that between echoes.
const QUERY_PAUSE: Duration = Duration::from_millis(10);

/// Why a link could not be measured.
#[derive(Debug, Error)]
pub enum Error {
    /// The plan, which may come from another process, cannot be carried out.
    #[error("unable to carry out the probe's plan")]
    Plan(#[source] InvalidPlan),
    /// There is no route, or the addresses are of different families.
    #[error("failed to connect the probe to {server}")]
    Connect {
        /// The address of the server.
        server: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The socket failed.
    #[error("failed to send or receive datagrams of the probe")]
    Talk(#[source] io::Error),
    /// The server does not run, or everything is lost.
    #[error("no reply from {0}: the other peer's probe does not run, or the link lets too little pass")]
    NoAnswer(SocketAddr),
}

/// Measures the link to a peer that serves. `socket` must be bound to the address that the measured traffic
/// will come from.
///
/// A plan without echoes measures only the rate.
pub async fn measure(socket: UdpSocket, server: SocketAddr, plan: &ProbePlan) -> Result<Measurement, Error> {
    plan.check().map_err(Error::Plan)?;
    let connected = socket.connect(server).await;
    connected.map_err(|source| Error::Connect { server, source })?;
    enlarge(&socket);
    let mut client = Client {
        socket,
        session: rand::random(),
        start: Instant::now(),
        answered: NumberSet::default(),
        round_trips: Vec::new(),
        reported: None,
    };
    let offered = client.echo_and_fill(plan).await.map_err(Error::Talk)?;
    // If every echo has come back, every echo has arrived. This includes a plan without echoes.
    let counts = if offered.is_none() && client.answered.count() == plan.echoes {
        Counts {
            echoes: plan.echoes,
            ..Counts::default()
        }
    } else {
        let counts = client.query(plan).await.map_err(Error::Talk)?;
        counts.ok_or(Error::NoAnswer(server))?
    };
    let rate = offered.map(|offered_bits_per_second| Rate {
        offered_bits_per_second,
        received_bits_per_second: counts.fill_bits_per_second(),
    });
    let answered = client.answered.count();
    // An echo that came back has arrived, even if it did so after the server had counted.
    let echoed = counts.echoes.max(answered);
    Ok(Measurement {
        round_trip: quantiles(client.round_trips),
        forward: Delivery {
            sent: plan.echoes,
            received: echoed,
        },
        backward: Delivery {
            sent: echoed,
            received: answered,
        },
        rate,
    })
}

struct Client {
    socket: UdpSocket,
    session: u64,
    start: Instant,
    answered: NumberSet,
    round_trips: Vec<u64>,
    reported: Option<Counts>,
}

impl Client {
    /// Returns the bits per second that were sent to fill the link. `None` if it is not filled.
    async fn echo_and_fill(&mut self, plan: &ProbePlan) -> io::Result<Option<u64>> {
        let sent = self.echo(plan).await?;
        let Some(fill) = &plan.fill else {
            self.wait(plan, sent, true).await?;
            return Ok(None);
        };
        let is_early = plan.is_filled_early();
        if !is_early {
            self.wait(plan, sent, false).await?;
        }
        let offered = self.fill(fill).await?;
        if is_early {
            self.wait(plan, sent, true).await?;
        }
        Ok(Some(offered))
    }

    /// Sends echoes, and reads replies in the meantime. Returns when the last echo was sent.
    async fn echo(&mut self, plan: &ProbePlan) -> io::Result<Instant> {
        if plan.echoes == 0 {
            return Ok(Instant::now());
        }
        let mut ticks = interval(plan.echo_interval);
        // Late echoes are sent late, not together, and the following ones on time.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut sent = 0;
        while sent < plan.echoes {
            tokio::select! {
                received = self.socket.readable() => {
                    received?;
                    self.take_all()?;
                }
                _ = ticks.tick() => {
                    for _ in 0..plan.echoes_at_once.min(plan.echoes - sent) {
                        let clock = self.clock();
                        self.send(sent, Message::Echo { clock }, LENGTH).await?;
                        sent += 1;
                    }
                }
            }
        }
        Ok(Instant::now())
    }

    /// Waits until all echoes have come back, or until the patience ends; the last echo was sent at `sent`.
    /// If nothing else will be sent, it requests the server's counts in the meantime, but only after every
    /// echo had its full patience to reach the server.
    async fn wait(&mut self, plan: &ProbePlan, sent: Instant, is_all_sent: bool) -> io::Result<()> {
        let deadline = sent + plan.patience;
        let mut is_queried = !is_all_sent;
        while self.answered.count() < plan.echoes {
            let shortest = self.round_trips.iter().min().copied().unwrap_or_default();
            let query_at = sent + plan.patience.saturating_sub(Duration::from_nanos(shortest));
            let until = if is_queried { deadline } else { query_at };
            match timeout_at(until, self.socket.readable()).await {
                Ok(readable) => {
                    readable?;
                    self.take_all()?;
                }
                Err(_) if is_queried => break,
                Err(_) => {
                    self.send(0, Message::Query, LENGTH).await?;
                    is_queried = true;
                }
            }
        }
        Ok(())
    }

    /// Fills the link, and reads replies in the meantime. Returns the bits per second sent after the first
    /// datagram, as the server counts arrivals.
    async fn fill(&mut self, fill: &Fill) -> io::Result<u64> {
        let begin = Instant::now();
        let due = fill.due(fill.duration);
        let mut sent = 0;
        loop {
            let now_due = fill.due(begin.elapsed());
            while sent < now_due {
                // The server does not use the number, which would overflow.
                self.send(0, Message::Fill, fill.payload_bytes).await?;
                sent += 1;
            }
            if sent >= due {
                break;
            }
            let next = Instant::now() + FILL_TICK;
            while let Ok(readable) = timeout_at(next, self.socket.readable()).await {
                readable?;
                self.take_all()?;
            }
        }
        let bits = (sent - 1) * (fill.payload_bytes as u64 + HEADER_BYTES) * 8;
        Ok((bits as f64 / begin.elapsed().as_secs_f64()) as u64)
    }

    /// Requests the server's counts. `None` if it does not reply.
    async fn query(&mut self, plan: &ProbePlan) -> io::Result<Option<Counts>> {
        let end = Instant::now() + plan.patience * QUERIES;
        let pause = plan.echo_interval.max(QUERY_PAUSE);
        // The first reply is enough: a later one counts no less.
        while self.reported.is_none() && Instant::now() < end {
            self.send(0, Message::Query, LENGTH).await?;
            let next = end.min(Instant::now() + pause);
            while self.reported.is_none()
                && let Ok(readable) = timeout_at(next, self.socket.readable()).await
            {
                readable?;
                self.take_all()?;
            }
        }
        Ok(self.reported)
    }

    async fn send(&self, number: u32, message: Message, length: usize) -> io::Result<()> {
        let datagram = Datagram {
            session: self.session,
            number,
            message,
        };
        let mut bytes = [0; 1500];
        bytes[..LENGTH].copy_from_slice(&datagram.encode());
        match self.socket.send(&bytes[..length]).await {
            // A server that does not run yet, or a device that is full: both look like loss, as they would to
            // any program.
            Err(error) if is_loss(&error) => Ok(()),
            sent => sent.map(drop),
        }
    }

    /// Reads everything that has arrived.
    fn take_all(&mut self) -> io::Result<()> {
        let mut buffer = [0; DATAGRAM_MAX];
        loop {
            let length = match self.socket.try_recv(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_loss(&error) => continue,
                Err(error) => return Err(error),
            };
            let now = self.clock();
            let datagram =
                Datagram::decode(&buffer[..length]).filter(|datagram| datagram.session == self.session);
            match datagram.map(|datagram| (datagram.number, datagram.message)) {
                Some((number, Message::Echoed { clock })) if self.answered.insert(number) => {
                    self.round_trips.push(now.saturating_sub(clock));
                }
                Some((_, Message::Report(counts))) => self.reported = Some(counts),
                _ => {}
            }
        }
    }

    fn clock(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Counts {
    fn fill_bits_per_second(&self) -> u64 {
        match self.fill_nanoseconds {
            0 => 0,
            nanoseconds => (self.fill_bytes as f64 * 8e9 / nanoseconds as f64) as u64,
        }
    }
}

fn is_loss(error: &io::Error) -> bool {
    let full = rustix::io::Errno::NOBUFS;
    error.kind() == io::ErrorKind::ConnectionRefused || error.raw_os_error() == Some(full.raw_os_error())
}

fn quantiles(mut round_trips: Vec<u64>) -> Option<RoundTrip> {
    round_trips.sort_unstable();
    let at = |percent: usize| {
        round_trips.get((round_trips.len() * percent / 100).min(round_trips.len().saturating_sub(1)))
    };
    Some(RoundTrip {
        min_ns: *round_trips.first()?,
        p50_ns: *at(50)?,
        p99_ns: *at(99)?,
    })
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU64, sync::Arc};

    use perfrun_link::Impairment;
    use tokio::time::{sleep, timeout};

    use super::{super::serve, *};

    async fn measured(plan: &ProbePlan) -> Result<Measurement, Error> {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        tokio::select! {
            measured = measure(client, address, plan) => measured,
            ended = serve(server) => panic!("{ended:?}"),
        }
    }

    #[tokio::test]
    async fn without_echoes_only_the_rate_is_measured() {
        let limited = Impairment {
            rate_bits_per_second: NonZeroU64::new(20_000_000),
            ..Impairment::default()
        };
        let plan = ProbePlan::with_echo_time(&limited, &Impairment::default(), Duration::from_millis(200));
        let both = measured(&plan).await.unwrap();
        assert!(both.round_trip.is_some() && both.rate.is_some(), "{both:?}");
        let only_rate = ProbePlan {
            echoes: 0,
            patience: Duration::from_secs(120),
            ..plan
        };
        let measured = timeout(Duration::from_secs(60), measured(&only_rate)).await;
        let measured = measured
            .expect("nothing waits for replies that do not come")
            .unwrap();
        let rate = measured.rate.unwrap();
        assert!(
            rate.offered_bits_per_second > 0 && rate.received_bits_per_second > 0,
            "{rate:?}"
        );
        let nothing = Delivery { sent: 0, received: 0 };
        assert_eq!(
            (measured.round_trip, measured.forward, measured.backward),
            (None, nothing, nothing)
        );
    }

    #[tokio::test]
    async fn counts_are_not_requested_if_nothing_was_sent() {
        let none = Impairment::default();
        let nothing = ProbePlan {
            echoes: 0,
            ..ProbePlan::new(&none, &none)
        };
        let nobody = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let measured = measure(client, nobody.local_addr().unwrap(), &nothing).await;
        let measured = measured.unwrap();
        assert_eq!((measured.round_trip, measured.rate), (None, None));
    }

    #[tokio::test]
    async fn counts_are_requested_until_a_reply_comes_over_a_link_that_loses_nearly_everything() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let none = Impairment::default();
        let plan = ProbePlan {
            patience: Duration::from_millis(50),
            ..ProbePlan::with_echo_time(&none, &none, Duration::from_millis(10))
        };
        let serve = async {
            let (mut buffer, mut queries) = ([0; 2048], 0);
            loop {
                let (length, from) = server.recv_from(&mut buffer).await.unwrap();
                let datagram = Datagram::decode(&buffer[..length]).unwrap();
                queries += u32::from(matches!(datagram.message, Message::Query));
                // More than one for each time that the client is patient.
                if queries > QUERIES + 1 {
                    let message = Message::Report(Counts::default());
                    let answer = Datagram { message, ..datagram };
                    server.send_to(&answer.encode(), from).await.unwrap();
                }
            }
        };
        let measured: Measurement = tokio::select! {
            measured = measure(client, address, &plan) => measured.unwrap(),
            () = serve => unreachable!("it never ends"),
        };
        let lost = Delivery {
            sent: plan.echoes,
            received: 0,
        };
        assert_eq!((measured.round_trip, measured.forward), (None, lost));
    }

    /// What the server at the end of a long link saw.
    #[derive(Default)]
    struct Seen {
        /// When it received each echo that it answered, and the last of all.
        answered: Vec<Instant>,
        last: Option<Instant>,
        /// When it received the first query.
        queried: Option<Instant>,
        /// When it received the first and the last datagram that fills the link.
        filled: Option<(Instant, Instant)>,
    }

    /// Half of the echoes arrive, and all replies take `way`.
    async fn over_a_long_link(plan: &ProbePlan, way: Duration) -> (Measurement, Seen) {
        let server = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let address = server.local_addr().unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let half = plan.echoes / 2;
        let mut counts = Counts {
            echoes: half,
            fill_nanoseconds: 1_000_000_000,
            ..Counts::default()
        };
        let mut seen = Seen::default();
        let serve = async {
            let mut buffer = [0; 2048];
            loop {
                let (length, from) = server.recv_from(&mut buffer).await.unwrap();
                let now = Instant::now();
                let datagram = Datagram::decode(&buffer[..length]).unwrap();
                let message = match datagram.message {
                    Message::Echo { clock } => {
                        seen.last = Some(now);
                        if datagram.number >= half {
                            continue;
                        }
                        seen.answered.push(now);
                        Message::Echoed { clock }
                    }
                    Message::Query => {
                        seen.queried.get_or_insert(now);
                        Message::Report(counts)
                    }
                    Message::Fill => {
                        counts.fill_bytes += length as u64;
                        let (first, _) = seen.filled.unwrap_or((now, now));
                        seen.filled = Some((first, now));
                        continue;
                    }
                    _ => continue,
                };
                let server = Arc::clone(&server);
                tokio::spawn(async move {
                    sleep(way).await;
                    let answer = Datagram { message, ..datagram };
                    server.send_to(&answer.encode(), from).await.unwrap();
                });
            }
        };
        let measured = tokio::select! {
            measured = measure(client, address, plan) => measured.unwrap(),
            () = serve => unreachable!("it never ends"),
        };
        let delivery = |sent| Delivery { sent, received: half };
        assert_eq!(
            (measured.forward, measured.backward),
            (delivery(plan.echoes), delivery(half))
        );
        (measured, seen)
    }

    #[tokio::test]
    async fn the_count_is_queried_for_while_echoes_may_still_come() {
        let way = Duration::from_secs(1);
        let none = Impairment::default();
        let plan = ProbePlan {
            patience: 2 * way,
            ..ProbePlan::with_echo_time(&none, &none, Duration::from_millis(20))
        };
        let (_, seen) = over_a_long_link(&plan, way).await;
        let after = seen.queried.unwrap() - seen.last.unwrap();
        assert!(after < plan.patience, "{after:?}");
    }

    #[tokio::test]
    async fn a_slow_link_is_filled_while_echoes_may_still_come() {
        let way = Duration::from_secs(1);
        let slow = Impairment {
            rate_bits_per_second: NonZeroU64::new(1_000_000),
            ..Impairment::default()
        };
        let mut plan = ProbePlan {
            patience: way + Duration::from_millis(300),
            ..ProbePlan::with_echo_time(&slow, &Impairment::default(), Duration::from_millis(600))
        };
        plan.fill.as_mut().unwrap().duration = way * 3 / 2;
        let (measured, seen) = over_a_long_link(&plan, way).await;
        assert!(measured.rate.unwrap().received_bits_per_second > 0);
        let (first, last) = seen.filled.unwrap();
        let after = first - seen.last.unwrap();
        assert!(after < plan.patience, "{after:?}");
        // Answers were taken when they came, not when the link was full.
        let until_full = last - seen.answered[seen.answered.len() / 2];
        let round_trip = measured.round_trip.unwrap();
        assert!(
            Duration::from_nanos(round_trip.p50_ns) < until_full,
            "{round_trip:?}, {until_full:?}"
        );
    }

    #[tokio::test]
    async fn a_plan_that_would_never_end_is_refused() {
        let plan = ProbePlan::new(&Impairment::default(), &Impairment::default());
        let endless = ProbePlan {
            echoes_at_once: 0,
            ..plan
        };
        let refused = measured(&endless).await.unwrap_err();
        assert!(matches!(refused, Error::Plan(InvalidPlan::NoPace)), "{refused:?}");
    }

    #[test]
    fn quantiles_are_of_the_echoes_that_came_back() {
        assert_eq!(quantiles(Vec::new()), None);
        assert_eq!(
            quantiles(vec![7]),
            Some(RoundTrip {
                min_ns: 7,
                p50_ns: 7,
                p99_ns: 7
            })
        );
        let hundred = quantiles((1..=100).rev().collect());
        assert_eq!(
            hundred,
            Some(RoundTrip {
                min_ns: 1,
                p50_ns: 51,
                p99_ns: 100
            })
        );
    }
}
