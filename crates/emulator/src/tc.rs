//! Queueing disciplines and filters as messages to the kernel.
//!
//! Everything that this crate adds to an interface bears [`OWN_MAJOR`], which tells what a killed process has
//! left from what belongs to others.

use std::net::IpAddr;

use perfrun_link::route::{Prefix, mask_v4, mask_v6};
use rtnetlink::{
    packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL},
    packet_route::{
        RouteNetlinkMessage,
        tc::{
            TcAction, TcActionAttribute, TcActionGeneric, TcActionMirrorOption, TcActionOption, TcActionType,
            TcAttribute, TcFilterFlowerOption, TcFilterU32Option, TcHandle, TcMessage, TcMirror,
            TcMirrorActionType, TcOption, TcU32Key, TcU32Selector, TcU32SelectorFlags,
        },
    },
};
use rustix::io::Errno;

use crate::netlink::{Error, Netlink, Reply, attribute};

/// The major number of this crate's handles and classes, "pe" in ASCII.
pub(crate) const OWN_MAJOR: u16 = 0x7065;

pub(crate) const fn handle(major: u16, minor: u16) -> TcHandle {
    TcHandle { major, minor }
}

/// The parent of clsact's filters for incoming packets.
pub(crate) const INGRESS: TcHandle = handle(0xffff, TcHandle::MIN_INGRESS);
/// The parent of clsact's filters for outgoing packets.
pub(crate) const EGRESS: TcHandle = handle(0xffff, TcHandle::MIN_EGRESS);

const MESSAGE_HEADER: usize = 20;
pub(crate) const TCA_KIND: u16 = 1;
pub(crate) const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
/// An attribute in `TCA_STATS2`.
const TCA_STATS_BASIC: u16 = 1;
/// An attribute in `TCA_STATS2`.
const TCA_STATS_QUEUE: u16 = 3;
/// An attribute in `TCA_STATS2`.
const TCA_STATS_PKT64: u16 = 8;
/// The attribute of a filter's class, in both u32 and flower.
pub(crate) const CLASS_ID: u16 = 1;

/// The priority of a filter that is only tried: behind all others.
const DETECTION_PRIORITY: u16 = 0x7065;

/// The kinds of filters that can select packets to peers. Kernels of clouds and desktops lack one or the
/// other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Classifier {
    U32,
    Flower,
}

impl Classifier {
    /// The first to be tried has been in kernels the longest.
    pub(crate) const ALL: [Self; 2] = [Self::U32, Self::Flower];

    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::U32 => "u32",
            Self::Flower => "flower",
        }
    }
}

/// The packets that a filter matches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Match {
    Everything,
    /// Packets that came in through this device.
    From(String),
    /// Packets to one of these addresses.
    To(Prefix),
    /// ICMPv6 types from 133 to 137, on which the link itself depends: as with ARP, a delayed reply would
    /// look like an absent neighbour.
    NeighbourDiscovery {
        icmp_type: u8,
        mask: u8,
    },
}

impl Match {
    /// Matches that together cover all types of neighbour discovery.
    pub(crate) fn neighbour_discovery() -> [Self; 3] {
        [(133, 0xff), (134, 0xfe), (136, 0xfe)]
            .map(|(icmp_type, mask)| Self::NeighbourDiscovery { icmp_type, mask })
    }

    /// A priority of filters is for one protocol.
    fn ether_type(&self) -> u16 {
        match self {
            Self::Everything | Self::From(_) => libc::ETH_P_ALL as u16,
            Self::To(prefix) if prefix.address().is_ipv4() => libc::ETH_P_IP as u16,
            Self::To(_) | Self::NeighbourDiscovery { .. } => libc::ETH_P_IPV6 as u16,
        }
    }
}

/// What a filter does with a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Action {
    /// Leads it to a class of this crate, by its minor number. Where there are no classes, it lets the packet
    /// pass without looking at other filters.
    Class(u16),
    /// Sends it out through another device.
    Redirect { to: u32 },
}

/// A filter of this crate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Filter {
    pub(crate) parent: TcHandle,
    pub(crate) priority: u16,
    pub(crate) matches: Match,
    pub(crate) action: Action,
}

impl Filter {
    pub(crate) fn message(&self, interface: u32, classifier: Classifier) -> TcMessage {
        let mut message = TcMessage::with_index(interface as i32);
        message.header.parent = self.parent;
        message.header.info = filter_info(self.priority, self.matches.ether_type());
        let class = match self.action {
            Action::Class(minor) => minor,
            Action::Redirect { .. } => 1, // not a class, only a mark
        };
        let class = handle(OWN_MAJOR, class);
        let actions = match self.action {
            Action::Class(_) => None,
            Action::Redirect { to } => Some(vec![redirect(to)]),
        };
        let options = match classifier {
            Classifier::U32 => u32_options(&self.matches, class, actions),
            Classifier::Flower => flower_options(&self.matches, class, actions),
        };
        message
            .attributes
            .push(TcAttribute::Kind(classifier.kind().to_owned()));
        message.attributes.push(TcAttribute::Options(options));
        message
    }
}

/// Priority and protocol in the format of `tcm_info`.
fn filter_info(priority: u16, ether_type: u16) -> u32 {
    u32::from(priority) << 16 | u32::from(ether_type.to_be())
}

fn u32_options(matches: &Match, class: TcHandle, actions: Option<Vec<TcAction>>) -> Vec<TcOption> {
    // Offsets are from the IP header, values in network order.
    let key = |off: i32, val: u32, mask: u32| {
        let mut key = TcU32Key::default();
        (key.off, key.val, key.mask) = (off, val, mask);
        key
    };
    let keys = match matches {
        Match::Everything | Match::From(_) => vec![key(0, 0, 0)],
        Match::To(prefix) => match prefix.address() {
            IpAddr::V4(address) => vec![key(16, address.to_bits(), mask_v4(prefix.length()))],
            IpAddr::V6(address) => {
                let (bits, mask) = (address.to_bits(), mask_v6(prefix.length()));
                let word = |number: i32| {
                    let shift = 96 - 32 * number;
                    key(24 + 4 * number, (bits >> shift) as u32, (mask >> shift) as u32)
                };
                (0..4).map(word).filter(|key| key.mask != 0).collect()
            }
        },
        Match::NeighbourDiscovery { icmp_type, mask } => vec![
            key(4, (libc::IPPROTO_ICMPV6 as u32) << 8, 0xff00),
            key(40, u32::from(*icmp_type) << 24, u32::from(*mask) << 24),
        ],
    };
    let mut selector = TcU32Selector::default();
    selector.flags = TcU32SelectorFlags::Terminal;
    selector.nkeys = u8::try_from(keys.len()).expect("an address has four words");
    selector.keys = keys;
    let mut options = vec![
        TcFilterU32Option::ClassId(class),
        TcFilterU32Option::Selector(selector),
    ];
    if let Match::From(device) = matches {
        let mut name = device.clone().into_bytes();
        name.push(0);
        options.push(TcFilterU32Option::Indev(name));
    }
    options.extend(actions.map(TcFilterU32Option::Action));
    options.into_iter().map(TcOption::U32).collect()
}

fn flower_options(matches: &Match, class: TcHandle, actions: Option<Vec<TcAction>>) -> Vec<TcOption> {
    use TcFilterFlowerOption as Key;
    let mut options = vec![Key::ClassId(class.into())];
    match matches {
        Match::Everything => {}
        Match::From(device) => options.push(Key::InDev(device.clone())),
        Match::To(prefix) => {
            options.push(Key::EthType(matches.ether_type()));
            match prefix.address() {
                IpAddr::V4(address) => {
                    options.push(Key::Ipv4Dst(address));
                    options.push(Key::Ipv4DstMask(mask_v4(prefix.length()).into()));
                }
                IpAddr::V6(address) => {
                    options.push(Key::Ipv6Dst(address));
                    options.push(Key::Ipv6DstMask(mask_v6(prefix.length()).into()));
                }
            }
        }
        Match::NeighbourDiscovery { icmp_type, mask } => {
            options.push(Key::EthType(matches.ether_type()));
            options.push(Key::IpProto(libc::IPPROTO_ICMPV6 as u8));
            options.push(Key::Icmpv6Type(*icmp_type));
            options.push(Key::Icmpv6TypeMask(*mask));
        }
    }
    options.extend(actions.map(Key::Actions));
    options.into_iter().map(TcOption::Flower).collect()
}

fn redirect(to: u32) -> TcAction {
    let mut generic = TcActionGeneric::default();
    generic.action = TcActionType::Stolen;
    let mut mirror = TcMirror::default();
    mirror.generic = generic;
    mirror.eaction = TcMirrorActionType::EgressRedir;
    mirror.ifindex = to;
    let mut action = TcAction::default();
    action.attributes = vec![
        TcActionAttribute::Kind("mirred".to_owned()),
        TcActionAttribute::Options(vec![TcActionOption::Mirror(TcActionMirrorOption::Parms(mirror))]),
    ];
    action
}

/// A message about a queueing discipline, with options in the format of its kind.
pub(crate) fn qdisc(
    interface: u32,
    parent: TcHandle,
    handle: TcHandle,
    kind: &str,
    options: Option<Vec<u8>>,
) -> TcMessage {
    let mut message = TcMessage::with_index(interface as i32);
    message.header.parent = parent;
    message.header.handle = handle;
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    message
        .attributes
        .extend(options.map(|bytes| TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, bytes))));
    message
}

/// A queueing discipline of the kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Qdisc {
    pub(crate) handle: TcHandle,
    pub(crate) parent: TcHandle,
    pub(crate) kind: String,
    pub(crate) options: Vec<u8>,
    pub(crate) stats: Option<QdiscStats>,
}

/// The counts of a queueing discipline.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct QdiscStats {
    pub(crate) packets: u64,
    pub(crate) dropped: u32,
    pub(crate) queued: u32,
}

/// A filter of the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct KernelFilter {
    pub(crate) priority: u16,
    pub(crate) ether_type: u16,
    pub(crate) own: bool,
}

impl Netlink {
    pub(crate) fn add_filter(
        &mut self,
        interface: u32,
        filter: &Filter,
        classifier: Classifier,
    ) -> Result<(), Error> {
        let message = filter.message(interface, classifier);
        self.execute(
            RouteNetlinkMessage::NewTrafficFilter(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Adds a filter of the first kind that this kernel has, and returns that kind.
    pub(crate) fn add_first(&mut self, interface: u32, filter: &Filter) -> Result<Classifier, Error> {
        let [preferred, other] = Classifier::ALL;
        let Err(refused) = self.add_filter(interface, filter, preferred) else {
            return Ok(preferred);
        };
        // If the kernel has neither, the first refusal names the module that is usually there.
        self.add_filter(interface, filter, other)
            .map_or(Err(refused), |()| Ok(other))
    }

    /// The kind of filters that this kernel has, tried with one that changes nothing and is removed.
    pub(crate) fn classifier(&mut self, interface: u32, parent: TcHandle) -> Result<Classifier, Error> {
        let harmless = Filter {
            parent,
            priority: DETECTION_PRIORITY,
            matches: Match::Everything,
            action: Action::Class(1),
        };
        let classifier = self.add_first(interface, &harmless)?;
        let present = KernelFilter {
            priority: DETECTION_PRIORITY,
            ether_type: harmless.matches.ether_type(),
            own: true,
        };
        self.remove_filters(interface, parent, present)?;
        Ok(classifier)
    }

    /// Removes all filters of one priority.
    pub(crate) fn remove_filters(
        &mut self,
        interface: u32,
        parent: TcHandle,
        present: KernelFilter,
    ) -> Result<(), Error> {
        let mut message = TcMessage::with_index(interface as i32);
        message.header.parent = parent;
        message.header.info = filter_info(present.priority, present.ether_type);
        self.execute(RouteNetlinkMessage::DelTrafficFilter(message), 0)
    }

    /// The filters of a parent, each priority once. Empty if there is no such parent.
    pub(crate) fn filters(&mut self, interface: u32, parent: TcHandle) -> Result<Vec<KernelFilter>, Error> {
        let replies = self.filter_replies(interface, parent)?;
        Ok(merge_by_priority(
            replies.iter().filter_map(|reply| parse_filter(reply, parent)),
        ))
    }

    /// The filters of a parent, undecoded. Empty if there is no such parent.
    pub(crate) fn filter_replies(&mut self, interface: u32, parent: TcHandle) -> Result<Vec<Reply>, Error> {
        let mut message = TcMessage::with_index(interface as i32);
        message.header.parent = parent;
        match self.dump(RouteNetlinkMessage::GetTrafficFilter(message)) {
            Err(error) if error.errno().is_some_and(is_absent) => Ok(Vec::new()),
            replies => replies,
        }
    }

    /// The queueing disciplines of an interface.
    pub(crate) fn qdiscs(&mut self, interface: u32) -> Result<Vec<Qdisc>, Error> {
        let message = TcMessage::with_index(interface as i32);
        let replies = self.dump(RouteNetlinkMessage::GetQueueDiscipline(message))?;
        // Old kernels list the qdiscs of all interfaces.
        Ok(replies
            .iter()
            .filter_map(|reply| parse_qdisc(reply, interface))
            .collect())
    }

    /// Adds clsact, the parent of filters. Returns false if it already exists.
    pub(crate) fn add_clsact(&mut self, interface: u32) -> Result<bool, Error> {
        let message = clsact(interface);
        match self.execute(
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_EXCL,
        ) {
            Err(error) if error.errno() == Some(Errno::EXIST) => Ok(false),
            added => added.map(|()| true),
        }
    }

    /// Removes clsact with all its filters, if it exists.
    pub(crate) fn remove_clsact(&mut self, interface: u32) -> Result<(), Error> {
        match self.execute(RouteNetlinkMessage::DelQueueDiscipline(clsact(interface)), 0) {
            Err(error) if error.errno().is_some_and(is_absent) => Ok(()),
            removed => removed,
        }
    }
}

fn clsact(interface: u32) -> TcMessage {
    qdisc(interface, TcHandle::CLSACT, handle(0xffff, 0), "clsact", None)
}

/// The error for filters of a parent that does not exist depends on the kernel's age.
fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::INVAL | Errno::OPNOTSUPP)
}

/// Fields of `struct tcmsg` and the attributes behind it.
pub(crate) struct Parsed<'a> {
    pub(crate) index: u32,
    handle: TcHandle,
    pub(crate) parent: TcHandle,
    pub(crate) info: u32,
    pub(crate) attributes: &'a [u8],
}

pub(crate) fn parse(Reply(bytes): &Reply) -> Option<Parsed<'_>> {
    let (header, attributes) = bytes.split_at_checked(MESSAGE_HEADER)?;
    let long = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Some(Parsed {
        index: long(4),
        handle: long(8).into(),
        parent: long(12).into(),
        info: long(16),
        attributes,
    })
}

pub(crate) fn parse_qdisc(reply: &Reply, interface: u32) -> Option<Qdisc> {
    let parsed = parse(reply).filter(|parsed| parsed.index == interface)?;
    let kind = String::from_utf8_lossy(attribute(parsed.attributes, TCA_KIND)?);
    Some(Qdisc {
        handle: parsed.handle,
        parent: parsed.parent,
        kind: kind.trim_end_matches('\0').to_owned(),
        options: attribute(parsed.attributes, TCA_OPTIONS)
            .unwrap_or_default()
            .to_vec(),
        stats: attribute(parsed.attributes, TCA_STATS2).and_then(parse_stats),
    })
}

fn parse_stats(stats: &[u8]) -> Option<QdiscStats> {
    let basic = attribute(stats, TCA_STATS_BASIC)?;
    let queue = attribute(stats, TCA_STATS_QUEUE)?;
    let long = |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    // Kernels since 5.5 have a wider count, in case the other one has overflowed.
    let packets = match attribute(stats, TCA_STATS_PKT64) {
        Some(packets) => u64::from_ne_bytes(packets.try_into().ok()?),
        None => long(basic, 8)?.into(),
    };
    Some(QdiscStats {
        packets,
        dropped: long(queue, 8)?,
        queued: long(queue, 0)?,
    })
}

pub(crate) fn parse_filter(reply: &Reply, parent: TcHandle) -> Option<KernelFilter> {
    let parsed = parse(reply).filter(|parsed| parsed.parent == parent)?;
    let class = attribute(parsed.attributes, TCA_OPTIONS)
        .and_then(|options| attribute(options, CLASS_ID))
        .and_then(|class| Some(TcHandle::from(u32::from_ne_bytes(class.try_into().ok()?))));
    Some(KernelFilter {
        priority: (parsed.info >> 16) as u16,
        ether_type: u16::from_be(parsed.info as u16),
        own: class.is_some_and(|class| class.major == OWN_MAJOR),
    })
}

/// A priority belongs to this crate if one of its filters does: the tables of u32 bear no mark, and no
/// other program writes to these priorities.
fn merge_by_priority(filters: impl Iterator<Item = KernelFilter>) -> Vec<KernelFilter> {
    let mut merged: Vec<KernelFilter> = Vec::new();
    for filter in filters {
        match merged.iter_mut().find(|known| known.priority == filter.priority) {
            Some(known) => known.own |= filter.own,
            None => merged.push(filter),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_core::Emitable;

    use super::*;

    fn bytes(message: &TcMessage) -> Vec<u8> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    fn filter_to(peer: &str) -> Filter {
        Filter {
            parent: EGRESS,
            priority: 10,
            matches: Match::To(peer.parse().unwrap()),
            action: Action::Redirect { to: 77 },
        }
    }

    fn selector(filter: &Filter) -> TcU32Selector {
        let message = filter.message(5, Classifier::U32);
        let found = message
            .attributes
            .into_iter()
            .find_map(|attribute| match attribute {
                TcAttribute::Options(options) => options.into_iter().find_map(|option| match option {
                    TcOption::U32(TcFilterU32Option::Selector(selector)) => Some(selector),
                    _ => None,
                }),
                _ => None,
            });
        found.unwrap()
    }

    /// Everything that decides where a packet goes, as `tc -s filter add … u32 match ip dst 10.99.0.0/24`
    /// sends it.
    #[test]
    fn a_filter_of_ipv4_has_the_bytes_that_tc_sends() {
        let bytes = bytes(&filter_to("10.99.0.0/24").message(5, Classifier::U32));
        assert_eq!(bytes[4..8], 5u32.to_ne_bytes());
        assert_eq!(bytes[12..16], 0xffff_fff3u32.to_ne_bytes());
        assert_eq!(
            bytes[16..20],
            (10u32 << 16 | u32::from(0x0800u16.to_be())).to_ne_bytes()
        );
        let options = attribute(&bytes[MESSAGE_HEADER..], TCA_OPTIONS).unwrap();
        assert_eq!(
            attribute(options, CLASS_ID).unwrap(),
            0x7065_0001u32.to_ne_bytes()
        );
        let selector = attribute(options, 5).unwrap();
        assert_eq!(selector[..3], [1, 0, 1]); // terminal, one key
        let key = &selector[16..];
        assert_eq!(
            key,
            [
                &[255, 255, 255, 0, 10, 99, 0, 0][..],
                &16i32.to_ne_bytes(),
                &0i32.to_ne_bytes()
            ]
            .concat()
        );
        let action = attribute(attribute(options, 7).unwrap(), 1).unwrap();
        assert_eq!(attribute(action, 1).unwrap(), b"mirred\0");
        let parameters = attribute(attribute(action, 2).unwrap(), 2).unwrap();
        assert_eq!(parameters[8..12], 4i32.to_ne_bytes()); // TC_ACT_STOLEN
        assert_eq!(
            parameters[20..28],
            [1i32.to_ne_bytes(), 77i32.to_ne_bytes()].concat()
        );
    }

    #[test]
    fn prefixes_of_ipv6_become_one_match_for_each_32_bits() {
        let words = |peer| -> Vec<_> {
            let selector = selector(&filter_to(peer));
            selector
                .keys
                .iter()
                .map(|key| (key.off, key.val, key.mask))
                .collect()
        };
        assert_eq!(
            words("fd70:6572:6672::/48"),
            [(24, 0xfd70_6572, u32::MAX), (28, 0x6672_0000, 0xffff_0000)]
        );
        assert_eq!(words("fd70::1").len(), 4);
        assert_eq!(words("fd70::1")[3], (36, 1, u32::MAX));
    }

    #[test]
    fn neighbour_discovery_is_covered_exactly() {
        for icmp_type in 0..=255u8 {
            let exempt = Match::neighbour_discovery().iter().any(|matches| match matches {
                Match::NeighbourDiscovery {
                    icmp_type: value,
                    mask,
                } => icmp_type & mask == *value,
                _ => false,
            });
            assert_eq!(exempt, (133..=137).contains(&icmp_type), "{icmp_type}");
        }
    }

    #[test]
    fn own_filters_are_recognised_among_those_of_the_kernel() {
        for classifier in Classifier::ALL {
            let own = Reply(bytes(&filter_to("10.0.0.1").message(5, classifier)));
            let present = parse_filter(&own, EGRESS).unwrap();
            assert_eq!(
                present,
                KernelFilter {
                    priority: 10,
                    ether_type: 0x0800,
                    own: true
                }
            );
            assert_eq!(parse_filter(&own, INGRESS), None);
        }
        let mut foreign = filter_to("10.0.0.1").message(5, Classifier::U32);
        foreign.attributes[1] = TcAttribute::Options(Vec::new());
        let foreign = parse_filter(&Reply(bytes(&foreign)), EGRESS).unwrap();
        assert!(!foreign.own);
        // u32 lists its table before the filters in it.
        let own = KernelFilter { own: true, ..foreign };
        assert_eq!(merge_by_priority([foreign, own].into_iter()), [own]);
    }

    #[test]
    fn truncated_replies_of_tc_are_not_misread() {
        let whole = bytes(&filter_to("10.0.0.1").message(5, Classifier::U32));
        for length in 0..whole.len() {
            let cut = Reply(whole[..length].to_vec());
            assert!(parse_filter(&cut, EGRESS).is_none_or(|present| present.priority == 10));
            assert_eq!(parse_qdisc(&cut, 6), None);
        }
    }
}
