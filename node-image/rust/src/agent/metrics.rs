//! Metrics of a link agent: the requested link, the packets, and the measurements.

use std::sync::{Arc, atomic::AtomicU64};

use parking_lot::Mutex;
use perfrun_contract::metrics::link;
use perfrun_link::{LinkState, probe::Measurement, state::Lateness};
use perfrun_metrics::{NO_LABELS, Scrapes, encode_samples, register};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use super::emulation::{Emulation, Totals};
use crate::{
    args::MetricsArgs,
    metrics::{self, process::ProcessCollector},
};

/// All metrics of an agent.
pub(crate) struct Metrics {
    pub(crate) scrapes: Arc<Scrapes>,
    registry: Mutex<Registry>,
    round_trip: Family<Quantile, FloatGauge>,
    lost: Family<Direction, FloatGauge>,
}

type FloatGauge = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Quantile {
    quantile: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Direction {
    direction: &'static str,
}

impl Metrics {
    /// Registers all metrics, with the labels of the node beside the agent.
    pub(crate) fn new(metrics_args: &MetricsArgs, emulation: Arc<Mutex<Emulation>>) -> Self {
        let mut registry = metrics::registry(metrics_args, "link");
        registry.register_collector(Box::new(LinkCollector(emulation)));
        registry.register_collector(Box::new(ProcessCollector));
        let (round_trip, lost) = (Family::default(), Family::default());
        register(&mut registry, &link::MEASURED_ROUND_TRIP, round_trip.clone());
        register(&mut registry, &link::MEASURED_LOSS, lost.clone());
        Self {
            scrapes: Arc::default(),
            registry: Mutex::new(registry),
            round_trip,
            lost,
        }
    }

    /// Records a measurement.
    pub(crate) fn record(&self, measured: &Measurement) {
        if let Some(round_trip) = &measured.round_trip {
            for (quantile, nanoseconds) in [
                ("0", round_trip.min_ns),
                ("0.5", round_trip.p50_ns),
                ("0.99", round_trip.p99_ns),
            ] {
                let gauge = self.round_trip.get_or_create(&Quantile { quantile });
                gauge.set(nanoseconds as f64 / 1e9);
            }
        }
        for (direction, delivery) in [("sent", measured.forward), ("received", measured.backward)] {
            if delivery.sent > 0 {
                let gauge = self.lost.get_or_create(&Direction { direction });
                gauge.set(f64::from(delivery.lost()) / f64::from(delivery.sent));
            }
        }
    }

    /// All metrics in OpenMetrics text.
    pub(crate) fn encode(&self) -> String {
        perfrun_metrics::encode(&self.registry.lock())
    }
}

/// Metrics that are read at each scrape.
struct LinkCollector(Arc<Mutex<Emulation>>);

impl std::fmt::Debug for LinkCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkCollector").finish_non_exhaustive()
    }
}

impl Collector for LinkCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut emulation = self.0.lock();
        let Ok(state) = emulation.state() else {
            // A page without these counters is better than none. The next scrape has them again.
            return Ok(());
        };
        let totals = emulation.totals(state.as_ref());
        drop(emulation);
        encode_totals(&mut encoder, totals)?;
        encode_state(&mut encoder, state.as_ref())
    }
}

fn encode_totals(encoder: &mut DescriptorEncoder<'_>, totals: Totals) -> Result<(), std::fmt::Error> {
    let Totals { packets, overflowed } = totals;
    let fates = [
        ("arrived", packets.packets_in),
        ("left", packets.packets_out),
        ("lost", packets.lost),
        ("duplicated", packets.duplicated),
        ("corrupted", packets.corrupted),
        ("reordered", packets.reordered),
        ("over_limit", packets.over_limit),
        ("overflowed", overflowed),
    ];
    let fates = fates.map(|(fate, count)| ([("fate", fate)], count as f64));
    encode_samples(encoder, &link::PACKETS, fates)
}

fn encode_state(
    encoder: &mut DescriptorEncoder<'_>,
    state: Option<&LinkState>,
) -> Result<(), std::fmt::Error> {
    let route = state.and_then(|state| state.link.routes().first());
    let impairment = route.map(|route| route.impairment.clone()).unwrap_or_default();
    let lateness = state
        .and_then(|state| state.worker)
        .map_or_else(Lateness::default, |worker| worker.lateness);
    let loss = impairment.loss.as_ref().and_then(|loss| loss.ratio());
    let rate = impairment.rate_bits_per_second;
    for (family, value) in [
        (link::IMPAIRED, f64::from(u8::from(state.is_some()))),
        (link::CONFIGURED_DELAY, impairment.delay.as_secs_f64()),
        (link::CONFIGURED_LOSS, loss.unwrap_or_default()),
        (link::CONFIGURED_RATE, rate.map_or(0.0, |rate| rate.get() as f64)),
        (link::LATENESS, lateness.p99_ns as f64 / 1e9),
    ] {
        encode_samples(encoder, &family, [(NO_LABELS, value)])?;
    }
    Ok(())
}
