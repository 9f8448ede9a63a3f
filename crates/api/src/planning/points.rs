//! The points of a matrix: its cells without their workloads.

use std::{collections::HashSet, hash::Hash};

use perfrun_contract::matrix::{IpFamily, StackName, Transport};

use super::{Error, stacks::ResolvedStack};
use crate::spec::{Combination, Matrix, PerfRunSpec};

/// A pair of stacks, a transport, a network and an IP family.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Point<'a> {
    pub client: ResolvedStack<'a>,
    pub server: ResolvedStack<'a>,
    /// The relay that the document names, for servers that are not raw.
    pub chosen_relay: Option<ResolvedStack<'a>>,
    pub transport: Transport,
    pub network: &'a str,
    pub ip_family: IpFamily,
}

impl<'a> Point<'a> {
    /// The point without a peer-to-peer stack.
    pub(super) fn raw(transport: Transport, network: &'a str, ip_family: IpFamily) -> Self {
        Self {
            client: ResolvedStack::RAW,
            server: ResolvedStack::RAW,
            chosen_relay: None,
            transport,
            network,
            ip_family,
        }
    }

    /// The stack of the relay between clients and servers. The raw reference has a proxy of its own.
    pub(super) fn relay(&self) -> ResolvedStack<'a> {
        let chosen = self.chosen_relay.filter(|_| self.server != ResolvedStack::RAW);
        chosen.unwrap_or(self.server)
    }
}

/// The axes of a matrix, without iterations.
pub(super) struct Axes<'a> {
    matrix: &'a Matrix,
    clients: Vec<ResolvedStack<'a>>,
    servers: Vec<ResolvedStack<'a>>,
    relay: Option<ResolvedStack<'a>>,
    transports: Vec<Transport>,
    networks: Vec<&'a str>,
    ip_families: Vec<IpFamily>,
    added: Vec<Added<'a>>,
}

/// What `include` adds.
struct Added<'a> {
    client: ResolvedStack<'a>,
    server: ResolvedStack<'a>,
    combination: &'a Combination,
}

impl<'a> Axes<'a> {
    pub(super) fn of(spec: &'a PerfRunSpec) -> Result<Self, Error> {
        let matrix = &spec.matrix;
        let named = |name: &StackName| ResolvedStack::named(spec, name);
        let all = |names: &[StackName]| {
            let stacks: Vec<_> = names.iter().map(named).collect::<Result<_, _>>()?;
            Ok::<_, Error>(distinct(stacks))
        };
        let added = matrix.include.iter().map(|combination| {
            Ok(Added {
                client: named(&combination.client)?,
                server: named(&combination.server)?,
                combination,
            })
        });
        Ok(Self {
            matrix,
            clients: all(&matrix.clients)?,
            servers: all(&matrix.servers)?,
            relay: spec.topology.relay.as_ref().map(named).transpose()?,
            transports: distinct(matrix.transports.iter().copied()),
            networks: distinct(matrix.networks.iter().map(String::as_str)),
            ip_families: distinct(matrix.ip_families.iter().copied()),
            added: added.collect::<Result<_, Error>>()?,
        })
    }

    /// Names of all networks; those that only `include` names come last.
    pub(super) fn networks(&self) -> Vec<&'a str> {
        let added = self.matrix.include.iter();
        let added = added.filter_map(|added| added.network.as_deref());
        distinct(self.networks.iter().copied().chain(added))
    }

    /// The points on a network, each once and in the order of the document. They are made one at a time,
    /// since there may be very many.
    pub(super) fn points(&self, network: &'a str) -> impl Iterator<Item = Point<'a>> {
        let is_crossed = self.networks.contains(&network);
        let chosen_relay = self.relay;
        let ip_families = self.ip_families.iter().filter(move |_| is_crossed);
        let crossed = ip_families.flat_map(move |ip_family| {
            self.transports.iter().flat_map(move |transport| {
                self.clients.iter().flat_map(move |client| {
                    self.servers.iter().map(move |server| Point {
                        client: *client,
                        server: *server,
                        chosen_relay,
                        transport: *transport,
                        network,
                        ip_family: *ip_family,
                    })
                })
            })
        });
        let added = self.added.iter().filter(move |added| {
            added
                .combination
                .network
                .as_deref()
                .map_or(is_crossed, |named| named == network)
        });
        let added = distinct(added.flat_map(|added| {
            let named = added.combination.ip_family.as_slice();
            let ip_families: &[IpFamily] = if named.is_empty() {
                &self.ip_families
            } else {
                named
            };
            ip_families.iter().map(move |ip_family| Point {
                client: added.client,
                server: added.server,
                chosen_relay,
                transport: added.combination.transport,
                network,
                ip_family: *ip_family,
            })
        }));
        crossed
            .filter(|point| !self.is_excluded(point))
            .chain(added.into_iter().filter(|point| !self.has_crossed(point)))
    }

    /// Whether the cross product has this point.
    fn has_crossed(&self, point: &Point<'_>) -> bool {
        self.networks.contains(&point.network)
            && self.ip_families.contains(&point.ip_family)
            && self.transports.contains(&point.transport)
            && self.clients.contains(&point.client)
            && self.servers.contains(&point.server)
            && !self.is_excluded(point)
    }

    fn is_excluded(&self, point: &Point<'_>) -> bool {
        let stacks = [point.client, point.server].map(|stack| stack.matrix_name());
        let mut excluded = self.matrix.exclude.iter();
        excluded.any(|selector| selector.matches(stacks, point.transport, point.network, point.ip_family))
    }
}

/// Each value once. A document may repeat a value (`1Ki` and `1024`), but ids of cells must be unique.
pub(super) fn distinct<T: Copy + Eq + Hash>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    all.into_iter().filter(|one| seen.insert(*one)).collect()
}
