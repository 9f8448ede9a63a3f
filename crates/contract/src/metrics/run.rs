//! The states and results of runs.

use super::{Family, gauge};

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

families! {
    INFO = gauge("run_info", &["workload", "phase", "reason"]),
        "Always 1: the run's workload, its phase (Pending, Provisioning, Running, Succeeded, Failed, Cancelled), and \
         once it has ended, why";
    SEEN = gauge("run_seen_timestamp", &["workload", "phase", "reason"]).in_unit("seconds"),
        "When the run was last seen in the phase that labels name, in Unix time: now, while it is exported. Of \
         several phases in a time range, the one with the greatest value is the last";
    STARTED = gauge("run_start_timestamp", &[]).in_unit("seconds"),
        "When the run began, in Unix time";
    ENDED = gauge("run_completion_timestamp", &[]).in_unit("seconds"),
        "When the run ended, in Unix time";
    TRIALS = gauge("run_trials", &["state"]),
        "Trials of the run, warm-up included: planned and not found unnecessary, completed so far, failed so far";
    SKIPPED = gauge("run_skipped_cells", &[]),
        "Cells of the matrix that cannot be measured";
    RANK = gauge("result_rank", &["metric", "unit"]),
        "Place of a metric among those that the run has results of: 1 is the one that stands for the workload, such \
         as goodput";
    MEDIAN = gauge("result_median", ROW),
        "Median over the measured trials of a cell, of the metric and in the unit that labels name";
    CI_LOW = gauge("result_ci95_low", ROW),
        "Lower end of the 95 % confidence interval of the median; absent below six trials";
    CI_HIGH = gauge("result_ci95_high", ROW),
        "Upper end of that interval";
    SHARE_OF_RAW = gauge("result_share_of_raw", ROW).in_unit("ratio"),
        "A rate as a share of the raw reference's in the same iterations, on the same network";
    COUNT = gauge("result_trials", ROW),
        "Trials that the median is of";
    MISSING = gauge("result_missing_trials", CELL),
        "Iterations of a cell without a result, because they failed or were not run; only of runs that have ended";
    FLAGS = gauge("result_flagged", FLAG),
        "Trials of the cell that have the flag, which limits the trust in them; 0 if only trials that were \
         measured again have it";
    VERDICT = gauge("run_verdict", &["verdict"]),
        "Always 1: whether what the run expects holds (Pass, Fail, Inconclusive); only of runs that have ended";
    COMPARISON_RATIO = gauge("comparison", COMPARISON).in_unit("ratio"),
        "A metric of the candidate's cell as a share of the baseline's, with what that means (finding: Better, \
         Worse, Same, Inconclusive, NotComparable); only of runs that have ended";
    COMPARISON_LOW = gauge("comparison_ratio_low", COMPARISON),
        "Lower end of the 95 % confidence interval of the ratio; absent if there are too few pairs for one";
    COMPARISON_HIGH = gauge("comparison_ratio_high", COMPARISON),
        "Upper end of that interval";
}
