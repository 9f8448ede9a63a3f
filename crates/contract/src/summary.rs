//! Statistics of a run's trials.

use std::{
    collections::BTreeMap,
    fmt::{self, Formatter},
};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{
        MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

use crate::{metric::Metric, newer, record::Flag, units::Unit};

/// Statistics of one metric of one cell over its measured trials.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryRow {
    /// The cell.
    pub cell: String,
    /// The metric.
    #[serde(deserialize_with = "newer::name")]
    pub metric: Metric,
    /// Its unit.
    #[serde(deserialize_with = "newer::name")]
    pub unit: Unit,
    /// Trials that count: completed and not warm-up.
    pub count: u32,
    /// Median over those trials.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Lower end of the 95 % confidence interval of the median of this run. Absent below six trials.
    pub ci95_low: Option<f64>,
    /// Upper end of that interval.
    pub ci95_high: Option<f64>,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// For rates: the value as a share of that of the raw reference of the same cell, over the iterations of
    /// both (the estimate of Hodges and Lehmann).
    pub share_of_raw: Option<f64>,
    /// Lower end of the 95 % confidence interval of that share. Absent below six iterations with both.
    pub share_of_raw_low: Option<f64>,
    /// Upper end of that interval.
    pub share_of_raw_high: Option<f64>,
    /// How many of the trials have each flag. 0 if only trials that were measured again, or trials without
    /// the metric, have it.
    #[serde(
        default,
        deserialize_with = "counts_or_names",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub flags: BTreeMap<Flag, u32>,
}

impl SummaryRow {
    /// The 95 % confidence interval of the median.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.ci95_low.zip(self.ci95_high)
    }
}

/// Results of earlier versions only name the flags that at least one trial has. Each counts once.
fn counts_or_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Flag, u32>, D::Error> {
    deserializer.deserialize_any(CountsOrNames)
}

struct CountsOrNames;

impl<'de> Visitor<'de> for CountsOrNames {
    type Value = BTreeMap<Flag, u32>;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("flags with how many trials have each, or a list of flags")
    }

    fn visit_map<A: MapAccess<'de>>(self, counts: A) -> Result<Self::Value, A::Error> {
        newer::map(MapAccessDeserializer::new(counts))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, names: A) -> Result<Self::Value, A::Error> {
        let names: Vec<Flag> = newer::list(SeqAccessDeserializer::new(names))?;
        Ok(names.into_iter().map(|flag| (flag, 1)).collect())
    }
}
