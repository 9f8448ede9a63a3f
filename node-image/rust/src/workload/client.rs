//! The dialling side of a trial: prepare, wait, run.

use std::time::{Duration, Instant};

use futures::future::join_all;
use perfrun_contract::{node::Reason, parameters::Parameters};

use super::{
    failed::{Failed, failure},
    findings::Findings,
    handshakes,
    peer::{Peer, dial, dialler},
    setup::Setup,
};
use crate::wire::Counters;

/// A client that is ready to begin.
pub(crate) struct Client<'a> {
    pub(super) setup: Setup,
    pub(super) peers: Vec<Peer>,
    /// Addresses to dial, in turn.
    pub(super) servers: Vec<String>,
    /// Peers that are active at the same time, if the workload itself starts them.
    pub(super) slots: usize,
    /// The caller's, so that findings outlive a client that is cut short.
    pub(super) findings: &'a mut Findings,
}

impl<'a> Client<'a> {
    /// Starts hosts and, unless the workload does that itself, opens connections.
    pub(crate) async fn prepare(
        setup: Setup,
        servers: &[String],
        peers: u32,
        findings: &'a mut Findings,
    ) -> Result<Self, Failed> {
        if servers.is_empty() {
            return Err(Failed(failure(
                Reason::DialFailed,
                "there is no server address to dial",
            )));
        }
        let slots = usize::try_from(setup.parameters.hosts(peers)).unwrap_or(usize::MAX);
        let hosts = match setup.parameters {
            Parameters::Handshakes { amount, .. } => slots.max(handshakes::stock(amount)),
            // Its sinks start one after the other.
            Parameters::RelayStress { .. } => 0,
            _ => slots,
        };
        setup.check_files(|parameters, stream_is_connection| {
            parameters.client_files(hosts.max(slots) as u64, stream_is_connection)
        })?;
        let mut client = Self {
            setup,
            peers: vec![],
            servers: servers.to_vec(),
            slots,
            findings,
        };
        for i in 0..hosts {
            client.add_peer(&servers[i % servers.len()]).await?;
        }
        Ok(client)
    }

    async fn add_peer(&mut self, server: &str) -> Result<(), Failed> {
        let mut host = dialler(&self.setup).await?;
        let mut connection = None;
        if self.setup.parameters.connects_before_start() {
            let dialled = dial(&self.setup, &mut host, server)
                .await
                .inspect_err(|error| self.findings.refusal(error))?;
            Counters::add(&self.setup.observer.counters.connections, 1);
            self.findings.record_dial(dialled.phases());
            connection = Some(dialled);
        }
        self.peers.push(Peer {
            host,
            server: server.to_owned(),
            connection,
        });
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
            if let Some(connection) = peer.connection {
                connection.close().await;
            }
            peer.host.close().await;
        });
        join_all(close).await;
    }
}
