//! The peers that this crate's filters catch, read back from the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use perfrun_link::route::Prefix;
use rtnetlink::packet_route::tc::TcHandle;

use crate::{
    netlink::{Error, Netlink, Reply, attribute},
    tc::{self, CLASS_ID, OWN_MAJOR, TCA_KIND, TCA_OPTIONS},
};

/// Options of u32 and flower, see linux/pkt_cls.h.
const U32_SELECTOR: u16 = 5;
const FLOWER_IPV4_DESTINATION: (u16, u16) = (12, 13);
const FLOWER_IPV6_DESTINATION: (u16, u16) = (16, 17);

/// `struct tc_u32_sel` without its keys, and `struct tc_u32_key`
const SELECTOR_HEADER: usize = 16;
const KEY: usize = 16;

/// A filter of this crate for packets to a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CaughtPeer {
    pub(crate) peer: Prefix,
    /// The class of these packets, by its minor number.
    pub(crate) class: u16,
}

/// The peers, each once, in the order of the filters.
pub(crate) fn caught_peers(
    netlink: &mut Netlink,
    interface: u32,
    parent: TcHandle,
) -> Result<Vec<CaughtPeer>, Error> {
    let replies = netlink.filter_replies(interface, parent)?;
    let mut all: Vec<CaughtPeer> = Vec::new();
    for caught in replies.iter().filter_map(|reply| parse(reply, parent)) {
        if !all.contains(&caught) {
            all.push(caught);
        }
    }
    Ok(all)
}

pub(crate) fn parse(reply: &Reply, parent: TcHandle) -> Option<CaughtPeer> {
    let parsed = tc::parse(reply).filter(|parsed| parsed.parent == parent)?;
    let options = attribute(parsed.attributes, TCA_OPTIONS)?;
    let class = TcHandle::from(u32::from_ne_bytes(attribute(options, CLASS_ID)?.try_into().ok()?));
    if class.major != OWN_MAJOR {
        return None;
    }
    let ether_type = u16::from_be(parsed.info as u16);
    let (bits, mask) = match (attribute(parsed.attributes, TCA_KIND)?, ether_type) {
        (b"u32\0", ETHER_TYPE_V4) => u32_address::<1>(attribute(options, U32_SELECTOR)?, 16)?,
        (b"u32\0", ETHER_TYPE_V6) => u32_address::<4>(attribute(options, U32_SELECTOR)?, 24)?,
        (b"flower\0", ETHER_TYPE_V4) => flower_address::<4>(options, FLOWER_IPV4_DESTINATION)?,
        (b"flower\0", ETHER_TYPE_V6) => flower_address::<16>(options, FLOWER_IPV6_DESTINATION)?,
        _ => return None,
    };
    let address = if ether_type == ETHER_TYPE_V4 {
        IpAddr::from(Ipv4Addr::from_bits(bits as u32))
    } else {
        IpAddr::from(Ipv6Addr::from_bits(bits))
    };
    let peer = Prefix::new(address, mask.count_ones() as u8).ok()?;
    Some(CaughtPeer {
        peer,
        class: class.minor,
    })
}

const ETHER_TYPE_V4: u16 = libc::ETH_P_IP as u16;
const ETHER_TYPE_V6: u16 = libc::ETH_P_IPV6 as u16;

/// The bits and the mask of an address of `N` words, from the keys of u32, the first of which is `first`
/// bytes behind the start of the IP header. Words with an empty mask have no key. `None` if the keys are
/// about something else.
fn u32_address<const N: usize>(selector: &[u8], first: i32) -> Option<(u128, u128)> {
    let count = usize::from(*selector.get(2)?);
    let keys = selector.get(SELECTOR_HEADER..SELECTOR_HEADER + count * KEY)?;
    let (mut bits, mut mask) = (0, 0);
    for key in keys.chunks_exact(KEY) {
        let word = |at: usize| [key[at], key[at + 1], key[at + 2], key[at + 3]];
        let offset = i32::from_ne_bytes(word(8)).checked_sub(first)?;
        let number = usize::try_from(offset).ok()? / 4;
        let shift = 32 * N.checked_sub(number + 1)?;
        mask |= u128::from(u32::from_be_bytes(word(0))) << shift;
        bits |= u128::from(u32::from_be_bytes(word(4))) << shift;
    }
    (count > 0).then_some((bits, mask))
}

fn flower_address<const BYTES: usize>(
    options: &[u8],
    (destination, mask): (u16, u16),
) -> Option<(u128, u128)> {
    let value = |kind| {
        let bytes = attribute(options, kind)?.first_chunk::<BYTES>()?;
        Some(
            bytes
                .iter()
                .fold(0u128, |value, byte| value << 8 | u128::from(*byte)),
        )
    };
    Some((value(destination)?, value(mask)?))
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_core::Emitable;

    use super::*;
    use crate::tc::{Action, Classifier, EGRESS, Filter, INGRESS, Match};

    fn reply(matches: Match, action: Action, classifier: Classifier) -> Reply {
        let filter = Filter {
            parent: EGRESS,
            priority: 110,
            matches,
            action,
        };
        let message = filter.message(5, classifier);
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        Reply(bytes)
    }

    #[test]
    fn peers_are_read_as_they_were_written() {
        for classifier in Classifier::ALL {
            for peer in [
                "10.0.0.1",
                "10.1.0.0/16",
                "fd70::1",
                "fd70:6572:6000::/35",
                "fd00::/8",
            ] {
                let peer: Prefix = peer.parse().unwrap();
                let reply = reply(Match::To(peer), Action::Class(3), classifier);
                assert_eq!(
                    parse(&reply, EGRESS),
                    Some(CaughtPeer { peer, class: 3 }),
                    "{peer}"
                );
                assert_eq!(parse(&reply, INGRESS), None);
            }
        }
    }

    #[test]
    fn other_filters_name_no_peer() {
        for classifier in Classifier::ALL {
            let discovery = Match::neighbour_discovery();
            let others = discovery
                .into_iter()
                .chain([Match::Everything, Match::From("perfrun0".to_owned())]);
            for matches in others {
                let reply = reply(matches.clone(), Action::Class(1), classifier);
                assert_eq!(parse(&reply, EGRESS), None, "{matches:?}");
            }
        }
    }

    #[test]
    fn a_key_that_is_before_every_header_is_about_something_else() {
        let mut selector = [0; SELECTOR_HEADER + KEY];
        selector[2] = 1;
        selector[SELECTOR_HEADER + 8..][..4].copy_from_slice(&i32::MIN.to_ne_bytes());
        assert_eq!(u32_address::<1>(&selector, 16), None);
    }

    #[test]
    fn truncated_replies_name_no_other_peer() {
        for classifier in Classifier::ALL {
            let peer: Prefix = "fd70::1".parse().unwrap();
            let Reply(whole) = reply(Match::To(peer), Action::Redirect { to: 7 }, classifier);
            for length in 0..whole.len() {
                let cut = parse(&Reply(whole[..length].to_vec()), EGRESS);
                assert!(cut.is_none_or(|caught| caught.peer == peer), "{length}: {cut:?}");
            }
        }
    }
}
