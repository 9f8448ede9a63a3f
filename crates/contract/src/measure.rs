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

/// How trials of a workload are measured.
trait Measure {
    /// The metrics that not every workload has.
    fn metrics(&self, ends: &Ends<'_>) -> Metrics;

    /// The bytes that the workload delivers, as their receivers count them; 0 for workloads that do not
    /// measure a transfer.
    fn payload(&self, _ends: &Ends<'_>) -> u64 {
        0
    }

    /// What is wrong with the bytes, if anything, besides what is wrong with those of every transfer.
    fn mismatch(&self, _ends: &Ends<'_>) -> Option<String> {
        None
    }
}

fn measure(parameters: &Parameters) -> &dyn Measure {
    match parameters {
        Parameters::Bandwidth(load) => load,
        Parameters::Substreams(load) => load,
        Parameters::Handshakes(load) => load,
        Parameters::Ping(load) => load,
        Parameters::Relay(load) => load,
        Parameters::RelayStress(load) => load,
        Parameters::Echo(load) => load,
        Parameters::Messages(load) => load,
    }
}

/// The metrics of a completed trial. All of them are finite numbers, which is all that JSON can hold.
pub fn metrics(cell: &Cell, nodes: &BTreeMap<String, NodeRecord>) -> BTreeMap<Metric, f64> {
    let ends = Ends::new(cell, nodes);
    let workload = measure(&cell.parameters);
    let mut metrics = workload.metrics(&ends);
    metrics.extend(cost::metrics(&ends, workload.payload(&ends)));
    metrics.extend(
        cell.parameters
            .operation()
            .and_then(|operation| cost::per_operation(&ends, operation)),
    );
    metrics.retain(|_, value| value.is_finite());
    debug_assert!(
        metrics.keys().all(|metric| cell.parameters.may_have(*metric)),
        "own_metrics of {} lacks one of {metrics:?}",
        cell.parameters.workload()
    );
    metrics
}
