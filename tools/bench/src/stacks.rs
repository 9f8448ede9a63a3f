//! Chunks of 64 KiB, the default, against the published tools' 1 KiB: the same stack with itself, in turn.

use anyhow::Result;
use perfrun_contract::{metric::Metric, quantity::ByteSize};

use crate::testbed::{Testbed, Unit, print_ratio};

/// The default must be at least as fast.
const TARGET: f64 = 1.0;

pub(crate) async fn run(rounds: u32, seconds: f64) -> Result<()> {
    for stack in ["libp2p", "litep2p"] {
        for transport in ["tcp", "quic-v1"] {
            let spec = |chunk: ByteSize| {
                format!(
                    "  workload: {{bandwidth: {{duration: {seconds}s, directions: [upload], chunkBytes: {chunk}}}}}\n\
                     \x20 matrix: {{clients: [{stack}], servers: [{stack}], transports: [{transport}], rawReference: false}}\n\
                     \x20 iterations: 1\n  warmup: 0\n"
                )
            };
            let large = Testbed::start(&spec(ByteSize(64 << 10))).await?;
            let small = Testbed::start(&spec(ByteSize(1 << 10))).await?;
            let cell = format!("{stack}.{stack}.{transport}.upload-{seconds}s");
            let mut pairs = vec![];
            for _ in 0..rounds {
                let ours = large.measure(&cell, Metric::UploadGoodput).await?;
                pairs.push((ours, small.measure(&cell, Metric::UploadGoodput).await?));
            }
            large.nodes.stop().await;
            small.nodes.stop().await;
            print_ratio(
                &format!("{stack} over {transport}, 64 KiB chunks against 1 KiB"),
                &pairs,
                Unit::Bits,
                Some(TARGET),
            );
        }
    }
    Ok(())
}
