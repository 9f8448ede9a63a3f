//! Passes the server's end of an exchange to the client, where both are in one process.

use std::sync::Arc;

use perfrun_stack::messenger::BoxMessenger;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::{observer::Observer, wire::Arrival};

/// Takes the server's end of an exchange to a client in the same process. Clones share it.
#[derive(Clone)]
pub(crate) struct Handover {
    pub(super) give: mpsc::UnboundedSender<ServerEnd>,
    pub(super) take: Arc<Mutex<mpsc::UnboundedReceiver<ServerEnd>>>,
}

/// The server's end of an exchange.
pub(super) struct ServerEnd {
    pub(super) messenger: BoxMessenger,
    pub(super) observer: Arc<Observer>,
    pub(super) arrival: oneshot::Sender<Arrival>,
}

impl Default for Handover {
    fn default() -> Self {
        let (give, take) = mpsc::unbounded_channel();
        Self {
            give,
            take: Arc::new(Mutex::new(take)),
        }
    }
}
