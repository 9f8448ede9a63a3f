//! The states and results of runs.

use super::{Family, gauge};

/// The run.
pub const INFO: Family = gauge(
    "run_info",
    &["workload", "phase", "reason"],
    "Always 1: the run's workload, its phase (Pending, Provisioning, Running, Succeeded, Failed, Cancelled), and once \
     it has ended, why",
);
/// When it was in a phase.
pub const SEEN: Family = gauge(
    "run_seen_timestamp",
    &["workload", "phase", "reason"],
    "When the run was last seen in the phase that labels name, in Unix time: now, while it is exported. Of several phases \
     in a time range, the one with the greatest value is the last",
)
.in_unit("seconds");
/// Its beginning.
pub const STARTED: Family =
    gauge("run_start_timestamp", &[], "When the run began, in Unix time").in_unit("seconds");
/// Its end.
pub const ENDED: Family = gauge(
    "run_completion_timestamp",
    &[],
    "When the run ended, in Unix time",
)
.in_unit("seconds");
/// Its trials.
pub const TRIALS: Family = gauge(
    "run_trials",
    &["state"],
    "Trials of the run, warm-up included: planned and not found unnecessary, completed so far, failed so far",
);
/// Cells that are skipped.
pub const SKIPPED: Family = gauge(
    "run_skipped_cells",
    &[],
    "Cells of the matrix that cannot be measured",
);

const CELL: &[&str] = &[
    "cell",
    "load",
    "client",
    "server",
    "transport",
    "ip_family",
    "network",
];
const ROW: &[&str] = &[
    "cell",
    "load",
    "client",
    "server",
    "transport",
    "ip_family",
    "network",
    "metric",
    "unit",
];
const COMPARISON: &[&str] = &[
    "baseline",
    "candidate",
    "load",
    "transport",
    "ip_family",
    "network",
    "metric",
    "finding",
];
const FLAG: &[&str] = &[
    "cell",
    "load",
    "client",
    "server",
    "transport",
    "ip_family",
    "network",
    "flag",
];

/// Medians.
pub const MEDIAN: Family = gauge(
    "result_median",
    ROW,
    "Median over the measured trials of a cell, of the metric and in the unit that labels name",
);
/// The order of metrics.
pub const RANK: Family = gauge(
    "result_rank",
    &["metric", "unit"],
    "Place of a metric among those that the run has results of: 1 is the one that stands for the workload, such as goodput",
);
/// Lower ends of confidence intervals.
pub const CI_LOW: Family = gauge(
    "result_ci95_low",
    ROW,
    "Lower end of the 95 % confidence interval of the median; absent below six trials",
);
/// Upper ends.
pub const CI_HIGH: Family = gauge("result_ci95_high", ROW, "Upper end of that interval");
/// Shares of raw.
pub const SHARE_OF_RAW: Family = gauge(
    "result_share_of_raw",
    ROW,
    "A rate as a share of the raw reference's in the same iterations, on the same network",
)
.in_unit("ratio");
/// Trials behind a median.
pub const COUNT: Family = gauge("result_trials", ROW, "Trials that the median is of");
/// Trials that are not there.
pub const MISSING: Family = gauge(
    "result_missing_trials",
    CELL,
    "Iterations of a cell without a result, because they failed or were not run; only of runs that have ended",
);
/// Flags.
pub const FLAGS: Family = gauge(
    "result_flagged",
    FLAG,
    "Trials of the cell that have the flag, which limits the trust in them; 0 if only repeated trials have it",
);
/// The verdict.
pub const VERDICT: Family = gauge(
    "run_verdict",
    &["verdict"],
    "Always 1: whether what the run expects holds (Pass, Fail, Inconclusive); only of runs that have ended",
);
/// Ratios of comparisons.
pub const COMPARISON_RATIO: Family = gauge(
    "comparison",
    COMPARISON,
    "A metric of the candidate's cell as a share of the baseline's, with what that means (finding: Better, Worse, Same, \
     Undecided, NotComparable); only of runs that have ended",
)
.in_unit("ratio");
/// Lower ends of their intervals.
pub const COMPARISON_LOW: Family = gauge(
    "comparison_ratio_low",
    COMPARISON,
    "Lower end of the 95 % confidence interval of the ratio; absent if there are too few pairs for one",
);
/// Upper ends.
pub const COMPARISON_HIGH: Family = gauge("comparison_ratio_high", COMPARISON, "Upper end of that interval");
/// All of them.
pub const ALL: &[Family] = &[
    INFO,
    SEEN,
    STARTED,
    ENDED,
    TRIALS,
    SKIPPED,
    RANK,
    MEDIAN,
    CI_LOW,
    CI_HIGH,
    SHARE_OF_RAW,
    COUNT,
    MISSING,
    FLAGS,
    VERDICT,
    COMPARISON_RATIO,
    COMPARISON_LOW,
    COMPARISON_HIGH,
];
