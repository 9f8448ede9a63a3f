//! The server of a probe: the end that replies.

use std::{collections::HashMap, convert::Infallible, io, net::SocketAddr, time::Instant};

use perfrun_link::probe::HEADER_BYTES;
use tokio::net::UdpSocket;

use super::wire::{Counts, Datagram, Message, NumberSet};

/// The number of clients that are remembered. The one that was silent the longest makes room.
pub(crate) const SESSIONS_MAX: usize = 512;

/// How much longer IPv6 headers are than those of IPv4.
const V6_EXCESS: u64 = 20;

/// More bytes than any datagram of the probe.
pub(super) const DATAGRAM_MAX: usize = 2048;

/// The bytes of datagrams that may arrive while this task waits for its turn.
const SOCKET_BUFFER: usize = 8 << 20;

/// Replies to probes until it is dropped.
pub async fn serve(socket: UdpSocket) -> io::Result<Infallible> {
    enlarge(&socket);
    let is_v6 = socket.local_addr()?.is_ipv6();
    let mut sessions = Sessions::default();
    let mut buffer = [0; DATAGRAM_MAX];
    loop {
        socket.readable().await?;
        loop {
            let (length, from) = match socket.try_recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An unreachable client causes this.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let Some(datagram) = Datagram::decode(&buffer[..length]) else {
                continue;
            };
            // A socket of IPv6 reports IPv4 addresses as mapped ones.
            let v6_excess = if is_v6 && from.ip().to_canonical().is_ipv6() {
                V6_EXCESS
            } else {
                0
            };
            let wire_bytes = length as u64 + HEADER_BYTES + v6_excess;
            if let Some(answer) = sessions.answer(from, datagram, wire_bytes, Instant::now()) {
                // A reply that cannot be sent counts as lost.
                let _ = socket.try_send_to(&answer.encode(), from);
            }
        }
    }
}

/// Makes the receive buffer of a socket as large as is permitted: datagrams that do not fit look like loss of
/// the link.
pub(super) fn enlarge(socket: &UdpSocket) {
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, SOCKET_BUFFER).is_err() {
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(socket, SOCKET_BUFFER);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Sessions(HashMap<(SocketAddr, u64), Session>);

#[derive(Debug)]
struct Session {
    last_received: Instant,
    echoes: NumberSet,
    fills: u32,
    fill_bytes: u64,
    /// The arrival of the first and of the last.
    filled: Option<(Instant, Instant)>,
}

impl Sessions {
    pub(crate) fn answer(
        &mut self,
        from: SocketAddr,
        datagram: Datagram,
        wire_bytes: u64,
        now: Instant,
    ) -> Option<Datagram> {
        let session = self.session((from, datagram.session), now);
        let message = match datagram.message {
            // A second echo with its number is a duplicate: a reply would hide a loss on the way back.
            Message::Echo { clock } => session
                .echoes
                .insert(datagram.number)
                .then_some(Message::Echoed { clock })?,
            Message::Fill => {
                session.fills += 1;
                match &mut session.filled {
                    None => session.filled = Some((now, now)),
                    Some((_, last)) => {
                        *last = now;
                        session.fill_bytes += wire_bytes;
                    }
                }
                return None;
            }
            Message::Query => Message::Report(session.counts()),
            Message::Echoed { .. } | Message::Report(_) => return None,
        };
        Some(Datagram { message, ..datagram })
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    fn session(&mut self, key: (SocketAddr, u64), now: Instant) -> &mut Session {
        if self.0.len() >= SESSIONS_MAX
            && !self.0.contains_key(&key)
            && let Some(silent) = self
                .0
                .iter()
                .min_by_key(|(_, session)| session.last_received)
                .map(|(key, _)| *key)
        {
            self.0.remove(&silent);
        }
        let session = self.0.entry(key).or_insert_with(|| Session {
            last_received: now,
            echoes: NumberSet::default(),
            fills: 0,
            fill_bytes: 0,
            filled: None,
        });
        session.last_received = now;
        session
    }
}

impl Session {
    fn counts(&self) -> Counts {
        let span = self.filled.map(|(first, last)| last - first).unwrap_or_default();
        Counts {
            echoes: self.echoes.count(),
            fills: self.fills,
            fill_bytes: self.fill_bytes,
            fill_nanoseconds: u64::try_from(span.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn from(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn datagram(number: u32, message: Message) -> Datagram {
        Datagram {
            session: 1,
            number,
            message,
        }
    }

    #[test]
    fn each_echo_is_answered_once() {
        let mut sessions = Sessions::default();
        let now = Instant::now();
        let echo = datagram(7, Message::Echo { clock: 42 });
        let answer = sessions.answer(from(1), echo, 86, now);
        assert_eq!(answer, Some(datagram(7, Message::Echoed { clock: 42 })));
        assert_eq!(sessions.answer(from(1), echo, 86, now), None);
        let reported = sessions
            .answer(from(1), datagram(0, Message::Query), 86, now)
            .unwrap();
        assert_eq!(
            reported.message,
            Message::Report(Counts {
                echoes: 1,
                ..Counts::default()
            })
        );
        // Another client has its own count.
        assert!(sessions.answer(from(2), echo, 86, now).is_some());
    }

    #[test]
    fn a_rate_is_bytes_after_the_first_over_the_time_since() {
        let mut sessions = Sessions::default();
        let start = Instant::now();
        for number in 0..5u32 {
            let now = start + number * Duration::from_millis(10);
            assert_eq!(
                sessions.answer(from(1), datagram(number, Message::Fill), 1442, now),
                None
            );
        }
        let reported = sessions
            .answer(from(1), datagram(0, Message::Query), 86, start)
            .unwrap();
        let counts = Counts {
            echoes: 0,
            fills: 5,
            fill_bytes: 4 * 1442,
            fill_nanoseconds: 40_000_000,
        };
        assert_eq!(reported.message, Message::Report(counts));
    }

    #[test]
    fn sessions_are_bounded() {
        let mut sessions = Sessions::default();
        let start = Instant::now();
        for port in 0..2 * SESSIONS_MAX as u16 {
            let now = start + Duration::from_millis(port.into());
            sessions.answer(from(port), datagram(0, Message::Echo { clock: 0 }), 86, now);
        }
        assert_eq!(sessions.0.len(), SESSIONS_MAX);
        assert!(sessions.0.contains_key(&(from(2 * SESSIONS_MAX as u16 - 1), 1)));
        assert!(!sessions.0.contains_key(&(from(0), 1)));
    }
}
