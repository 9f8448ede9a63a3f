//! What a document compares, and what it expects of the results.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a copy of each type, which no one else reaches"
)]

use kube::{KubeSchema, core::Rule};
use perfrun_contract::{
    matrix::StackName,
    metric::Metric,
    quantity::{BitRate, ByteSize, Percent},
    units::Unit,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{rule, spec::matrix::Selector, structural::is_default};

/// The most entries that `compare` of a document may have.
pub(crate) const COMPARISONS_MAX: usize = 4;

/// Two variants to compare, of one stack or of two. A cell that one of them cannot do is skipped, with the
/// reason. The same cell with the other variant is measured, and compared with nothing.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compare {
    /// The variant that the candidate is compared with: a name from `stacks` that the matrix has.
    pub baseline: StackName,
    /// The variant that is compared: a name from `stacks` that the matrix does not have. perfrun adds a cell
    /// with it for each cell of the baseline.
    pub candidate: StackName,
    /// Where the candidate takes the place of the baseline. `client`: where it dials. `server`: where it
    /// listens. `both`: wherever it is. Default: `both`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub replaces: Replaces,
    /// Also measure a control: the baseline once more, in the place of the candidate and with nodes of its
    /// own. It takes part in each iteration, so the comparison takes 1.5 times the time. Baseline and control
    /// are the same program with the same settings. If they are found to differ, with an error of 1 % for all
    /// controls of the run, nothing in the comparison can be believed. Its findings are then `NotComparable`
    /// and what `maxRegression` expects of it is `Inconclusive`, both with the reason `ControlDiffers`.
    /// Measure at least 20 iterations: after 10, no control can differ if the controls of the run have more
    /// than five metrics in all. With `maxIterations`, no comparison is settled before its control can
    /// differ. Default: `false`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub control: bool,
}

/// Where a candidate takes the place of its baseline.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Replaces {
    /// Where it dials.
    Client,
    /// Where it listens.
    Server,
    /// Wherever it is.
    #[default]
    Both,
}

impl Replaces {
    /// Whether it takes the place of a baseline that dials.
    pub(crate) fn has_client(self) -> bool {
        self != Self::Server
    }

    /// Whether it takes the place of a baseline that listens.
    pub(crate) fn has_server(self) -> bool {
        self != Self::Client
    }

    /// Where the matrix has what can be replaced.
    pub(crate) fn places(self) -> &'static str {
        match self {
            Self::Client => "matrix.clients",
            Self::Server => "matrix.servers",
            Self::Both => "matrix.clients or matrix.servers",
        }
    }
}

/// What is expected of a metric. Set one of `maxRegression`, `min`, `max` and `minShareOfRaw`. The last three
/// need at least six iterations that count.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = one_bound())]
#[serde(rename_all = "camelCase")]
pub struct Expect {
    /// The metric, for example `uploadGoodput` or `cpuSecondsPerGiB`: any of docs/formulas.md of which a
    /// higher or a lower value is better.
    #[schemars(schema_with = "judged_metric")]
    pub metric: Metric,
    /// The cells of which this is expected. Default: all but those of the raw reference.
    #[schemars(rename = "where")]
    #[serde(rename = "where")]
    pub cells: Option<Selector>,
    /// The candidate of each comparison is worse than its baseline by at most this share, for example `10%`.
    #[x_kube(validation = rule::percent())]
    pub max_regression: Option<Percent>,
    /// The median is at least this, in the metric's unit: `2Gbit`, `64Mi`, `5ms`, `95%` or `1000`.
    #[schemars(length(min = 1, max = 32))]
    pub min: Option<String>,
    /// The median is at most this, in the metric's unit: `2Gbit`, `64Mi`, `5ms`, `95%` or `1000`.
    #[schemars(length(min = 1, max = 32))]
    pub max: Option<String>,
    /// The value is at least this share of the raw reference's, for example `30%`.
    #[x_kube(validation = rule::percent())]
    pub min_share_of_raw: Option<Percent>,
}

/// The metrics that can be judged. Others are refused, so the schema does not offer them.
fn judged_metric(_generator: &mut SchemaGenerator) -> Schema {
    let names: Vec<String> = Metric::judged().map(|metric| metric.to_string()).collect();
    json_schema!({"type": "string", "enum": names})
}

fn one_bound() -> Rule {
    Rule::new(
        "[has(self.maxRegression), has(self.min), has(self.max), has(self.minShareOfRaw)].filter(b, b).size() == 1",
    )
    .message("must set exactly one of maxRegression, min, max and minShareOfRaw")
}

/// A value in the unit of a metric: `2Gbit`, `64Mi`, `5ms`, `95%` or `1000`. The error says how one is
/// written.
pub(crate) fn value(text: &str, unit: Unit) -> Result<f64, &'static str> {
    match unit {
        Unit::BitsPerSecond => text
            .parse::<BitRate>()
            .map(|rate| rate.bits_per_second().get() as f64)
            .map_err(|_| "a bit rate, such as 100Mbit or 2Gbit"),
        Unit::Bytes => text
            .parse::<ByteSize>()
            .map(|size| size.0 as f64)
            .map_err(|_| "a number of bytes, such as 64Ki or 1Gi"),
        Unit::Share => text
            .parse::<Percent>()
            .map(|share| share.ratio().get())
            .map_err(|_| "a percentage, such as 95%"),
        Unit::Seconds => text
            .parse::<kube::core::Duration>()
            .ok()
            .filter(|_| !text.starts_with('-'))
            .map(|duration| std::time::Duration::from(duration).as_secs_f64())
            .ok_or("a duration, such as 500us, 5ms or 2s"),
        Unit::PerSecond | Unit::Count | Unit::Newer(_) => text
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite() && *number >= 0.0)
            .ok_or("a number, such as 0.5 or 1000"),
    }
}

fn rule(text: &str, field: &str, message: &str) -> Rule {
    Rule::new(text).message(message).field_path(field)
}

/// Baseline and candidate are variants, which have nodes of their own.
pub(crate) fn of_listed_variants() -> Rule {
    rule::known(
        ".compare",
        "(self.compare.map(c, c.baseline) + self.compare.map(c, c.candidate))",
        "self.stacks.exists(s, s.name == n)",
        "must name variants that spec.stacks lists, such as {name: mine, stack: libp2p} for a built-in stack",
    )
}

/// A cell takes part in one comparison, so that its trials have no other neighbours.
pub(crate) fn once_each() -> Rule {
    rule(
        "self.compare.all(c, (self.compare.map(d, d.baseline) + self.compare.map(d, d.candidate))\
         .filter(n, n == c.baseline || n == c.candidate).size() == 2 && c.baseline != c.candidate)",
        ".compare",
        "must name each variant once: for a second comparison, list a second variant of the same program",
    )
}

/// Candidates are measured where their baselines are, and nowhere else.
pub(crate) fn candidates_are_added() -> Rule {
    rule(
        "self.compare.all(c, !(c.candidate in (self.matrix.clients + self.matrix.servers \
         + self.matrix.include.map(i, i.client) + self.matrix.include.map(i, i.server))))",
        ".compare",
        "must name candidates that matrix does not have: perfrun adds a cell of the candidate for each cell of \
         the baseline",
    )
}

/// Trials that are compared are neighbours in time.
pub(crate) fn interleaved() -> Rule {
    rule(
        "size(self.compare) == 0 || self.order != 'sequential'",
        ".order",
        "must not be sequential with compare: what changes on the machine during a run would look like a \
         difference",
    )
}

/// Interim checks decide about comparisons.
pub(crate) fn interim_checks_are_of_comparisons() -> Rule {
    rule(
        "!has(self.maxIterations) || size(self.compare) > 0",
        ".maxIterations",
        "must not be set without compare: only a comparison is settled early; set iterations",
    )
}

/// The first interim check is not after the last.
pub(crate) fn interim_checks_end_after_they_begin() -> Rule {
    rule(
        "!has(self.maxIterations) || self.maxIterations >= self.iterations",
        ".maxIterations",
        "must be at least iterations, after which the first interim check comes",
    )
}

/// Without interim checks, no precision ends a run early.
pub(crate) fn precision_needs_interim_checks() -> Rule {
    rule(
        "!has(self.targetInterval) || has(self.maxIterations)",
        ".targetInterval",
        "must not be set without maxIterations: all iterations are measured then, whatever the precision",
    )
}

/// A regression is relative to a baseline.
pub(crate) fn regressions_have_a_baseline() -> Rule {
    rule(
        "!self.expect.exists(e, has(e.maxRegression)) || size(self.compare) > 0",
        ".expect",
        "must not have maxRegression without compare, which names its baseline: add compare, or compare two \
         programs by `perfrun run --candidate PATH`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_unit_of_their_metric() {
        let values = [
            (Metric::UploadGoodput, "2Gbit", Ok(2e9)),
            (Metric::RoundTripP50, "5ms", Ok(0.005)),
            (Metric::ClientPeakRss, "64Mi", Ok(67_108_864.0)),
            (Metric::DeliveryRatio, "95%", Ok(0.95)),
            (Metric::HandshakesPerSecond, "1000", Ok(1000.0)),
            (Metric::CpuCyclesPerByte, "1.5", Ok(1.5)),
        ];
        for (metric, text, expected) in values {
            assert_eq!(value(text, metric.unit()), expected, "{metric}");
        }
    }

    #[test]
    fn a_value_in_another_unit_is_refused() {
        for (metric, text, how) in [
            (Metric::UploadGoodput, "2G", "bit rate"),
            (Metric::RoundTripP50, "5", "duration"),
            (Metric::ClientPeakRss, "64MB", "bytes"),
            (Metric::DeliveryRatio, "0.95", "percentage"),
            (Metric::HandshakesPerSecond, "inf", "number"),
            (Metric::HandshakesPerSecond, "-1", "number"),
        ] {
            let said = value(text, metric.unit()).unwrap_err();
            assert!(said.contains(how), "{metric} {text}: {said}");
        }
    }
}
