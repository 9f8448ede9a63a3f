//! No peer-to-peer stack: plain TCP, and QUIC by quinn. What a link and the kernel give.

mod proxy;
mod quic;
mod tcp;

use perfrun_api::matrix::Transport;
use tokio::sync::mpsc;

use super::{Error, Host, HostConfig, Inbound, Relaying};

pub(super) async fn start(
    config: HostConfig,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    match config.transport {
        Transport::Tcp | Transport::TcpTls if matches!(config.relaying, Relaying::Relay(_)) => {
            proxy::start(config, inbound)
        }
        Transport::Tcp | Transport::TcpTls => tcp::start(config, inbound).await,
        Transport::QuicV1 => quic::start(config, inbound),
    }
}
