//! The raw reference, without a peer-to-peer stack: plain TCP, and QUIC by quinn.

pub(crate) mod proxy;
mod quic;
pub(crate) mod target;
mod tcp;

use perfrun_contract::matrix::{Stack, Transport};
use tokio::sync::mpsc;

use super::{Error, Host, HostConfig, Inbound, Relaying};

pub(super) async fn start(
    config: HostConfig,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    match config.transport {
        Transport::Tcp if matches!(config.relaying, Relaying::Relay(_)) => proxy::start(config, inbound),
        Transport::Tcp => tcp::start(config, inbound).await,
        Transport::QuicV1 => quic::start(config, inbound),
        other => Err(Error::unsupported(Stack::Raw, other.to_string())),
    }
}
