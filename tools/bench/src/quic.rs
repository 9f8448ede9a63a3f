//! Raw QUIC against a minimal loop over quinn: the same two namespaces, settings and chunk size, in turn.

use std::{
    env,
    net::{IpAddr, SocketAddr},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use perfrun_contract::metric::Metric;
use perfrun_local::Slot;
use quinn::{ClientConfig, Endpoint, ServerConfig, TransportConfig, VarInt};
use rustls::{RootCertStore, pki_types::CertificateDer};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::{
    part::PART,
    testbed::{Testbed, Unit, inside, pair, print_ratio},
};

const TARGET: f64 = 0.97;
const CHUNK: usize = 64 << 10;

pub(crate) async fn run(rounds: u32, seconds: f64) -> Result<()> {
    let workload = format!("bandwidth: {{duration: {seconds}s, directions: [upload]}}");
    let testbed = Testbed::of("raw", "quic-v1", &workload).await?;
    let (server, client) = testbed.ends()?;
    let cell = format!("raw.raw.quic-v1.upload-{seconds}s");
    let mut pairs = vec![];
    for round in 0..rounds {
        let ours = testbed.measure(&cell, Metric::UploadGoodput);
        pairs.push(pair(round, ours, loop_once(server, client, seconds)).await?);
    }
    testbed.nodes.stop().await;
    print_ratio(
        "raw QUIC, one stream, against a minimal quinn loop",
        &pairs,
        Unit::Bits,
        Some(TARGET),
    );
    Ok(())
}

async fn loop_once(server: &Slot, client: &Slot, seconds: f64) -> Result<f64> {
    let program = env::current_exe()?;
    let mut listening = inside(server, &program)?
        .env(PART, format!("quic server {}", server.addresses().v4))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(listening.stdout.take().context("the server's output is a pipe")?).lines();
    let address = lines.next_line().await?.context("the server ended early")?;
    let status = inside(client, &program)?
        .env(PART, format!("quic client {address} {seconds}"))
        .status()
        .await?;
    anyhow::ensure!(status.success(), "the quinn loop's client failed");
    let rate = lines
        .next_line()
        .await?
        .context("the server gave no rate")?
        .parse()?;
    listening.wait().await?;
    Ok(rate)
}

/// One end of the loop.
pub(crate) async fn end(end: &str, arguments: &str) -> Result<()> {
    match (end, &arguments.split(' ').collect::<Vec<_>>()[..]) {
        ("server", [ip]) => server(ip.parse()?).await,
        ("client", [address, certificate, seconds]) => {
            let time = Duration::from_secs_f64(seconds.parse()?);
            client(address.parse()?, certificate, time).await
        }
        _ => bail!("{end:?} with {arguments:?} is not an end of the loop"),
    }
}

async fn server(ip: IpAddr) -> Result<()> {
    let certified = rcgen::generate_simple_self_signed(["loop".to_owned()])?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let der = certified.cert.der().clone();
    let mut config = ServerConfig::with_single_cert(vec![der.clone()], key.into())?;
    config.transport_config(transport()).migration(false);
    let endpoint = Endpoint::server(config, SocketAddr::new(ip, 0))?;
    let hex: String = der.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{} {hex}", endpoint.local_addr()?);
    let connection = endpoint.accept().await.context("no client came")?.await?;
    let (mut send, mut receive) = connection.accept_bi().await?;
    let mut buffer = vec![0; CHUNK];
    let first_bytes = receive
        .read(&mut buffer)
        .await?
        .context("the client sent nothing")?;
    let (first, mut total) = (Instant::now(), first_bytes);
    let mut last = first;
    while let Some(n) = receive.read(&mut buffer).await? {
        total += n;
        last = Instant::now();
    }
    send.finish()?;
    println!(
        "{}",
        (total - first_bytes) as f64 * 8.0 / (last - first).as_secs_f64()
    );
    connection.closed().await;
    Ok(())
}

async fn client(address: SocketAddr, certificate: &str, time: Duration) -> Result<()> {
    let byte = |i: usize| u8::from_str_radix(&certificate[i..i + 2], 16);
    let der = (0..certificate.len())
        .step_by(2)
        .map(byte)
        .collect::<Result<Vec<u8>, _>>()?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(der))?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    config.transport_config(transport());
    let endpoint = Endpoint::client(SocketAddr::new([0, 0, 0, 0].into(), 0))?;
    let connection = endpoint.connect_with(config, address, "loop")?.await?;
    let (mut send, mut receive) = connection.open_bi().await?;
    let chunk = vec![0; CHUNK];
    let begun = Instant::now();
    while begun.elapsed() < time {
        send.write_all(&chunk).await?;
    }
    send.finish()?;
    // The server ends its stream when it has received everything.
    receive.read_to_end(0).await?;
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

/// The settings of the node's raw QUIC. With equal settings the node itself causes any difference.
fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(256u32.into())
        .max_concurrent_uni_streams(0u32.into())
        .datagram_receive_buffer_size(None)
        .stream_receive_window(10_000_000u32.into())
        .receive_window(15_000_000u32.into())
        .max_idle_timeout(Some(VarInt::from_u32(10_000).into()))
        .keep_alive_interval(Some(Duration::from_secs(5)))
        .allow_spin(false);
    Arc::new(config)
}
