//! Metrics of a link agent: what was asked of the link, what was done, and what was measured.

use std::sync::{Arc, Mutex};

use perfrun_link::{State, probe::Measurement, state::Lateness};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::{
        MetricType,
        counter::ConstCounter,
        gauge::{ConstGauge, Gauge},
    },
    registry::{Registry, Unit},
};

use super::{
    emulation::{Emulation, Totals},
    lock,
};

/// Everything that an agent exports.
pub struct Metrics {
    registry: Mutex<Registry>,
    round_trip: [(Quantile, RatioGauge); 3],
    lost: [RatioGauge; 2],
}

type RatioGauge = Gauge<f64, std::sync::atomic::AtomicU64>;
type Quantile = &'static str;

impl Metrics {
    /// Metrics that all carry `run`.
    pub fn new(run: String, emulation: Arc<Mutex<Emulation>>) -> Self {
        let labels = [("run".into(), run.into()), ("role".into(), "link".into())];
        let mut registry = Registry::with_prefix_and_labels("perfrun_link", labels.into_iter());
        registry.register_collector(Box::new(LinkCollector(emulation)));
        let gauge = |registry: &mut Registry, name: &str, help: &str, label: (&'static str, &'static str)| {
            let gauge = RatioGauge::default();
            registry
                .sub_registry_with_label((label.0.into(), label.1.into()))
                .register(name, help, gauge.clone());
            gauge
        };
        let round_trip = ["0", "0.5", "0.99"].map(|quantile| {
            let help = "Round trip to another agent when the link was last measured";
            let gauge = gauge(
                &mut registry,
                "measured_round_trip_seconds",
                help,
                ("quantile", quantile),
            );
            (quantile, gauge)
        });
        let lost = ["sent", "received"].map(|direction| {
            let help = "Share of datagrams lost when the link was last measured";
            gauge(
                &mut registry,
                "measured_loss_ratio",
                help,
                ("direction", direction),
            )
        });
        Self {
            registry: Mutex::new(registry),
            round_trip,
            lost,
        }
    }

    /// Takes note of a measurement.
    pub fn measured(&self, measured: &Measurement) {
        if let Some(round_trip) = &measured.round_trip {
            let quantiles = [round_trip.min_ns, round_trip.p50_ns, round_trip.p99_ns];
            for ((_, gauge), nanoseconds) in self.round_trip.iter().zip(quantiles) {
                gauge.set(nanoseconds as f64 / 1e9);
            }
        }
        for (gauge, delivery) in self.lost.iter().zip([measured.forward, measured.backward]) {
            if delivery.sent > 0 {
                gauge.set(f64::from(delivery.lost()) / f64::from(delivery.sent));
            }
        }
    }

    /// All metrics in OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        let registry = self
            .registry
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        text::encode(&mut out, &registry).expect("writing to memory cannot fail");
        out
    }
}

/// What is read when scraped.
struct LinkCollector(Arc<Mutex<Emulation>>);

impl std::fmt::Debug for LinkCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkCollector").finish_non_exhaustive()
    }
}

impl Collector for LinkCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (state, totals) = {
            let mut emulation = lock(&self.0);
            let state = emulation.state();
            (state, emulation.totals())
        };
        let (Ok(state), Ok(totals)) = (state, totals) else {
            // The counters come back with the next scrape; a page without them beats no page.
            return Ok(());
        };
        encode_totals(&mut encoder, totals)?;
        encode_state(&mut encoder, state.as_ref())
    }
}

fn encode_totals(encoder: &mut DescriptorEncoder<'_>, totals: Totals) -> Result<(), std::fmt::Error> {
    let Totals { tally, overflowed } = totals;
    let fates = [
        ("arrived", tally.packets_in),
        ("left", tally.packets_out),
        ("lost", tally.lost),
        ("duplicated", tally.duplicated),
        ("corrupted", tally.corrupted),
        ("reordered", tally.reordered),
        ("over_limit", tally.over_limit),
        ("overflowed", overflowed),
    ];
    let help = "Packets on impaired links, by what became of them: arrived at the link, left it (copies included), lost, \
                duplicated, corrupted or reordered as was asked for, dropped because the link was full (over_limit), or \
                lost because the emulator was too slow (overflowed)";
    let mut family = encoder.encode_descriptor("packets", help, None, MetricType::Counter)?;
    for (fate, count) in fates {
        ConstCounter::new(count).encode(family.encode_family(&[("fate", fate)])?)?;
    }
    Ok(())
}

fn encode_state(encoder: &mut DescriptorEncoder<'_>, state: Option<&State>) -> Result<(), std::fmt::Error> {
    let route = state.and_then(|state| state.link.routes().first());
    let impairment = route.map(|route| route.impairment.clone()).unwrap_or_default();
    let lateness = state
        .and_then(|state| state.worker)
        .map_or_else(Lateness::default, |worker| worker.lateness);
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let gauges: [(&str, &str, Option<&Unit>, f64); 5] = [
        (
            "impaired",
            "Whether packets to peers are impaired",
            None,
            f64::from(u8::from(state.is_some())),
        ),
        (
            "configured_delay",
            "Delay that was asked for, one way",
            Some(&Unit::Seconds),
            impairment.delay.as_secs_f64(),
        ),
        (
            "configured_loss_ratio",
            "Share of packets that is to be lost",
            None,
            impairment
                .loss
                .as_ref()
                .and_then(|loss| loss.ratio())
                .unwrap_or_default(),
        ),
        (
            "configured_rate_bits_per_second",
            "Rate that was asked for; 0: no limit",
            None,
            impairment
                .rate_bits_per_second
                .map_or(0.0, |rate| rate.get() as f64),
        ),
        (
            "lateness_p99",
            "How much after their time one of a hundred packets left, since the link was last set or counted anew",
            Some(&Unit::Seconds),
            seconds(lateness.p99_ns),
        ),
    ];
    for (name, help, unit, value) in gauges {
        ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?)?;
    }
    Ok(())
}
