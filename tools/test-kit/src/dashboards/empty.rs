//! Panels that are empty for some runs, each with the reason. All others must show data of every run.

use std::collections::BTreeSet;

use perfrun_contract::{metric::Metric, parameters::USES};

use super::Answer;

/// Queries of panels of one dashboard that have data of some runs only.
struct SometimesEmpty {
    dashboard: &'static str,
    titles: &'static [&'static str],
    /// Letters of the queries; empty for all of them.
    letters: &'static [&'static str],
    /// The runs of which these queries must have data.
    data_of: DataOf,
    why: &'static str,
}

/// Runs of which a panel has data.
enum DataOf {
    /// Those whose workload may have this metric.
    RunsWith(Metric),
    /// Those with these workloads.
    Workloads(&'static [&'static str]),
    /// It depends on chance, or on the metric that the panel shows.
    Chance,
}

impl DataOf {
    fn includes(&self, workload: &str) -> bool {
        match self {
            Self::RunsWith(metric) => {
                let mut uses = USES.into_iter().flatten().map(|(_, of)| of(1));
                uses.any(|parameters| parameters.workload() == workload && parameters.may_have(*metric))
            }
            Self::Workloads(workloads) => workloads.contains(&workload),
            Self::Chance => false,
        }
    }
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
        data_of: DataOf::RunsWith(Metric::RoundTripP50),
        why: "other workloads measure no round trips",
    },
    SometimesEmpty {
        dashboard: DETAIL,
        titles: &["Messages delivered", "Time of a message, one way, p99"],
        letters: &[],
        data_of: DataOf::RunsWith(Metric::OneWayP99),
        why: "other workloads send no messages",
    },
    SometimesEmpty {
        dashboard: DETAIL,
        titles: &["Time to open a substream"],
        letters: &[],
        data_of: DataOf::RunsWith(Metric::OpenMean),
        why: "other workloads do not measure how long opening takes",
    },
    SometimesEmpty {
        dashboard: DETAIL,
        titles: &["Echoing streams"],
        letters: &[],
        data_of: DataOf::RunsWith(Metric::EchoingStreams),
        why: "other workloads have no echoing streams",
    },
    SometimesEmpty {
        dashboard: DETAIL,
        titles: &["CPU time for each GiB"],
        letters: &[],
        data_of: DataOf::Workloads(&["bandwidth", "relayStress"]),
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
        data_of: DataOf::Workloads(&["bandwidth"]),
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
        data_of: DataOf::RunsWith(Metric::RelayCpu),
        why: "the runs with other workloads have no relay",
    },
    SometimesEmpty {
        dashboard: OVERVIEW,
        titles: &[CELLS],
        letters: &["D"],
        data_of: DataOf::Workloads(&["bandwidth"]),
        why: "the overview begins with a metric that no raw reference was measured of",
    },
    SometimesEmpty {
        dashboard: DETAIL,
        titles: &[CELLS],
        letters: &["D"],
        data_of: DataOf::Workloads(&["bandwidth"]),
        why: "one run in detail begins with a metric that no raw reference was measured of",
    },
    SometimesEmpty {
        dashboard: RELAY,
        titles: &[CELLS],
        letters: &["D"],
        data_of: DataOf::Workloads(&["bandwidth"]),
        why: "relay and stress begins with a metric that no raw reference was measured of",
    },
    SometimesEmpty {
        dashboard: OVERVIEW,
        titles: &["Verdicts", "Candidates beside their baselines"],
        letters: &[],
        data_of: DataOf::Workloads(&["ping"]),
        why: "the runs with other workloads neither compare nor expect anything",
    },
    SometimesEmpty {
        dashboard: STACKS,
        titles: &[CELLS_OF_ALL],
        letters: &["D"],
        data_of: DataOf::Chance,
        why: "only rates have a share of raw",
    },
    SometimesEmpty {
        dashboard: STACKS,
        titles: &[CELLS_OF_ALL],
        letters: &["B", "C"],
        data_of: DataOf::Chance,
        why: "too few trials may have a metric for an interval",
    },
    SometimesEmpty {
        dashboard: OVERVIEW,
        titles: &["Flags that limit trust in results"],
        letters: &[],
        data_of: DataOf::Chance,
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
    (!entry.data_of.includes(workload)).then_some(entry.why)
}

/// Reasons that applied to no query of runs with all workloads, without those that depend on chance.
pub(super) fn unused(used: &BTreeSet<&str>) -> Vec<&'static str> {
    let certain = SOMETIMES_EMPTY
        .iter()
        .filter(|entry| !matches!(entry.data_of, DataOf::Chance));
    certain
        .map(|entry| entry.why)
        .filter(|why| !used.contains(why))
        .collect()
}
