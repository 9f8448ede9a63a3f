//! What stacks count about themselves.

use libp2p::{metrics::Recorder, swarm::SwarmEvent};
use prometheus_client::registry::Registry;

/// The metrics that a stack keeps itself. Only libp2p has any: connections, dials and listeners, prefix `libp2p_`.
///
/// Fed by events about connections, never by data, so that it costs nothing where a measurement runs.
pub struct StackMetrics {
    libp2p: libp2p::metrics::Metrics,
}

impl StackMetrics {
    /// Registers the metrics of all stacks, each stack in a sub-registry of its own.
    pub fn new(registry: &mut Registry) -> Self {
        // `Metrics` makes its sub-registry, with the prefix `libp2p`, itself.
        Self {
            libp2p: libp2p::metrics::Metrics::new(registry),
        }
    }

    pub(super) fn record<T>(&self, event: &SwarmEvent<T>) {
        self.libp2p.record(event);
    }
}
