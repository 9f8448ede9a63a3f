//! Links in words, and in JSON for programs.

use perfrun_link::{
    LinkState, Mode, OutgoingLinks, Prefix, Scheduling,
    state::{Lateness, Traffic, Worker},
};
use serde_json::{Value, json};

use crate::words::columns;

/// An impaired link, with a line for each of its routes and each concern. `process` is the one that impairs
/// it in user space, if that is not this process; its number may not be known.
pub(super) fn state(interface: &str, state: &LinkState, process: Option<Option<u32>>) -> String {
    let backend = match (&state.worker, process) {
        (None, _) => "by the kernel".to_owned(),
        (Some(_), Some(process)) => format!("in user space by {}", self::process(process)),
        (Some(_), None) => "in user space".to_owned(),
    };
    let mode = match state.mode {
        Mode::PerPacket => "every packet on its own",
        Mode::SuperPackets => "merged packets stay merged",
    };
    let mut text = format!("{interface}: impaired {backend}; {mode}\n");
    text += &table(state);
    if let Some(worker) = &state.worker {
        text += &worker_line(worker);
    }
    for concern in state.concerns() {
        text += &format!("Warning: {concern}\n");
    }
    text
}

/// The state of an impaired interface, for programs.
pub(super) fn state_object(interface: &str, state: &LinkState) -> Value {
    let concerns: Vec<String> = state.concerns().iter().map(ToString::to_string).collect();
    json!({"interface": interface, "found": state.backend, "state": state, "concerns": concerns})
}

/// A process whose number may not be known.
pub(super) fn process(process: Option<u32>) -> String {
    process.map_or_else(
        || "another process".to_owned(),
        |process| format!("process {process}"),
    )
}

/// All peers of a link.
pub(super) fn all_peers(link: &OutgoingLinks) -> String {
    let all = link.routes().iter().flat_map(|route| &route.peers);
    peers(&all.copied().collect::<Vec<_>>())
}

/// `10.0.0.2, 10.0.0.3 and 10.1.0.0/16`
pub(super) fn peers(peers: &[Prefix]) -> String {
    let names: Vec<String> = peers.iter().map(ToString::to_string).collect();
    match names.split_last() {
        None => "no peer".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// A time with three significant digits and its unit.
pub(super) fn short_time(nanoseconds: u64) -> String {
    let (value, unit) = match nanoseconds {
        0..1_000_000 => (nanoseconds as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanoseconds as f64 / 1e6, "ms"),
        _ => (nanoseconds as f64 / 1e9, "s"),
    };
    let digits = match value {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

fn table(state: &LinkState) -> String {
    let counted: &[&str] = match state.traffic.first() {
        Some(Traffic::Kernel { .. }) => &["PACKETS OUT", "DROPPED", "HELD"],
        _ => &["PACKETS IN", "OUT", "LOST", "OVER LIMIT"],
    };
    let head = ["TO", "IMPAIRMENT"].iter().chain(counted);
    let mut rows = vec![head.map(|cell| (*cell).to_owned()).collect::<Vec<_>>()];
    for (route, traffic) in state.routes() {
        let counts = match traffic {
            Traffic::Userspace(tally) => {
                vec![tally.packets_in, tally.packets_out, tally.lost, tally.over_limit]
            }
            Traffic::Kernel {
                packets_out,
                dropped,
                held,
            } => vec![*packets_out, *dropped, u64::from(*held)],
        };
        let words = [peers(&route.peers), route.impairment.to_string()];
        let counts = counts.iter().map(ToString::to_string);
        rows.push(words.into_iter().chain(counts).collect());
    }
    columns(&rows)
}

fn worker_line(worker: &Worker) -> String {
    let scheduling = match worker.scheduling {
        Scheduling::RealTime => "with real-time priority",
        Scheduling::ShortSlice => "without real-time priority",
        Scheduling::Ordinary => "with ordinary priority",
    };
    let Lateness {
        frames,
        p50_ns,
        p99_ns,
        max_ns,
    } = worker.lateness;
    if frames == 0 {
        return format!("Its thread runs {scheduling}.\n");
    }
    let [p50, p99, max] = [p50_ns, p99_ns, max_ns].map(short_time);
    format!(
        "Its thread runs {scheduling}; {frames} frames left late by {p50} (median), {p99} (p99), {max} (maximum).\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let times = [7, 999_000, 1_234_567, 50_160_000, 101_000_000, 2_500_000_000];
        let texts = times.map(short_time);
        assert_eq!(
            texts,
            ["0.01 µs", "999 µs", "1.23 ms", "50.2 ms", "101 ms", "2.50 s"]
        );
    }
}
