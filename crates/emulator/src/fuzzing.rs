//! What fuzz targets call with foreign bytes. Each function panics if a result contradicts itself.

use std::{net::SocketAddr, time::Instant};

use crate::{
    caught, frame,
    kernel::netem::Netem,
    netlink::{self, Reply},
    probe::{
        server::{SESSIONS_MAX, Sessions},
        wire::{Datagram, LENGTH},
    },
    tc,
};

/// A datagram of the kernel, or one message of it.
pub fn netlink(bytes: &[u8]) {
    let mut replies = vec![Reply(bytes.to_vec())];
    if let Some(sequence) = bytes.get(8..).and_then(<[u8]>::first_chunk) {
        let _ = netlink::collect(bytes, u32::from_ne_bytes(*sequence), &mut replies);
    }
    for reply in &replies {
        netlink::device(reply);
        let Some(parsed) = tc::parse(reply) else { continue };
        tc::parse_filter(reply, parsed.parent);
        caught::parse(reply, parsed.parent);
        if let Some(qdisc) = tc::parse_qdisc(reply, parsed.index) {
            netem(&qdisc.options);
        }
    }
    netem(bytes);
}

fn netem(options: &[u8]) {
    if let Some(netem) = Netem::decode(options) {
        let _ = netem.impairment();
    }
}

/// A frame of a TAP. Four bytes before it choose the bit that is corrupted.
pub fn frame(bytes: &[u8]) {
    let Some((random, frame)) = bytes.split_first_chunk() else {
        return;
    };
    let packet = frame::measure(frame);
    assert!(packet.packets > 0, "{packet:?}");
    frame::destination(frame);
    let mut corrupted = frame.to_vec();
    frame::corrupt(&mut corrupted, u32::from_ne_bytes(*random));
    assert_eq!(corrupted.len(), frame.len());
}

/// Datagrams of the probe, each from a peer that its first byte chooses.
pub fn probe(bytes: &[u8]) {
    let mut sessions = Sessions::default();
    for datagram in bytes.chunks(1 + LENGTH) {
        let Some((from, datagram)) = datagram.split_first() else {
            continue;
        };
        let Some(datagram) = Datagram::decode(datagram) else {
            continue;
        };
        assert_eq!(Datagram::decode(&datagram.encode()), Some(datagram));
        let from = SocketAddr::from(([10, 99, 0, *from], 1));
        sessions.answer(from, datagram, LENGTH as u64, Instant::now());
    }
    assert!(sessions.count() <= SESSIONS_MAX);
}
