//! The usage of the process, read at each scrape.

use perfrun_contract::metrics::process;
use perfrun_metrics::{NO_LABELS, encode_samples};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use crate::process::Usage;

#[derive(Debug)]
pub(crate) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let encoder = &mut encoder;
        let usage = Usage::now();
        let modes = usage
            .cpu_modes()
            .map(|(mode, seconds)| ([("mode", mode)], seconds));
        encode_samples(encoder, &process::CPU, modes)?;
        let kinds = usage.context_switches();
        let kinds = kinds.map(|(kind, count)| ([("kind", kind)], count as f64));
        encode_samples(encoder, &process::SWITCHES, kinds)?;
        encode_samples(encoder, &process::MEMORY, [(NO_LABELS, usage.rss() as f64)])?;
        let allocated = usage.allocated().map(|bytes| (NO_LABELS, bytes as f64));
        encode_samples(encoder, &process::ALLOCATED, allocated)?;
        encode_samples(
            encoder,
            &process::THROTTLED,
            usage.throttled().map(|time| (NO_LABELS, time)),
        )?;
        let segments = usage.retransmits().map(|count| (NO_LABELS, count as f64));
        encode_samples(encoder, &process::RETRANSMITS, segments)?;
        let directions = usage.interfaces().into_iter().flatten();
        let directions = directions.map(|(direction, bytes)| ([("direction", direction)], bytes as f64));
        encode_samples(encoder, &process::INTERFACE, directions)
    }
}
