//! Chunks of 64 KiB, the default, against the published tools' 1 KiB: the same stack with itself, in turn.

use anyhow::Result;
use perfrun_contract::metric::Metric;

use crate::testbed::{Testbed, Unit, pair, print_ratio};

/// The default must be at least as fast.
const TARGET: f64 = 1.0;

pub(crate) async fn run(rounds: u32, seconds: f64) -> Result<()> {
    for stack in ["libp2p", "litep2p"] {
        for transport in ["tcp", "quic-v1"] {
            let with_chunks = async |chunk: &str| {
                let workload =
                    format!("bandwidth: {{duration: {seconds}s, directions: [upload], chunkBytes: {chunk}}}");
                Testbed::of(stack, transport, &workload).await
            };
            let (large, small) = (with_chunks("64Ki").await?, with_chunks("1Ki").await?);
            let cell = format!("{stack}.{stack}.{transport}.upload-{seconds}s");
            let mut pairs = vec![];
            for round in 0..rounds {
                let [large, small] =
                    [&large, &small].map(|testbed| testbed.measure(&cell, Metric::UploadGoodput));
                pairs.push(pair(round, large, small).await?);
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
