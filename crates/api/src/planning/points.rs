//! The points of a matrix: its cells without their workloads.

use std::{collections::HashSet, hash::Hash};

use perfrun_contract::{
    matrix::{StackName, Transport},
    plan::Cell,
};

use crate::spec::{Matrix, Selector};

/// A pair of stacks, a transport and a network.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Point<'a> {
    pub client: &'a StackName,
    pub server: &'a StackName,
    pub transport: Transport,
    pub network: &'a str,
}

/// The axes of a matrix, without iterations.
pub(super) struct Axes<'a> {
    matrix: &'a Matrix,
    clients: Vec<&'a StackName>,
    servers: Vec<&'a StackName>,
    transports: Vec<Transport>,
    networks: Vec<&'a str>,
}

impl<'a> Axes<'a> {
    pub(super) fn of(matrix: &'a Matrix) -> Self {
        Self {
            matrix,
            clients: distinct(&matrix.clients),
            servers: distinct(&matrix.servers),
            transports: distinct(matrix.transports.iter().copied()),
            networks: distinct(matrix.networks.iter().map(String::as_str)),
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
        let transports = self.transports.iter().filter(move |_| is_crossed);
        let crossed = transports.flat_map(move |transport| {
            self.clients.iter().flat_map(move |client| {
                self.servers.iter().map(move |server| Point {
                    client,
                    server,
                    transport: *transport,
                    network,
                })
            })
        });
        let added = self.matrix.include.iter().filter(move |added| {
            added
                .network
                .as_deref()
                .map_or(is_crossed, |named| named == network)
        });
        let added = distinct(added.map(|added| Point {
            client: &added.client,
            server: &added.server,
            transport: added.transport,
            network,
        }));
        crossed
            .filter(|point| !self.is_excluded(point))
            .chain(added.into_iter().filter(|point| !self.has_crossed(point)))
    }

    /// Whether the cross product has this point.
    fn has_crossed(&self, point: &Point<'_>) -> bool {
        self.networks.contains(&point.network)
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
    }
}
