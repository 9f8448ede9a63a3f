//! Filters that select the packets to peers, the same for both backends.
//!
//! Filters are replaced without a gap: new ones are in place before old ones are removed. If the process is
//! killed in between, one set or the other still catches packets to peers.

use perfrun_link::route::{OutgoingLinks, Prefix};
use rtnetlink::packet_route::tc::TcHandle;
use thiserror::Error;

use crate::{
    netlink::{self, Netlink},
    tc::{Action, Classifier, Filter, KernelFilter, Match},
};

/// Priorities of filters. The lowest comes first, and each is for one protocol. This one is for packets that
/// pass unimpaired, whatever their destination.
const PASS: u16 = 100;
/// The priority of neighbour discovery, which also passes unimpaired.
const DISCOVERY: u16 = 101;
/// Sets of filters for peers, used in turn: IPv4, and IPv6 at the next priority. The third set is for the
/// successor of a process that was killed while it replaced one of the other two.
const SETS: [u16; 3] = [110, 120, 130];

/// Why filters are not as they should be.
#[derive(Debug, Error)]
pub enum Error {
    /// Listing filters failed.
    #[error("failed to list filters")]
    List(#[source] netlink::Error),
    /// Adding a filter failed: cls_u32, cls_flower or act_mirred may be missing.
    #[error("failed to add a filter (`modprobe -a cls_u32 act_mirred` as root, if they are modules)")]
    Add(#[source] netlink::Error),
    /// Removing a filter of this crate failed.
    #[error("failed to remove a filter")]
    Remove(#[source] netlink::Error),
}

impl Error {
    /// The kernel's error.
    pub fn cause(&self) -> &netlink::Error {
        match self {
            Self::List(cause) | Self::Add(cause) | Self::Remove(cause) => cause,
        }
    }
}

/// The filters of one interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The index of the interface.
    pub(crate) index: u32,
    pub(crate) parent: TcHandle,
    pub(crate) classifier: Classifier,
}

impl Rules {
    /// The filters of an interface, to list or to remove. Set the classifier before any is added.
    pub(crate) fn new(index: u32, parent: TcHandle) -> Self {
        Self {
            index,
            parent,
            classifier: Classifier::U32,
        }
    }

    /// The existing filters of this crate.
    pub(crate) fn own_filters(&self, netlink: &mut Netlink) -> Result<Vec<KernelFilter>, Error> {
        let mut filters = netlink.filters(self.index, self.parent).map_err(Error::List)?;
        filters.retain(|present| present.own);
        Ok(filters)
    }

    /// Whether any filter catches packets to peers.
    pub(crate) fn has_catching_filters(&self, netlink: &mut Netlink) -> Result<bool, Error> {
        let is_catch = |present: &KernelFilter| present.priority >= SETS[0];
        Ok(self.own_filters(netlink)?.iter().any(is_catch))
    }

    /// Lets packets pass that are never impaired, whatever their destination: neighbour discovery, and
    /// packets that came in through the device.
    pub(crate) fn set_passes(&self, netlink: &mut Netlink, device: Option<&str>) -> Result<(), Error> {
        for present in self.own_filters(netlink)? {
            if present.priority < SETS[0] {
                self.remove_one(netlink, present)?;
            }
        }
        let returned = device.map(|device| (PASS, Match::From(device.to_owned())));
        let discovery = Match::neighbour_discovery().map(|matches| (DISCOVERY, matches));
        for (priority, matches) in returned.into_iter().chain(discovery) {
            self.add(netlink, priority, matches, Action::Class(1))?;
        }
        Ok(())
    }

    /// Replaces the caught peers by these, longer prefixes first.
    pub(crate) fn set_peers(
        &self,
        netlink: &mut Netlink,
        peers: impl IntoIterator<Item = (Prefix, Action)>,
    ) -> Result<(), Error> {
        let mut before = self.own_filters(netlink)?;
        before.retain(|present| present.priority >= SETS[0]);
        let set = match free_set(&before) {
            Some(set) => set,
            None => {
                // The other two sets still catch.
                let (oldest, others) = before
                    .into_iter()
                    .partition(|present| set_of(*present) == SETS[0]);
                before = others;
                self.remove_all(netlink, oldest)?;
                SETS[0]
            }
        };
        // Filters of one priority apply in the order in which they were added.
        for (peer, action) in peers {
            let priority = set + u16::from(peer.address().is_ipv6());
            self.add(netlink, priority, Match::To(peer), action)?;
        }
        self.remove_all(netlink, before)
    }

    /// Removes all filters of this crate.
    pub(crate) fn remove(&self, netlink: &mut Netlink) -> Result<(), Error> {
        // First those that catch: packets that they have caught must still pass.
        let mut filters = self.own_filters(netlink)?;
        filters.sort_by_key(|present| std::cmp::Reverse(present.priority));
        self.remove_all(netlink, filters)
    }

    fn add(&self, netlink: &mut Netlink, priority: u16, matches: Match, action: Action) -> Result<(), Error> {
        let filter = Filter {
            parent: self.parent,
            priority,
            matches,
            action,
        };
        netlink
            .add_filter(self.index, &filter, self.classifier)
            .map_err(Error::Add)
    }

    fn remove_all(&self, netlink: &mut Netlink, filters: Vec<KernelFilter>) -> Result<(), Error> {
        filters
            .into_iter()
            .try_for_each(|present| self.remove_one(netlink, present))
    }

    fn remove_one(&self, netlink: &mut Netlink, present: KernelFilter) -> Result<(), Error> {
        netlink
            .remove_filters(self.index, self.parent, present)
            .map_err(Error::Remove)
    }
}

/// Peers with an impairment, longer prefixes first, and the number of their route.
///
/// A peer without an impairment is included if it is an exception to a shorter prefix with one.
pub(crate) fn impaired(links: &OutgoingLinks) -> Vec<(Prefix, usize)> {
    let peers = links.peers();
    let has_impairment = |route: usize| !links.routes()[route].impairment.is_none();
    let is_exception = |peer: Prefix| {
        let mut shorter = peers.iter().filter(|(other, _)| other.length() < peer.length());
        shorter.any(|(other, route)| has_impairment(*route) && other.contains(peer.address()))
    };
    let named = |(peer, route): &&(Prefix, usize)| has_impairment(*route) || is_exception(*peer);
    peers.iter().filter(named).copied().collect()
}

fn set_of(present: KernelFilter) -> u16 {
    present.priority - present.priority % 10
}

fn free_set(present: &[KernelFilter]) -> Option<u16> {
    SETS.into_iter()
        .find(|set| present.iter().all(|present| set_of(*present) != *set))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use perfrun_link::{impairment::Impairment, route::Route};

    use super::*;

    #[test]
    fn a_new_rule_set_has_priorities_that_no_other_has() {
        let present = |priority| KernelFilter {
            priority,
            ether_type: 0x0800,
            own: true,
        };
        assert_eq!(free_set(&[]), Some(110));
        assert_eq!(free_set(&[present(110)]), Some(120));
        assert_eq!(free_set(&[present(121)]), Some(110));
        assert_eq!(free_set(&[present(110), present(120)]), Some(130));
        assert_eq!(free_set(&[present(111), present(120), present(131)]), None);
    }

    #[test]
    fn only_impaired_peers_are_caught_and_their_exceptions() {
        let route = |peer: &str, milliseconds| Route {
            peers: vec![peer.parse().unwrap()],
            impairment: Impairment {
                delay: Duration::from_millis(milliseconds),
                ..Impairment::default()
            },
        };
        let links = OutgoingLinks::new(vec![
            route("10.0.0.0/8", 5),
            route("10.1.0.0/16", 0),
            route("10.1.2.0/24", 7),
            route("192.168.0.1", 0),
        ])
        .unwrap();
        let caught: Vec<_> = impaired(&links)
            .into_iter()
            .map(|(peer, route)| (peer.to_string(), route))
            .collect();
        let expected = [("10.1.2.0/24", 2), ("10.1.0.0/16", 1), ("10.0.0.0/8", 0)];
        assert_eq!(caught, expected.map(|(peer, route)| (peer.to_owned(), route)));
    }
}
