//! The points of a matrix: its cells without their workloads.

use std::{collections::HashSet, hash::Hash};

use perfrun_contract::{
    matrix::{IpFamily, StackName, Transport},
    plan::Cell,
};

use crate::spec::{Matrix, Selector};

/// A pair of stacks, a transport, a network and an IP family.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Point<'a> {
    pub client: &'a StackName,
    pub server: &'a StackName,
    pub transport: Transport,
    pub network: &'a str,
    pub ip_family: IpFamily,
}

/// The axes of a matrix, without iterations.
pub(super) struct Axes<'a> {
    matrix: &'a Matrix,
    clients: Vec<&'a StackName>,
    servers: Vec<&'a StackName>,
    transports: Vec<Transport>,
    networks: Vec<&'a str>,
    ip_families: Vec<IpFamily>,
}

impl<'a> Axes<'a> {
    pub(super) fn of(matrix: &'a Matrix) -> Self {
        Self {
            matrix,
            clients: distinct(&matrix.clients),
            servers: distinct(&matrix.servers),
            transports: distinct(matrix.transports.iter().copied()),
            networks: distinct(matrix.networks.iter().map(String::as_str)),
            ip_families: distinct(matrix.ip_families.iter().copied()),
        }
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
        let ip_families = self.ip_families.iter().filter(move |_| is_crossed);
        let crossed = ip_families.flat_map(move |ip_family| {
            self.transports.iter().flat_map(move |transport| {
                self.clients.iter().flat_map(move |client| {
                    self.servers.iter().map(move |server| Point {
                        client,
                        server,
                        transport: *transport,
                        network,
                        ip_family: *ip_family,
                    })
                })
            })
        });
        let added = self.matrix.include.iter().filter(move |added| {
            added
                .network
                .as_deref()
                .map_or(is_crossed, |named| named == network)
        });
        let added = distinct(added.flat_map(|added| {
            let named = added.ip_family.as_slice();
            let ip_families: &[IpFamily] = if named.is_empty() {
                &self.ip_families
            } else {
                named
            };
            ip_families.iter().map(move |ip_family| Point {
                client: &added.client,
                server: &added.server,
                transport: added.transport,
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
        self.matrix.exclude.iter().any(|selector| selector.matches(point))
    }
}

/// Each value once. A document may repeat a value (`1Ki` and `1024`), but ids of cells must be unique.
pub(super) fn distinct<T: Copy + Eq + Hash>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    all.into_iter().filter(|one| seen.insert(*one)).collect()
}

impl Selector {
    /// Whether it selects a cell.
    pub fn selects(&self, cell: &Cell) -> bool {
        self.matches(&Point {
            client: &cell.client,
            server: &cell.server,
            transport: cell.transport,
            network: &cell.network,
            ip_family: cell.ip_family,
        })
    }

    fn matches(&self, point: &Point<'_>) -> bool {
        self.client.as_ref().is_none_or(|client| client == point.client)
            && self.server.as_ref().is_none_or(|server| server == point.server)
            && self
                .transport
                .is_none_or(|transport| transport == point.transport)
            && self
                .network
                .as_ref()
                .is_none_or(|network| network == point.network)
            && self
                .ip_family
                .is_none_or(|ip_family| ip_family == point.ip_family)
    }
}
