//! Hosts with other limits and clocks than a load sets, for tests.

use std::{net::IpAddr, sync::Arc, time::Duration};

use commonware_cryptography::{Signer, ed25519::PrivateKey};
use perfrun_contract::matrix::Cups;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

use super::{handshake, network::Runtime, start_network};
pub use super::{handshake::CLOCK_DIFFERENCE_MAX, network::Limits};
use crate::{Host, Inbound, StackMetrics};

/// Starts a host whose key has this seed and whose clock may differ from others by `clocks`. Panics if it
/// cannot.
pub async fn host(
    seed: u64,
    listen: Option<(IpAddr, u16)>,
    limits: Limits,
    clocks: Duration,
    registry: &mut Registry,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Box<dyn Host> {
    let key = PrivateKey::from_seed(seed);
    let upgrader = handshake::upgrader(key.clone(), Cups::V1, clocks);
    let totals = Arc::new(StackMetrics::new(&mut Registry::default()));
    totals.register(registry);
    let runtime = Runtime::start(totals).await.map(Arc::new);
    let started = start_network(
        runtime.expect("a runtime"),
        listen,
        key,
        upgrader,
        limits,
        inbound,
    );
    started.await.expect("a host")
}
