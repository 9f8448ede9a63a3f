//! Statistics of a run's trials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    record::{Flag, Metric},
    units::Unit,
};

/// Statistics of one metric of one cell over its measured trials.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryRow {
    /// The cell.
    pub cell: String,
    /// What was measured.
    pub metric: Metric,
    /// Its unit.
    pub unit: Unit,
    /// Trials that count: completed and not warm-up.
    pub count: u32,
    /// Median over those trials.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Lower end of the 95 % confidence interval of the median; none below six trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_low: Option<f64>,
    /// Upper end of the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_high: Option<f64>,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Median as a share of the median of the raw baseline's same cell, for rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_of_raw: Option<f64>,
    /// Flags that at least one of the trials has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Flag>,
}
