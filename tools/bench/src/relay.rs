//! Transfers through a relay against the same without one, in turn; on one machine the relay shares its CPUs
//! with both ends.

use anyhow::Result;
use perfrun_contract::metric::Metric;

use crate::testbed::{Testbed, Unit, pair, print_ratio};

/// A relay copies each byte in and out again, and encrypts what it carries once more on either leg.
const TARGET: f64 = 0.45;

pub(crate) async fn run(rounds: u32) -> Result<()> {
    for (stack, transport) in [("raw", "tcp"), ("libp2p", "tcp"), ("libp2p", "quic-v1")] {
        let testbed = Testbed::of(stack, transport, "relay: {sizes: [512Mi]}").await?;
        let mut pairs = vec![];
        for round in 0..rounds {
            // Large enough for windows to grow.
            let cells = ["relayed", "direct"].map(|path| format!("{stack}.{stack}.{transport}.{path}-512Mi"));
            let [relayed, direct] = cells
                .each_ref()
                .map(|cell| testbed.measure(cell, Metric::DownloadGoodput));
            pairs.push(pair(round, relayed, direct).await?);
        }
        testbed.nodes.stop().await;
        print_ratio(
            &format!("{stack} over {transport}, through a relay against direct"),
            &pairs,
            Unit::Bits,
            Some(TARGET),
        );
    }
    Ok(())
}
