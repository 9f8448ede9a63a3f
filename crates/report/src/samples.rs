//! The interval samples of every node and trial, flat.

use perfrun_contract::{
    node::Sample,
    parameters::Parameters,
    plan::Cell,
    record::{NodeRecord, TrialRecord},
    reported_run::ReportedRun,
};

use crate::csv::{self, columns};

columns! {
    struct Line<'a> {
        trial: &'a str,
        cell: &'a str,
        iteration: u32,
        warmup: bool,
        attempt: u32,
        node: &'a str,
        role: String,
        at_seconds: f64,
        interval_seconds: f64,
        bytes_sent: u64,
        bytes_received: u64,
        operations: u64,
        cpu_seconds: Option<f64>,
        rss_bytes: Option<u64>,
        circuits: u64,
        phase: &'static str,
        allocated_bytes: Option<u64>,
        active_streams: Option<u64>,
        echoing_streams: Option<u64>,
        round_trip_p50_seconds: Option<f64>,
        round_trip_p99_seconds: Option<f64>,
        errors: String,
        interface_received_bytes: Option<u64>,
        interface_sent_bytes: Option<u64>,
    }
}

/// `samples.csv`: one line for every interval of every node of every trial, in running order, under a header.
pub fn samples_csv(results: &ReportedRun<'_>) -> String {
    let lines = results.trials.iter().flat_map(|record| {
        let cell = results.plan.cells.get(record.trial.cell);
        record.nodes.iter().flat_map(move |(name, node)| {
            let samples = node.measured.samples.iter();
            samples.map(move |sample| line(record, cell, (name.as_str(), node), sample))
        })
    });
    csv::text(Some(Line::COLUMNS), lines)
}

fn line<'a>(
    record: &'a TrialRecord,
    cell: Option<&'a Cell>,
    (name, node): (&'a str, &NodeRecord),
    sample: &Sample,
) -> Line<'a> {
    let &Sample {
        at_seconds,
        interval_seconds,
        bytes_sent,
        bytes_received,
        operations,
        cpu_seconds,
        rss_bytes,
        circuits,
        allocated_bytes,
        echo,
        ref errors,
        interface_received_bytes,
        interface_sent_bytes,
    } = sample;
    let is_apart = cell.is_none_or(|cell| cell.has_process(node.role));
    // One column, because kinds are many and errors are few: `Timeout=3 StreamFailed=1`.
    let errors: Vec<String> = errors
        .iter()
        .map(|(reason, count)| format!("{reason}={count}"))
        .collect();
    Line {
        trial: &record.trial.id,
        cell: cell.map_or("", |cell| cell.id.as_str()),
        iteration: record.trial.iteration,
        warmup: record.trial.warmup,
        attempt: record.attempt,
        node: name,
        role: node.role.to_string(),
        at_seconds,
        interval_seconds,
        bytes_sent,
        bytes_received,
        operations,
        cpu_seconds: is_apart.then_some(cpu_seconds),
        rss_bytes: is_apart.then_some(rss_bytes),
        circuits,
        phase: cell.map_or("", |cell| phase(&cell.parameters, at_seconds)),
        allocated_bytes,
        active_streams: echo.map(|echo| echo.active_streams),
        echoing_streams: echo.map(|echo| echo.echoing_streams),
        round_trip_p50_seconds: echo.and_then(|echo| echo.round_trip_p50_seconds),
        round_trip_p99_seconds: echo.and_then(|echo| echo.round_trip_p99_seconds),
        errors: errors.join(" "),
        interface_received_bytes,
        interface_sent_bytes,
    }
}

/// Whether peers were still being added when an interval ended, where a workload adds them one by one.
fn phase(parameters: &Parameters, at_seconds: f64) -> &'static str {
    match parameters {
        Parameters::RelayStress(load) if at_seconds < load.ramp_seconds => "ramp",
        Parameters::RelayStress(_) => "plateau",
        _ => "",
    }
}
