//! Frames in the format of a TAP: a virtio header, then Ethernet.
//!
//! The virtio header says what the sender leaves to the device: to finish a checksum, to split a large
//! segment. See `struct virtio_net_hdr` in linux/virtio_net.h; fields are in the byte order of the machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use perfrun_link::fate::Packet;

/// The bytes of the virtio header.
pub(crate) const HEADER: usize = 10;
/// The bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// The bytes of the largest frame: virtio header, Ethernet, and the largest IP packet.
pub(crate) const LARGEST: usize = HEADER + ETHERNET + 65_536;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
/// Explicit congestion notification, a flag of the type.
const GSO_ECN: u8 = 0x80;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;

/// The position of the checksum in a UDP header, which differs from TCP's.
const UDP_CHECKSUM_OFFSET: u16 = 6;

/// The virtio header.
#[derive(Clone, Copy, Debug)]
struct Offload {
    flags: u8,
    gso_type: u8,
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl Offload {
    fn of(frame: &[u8]) -> Option<Self> {
        let (header, _) = frame.split_first_chunk::<HEADER>()?;
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        Some(Self {
            flags: header[0],
            gso_type: header[1],
            gso_size: word(4), // bytes 2 and 3 are the length of the linear part, not of the headers
            checksum_start: word(6),
            checksum_offset: word(8),
        })
    }
}

/// The load that a frame puts on the link.
pub(crate) fn measure(frame: &[u8]) -> Packet {
    let ethernet = frame.len().saturating_sub(HEADER);
    let single = Packet {
        wire_bytes: ethernet as u64,
        packets: 1,
    };
    merged(frame).unwrap_or(single)
}

fn merged(frame: &[u8]) -> Option<Packet> {
    let offload =
        Offload::of(frame).filter(|offload| offload.gso_type != GSO_NONE && offload.gso_size > 0)?;
    let transport = usize::from(offload.checksum_start);
    let transport_header = match offload.gso_type & !GSO_ECN {
        GSO_TCP_V4 | GSO_TCP_V6 => {
            let data_offset = frame.get(HEADER + transport + 12)?;
            usize::from(data_offset >> 4) * 4
        }
        _ => 8, // UDP
    };
    let headers = transport + transport_header;
    let payload = (frame.len() - HEADER).checked_sub(headers)?;
    let packets = payload.div_ceil(usize::from(offload.gso_size)).max(1);
    Some(Packet {
        wire_bytes: (payload + packets * headers) as u64,
        packets: u32::try_from(packets).ok()?,
    })
}

/// The destination of the frame. `None` if it is not IP.
pub(crate) fn destination(frame: &[u8]) -> Option<IpAddr> {
    let ethernet = frame.get(HEADER..)?;
    let ether_type = ethernet.get(12..14)?;
    match ether_type {
        [0x08, 0x00] => {
            let address: [u8; 4] = ethernet.get(ETHERNET + 16..ETHERNET + 20)?.try_into().ok()?;
            Some(Ipv4Addr::from(address).into())
        }
        [0x86, 0xdd] => {
            let address: [u8; 16] = ethernet.get(ETHERNET + 24..ETHERNET + 40)?.try_into().ok()?;
            Some(Ipv6Addr::from(address).into())
        }
        _ => None,
    }
}

/// Flips one bit of the packet behind the Ethernet header: a frame with a wrong Ethernet header would reach
/// no peer.
///
/// If the checksum was left to the device, it is computed first. Otherwise it would be computed over the
/// wrong bit, and the application would receive the packet (measured: a tenth of the packets of a link with
/// 10 % corruption).
pub(crate) fn corrupt(frame: &mut [u8], random: u32) {
    finish_checksum(frame);
    let first = HEADER + ETHERNET;
    let Some(bits) = frame
        .len()
        .checked_sub(first)
        .map(|bytes| bytes * 8)
        .filter(|bits| *bits > 0)
    else {
        return;
    };
    let bit = random as usize % bits;
    frame[first + bit / 8] ^= 1 << (bit % 8);
}

fn finish_checksum(frame: &mut [u8]) {
    let Some(offload) = Offload::of(frame) else { return };
    // The checksums of a super-packet's packets are computed when it is split.
    if offload.flags & NEEDS_CHECKSUM == 0 || offload.gso_type != GSO_NONE {
        return;
    }
    let start = HEADER + usize::from(offload.checksum_start);
    let at = start + usize::from(offload.checksum_offset);
    if at + 2 > frame.len() {
        return;
    }
    // The field holds the sum of the pseudo header, which is part of the checksum.
    let mut sum = !ones_complement_sum(&frame[start..]);
    if sum == 0 && offload.checksum_offset == UDP_CHECKSUM_OFFSET {
        sum = 0xffff; // 0 would mean "no checksum"
    }
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    frame[0] &= !NEEDS_CHECKSUM;
}

/// The Internet checksum (RFC 1071) before the complement.
fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let mut words = bytes.chunks_exact(2);
    let mut sum: u64 = words
        .by_ref()
        .map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    if let [last] = words.remainder() {
        sum += u64::from(*last) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESTINATION: [u8; 4] = [10, 99, 0, 2];

    /// An IPv4 UDP frame whose checksum was left to the device.
    fn udp(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![NEEDS_CHECKSUM, GSO_NONE, 0, 0, 0, 0];
        frame.extend(34u16.to_ne_bytes());
        frame.extend(UDP_CHECKSUM_OFFSET.to_ne_bytes());
        frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00]);
        let length = u16::try_from(payload.len() + 8).unwrap();
        frame.extend([0x45, 0]);
        frame.extend((length + 20).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 99, 0, 1]);
        frame.extend(DESTINATION);
        frame.extend([0x12, 0x34, 0x56, 0x78]);
        frame.extend(length.to_be_bytes());
        frame.extend(ones_complement_sum(&pseudo_header(length)).to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn pseudo_header(length: u16) -> Vec<u8> {
        let mut header = vec![10, 99, 0, 1];
        header.extend(DESTINATION);
        header.extend([0, 17]);
        header.extend(length.to_be_bytes());
        header
    }

    fn checksum_holds(frame: &[u8]) -> bool {
        let udp = &frame[HEADER + 34..];
        let mut covered = pseudo_header(u16::try_from(udp.len()).unwrap());
        covered.extend(udp);
        ones_complement_sum(&covered) == 0xffff
    }

    #[test]
    fn a_checksum_left_to_the_device_is_finished() {
        for payload in [&b""[..], b"x", b"odd", b"even"] {
            let mut frame = udp(payload);
            assert!(!checksum_holds(&frame));
            finish_checksum(&mut frame);
            assert!(checksum_holds(&frame), "{payload:?}");
            assert_eq!(frame[0] & NEEDS_CHECKSUM, 0);
        }
    }

    #[test]
    fn corruption_is_one_bit_that_the_checksum_detects() {
        let mut clean = udp(b"payload");
        finish_checksum(&mut clean);
        for random in (0..10_000).step_by(7) {
            let mut wrong = udp(b"payload");
            corrupt(&mut wrong, random);
            let bits: u32 = clean.iter().zip(&wrong).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!(bits, 1);
            assert_eq!(clean[..HEADER + ETHERNET], wrong[..HEADER + ETHERNET]);
            let in_udp = clean[HEADER + 34..] != wrong[HEADER + 34..];
            assert_eq!(checksum_holds(&wrong), !in_udp);
        }
    }

    #[test]
    fn destinations_are_those_of_ip() {
        assert_eq!(destination(&udp(b"")), Some(Ipv4Addr::from(DESTINATION).into()));
        let mut v6 = vec![0; HEADER + 12];
        v6.extend([0x86, 0xdd]);
        v6.extend([0; 24]);
        let address: Ipv6Addr = "fd00::2".parse().unwrap();
        v6.extend(address.octets());
        assert_eq!(destination(&v6), Some(address.into()));
        let mut arp = udp(b"");
        arp[HEADER + 13] = 0x06;
        assert_eq!(destination(&arp), None);
        for length in 0..HEADER + ETHERNET + 20 {
            assert_eq!(destination(&udp(b"")[..length]), None);
        }
    }

    #[test]
    fn super_packets_count_the_headers_of_their_packets() {
        // 66 bytes of headers (12 of TCP's are options), 10000 of payload in segments of 1448.
        let mut frame = vec![NEEDS_CHECKSUM, GSO_TCP_V4 | GSO_ECN, 0, 0];
        frame.extend(1448u16.to_ne_bytes());
        frame.extend(34u16.to_ne_bytes());
        frame.extend(16u16.to_ne_bytes());
        frame.resize(HEADER + 66 + 10_000, 0);
        frame[HEADER + 34 + 12] = 8 << 4;
        let packet = measure(&frame);
        assert_eq!((packet.packets, packet.wire_bytes), (7, 10_000 + 7 * 66));

        let single = measure(&udp(b"12345678"));
        assert_eq!((single.packets, single.wire_bytes), (1, 50));
        // Anything else counts as one packet, and does not panic.
        for length in 0..HEADER + 70 {
            assert_eq!(measure(&frame[..length.min(frame.len())]).packets, 1, "{length}");
        }
    }
}
