//! Panels that are empty for some runs, each with the reason. All others must show data of every run.

use std::collections::BTreeSet;

use super::Answer;

/// Queries of panels of one dashboard that have data of some runs only.
struct SometimesEmpty {
    dashboard: &'static str,
    titles: &'static [&'static str],
    /// Letters of the queries; empty for all of them.
    letters: &'static [&'static str],
    /// Workloads of which these queries must have data; empty if it depends on chance or on the metric.
    workloads: &'static [&'static str],
    why: &'static str,
}

const DETAIL: &str = "perfrun-detail";
const OVERVIEW: &str = "perfrun-overview";
const RELAY: &str = "perfrun-relay";
const STACKS: &str = "perfrun-stacks";
const CELLS: &str = "$metric of each cell";
const CELLS_OF_ALL: &str = "$metrics of each cell";

const SOMETIMES_EMPTY: &[SometimesEmpty] = &[
    SometimesEmpty {
        dashboard: DETAIL,
        titles: &["Round trips"],
        letters: &[],
        workloads: &["ping", "echo", "messages"],
        why: "other workloads measure no round trips",
    },
    SometimesEmpty {
        dashboard: DETAIL,
        titles: &["Messages delivered", "Time of a message, one way, p99"],
        letters: &[],
        workloads: &["messages"],
        why: "other workloads send no messages",
    },
    SometimesEmpty {
        dashboard: DETAIL,
        titles: &["Time to open a substream"],
        letters: &[],
        workloads: &["substreams"],
        why: "other workloads do not measure how long opening takes",
    },
    SometimesEmpty {
        dashboard: DETAIL,
        titles: &["Echoing streams"],
        letters: &[],
        workloads: &["echo"],
        why: "other workloads do not echo",
    },
    SometimesEmpty {
        dashboard: DETAIL,
        titles: &["CPU time for each GiB"],
        letters: &[],
        workloads: &["bandwidth", "relayStress"],
        why: "other workloads move so little payload that CPU time for each GiB means nothing",
    },
    SometimesEmpty {
        dashboard: DETAIL,
        titles: &[
            "Delay: configured and measured",
            "Loss: configured and measured",
            "Packets by fate",
            "Lateness of packets",
        ],
        letters: &[],
        workloads: &["bandwidth"],
        why: "the runs with other workloads leave links as they are",
    },
    SometimesEmpty {
        dashboard: RELAY,
        titles: &[
            "Circuits",
            "Refused",
            "Bytes through the relay",
            "CPU of the relay",
            "Memory of the relay",
            "CPU time of the relay for each GiB",
            "Transfers",
        ],
        letters: &[],
        workloads: &["relayStress"],
        why: "the runs with other workloads have no relay",
    },
    SometimesEmpty {
        dashboard: OVERVIEW,
        titles: &[CELLS],
        letters: &["D"],
        workloads: &["bandwidth"],
        why: "the overview begins with a metric that no raw reference was measured of",
    },
    SometimesEmpty {
        dashboard: DETAIL,
        titles: &[CELLS],
        letters: &["D"],
        workloads: &["bandwidth"],
        why: "one run in detail begins with a metric that no raw reference was measured of",
    },
    SometimesEmpty {
        dashboard: RELAY,
        titles: &[CELLS],
        letters: &["D"],
        workloads: &["bandwidth"],
        why: "relay and stress begins with a metric that no raw reference was measured of",
    },
    SometimesEmpty {
        dashboard: OVERVIEW,
        titles: &["Verdicts", "Candidates beside their baselines"],
        letters: &[],
        workloads: &["ping"],
        why: "the runs with other workloads neither compare nor expect anything",
    },
    SometimesEmpty {
        dashboard: STACKS,
        titles: &[CELLS_OF_ALL],
        letters: &["D"],
        workloads: &[],
        why: "only rates have a share of raw",
    },
    SometimesEmpty {
        dashboard: STACKS,
        titles: &[CELLS_OF_ALL],
        letters: &["B", "C"],
        workloads: &[],
        why: "too few trials may have a metric for an interval",
    },
    SometimesEmpty {
        dashboard: OVERVIEW,
        titles: &["Flags that limit trust in results"],
        letters: &[],
        workloads: &[],
        why: "nothing may limit it",
    },
];

/// Why a query may have no data of a run with this workload; `None` if it must have some.
pub(super) fn reason(answer: &Answer, workload: &str) -> Option<&'static str> {
    let entry = SOMETIMES_EMPTY.iter().find(|entry| {
        entry.dashboard == answer.dashboard
            && entry.titles.contains(&answer.panel.as_str())
            && (entry.letters.is_empty() || entry.letters.contains(&answer.letter.as_str()))
    })?;
    (!entry.workloads.contains(&workload)).then_some(entry.why)
}

/// Reasons that applied to no query of runs with all workloads, without those that depend on chance.
pub(super) fn unused(used: &BTreeSet<&str>) -> Vec<&'static str> {
    let certain = SOMETIMES_EMPTY.iter().filter(|entry| !entry.workloads.is_empty());
    certain
        .map(|entry| entry.why)
        .filter(|why| !used.contains(why))
        .collect()
}
