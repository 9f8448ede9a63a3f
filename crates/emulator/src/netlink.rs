//! Requests to the kernel about links, queueing disciplines and filters.
//!
//! Synchronous, on a socket of its own: the kernel answers within the call, what was set up must be undone in `drop`,
//! and a socket stays in the network namespace it was opened in, whichever thread uses it.

use std::io;

use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NlasIterator,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::LinkMessage;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};
use rustix::io::Errno;
use thiserror::Error;

const MESSAGE_HEADER: usize = 16;
const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
/// The request that was refused is not repeated in the answer.
const NLM_F_CAPPED: u16 = 0x100;
/// The answer carries attributes.
const NLM_F_ACK_TLVS: u16 = 0x200;
/// Why, in words of the kernel.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// `struct ifinfomsg`
const LINK_HEADER: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_STATS64: u16 = 23;
/// In `struct rtnl_link_stats64`.
const TX_DROPPED: usize = 7 * 8;

/// Why the kernel did not do it.
#[derive(Debug, Error)]
pub enum Error {
    /// socket, bind.
    #[error("failed to open a netlink socket")]
    Open(#[source] io::Error),
    /// send, recv.
    #[error("failed to talk to the kernel")]
    Talk(#[source] io::Error),
    /// An answer with an error code, and since Linux 4.12 often with the reason.
    #[error("the kernel refused{}", explanation.as_deref().map(|words| format!(": {words}")).unwrap_or_default())]
    Refused {
        /// The reason, in words of the kernel.
        explanation: Option<String>,
        /// What the kernel said.
        source: Errno,
    },
    /// Too short, or lengths that do not add up.
    #[error("unable to read the kernel's answer: it is garbled")]
    Garbled,
    /// Answers were lost because they came faster than they were read.
    #[error("the kernel's answer did not fit its buffer: try again")]
    Overrun,
}

impl Error {
    /// The code, if the kernel gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { source, .. } => Some(*source),
            Self::Open(source) | Self::Talk(source) => Errno::from_io_error(source),
            Self::Garbled | Self::Overrun => None,
        }
    }
}

/// A connection to the kernel, in the network namespace of the thread that opened it.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// One message of an answer, undecoded: what the kernel has may be from others, and newer than this program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reply(pub(crate) Vec<u8>);

/// What is known of a network device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Device {
    pub(crate) index: u32,
    pub(crate) mtu: u32,
    /// Frames that it did not take, for want of room.
    pub(crate) tx_dropped: u64,
}

impl Netlink {
    pub(crate) fn open() -> Result<Self, Error> {
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(Error::Open)?;
        socket.bind_auto().map_err(Error::Open)?;
        // Without it a refusal is only a number.
        socket.set_ext_ack(true).map_err(Error::Open)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Has something done, with flags such as `NLM_F_CREATE`.
    pub(crate) fn execute(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), Error> {
        self.request(message, NLM_F_ACK | flags).map(drop)
    }

    /// Asks for everything of a kind.
    pub(crate) fn dump(&mut self, message: RouteNetlinkMessage) -> Result<Vec<Reply>, Error> {
        self.request(message, NLM_F_DUMP)
    }

    /// Asks for a device.
    pub(crate) fn device(&mut self, name: &str) -> Result<Device, Error> {
        let mut message = LinkMessage::default();
        let name = rtnetlink::packet_route::link::LinkAttribute::IfName(name.to_owned());
        message.attributes.push(name);
        let replies = self.request(RouteNetlinkMessage::GetLink(message), NLM_F_ACK)?;
        replies.first().and_then(device).ok_or(Error::Garbled)
    }

    /// The names of all devices.
    pub(crate) fn devices(&mut self) -> Result<Vec<String>, Error> {
        let replies = self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        let name = |Reply(bytes): &Reply| {
            let name = attribute(bytes.get(LINK_HEADER..)?, IFLA_IFNAME)?;
            Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
        };
        Ok(replies.iter().filter_map(name).collect())
    }

    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<Vec<Reply>, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, message.into());
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket
            .send_to(&bytes, &SocketAddr::new(0, 0), 0)
            .map_err(Error::Talk)?;

        let mut replies = Vec::new();
        loop {
            let (datagram, sender) = self.socket.recv_from_full().map_err(Error::Talk)?;
            // Port 0 is the kernel; other processes can write to this socket as well.
            if sender.port_number() == 0 && take(&datagram, self.sequence, &mut replies)? {
                return Ok(replies);
            }
        }
    }
}

/// Takes the messages of a datagram that answer the request; true after the last.
fn take(datagram: &[u8], sequence: u32, replies: &mut Vec<Reply>) -> Result<bool, Error> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let header = rest.first_chunk::<MESSAGE_HEADER>().ok_or(Error::Garbled)?;
        let long =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let short = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let length = long(0) as usize;
        let payload = rest.get(MESSAGE_HEADER..length).ok_or(Error::Garbled)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        if long(8) != sequence {
            continue; // the rest of an answer that was given up
        }
        match short(4) {
            NLMSG_NOOP => {}
            NLMSG_OVERRUN => return Err(Error::Overrun),
            NLMSG_DONE => return outcome(payload, 0).map(|()| true),
            NLMSG_ERROR => return outcome(payload, short(6)).map(|()| true),
            _ => replies.push(Reply(payload.to_vec())),
        }
    }
    Ok(false)
}

/// What `struct nlmsgerr`, or the end of a dump, says.
fn outcome(payload: &[u8], flags: u16) -> Result<(), Error> {
    let (code, rest) = payload.split_first_chunk::<4>().ok_or(Error::Garbled)?;
    let code = i32::from_ne_bytes(*code);
    if code == 0 {
        return Ok(());
    }
    let attributes = if flags & NLM_F_ACK_TLVS == 0 {
        None
    } else if flags & NLM_F_CAPPED != 0 {
        rest.get(MESSAGE_HEADER..)
    } else {
        // The refused request comes first, whole.
        rest.first_chunk::<4>()
            .and_then(|length| rest.get((u32::from_ne_bytes(*length) as usize).next_multiple_of(4)..))
    };
    let explanation = attributes
        .and_then(|attributes| attribute(attributes, NLMSGERR_ATTR_MSG))
        .map(|words| String::from_utf8_lossy(words).trim_end_matches('\0').to_owned());
    Err(Error::Refused {
        explanation,
        source: Errno::from_raw_os_error(-code),
    })
}

/// The value of the first attribute of a kind.
pub(crate) fn attribute(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    // The iterator owns nothing, but its items borrow from the iteration; positions do not.
    let mut at = 0;
    for attribute in NlasIterator::new(attributes) {
        let attribute = attribute.ok()?;
        let length = usize::from(attribute.length());
        if attribute.kind() == kind {
            return attributes.get(at + 4..at + length);
        }
        at += length.next_multiple_of(4);
    }
    None
}

fn device(Reply(bytes): &Reply) -> Option<Device> {
    let attributes = bytes.get(LINK_HEADER..)?;
    let stats = attribute(attributes, IFLA_STATS64)?;
    Some(Device {
        index: u32::from_ne_bytes(bytes.get(4..8)?.try_into().ok()?),
        mtu: u32::from_ne_bytes(attribute(attributes, IFLA_MTU)?.try_into().ok()?),
        tx_dropped: u64::from_ne_bytes(stats.get(TX_DROPPED..TX_DROPPED + 8)?.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCE: u32 = 7;

    fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(MESSAGE_HEADER + payload.len())
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(SEQUENCE.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn refusal(errno: Errno, words: &str) -> Vec<u8> {
        let mut payload = (-errno.raw_os_error()).to_ne_bytes().to_vec();
        payload.extend(&message(36, 0, &[])[..MESSAGE_HEADER]);
        payload.extend(u16::try_from(4 + words.len() + 1).unwrap().to_ne_bytes());
        payload.extend(NLMSGERR_ATTR_MSG.to_ne_bytes());
        payload.extend(words.as_bytes());
        payload.push(0);
        message(NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, &payload)
    }

    fn taken(datagram: &[u8]) -> Result<(bool, Vec<Reply>), Error> {
        let mut replies = Vec::new();
        take(datagram, SEQUENCE, &mut replies).map(|done| (done, replies))
    }

    #[test]
    fn answers_end_with_done_or_with_an_acknowledgement() {
        let mut dump = message(36, 2, b"first");
        dump.extend(message(36, 2, b"second!!"));
        let replies = vec![Reply(b"first".to_vec()), Reply(b"second!!".to_vec())];
        assert_eq!(taken(&dump).unwrap(), (false, replies.clone()));
        dump.extend(message(NLMSG_DONE, 2, &[0; 4]));
        assert_eq!(taken(&dump).unwrap(), (true, replies));
        let acknowledged = message(NLMSG_ERROR, NLM_F_CAPPED, &[0; 20]);
        assert_eq!(taken(&acknowledged).unwrap(), (true, Vec::new()));
    }

    #[test]
    fn refusals_keep_their_code_and_words() {
        for errno in [Errno::PERM, Errno::OPNOTSUPP, Errno::NOBUFS, Errno::NOENT] {
            let error = taken(&refusal(errno, "Specified qdisc kind is unknown")).unwrap_err();
            assert_eq!(error.errno(), Some(errno));
            assert_eq!(
                error.to_string(),
                "the kernel refused: Specified qdisc kind is unknown"
            );
        }
        let wordless = message(NLMSG_ERROR, NLM_F_CAPPED, &(-1i32).to_ne_bytes());
        let error = taken(&wordless).unwrap_err();
        assert_eq!(
            (error.errno(), error.to_string().as_str()),
            (Some(Errno::PERM), "the kernel refused")
        );
    }

    #[test]
    fn answers_that_are_cut_off_are_told_from_refusals() {
        let whole = refusal(Errno::PERM, "no");
        for length in 1..MESSAGE_HEADER + 4 {
            assert!(matches!(taken(&whole[..length]), Err(Error::Garbled)), "{length}");
        }
        // Lengths below that of a header would be read for ever.
        let mut endless = whole;
        endless[..4].copy_from_slice(&3u32.to_ne_bytes());
        assert!(matches!(taken(&endless), Err(Error::Garbled)));
        assert!(matches!(
            taken(&message(NLMSG_OVERRUN, 0, &[])),
            Err(Error::Overrun)
        ));
    }

    #[test]
    fn answers_to_others_are_passed_over() {
        let mut foreign = message(36, 0, b"foreign");
        foreign[8] = 99;
        assert_eq!(taken(&foreign).unwrap(), (false, Vec::new()));
    }

    #[test]
    fn attributes_are_found_or_not() {
        let bytes = [8u16, 1]
            .map(u16::to_ne_bytes)
            .concat()
            .into_iter()
            .chain([1, 2, 3, 4])
            .chain([5, 0, 2, 0, 9, 0, 0, 0])
            .collect::<Vec<_>>();
        assert_eq!(attribute(&bytes, 1), Some(&[1, 2, 3, 4][..]));
        assert_eq!(attribute(&bytes, 2), Some(&[9][..]));
        assert_eq!(attribute(&bytes, 3), None);
        assert_eq!(attribute(&bytes[..10], 2), None);
    }
}
