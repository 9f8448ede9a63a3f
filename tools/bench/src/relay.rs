//! Transfers through a relay against the same without one, in turn; on one machine the relay shares its CPUs
//! with both ends.

use anyhow::Result;
use perfrun_contract::metric::Metric;

use crate::testbed::{Testbed, Unit, print_ratio};

/// A relay copies each byte in and out again, and encrypts what it carries once more on either leg.
const TARGET: f64 = 0.45;

/// The size of a transfer in bytes: large enough for windows to grow.
const SIZE: u64 = 512 << 20;

pub(crate) async fn run(rounds: u32) -> Result<()> {
    for (stack, transport) in [("raw", "tcp"), ("libp2p", "tcp"), ("libp2p", "quic-v1")] {
        let testbed = Testbed::start(&format!(
            "  workload: {{relay: {{sizes: [{SIZE}]}}}}\n\
             \x20 matrix: {{clients: [{stack}], servers: [{stack}], transports: [{transport}], rawReference: false}}\n\
             \x20 iterations: 1\n  warmup: 0\n"
        ))
        .await?;
        let mut pairs = vec![];
        for _ in 0..rounds {
            let through = |path| format!("{stack}.{stack}.{transport}.{path}-512Mi");
            let relayed = testbed
                .measure(&through("relayed"), Metric::DownloadGoodput)
                .await?;
            let direct = testbed
                .measure(&through("direct"), Metric::DownloadGoodput)
                .await?;
            pairs.push((relayed, direct));
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
