//! The dialling side of a trial: prepare, wait, run.

use std::time::{Duration, Instant};

use futures::future::join_all;
use perfrun_contract::{
    matrix::Transport,
    node::Reason,
    parameters::{Amount, Parameters},
};
use tokio::sync::mpsc;

use super::{Failed, Findings, Setup, bandwidth, echo, failure, handshakes, ping, relay, substreams};
use crate::{
    stack::{self, Connection, Host},
    wire::Counters,
};

/// A client that is ready to begin.
pub struct Client<'a> {
    setup: Setup,
    peers: Vec<Peer>,
    /// Addresses to dial, in turn.
    servers: Vec<String>,
    /// Handshakes, or sinks of a stress test, at the same time, where the workload is about them.
    slots: usize,
    /// The caller's: what was found until then outlives a client that is given up half-way.
    findings: &'a mut Findings,
}

/// One identity and what it talks to.
pub(super) struct Peer {
    pub host: Box<dyn Host>,
    pub server: String,
    /// Open, unless the workload is about opening it.
    pub connection: Option<Box<dyn Connection>>,
}

impl<'a> Client<'a> {
    /// Starts hosts and, where the workload is not about that, opens connections.
    pub async fn prepare(
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
        let mut slots = peers as usize;
        let (hosts, connect) = match setup.parameters {
            Parameters::Handshakes { in_flight, amount } => {
                slots = slots.saturating_mul(in_flight as usize);
                (slots.max(handshakes::stock(amount)), false)
            }
            // Beginning one after the other is the workload.
            Parameters::RelayStress { .. } => (0, false),
            // Each of its connections is a peer.
            Parameters::Echo(load) => (load.connections as usize, false),
            _ => (slots, true),
        };
        setup.check_descriptors(u32::try_from(hosts.max(slots)).unwrap_or(u32::MAX))?;
        let mut client = Self {
            setup,
            peers: vec![],
            servers: servers.to_vec(),
            slots,
            findings,
        };
        for i in 0..hosts {
            client.add_peer(&servers[i % servers.len()], connect).await?;
        }
        Ok(client)
    }

    async fn add_peer(&mut self, server: &str, connect: bool) -> Result<(), Failed> {
        let mut host = dialler(&self.setup).await?;
        let mut connection = None;
        if connect {
            let dialled = dial(&self.setup, &mut host, server)
                .await
                .inspect_err(|error| self.findings.refusal(error))?;
            Counters::add(&self.setup.probe.counters.connections, 1);
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

    /// Runs the workload; returns how long it took.
    pub async fn run(&mut self) -> Result<Duration, Failed> {
        let begun = Instant::now();
        let (setup, peers, findings) = (&self.setup, &mut self.peers, &mut *self.findings);
        match &setup.parameters {
            Parameters::Bandwidth { .. } => bandwidth::run(setup, peers, findings).await?,
            Parameters::Substreams { .. } => substreams::run(setup, peers, findings).await?,
            Parameters::Handshakes { amount, .. } => {
                handshakes::run(setup, peers, self.slots, *amount, findings).await?;
            }
            Parameters::Ping {
                count,
                interval_seconds,
            } => {
                let interval = Duration::from_secs_f64(*interval_seconds);
                ping::run(setup, peers, *count, interval, findings).await?;
            }
            Parameters::Relay { bytes, pings, .. } => {
                relay::run(setup, peers, *bytes, *pings, findings).await?;
            }
            Parameters::RelayStress { .. } => {
                relay::stress(setup, &self.servers, self.slots, findings).await?;
            }
            Parameters::Echo(load) => echo::run(setup, peers, load, findings).await?,
        }
        Ok(begun.elapsed())
    }

    /// Closes connections and hosts.
    pub async fn close(self) {
        let close = self.peers.into_iter().map(|peer| async {
            if let Some(connection) = peer.connection {
                connection.close().await;
            }
            peer.host.close().await;
        });
        join_all(close).await;
    }
}

/// How often a connection that a workload only needs is dialled.
///
/// libp2p's WebRTC loses one dial of forty or so, after 10 s: webrtc-rs gives up when the peer's first message is there
/// before the channel is open (its issue 821). Each is counted as a failure; the workload is about something else.
fn dials(transport: Transport) -> u32 {
    match transport {
        Transport::WebrtcDirect => 3,
        _ => 1,
    }
}

/// A host that only dials, with an identity of its own.
pub(super) async fn dialler(setup: &Setup) -> Result<Box<dyn Host>, stack::Error> {
    // It receives no inbound events; the receiver may go.
    let (inbound, _) = mpsc::unbounded_channel();
    stack::start(setup.stack, setup.host(None), inbound).await
}

/// Dials a connection that a workload only needs. Where one is lost another host takes the place of `host` and tries again.
pub(super) async fn dial(
    setup: &Setup,
    host: &mut Box<dyn Host>,
    server: &str,
) -> Result<Box<dyn Connection>, stack::Error> {
    let mut left = dials(setup.transport);
    loop {
        left -= 1;
        match host.dial(server).await {
            Err(error @ stack::Error::Dial { .. }) if left > 0 => {
                tracing::warn!(%error, "a dial failed, another host tries again");
                setup.probe.counters.failed(Reason::DialFailed);
                std::mem::replace(host, dialler(setup).await?).close().await;
            }
            dialled => return dialled,
        }
    }
}

impl Peer {
    /// The open connection; [`Client::prepare`] opened it for every workload that asks.
    pub(super) fn connection(&self) -> Result<&dyn Connection, Failed> {
        self.connection.as_deref().ok_or_else(|| {
            Failed(failure(
                Reason::Internal,
                "this workload was prepared without a connection",
            ))
        })
    }
}

/// The deadline behind an amount of time, counted from `begun`.
pub(super) fn deadline(amount: Amount, begun: Instant) -> Option<Instant> {
    match amount {
        Amount::Count(_) => None,
        Amount::Seconds(seconds) => Some(begun + Duration::from_secs_f64(seconds)),
    }
}
