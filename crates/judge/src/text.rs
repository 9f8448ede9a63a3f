//! Findings as people write them.

use perfrun_contract::{
    compare::Ratio,
    metric::Metric,
    units::{self, Scale, Unit, text},
};

/// What the reason `ControlDiffers` means, as a clause.
pub(crate) const CONTROL_DIFFERS: &str = "the control, the baseline once more, differs from it";

/// What the reason `DifferentMachines` means, as a clause.
pub(crate) const DIFFERENT_MACHINES: &str = "the two were measured on different machines";

/// A ratio as a change with its interval, e.g. `−5.1 % [−7.0, −3.1]`.
pub(crate) fn change(ratio: Option<&Ratio>) -> String {
    let Some(ratio) = ratio else {
        return "an unknown change".to_owned();
    };
    let value = units::change(ratio.value);
    let end = |end: Option<f64>| end.map_or("open".to_owned(), units::change);
    match (ratio.low, ratio.high) {
        (None, None) => format!("{value} %"),
        (low, high) => format!("{value} % [{}, {}]", end(low), end(high)),
    }
}

/// A median with its interval.
pub(crate) fn median(metric: Metric, median: f64, interval: Option<(f64, f64)>) -> String {
    let unit = metric.unit();
    match interval {
        Some((low, high)) => {
            format!(
                "{} {}",
                text(unit, median),
                Scale::of(unit, median).interval(low, high)
            )
        }
        None => text(unit, median),
    }
}

/// A share, given as its logarithm, with its interval.
pub(crate) fn share(estimate: Option<f64>, interval: Option<(f64, f64)>) -> String {
    let Some(estimate) = estimate.map(f64::exp) else {
        return "unknown".to_owned();
    };
    let scale = Scale::of(Unit::Share, estimate);
    match interval {
        Some((low, high)) => format!(
            "{} {}",
            scale.text(estimate),
            scale.interval(low.exp(), high.exp())
        ),
        None => scale.text(estimate),
    }
}
