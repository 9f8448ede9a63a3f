//! The dialling side of a trial: prepare, wait, run.

use std::{
    iter::repeat,
    time::{Duration, Instant},
};

use futures::future::join_all;
use perfrun_contract::node::Reason;

use super::{
    failed::{Failed, failure},
    measurements::Measurements,
    peer::{ConnectedServer, Peer, dial, dialler},
    setup::Setup,
};
use crate::wire::Counters;

/// A server to dial.
pub(crate) struct Server {
    pub(super) address: String,
    /// How far its clock is ahead of this node's, in nanoseconds, if that is known.
    clock: Option<i64>,
}

impl Server {
    /// The servers at these addresses. `clocks` has their clocks in the same order, as far as they are known.
    pub(crate) fn all(addresses: &[String], clocks: &[i64]) -> Vec<Self> {
        let clocks = clocks.iter().copied().map(Some).chain(repeat(None));
        addresses
            .iter()
            .cloned()
            .zip(clocks)
            .map(|(address, clock)| Self { address, clock })
            .collect()
    }
}

/// A client that is ready to begin.
pub(crate) struct Client<'a> {
    pub(super) setup: Setup,
    pub(super) peers: Vec<Peer>,
    /// Dialled in turn.
    pub(super) servers: Vec<Server>,
    /// Peers that are active at the same time, if the workload itself starts them.
    pub(super) slots: usize,
    /// The caller's, so that measurements outlive a client that is cut short.
    pub(super) measurements: &'a mut Measurements,
}

impl<'a> Client<'a> {
    /// Starts hosts and, unless the workload does that itself, opens connections.
    pub(crate) async fn prepare(
        setup: Setup,
        servers: Vec<Server>,
        peers: u32,
        measurements: &'a mut Measurements,
    ) -> Result<Self, Failed> {
        if servers.is_empty() {
            return Err(Failed(failure(
                Reason::DialFailed,
                "there is no server address to dial",
            )));
        }
        let slots = usize::try_from(setup.parameters.hosts(peers)).unwrap_or(usize::MAX);
        let hosts = setup.parameters.prepared_hosts(slots);
        setup.check_files(|parameters, stream_is_connection| {
            parameters.client_files(hosts.max(slots) as u64, stream_is_connection)
        })?;
        let mut client = Self {
            setup,
            peers: vec![],
            servers,
            slots,
            measurements,
        };
        for i in 0..hosts {
            client.add_peer(i).await?;
        }
        Ok(client)
    }

    /// Adds a peer that talks to the server of this number, in turn, and to those after it if it talks to
    /// several.
    async fn add_peer(&mut self, first: usize) -> Result<(), Failed> {
        let host = dialler(&self.setup).await?;
        let of = |number: usize| &self.servers[number % self.servers.len()];
        let mut peer = Peer {
            host,
            server: of(first).address.clone(),
            connected_servers: vec![],
        };
        if self.setup.parameters.connects_before_start() {
            for server in (first..).take(self.setup.parameters.servers_of_peer()).map(of) {
                let dialled = match peer.connected_servers.len() {
                    0 => dial(&self.setup, &mut peer.host, &server.address).await,
                    // Another host would lose the connections that are open.
                    _ => peer.host.dial(&server.address).await,
                };
                let connection = dialled.inspect_err(|error| self.measurements.count_if_refused(error))?;
                Counters::add(&self.setup.observer.counters.connections, 1);
                self.measurements.record_dial(connection.phases());
                let clock = server.clock;
                peer.connected_servers.push(ConnectedServer { connection, clock });
            }
        }
        self.peers.push(peer);
        Ok(())
    }

    /// Runs the workload and returns how long it took.
    pub(crate) async fn run(&mut self) -> Result<Duration, Failed> {
        let begun = Instant::now();
        super::run(self).await?;
        let time = begun.elapsed();
        match self.peers.iter().find_map(|peer| peer.host.fault()) {
            Some(fault) => Err(Failed(failure(Reason::Internal, fault))),
            None => Ok(time),
        }
    }

    /// Closes connections and hosts.
    pub(crate) async fn close(self) {
        let close = self.peers.into_iter().map(|peer| async {
            join_all(
                peer.connected_servers
                    .into_iter()
                    .map(|server| server.connection.close()),
            )
            .await;
            peer.host.close().await;
        });
        join_all(close).await;
    }
}
