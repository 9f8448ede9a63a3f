//! A client against a server that counts bytes like the published litep2p-perf.

use std::{io, net::Ipv4Addr, sync::Arc};

use perfrun_contract::{
    matrix::{Identity, Protocol, Stack, StackSettings, Transport},
    parameters::{Amount, Bandwidth, Parameters},
    workload::Direction,
};
use perfrun_stack::{
    self as stack, BoxStream, Host, HostConfig, Inbound, Keys, Relaying, StackMetrics, UsedCongestion,
};
use prometheus_client::registry::Registry;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Runtime,
    sync::mpsc,
};

use crate::{lines, run};

/// Reads and writes whole blocks of 1 KiB, regardless of the declared sizes.
async fn serve(mut stream: BoxStream) -> io::Result<()> {
    let mut block = [0; 1024];
    let mut left = stream.read_u64().await? as usize;
    while left > 0 {
        // A last block with room for it includes the header that follows the upload.
        let due = block.len().min(left + size_of::<u64>());
        stream.read_exact(&mut block[..due]).await?;
        left = left.saturating_sub(due);
    }
    let download = stream.read_u64().await?;
    for _ in 0..download.div_ceil(1024) {
        stream.write_all(&block).await?;
    }
    stream.flush().await
}

async fn start() -> Box<dyn Host> {
    let (inbound, mut events) = mpsc::unbounded_channel();
    let config = HostConfig {
        settings: StackSettings::default(),
        transport: Transport::Tcp,
        parameters: Parameters::Bandwidth(Bandwidth::new(
            Protocol::Litep2pPerf,
            Direction::Both,
            Amount::Count(1),
        )),
        listen: Some((Ipv4Addr::LOCALHOST.into(), 0)),
        identity: Keys::New(Identity::Ed25519),
        max_streams: 64,
        relaying: Relaying::No,
        metrics: Arc::new(StackMetrics::new(&mut Registry::default())),
        congestion: UsedCongestion::default(),
    };
    let host = stack::start(Stack::Litep2p, config, inbound).await.unwrap();
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            if let Inbound::Stream(stream) = event {
                tokio::spawn(serve(stream));
            }
        }
    });
    host
}

#[test]
fn sizes_that_the_published_servers_round_up_get_the_advice() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(start());
    for stack in ["litep2p", "libp2p"] {
        let client = ["client", "--stack", stack, "--server", &server.addresses()[0]];
        let measured = lines(&[&client[..], &["--upload-bytes", "3Ki", "--download-bytes", "2Ki"]].concat());
        assert!(
            measured[0].contains(r#""uploadBytes":3072,"downloadBytes":2048"#),
            "{measured:?}"
        );
        for (options, words) in [
            // The header of the download is in the last block of the upload.
            (
                &["--upload-bytes", "1500", "--timeout", "4"][..],
                "not completed after 4s",
            ),
            // The last block holds more bytes than the client requested.
            (&["--download-bytes", "1500"], "(UnexpectedBytes)"),
        ] {
            let output = run(&[&client[..], options].concat());
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{stack} {options:?}");
            assert!(stderr.contains(words), "{stack} {options:?}: {stderr}");
            assert!(
                stderr.contains("use multiples of 1Ki"),
                "{stack} {options:?}: {stderr}"
            );
        }
    }
}
