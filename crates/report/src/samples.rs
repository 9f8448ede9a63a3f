//! The interval samples of every node and trial, flat.

use perfrun_contract::{account::Account, node::Sample, parameters::Parameters};

const COLUMNS: [&str; 24] = [
    "trial",
    "cell",
    "iteration",
    "warmup",
    "attempt",
    "node",
    "role",
    "at_seconds",
    "interval_seconds",
    "bytes_sent",
    "bytes_received",
    "operations",
    "cpu_seconds",
    "rss_bytes",
    "circuits",
    "phase",
    "allocated_bytes",
    "active_streams",
    "echoing_streams",
    "round_trip_p50_seconds",
    "round_trip_p99_seconds",
    "errors",
    "interface_received_bytes",
    "interface_sent_bytes",
];

/// Whether peers were still being added when an interval ended, where a workload adds them one by one.
fn phase(parameters: &Parameters, at_seconds: f64) -> &'static str {
    match parameters {
        Parameters::RelayStress(load) if at_seconds < load.ramp_seconds => "ramp",
        Parameters::RelayStress(_) => "plateau",
        _ => "",
    }
}

/// `samples.csv`: one line for every interval of every node of every trial, in running order, under a header.
pub fn samples_csv(results: &Account<'_>) -> String {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(vec![]);
    writer
        .write_record(COLUMNS)
        .expect("memory takes whatever is written");
    for record in results.trials {
        let cell = results.plan.cells.get(record.trial.cell);
        let parameters = cell.map(|cell| &cell.parameters);
        let has_process = |role| cell.is_none_or(|cell| cell.has_process(role));
        let id = cell.map_or("", |cell| cell.id.as_str());
        for (name, node) in &record.nodes {
            for &Sample {
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
            } in &node.measured.samples
            {
                let whose = (
                    &record.trial.id,
                    id,
                    record.trial.iteration,
                    record.trial.warmup,
                    record.attempt,
                );
                let when = (name, node.role.to_string(), at_seconds, interval_seconds);
                let is_apart = has_process(node.role);
                let used = (is_apart.then_some(cpu_seconds), is_apart.then_some(rss_bytes));
                let what = (bytes_sent, bytes_received, operations, used);
                let phase = parameters.map_or("", |parameters| phase(parameters, at_seconds));
                let echo = (
                    allocated_bytes,
                    echo.map(|echo| echo.active_streams),
                    echo.map(|echo| echo.echoing_streams),
                    echo.and_then(|echo| echo.round_trip_p50_seconds),
                    echo.and_then(|echo| echo.round_trip_p99_seconds),
                );
                // One column, because kinds are many and errors are few: `Timeout=3 StreamFailed=1`.
                let errors: Vec<String> = errors
                    .iter()
                    .map(|(reason, count)| format!("{reason}={count}"))
                    .collect();
                let interfaces = (interface_received_bytes, interface_sent_bytes);
                let line = (
                    whose,
                    when,
                    what,
                    circuits,
                    phase,
                    echo,
                    errors.join(" "),
                    interfaces,
                );
                writer
                    .serialize(line)
                    .expect("every line has the columns of the header");
            }
        }
    }
    let bytes = writer.into_inner().expect("memory takes whatever is written");
    String::from_utf8(bytes).expect("only text was written")
}
