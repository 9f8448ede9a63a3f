//! Circuit relay v2 (libp2p specs, `relay/circuit-v2.md`): the relay, and peers that connect through a relay.

use std::{convert::Infallible, time::Duration};

use futures::future::Either;
use libp2p::{
    PeerId, Transport as _,
    core::{muxing::StreamMuxerBox, transport::Boxed, upgrade::Version},
    identity::Keypair,
    noise,
    relay::{self, client},
    swarm::NetworkBehaviour,
};
use perfrun_contract::workload::RelayLimits;

use super::{
    behaviour::{Behaviour, StreamHost},
    setup,
    transport::Limits,
};
use crate::{DIAL_TIMEOUT, IDLE_TIMEOUT, Inbound};

/// The behaviour of a relay.
#[derive(NetworkBehaviour)]
#[behaviour(to_swarm = "Event", prelude = "libp2p::swarm::derive_prelude")]
pub(super) struct Relay {
    inner: Behaviour,
    relay: relay::Behaviour,
}

/// The behaviour of a host that others dial, or that dials others, through a relay.
#[derive(NetworkBehaviour)]
#[behaviour(to_swarm = "Event", prelude = "libp2p::swarm::derive_prelude")]
pub(super) struct RelayClient {
    inner: Behaviour,
    client: client::Behaviour,
}

/// An event of a relay's behaviours.
#[derive(Debug)]
pub(super) enum Event {
    Relay(relay::Event),
    /// Events of the client are of no use: the swarm reports connections, too.
    Client,
}

impl From<Infallible> for Event {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<relay::Event> for Event {
    fn from(event: relay::Event) -> Self {
        Self::Relay(event)
    }
}

impl From<client::Event> for Event {
    fn from(_: client::Event) -> Self {
        Self::Client
    }
}

impl Relay {
    pub(super) fn new(inner: Behaviour, local: PeerId, limits: RelayLimits) -> Self {
        let mut relay = relay::Behaviour::new(local, config(limits));
        // Without waiting until libp2p has found out whether others can reach it.
        relay.set_status(Some(relay::Status::Enable));
        Self { inner, relay }
    }
}

impl RelayClient {
    pub(super) fn new(inner: Behaviour, client: client::Behaviour) -> Self {
        Self { inner, client }
    }
}

impl StreamHost for Relay {
    fn inner(&mut self) -> &mut Behaviour {
        &mut self.inner
    }

    fn on_event(&mut self, event: Event) {
        let Event::Relay(event) = event else { return };
        if let Some(event) = self.inner.circuits.event(event) {
            self.inner.report(Inbound::Relay(event));
        }
    }
}

impl StreamHost for RelayClient {
    fn inner(&mut self) -> &mut Behaviour {
        &mut self.inner
    }

    fn on_event(&mut self, _: Event) {}
}

/// Only the requested limits. libp2p's own would end every benchmark: 128 KiB or two minutes for a circuit,
/// 16 circuits, and one reservation per minute for all peers behind one address.
fn config(limits: RelayLimits) -> relay::Config {
    let most = |limit: Option<u32>| limit.map_or(usize::MAX, |limit| limit as usize);
    relay::Config {
        max_reservations: most(limits.reservations),
        max_reservations_per_peer: usize::MAX,
        reservation_duration: IDLE_TIMEOUT,
        reservation_rate_limiters: vec![],
        max_circuits: most(limits.circuits),
        max_circuits_per_peer: most(limits.circuits_per_peer),
        max_circuit_duration: Duration::from_secs(24 * 3600),
        // 0 means no limit.
        max_circuit_bytes: limits.circuit_bytes.map_or(0, |bytes| bytes.0),
        circuit_src_rate_limiters: vec![],
    }
}

/// Adds circuits to the transport that carries them. Circuits are secured and multiplexed again, like TCP
/// connections.
pub(super) fn with_circuits(
    carrier: Boxed<(PeerId, StreamMuxerBox)>,
    circuits: client::Transport,
    keypair: &Keypair,
    limits: Limits,
) -> Result<Boxed<(PeerId, StreamMuxerBox)>, crate::Error> {
    let circuits = circuits
        .upgrade(Version::V1Lazy)
        .authenticate(noise::Config::new(keypair).map_err(setup)?)
        .multiplex(limits.yamux())
        .timeout(DIAL_TIMEOUT);
    Ok(circuits
        .or_transport(carrier)
        .map(|either, _| match either {
            Either::Left((peer, muxer)) => (peer, StreamMuxerBox::new(muxer)),
            Either::Right(carried) => carried,
        })
        .boxed())
}
