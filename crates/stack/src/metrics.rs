//! Metrics that stacks keep of themselves.

use libp2p::{metrics::Recorder, swarm::SwarmEvent};
use prometheus_client::registry::Registry;

#[cfg(feature = "commonware")]
use super::commonware::Totals;

/// The metrics that stacks keep of themselves. Of libp2p: connections, dials and listeners, with prefix
/// `libp2p_`. Of commonware: messages and connections, with prefix `commonware_`.
///
/// Those of libp2p count events of connections, never data. Those of commonware are read when its
/// runtime ends. So they cost a measurement nothing.
pub struct StackMetrics {
    libp2p: libp2p::metrics::Metrics,
    #[cfg(feature = "commonware")]
    pub(super) commonware: Totals,
}

impl StackMetrics {
    /// Registers the metrics of libp2p.
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            #[cfg(feature = "commonware")]
            commonware: Totals::default(),
            // It makes its own sub-registry with the prefix `libp2p`.
            libp2p: libp2p::metrics::Metrics::new(registry),
        }
    }

    /// Registers the metrics whose names are perfrun's.
    pub fn register(&self, registry: &mut Registry) {
        #[cfg(feature = "commonware")]
        self.commonware.register(registry);
        #[cfg(not(feature = "commonware"))]
        let _ = registry;
    }

    pub(super) fn record<T>(&self, event: &SwarmEvent<T>) {
        self.libp2p.record(event);
    }
}
