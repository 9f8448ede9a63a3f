//! CPU and memory that a trial takes, alone and for each GiB or operation.

use super::{
    Metrics,
    ends::{Ends, quotient, sum},
};
use crate::{
    distribution::Distribution,
    metric::Metric,
    node::{BYTES_FOR_A_RATE_MIN, Measured, Resources},
};

/// CPU and memory of the processes of a trial. `payload` is the number of bytes that the workload delivered.
pub(super) fn metrics(ends: &Ends<'_>, payload: u64) -> Metrics {
    let mut metrics = memory(ends);
    let carried = sum(&ends.clients, |client| client.bytes_sent + client.bytes_received);
    // A download that was cut off delivered less than it sent, but its CPU time was spent on all of it. So a
    // payload that is too small is replaced by all bytes that clients carried.
    let paid = [payload, carried].into_iter().find(is_enough);
    metrics.extend(paid.map(|bytes| (Metric::CpuSecondsPerGiB, total_cpu(ends) / gibibytes(bytes))));
    if is_enough(&carried) {
        // The cycles of one node alone would be half of the truth.
        let cycles: Option<u64> = ends.processes().map(|node| node.resources.cpu_cycles).sum();
        metrics.extend(cycles.map(|cycles| (Metric::CpuCyclesPerByte, cycles as f64 / carried as f64)));
    }
    for (metric, nodes) in [
        (Metric::ClientCpuCores, &ends.clients),
        (Metric::ServerCpuCores, &ends.server_processes),
    ] {
        let busiest = nodes
            .iter()
            .filter_map(|&node| quotient(cpu(&[node]), node.samples.last()?.at_seconds))
            .reduce(f64::max);
        metrics.extend(busiest.map(|cores| (metric, cores)));
    }
    metrics
}

/// CPU time for each operation; `None` if none was completed.
pub(super) fn per_operation(ends: &Ends<'_>, operation: Distribution) -> Option<(Metric, f64)> {
    let operations = ends.merged(operation)?.len() as f64;
    Some((Metric::CpuSecondsPerOperation, total_cpu(ends) / operations))
}

/// CPU time of the relays for each GiB of payload, and the bytes on their interfaces for each byte of it.
pub(super) fn of_relays(ends: &Ends<'_>, payload: u64) -> Metrics {
    if !is_enough(&payload) {
        return Metrics::new();
    }
    let mut metrics = Metrics::from([(
        Metric::RelayCpuSecondsPerGiB,
        cpu(&ends.relays) / gibibytes(payload),
    )]);
    let carried = ends.relays.iter().filter_map(|relay| {
        let Resources {
            interface_received_bytes,
            interface_sent_bytes,
            ..
        } = relay.resources;
        Some(interface_received_bytes? + interface_sent_bytes?)
    });
    let carried = carried.sum::<u64>() as f64;
    if carried > 0.0 {
        metrics.insert(Metric::RelayBytesPerByte, carried / payload as f64);
    }
    metrics
}

/// CPU time of some nodes, in seconds.
pub(super) fn cpu(nodes: &[&Measured]) -> f64 {
    nodes
        .iter()
        .map(|node| node.resources.cpu_user_seconds + node.resources.cpu_system_seconds)
        .sum()
}

/// CPU time of all processes, in seconds.
pub(super) fn total_cpu(ends: &Ends<'_>) -> f64 {
    let processes: Vec<_> = ends.processes().collect();
    cpu(&processes)
}

/// Whether bytes are enough to divide by.
fn is_enough(bytes: &u64) -> bool {
    *bytes >= BYTES_FOR_A_RATE_MIN
}

fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

fn memory(ends: &Ends<'_>) -> Metrics {
    let mut metrics = Metrics::new();
    for (rss, allocated, nodes) in [
        (Metric::ClientPeakRss, Metric::ClientPeakAllocated, &ends.clients),
        (
            Metric::ServerPeakRss,
            Metric::ServerPeakAllocated,
            &ends.server_processes,
        ),
        (Metric::RelayPeakRss, Metric::RelayPeakAllocated, &ends.relays),
    ] {
        let resources = || nodes.iter().map(|node| &node.resources);
        let most = resources().map(|resources| resources.rss_peak_bytes).max();
        metrics.extend(most.map(|bytes| (rss, bytes as f64)));
        let most = resources()
            .filter_map(|resources| resources.allocated_peak_bytes)
            .max();
        metrics.extend(most.map(|bytes| (allocated, bytes as f64)));
    }
    for (per_stream, nodes) in [
        (Metric::ClientAllocatedPerStream, &ends.clients),
        (Metric::ServerAllocatedPerStream, &ends.server_processes),
    ] {
        let each = nodes.iter().filter_map(|node| allocated_per_stream(node));
        metrics.extend(each.reduce(f64::max).map(|bytes| (per_stream, bytes)));
    }
    metrics
}

/// Bytes that a node allocates for each stream when it holds most of them. They are not compared with those
/// at the start, when hosts of the previous trial may still be closing.
fn allocated_per_stream(node: &Measured) -> Option<f64> {
    let samples = node
        .samples
        .iter()
        .filter_map(|sample| Some((sample.echo?.active_streams, sample.allocated_bytes?)));
    let streams = samples.clone().map(|(streams, _)| streams).max()?;
    let least = samples.clone().map(|(_, allocated)| allocated).min()?;
    let with_all = samples.filter(|(active, _)| *active == streams);
    let most = with_all.map(|(_, allocated)| allocated).max()?;
    quotient((most - least) as f64, streams as f64)
}
