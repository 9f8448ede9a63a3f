//! Samples of an echo in the columns of the published WebRTC transport benchmarks.

use perfrun_contract::{
    plan::Cell, record::TrialRecord, reported_run::ReportedRun, role::Role, tally::counting,
};

use perfrun_judge::is_measured;
use serde::Serialize;

use crate::csv;

/// A row of the published CSV, in the order of its columns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// In Unix time.
    timestamp_ms: i64,
    pub(crate) active_streams: u64,
    /// The load of all CPUs, cut to a whole number.
    pub(crate) cpu_percent: u64,
    /// What the allocator has given out, in the column that had Go's heap.
    pub(crate) heap_bytes: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
}

/// The samples of one node in one trial.
pub(crate) struct NodeSamples<'a> {
    pub(crate) cell: &'a Cell,
    record: &'a TrialRecord,
    node: &'a str,
    role: Role,
    pub(crate) rows: Vec<Row>,
}

impl NodeSamples<'_> {
    /// The published word for the node's side.
    pub(crate) fn side(&self) -> &'static str {
        match self.role {
            Role::Client => "dialer",
            // Echoes have no relay.
            Role::Server | Role::Relay => "listener",
        }
    }
}

/// The samples of every node in every trial that counts, in running order.
pub(crate) fn node_samples<'a>(results: &'a ReportedRun<'a>) -> impl Iterator<Item = NodeSamples<'a>> {
    let trials = counting(results.trials).filter(|record| is_measured(record));
    let of_echo = trials.filter_map(|record| {
        let cell = results.plan.cells.get(record.trial.cell)?;
        cell.parameters.pace().is_some().then_some((record, cell))
    });
    of_echo.flat_map(move |(record, cell)| {
        let nodes = record
            .nodes
            .iter()
            .filter(|(_, node)| cell.has_process(node.role));
        nodes.map(move |(name, node)| NodeSamples {
            cell,
            record,
            node: name,
            role: node.role,
            rows: rows(results, record, name),
        })
    })
}

fn rows(results: &ReportedRun<'_>, record: &TrialRecord, name: &str) -> Vec<Row> {
    let begun = results.started.as_millisecond() + (record.at_seconds * 1e3) as i64;
    let cpus = results
        .environment
        .nodes
        .get(name)
        .map_or(1, |info| info.cpus.max(1));
    let samples = record
        .nodes
        .get(name)
        .map_or(&[][..], |node| &node.measured.samples);
    samples
        .iter()
        .map(|sample| {
            let share = sample.cpu_seconds / sample.interval_seconds / f64::from(cpus);
            Row {
                timestamp_ms: begun + (sample.at_seconds * 1e3) as i64,
                active_streams: sample.echo.map_or(0, |echo| echo.active_streams),
                // CPU time over an empty interval is not a number, and becomes 0.
                cpu_percent: (share * 100.0) as u64,
                heap_bytes: sample.allocated_bytes.unwrap_or(0),
                bytes_read: sample.bytes_received,
                bytes_written: sample.bytes_sent,
            }
        })
        .collect()
}

/// Minimum, integer mean and maximum.
pub(crate) fn spread(values: impl Iterator<Item = u64> + Clone) -> [u64; 3] {
    let least = values.clone().min().unwrap_or(0);
    let most = values.clone().max().unwrap_or(0);
    let (sum, count) = values.fold((0_u128, 0), |(sum, count), value| {
        (sum + u128::from(value), count + 1)
    });
    let mean = sum.checked_div(count).unwrap_or(0) as u64; // between the two others
    [least, mean, most]
}

/// A file for each side of each measured echo, with its name: the published CSV, which has no header. Its
/// columns are `timestamp_ms`, `active_streams`, `cpu_percent`, `heap_bytes`, `bytes_read` and
/// `bytes_written`.
pub fn echo_csv(results: &ReportedRun<'_>) -> Vec<(String, String)> {
    node_samples(results)
        .map(|samples| {
            let name = format!(
                "{}.i{}.{}-{}.csv",
                samples.cell.id,
                samples.record.trial.iteration,
                samples.side(),
                samples.node
            );
            (name, csv::text(None, &samples.rows))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_cut_to_a_whole_number() {
        assert_eq!(spread([0, 1, 4].into_iter()), [0, 1, 4]);
        assert_eq!(spread([u64::MAX, u64::MAX].into_iter()), [u64::MAX; 3]);
        assert_eq!(spread([].into_iter()), [0; 3]);
    }
}
