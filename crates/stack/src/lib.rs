//! The stacks under test, behind one small interface.
//!
//! An adapter only sets up a host, dials, and delivers streams. The workloads of perfrun-node define for all
//! stacks what is sent on a stream, what is timed and what is counted.

#![warn(missing_docs)]

mod accept;
mod address;
#[cfg(feature = "commonware")]
mod commonware;
mod congestion;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod interfaces;
mod libp2p;
mod limits;
mod litep2p;
pub mod messenger;
mod metrics;
mod raw;
mod stream_per_connection;
mod tasks;
mod webrtc;

use futures::future::BoxFuture;
use perfrun_contract::{
    limits::{CONNECTIONS_MAX, DIAL_TIMEOUT},
    matrix::{NodeProgramKind, Stack},
    support::{why_role_unsupported, why_setting_unsupported},
};
use tokio::sync::mpsc;

#[cfg(feature = "commonware")]
#[doc(hidden)]
pub use self::commonware::limited;
use self::limits::{CLOSE_TIMEOUT, IDLE_TIMEOUT, OPEN_TIMEOUT, with_spare, within};
pub use self::{
    address::{multiaddr_part, socket_address},
    error::Error,
    host::{
        BoxStream, Connection, DialPhases, Host, HostConfig, Inbound, Keys, PingTarget, RelayEvent, Relaying,
        Reservation, Stream, UsedCongestion,
    },
    metrics::StackMetrics,
};

/// The stacks of this program.
pub fn implemented() -> impl Iterator<Item = Stack> {
    Stack::built_in().filter(|stack| stack.program() == NodeProgramKind::Rust)
}

/// The stack of this program with a name.
pub fn named(name: &str) -> Option<Stack> {
    implemented().find(|stack| stack.as_ref() == name)
}

/// Starts a host. A listening host sends its events to `inbound`.
///
/// The future is boxed so that stacks are compiled in this crate, and not in each crate that awaits it.
pub fn start(
    stack: Stack,
    config: HostConfig,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> BoxFuture<'static, Result<Box<dyn Host>, Error>> {
    Box::pin(begin(stack, config, inbound))
}

async fn begin(
    stack: Stack,
    config: HostConfig,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    if let Some(reason) = why_role_unsupported(stack, config.role(), config.transport, &config.parameters) {
        return Err(Error::Unsupported(reason));
    }
    let lacking = (config.settings)
        .effective_on(config.transport)
        .find(|setting| why_setting_unsupported(stack, *setting).is_some());
    if let Some(lacking) = lacking {
        return Err(Error::unsupported(stack, lacking.to_string()));
    }
    congestion::prepare(stack, &config)?;
    match stack {
        Stack::Libp2p => libp2p::start(config, inbound).await,
        Stack::Litep2p => litep2p::start(config, inbound).await,
        Stack::Raw => raw::start(config, inbound).await,
        #[cfg(feature = "commonware")]
        Stack::Commonware => commonware::start(config, inbound).await,
        #[cfg(not(feature = "commonware"))]
        Stack::Commonware => Err(Error::without(stack)),
        Stack::GoLibp2p | Stack::External => Err(Error::unsupported(
            stack,
            "anything in perfrun-node, which does not have it",
        )),
    }
}
