//! Families as prometheus-client wants them.

use std::fmt;

use perfrun_contract::metrics::{Family, FamilyKind, PREFIX};
use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Metric, Registry, Unit},
};

/// Registers a metric under the name, unit and help of its family.
pub fn register(registry: &mut Registry, family: &Family, metric: impl Metric) {
    let name = format!("{PREFIX}{}", family.name);
    match unit(family) {
        Some(unit) => registry.register_with_unit(name, family.help, unit, metric),
        None => registry.register(name, family.help, metric),
    }
}

/// The labels of a value that has none of its own.
pub const NO_LABELS: [(&str, &str); 0] = [];

/// Writes a family whose values are read on request. Writes nothing if there are none.
pub fn encode_samples<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family,
    samples: impl IntoIterator<Item = (L, f64)>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let is_counter = family.kind == FamilyKind::Counter;
    let kind = if is_counter {
        MetricType::Counter
    } else {
        MetricType::Gauge
    };
    let (name, unit) = (format!("{PREFIX}{}", family.name), unit(family));
    let help = format!("{}.", family.help);
    let mut metric = encoder.encode_descriptor(&name, &help, unit.as_ref(), kind)?;
    for (labels, value) in samples {
        let sample = metric.encode_family(&labels)?;
        if is_counter {
            ConstCounter::new(value).encode(sample)?;
        } else {
            ConstGauge::new(value).encode(sample)?;
        }
    }
    Ok(())
}

fn unit(family: &Family) -> Option<Unit> {
    family.unit.map(|unit| Unit::Other(unit.to_owned()))
}
