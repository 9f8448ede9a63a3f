//! Requests to the kernel about links, queueing disciplines and filters.
//!
//! rtnetlink's own client, with which `perfrun run` creates its interfaces, is asynchronous and decodes every
//! reply. This one is synchronous, because an emulator undoes its changes in `drop`, where nothing can be
//! awaited. It returns replies undecoded, because rtnetlink lacks the options of netem. Its socket stays in
//! the network namespace where it was opened, whichever thread uses it.

use std::{io, net::IpAddr, num::NonZeroI32};

use rtnetlink::{
    packet_core::{
        DoneBuffer, ErrorBuffer, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_REQUEST,
        NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
        NlasIterator,
    },
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        link::{LinkAttribute, LinkMessage},
        route::{RouteAttribute, RouteMessage},
    },
    sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE},
};
use rustix::io::Errno;
use thiserror::Error;

/// `struct nlmsghdr`
const MESSAGE_HEADER: usize = 16;
/// The attribute of a refusal that explains it in words.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// `struct ifinfomsg`
const LINK_HEADER: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_STATS64: u16 = 23;
/// `struct rtmsg`
const ROUTE_HEADER: usize = 12;
/// The offset of `rtm_type` in `struct rtmsg`.
const ROUTE_TYPE: usize = 7;
/// The type of an address of this namespace.
const RTN_LOCAL: u8 = 2;
const RTA_OIF: u16 = 4;
/// In `struct rtnl_link_stats64`.
const TX_DROPPED: usize = 7 * 8;

/// Why a request to the kernel failed.
#[derive(Debug, Error)]
pub enum Error {
    /// socket or bind failed.
    #[error("failed to open a netlink socket")]
    Open(#[source] io::Error),
    /// send or recv failed.
    #[error("failed to talk to the kernel")]
    Talk(#[source] io::Error),
    /// A reply with an error code and, since Linux 4.12, often an explanation.
    #[error("the kernel refused{}", explanation.as_deref().map(|words| format!(": {words}")).unwrap_or_default())]
    Refused {
        /// The kernel's explanation.
        explanation: Option<String>,
        /// The kernel's error.
        source: Errno,
    },
    /// A reply that is too short, or whose lengths do not add up.
    #[error("unable to read the kernel's reply: it is malformed")]
    Garbled,
    /// Replies were lost because they came faster than they were read.
    #[error("the kernel's reply did not fit its buffer: try again")]
    Overrun,
}

impl Error {
    /// The error code. `None` if the kernel gave none.
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

/// One message of a reply, undecoded: what the kernel has may come from others, and be newer than this
/// program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reply(pub(crate) Vec<u8>);

/// A network device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Device {
    pub(crate) index: u32,
    pub(crate) mtu: u32,
    /// The number of frames that it dropped because it had no room.
    pub(crate) tx_dropped: u64,
}

/// Where packets to an address go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum KernelRoute {
    /// Nowhere: the address belongs to this network namespace.
    Own,
    /// Out of the device with this index.
    Out(u32),
}

impl Netlink {
    pub(crate) fn open() -> Result<Self, Error> {
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(Error::Open)?;
        socket.bind_auto().map_err(Error::Open)?;
        // Without extended acknowledgements, a refusal is only a number.
        socket.set_ext_ack(true).map_err(Error::Open)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends a request that changes something, with flags such as `NLM_F_CREATE`.
    pub(crate) fn execute(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), Error> {
        self.request(message, NLM_F_ACK | flags).map(drop)
    }

    /// Requests everything of a kind.
    pub(crate) fn dump(&mut self, message: RouteNetlinkMessage) -> Result<Vec<Reply>, Error> {
        self.request(message, NLM_F_DUMP)
    }

    /// Requests a device by name.
    pub(crate) fn device(&mut self, name: &str) -> Result<Device, Error> {
        let mut message = LinkMessage::default();
        let name = LinkAttribute::IfName(name.to_owned());
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

    /// Asks the kernel for the route to an address. `None` without a route.
    pub(crate) fn route_to(&mut self, to: IpAddr) -> Result<Option<KernelRoute>, Error> {
        let mut message = RouteMessage::default();
        (
            message.header.address_family,
            message.header.destination_prefix_length,
        ) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        message.attributes.push(RouteAttribute::Destination(to.into()));
        match self.request(RouteNetlinkMessage::GetRoute(message), NLM_F_ACK) {
            Ok(replies) => replies
                .first()
                .and_then(kernel_route)
                .map(Some)
                .ok_or(Error::Garbled),
            Err(Error::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
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
            if sender.port_number() == 0 && collect(&datagram, self.sequence, &mut replies)? {
                return Ok(replies);
            }
        }
    }
}

/// Collects the messages of a datagram that reply to the request. Returns whether the last one was among
/// them.
pub(crate) fn collect(datagram: &[u8], sequence: u32, replies: &mut Vec<Reply>) -> Result<bool, Error> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkBuffer::new_checked(rest).map_err(|_| Error::Garbled)?;
        rest = rest
            .get((message.length() as usize).next_multiple_of(4)..)
            .unwrap_or_default();
        if message.sequence_number() != sequence {
            continue; // the rest of a reply that was given up
        }
        let payload = message.payload();
        match message.message_type() {
            NLMSG_NOOP => {}
            NLMSG_OVERRUN => return Err(Error::Overrun),
            NLMSG_DONE => {
                let done = DoneBuffer::new_checked(payload).map_err(|_| Error::Garbled)?;
                let carries_attributes = message.flags() & NLM_F_ACK_TLVS != 0;
                let attributes = carries_attributes.then(|| done.extended_ack());
                return outcome(done.code(), attributes).map(|()| true);
            }
            NLMSG_ERROR => {
                let error = ErrorBuffer::new_checked(payload).map_err(|_| Error::Garbled)?;
                let attributes = behind_request(message.flags(), error.payload());
                return outcome(error.code().map_or(0, NonZeroI32::get), attributes).map(|()| true);
            }
            _ => replies.push(Reply(payload.to_vec())),
        }
    }
    Ok(false)
}

/// The attributes of an error message, which follow the refused request: the whole of it, or only its header.
/// `None` if there are no attributes.
fn behind_request(flags: u16, request: &[u8]) -> Option<&[u8]> {
    let length = match (flags & NLM_F_ACK_TLVS != 0, flags & NLM_F_CAPPED != 0) {
        (false, _) => return None,
        (true, true) => MESSAGE_HEADER,
        (true, false) => NetlinkBuffer::new_checked(request).ok()?.length() as usize,
    };
    request.get(length.next_multiple_of(4)..)
}

/// The least error code: `-MAX_ERRNO` in linux/err.h.
const ERROR_MIN: i32 = -4095;

/// The error of a code that is not 0, with the explanation among the attributes. Codes of errors are
/// negative.
fn outcome(code: i32, attributes: Option<&[u8]>) -> Result<(), Error> {
    match code {
        0 => return Ok(()),
        ERROR_MIN..0 => {}
        _ => return Err(Error::Garbled),
    }
    let explanation = attributes
        .and_then(|attributes| attribute(attributes, NLMSGERR_ATTR_MSG))
        .map(|words| String::from_utf8_lossy(words).trim_end_matches('\0').to_owned());
    Err(Error::Refused {
        explanation,
        source: Errno::from_raw_os_error(-code),
    })
}

/// The value of the first attribute of a kind. `None` if there is none.
pub(crate) fn attribute(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    // The iterator's items borrow from the iteration, so positions are counted instead.
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

fn kernel_route(Reply(bytes): &Reply) -> Option<KernelRoute> {
    if *bytes.get(ROUTE_TYPE)? == RTN_LOCAL {
        return Some(KernelRoute::Own);
    }
    let index = attribute(bytes.get(ROUTE_HEADER..)?, RTA_OIF)?;
    Some(KernelRoute::Out(u32::from_ne_bytes(index.try_into().ok()?)))
}

pub(crate) fn device(Reply(bytes): &Reply) -> Option<Device> {
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

    fn collected(datagram: &[u8]) -> Result<(bool, Vec<Reply>), Error> {
        let mut replies = Vec::new();
        collect(datagram, SEQUENCE, &mut replies).map(|done| (done, replies))
    }

    #[test]
    fn replies_end_with_done_or_with_an_acknowledgement() {
        let mut dump = message(36, 2, b"first");
        dump.extend(message(36, 2, b"second!!"));
        let replies = vec![Reply(b"first".to_vec()), Reply(b"second!!".to_vec())];
        assert_eq!(collected(&dump).unwrap(), (false, replies.clone()));
        dump.extend(message(NLMSG_DONE, 2, &[0; 4]));
        assert_eq!(collected(&dump).unwrap(), (true, replies));
        let acknowledged = message(NLMSG_ERROR, NLM_F_CAPPED, &[0; 20]);
        assert_eq!(collected(&acknowledged).unwrap(), (true, Vec::new()));
    }

    #[test]
    fn refusals_keep_their_code_and_message() {
        for errno in [Errno::PERM, Errno::OPNOTSUPP, Errno::NOBUFS, Errno::NOENT] {
            let error = collected(&refusal(errno, "Specified qdisc kind is unknown")).unwrap_err();
            assert_eq!(error.errno(), Some(errno));
            assert_eq!(
                error.to_string(),
                "the kernel refused: Specified qdisc kind is unknown"
            );
        }
        let wordless = message(NLMSG_ERROR, NLM_F_CAPPED, &(-1i32).to_ne_bytes());
        let error = collected(&wordless).unwrap_err();
        assert_eq!(
            (error.errno(), error.to_string().as_str()),
            (Some(Errno::PERM), "the kernel refused")
        );
    }

    #[test]
    fn truncated_replies_are_not_refusals() {
        let whole = refusal(Errno::PERM, "no");
        for length in 1..MESSAGE_HEADER + 4 {
            assert!(
                matches!(collected(&whole[..length]), Err(Error::Garbled)),
                "{length}"
            );
        }
        // Lengths below that of a header would never end.
        let mut endless = whole;
        endless[..4].copy_from_slice(&3u32.to_ne_bytes());
        assert!(matches!(collected(&endless), Err(Error::Garbled)));
        assert!(matches!(
            collected(&message(NLMSG_OVERRUN, 0, &[])),
            Err(Error::Overrun)
        ));
    }

    #[test]
    fn a_code_that_is_not_an_error_is_not_a_refusal() {
        for code in [1, i32::MAX, i32::MIN, ERROR_MIN - 1] {
            let refusal = message(NLMSG_ERROR, NLM_F_CAPPED, &code.to_ne_bytes());
            assert!(matches!(collected(&refusal), Err(Error::Garbled)), "{code}");
        }
    }

    #[test]
    fn replies_to_other_requests_are_skipped() {
        let mut foreign = message(36, 0, b"foreign");
        foreign[8] = 99;
        assert_eq!(collected(&foreign).unwrap(), (false, Vec::new()));
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
