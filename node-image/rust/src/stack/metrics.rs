//! Metrics that stacks keep of themselves.

use libp2p::{metrics::Recorder, swarm::SwarmEvent};
use prometheus_client::registry::Registry;

/// The metrics that a stack keeps of itself. Only libp2p has any: connections, dials and listeners, with
/// prefix `libp2p_`.
///
/// They count events of connections, never data, so that they cost a measurement nothing.
pub struct StackMetrics {
    libp2p: libp2p::metrics::Metrics,
}

impl StackMetrics {
    /// Registers the metrics of all stacks, each in its own sub-registry.
    pub fn new(registry: &mut Registry) -> Self {
        // `Metrics` makes its own sub-registry with the prefix `libp2p`.
        Self {
            libp2p: libp2p::metrics::Metrics::new(registry),
        }
    }

    pub(super) fn record<T>(&self, event: &SwarmEvent<T>) {
        self.libp2p.record(event);
    }
}
