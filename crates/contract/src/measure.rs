//! From what both ends of a trial measured to the metrics of the trial: one module for each workload.

mod bandwidth;
mod bytes;
mod cost;
mod echo;
mod ends;
mod handshakes;
mod messages;
mod ping;
mod relay;
mod relay_stress;
mod substreams;

use std::collections::BTreeMap;

use self::ends::Ends;
pub use self::{bytes::count_mismatch, ends::merged};
use crate::{metric::Metric, parameters::Parameters, plan::Cell, record::NodeRecord};

/// Metrics with their values, in the units of [`Metric`].
type Metrics = BTreeMap<Metric, f64>;

/// The metrics of a completed trial. All of them are finite numbers, which is all that JSON can hold.
pub fn metrics(cell: &Cell, nodes: &BTreeMap<String, NodeRecord>) -> BTreeMap<Metric, f64> {
    let ends = Ends::new(cell, nodes);
    let mut metrics = match &cell.parameters {
        Parameters::Bandwidth {
            direction,
            timing,
            amount,
            ..
        } => bandwidth::metrics(&ends, *direction, *timing, *amount),
        Parameters::Substreams { mode, .. } => substreams::metrics(&ends, *mode),
        Parameters::Handshakes { .. } => handshakes::metrics(&ends),
        Parameters::Ping { .. } => ping::metrics(&ends),
        Parameters::Relay { .. } => relay::metrics(&ends),
        Parameters::RelayStress {
            ramp_seconds,
            plateau_seconds,
            ..
        } => relay_stress::metrics(&ends, *ramp_seconds..ramp_seconds + plateau_seconds),
        Parameters::Echo(echo) => echo::metrics(&ends, echo),
        Parameters::Messages(load) => {
            let peers = cell.clients.len() as u64 * u64::from(cell.peers_per_client);
            messages::metrics(&ends, load, peers)
        }
    };
    metrics.extend(cost::metrics(&ends, payload(&ends, &cell.parameters)));
    metrics.extend(
        cell.parameters
            .operation()
            .and_then(|operation| cost::per_operation(&ends, operation)),
    );
    metrics.retain(|_, value| value.is_finite());
    metrics
}

/// The bytes that a workload delivers, as their receivers count them; 0 for workloads that do not measure a
/// transfer.
fn payload(ends: &Ends<'_>, parameters: &Parameters) -> u64 {
    match parameters {
        Parameters::Bandwidth { direction, .. } => bandwidth::payload(ends, *direction),
        Parameters::Relay { .. } => relay::payload(ends),
        Parameters::RelayStress { .. } => relay_stress::payload(ends),
        Parameters::Messages(_) => messages::payload(ends),
        _ => 0,
    }
}
