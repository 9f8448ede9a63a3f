//! One benchmark between two shells, without a conductor.
//!
//! Standard output carries the lines of the published perf tools: `intermediate` once a second with what was moved in
//! that interval, `final` at the end with everything.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use perfrun_api::{
    matrix::{Negotiation, Protocol, Stack, Transport},
    node::{Distribution, Reason, Transfer, TrialLabels},
    plan::{Amount, Parameters, Role},
    quantity::ByteSize,
    workload::{Direction, OpenMode, Timing},
};
use serde::Serialize;

use crate::{
    args::{self, BandwidthProtocol, Link, Observed},
    metrics::Metrics,
    probe::Probe,
    record,
    sampler::Sampling,
    stack,
    workload::{self, Client, Failed, Findings, Setup},
};

/// Serves until a signal; prints the address to dial.
pub async fn server(args: args::Server) -> anyhow::Result<()> {
    let listen = listen_address(&args.listen)?;
    let parameters = bandwidth(
        args.protocol,
        &args.link,
        Direction::Both,
        0,
        1,
        Timing::Strict,
        Negotiation::V1,
    );
    let mut setup = setup(&args.link, parameters);
    setup.listen = (listen.ip(), listen.port());
    setup.identity = args.node_key.as_deref().map(seed);
    // One server serves many kinds of clients.
    setup.max_streams = Some(most_streams(&args.link));
    let ready = |addresses: Vec<String>| {
        record::write(&Listening {
            r#type: "listening",
            addresses,
        });
    };
    let stop = crate::serve::stop_signal().context("failed to watch for signals")?;
    match workload::serve(
        &setup,
        workload::Listening::Here,
        ready,
        stop,
        &mut Findings::default(),
    )
    .await
    {
        // One client's bad stream was logged when it ended, and is nothing to the server.
        Err(Failed(failure)) if !is_of_a_stream(failure.reason) => Err(explain(Failed(failure))),
        _ => Ok(()),
    }
}

fn is_of_a_stream(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::TooFewBytes | Reason::UnexpectedBytes | Reason::StreamFailed | Reason::Timeout
    )
}

/// Streams that one connection to a stand-alone server may hold open. litep2p's QUIC allows no more, fixed.
fn most_streams(link: &Link) -> usize {
    match (link.stack, link.transport) {
        (Stack::Litep2p, Transport::QuicV1) => 100,
        _ => 1024,
    }
}

#[derive(Serialize)]
struct Listening {
    r#type: &'static str,
    addresses: Vec<String>,
}

/// A line of the published perf tools; `time_seconds` of an intermediate one is the interval.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    r#type: &'static str,
    time_seconds: f64,
    upload_bytes: u64,
    download_bytes: u64,
    /// More than the published tools say, in the final line only, and only on request: a consumer may be strict.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    timing: Timing,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upload: Option<Transfer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    download: Option<Transfer>,
}

/// Uploads, then downloads.
pub async fn client(args: args::Client) -> anyhow::Result<()> {
    let (up, down) = (args.upload_bytes.0, args.download_bytes.0);
    let direction = match (up, down) {
        (0, 0) => bail!("nothing to measure: give --upload-bytes or --download-bytes"),
        (_, 0) => Direction::Upload,
        (0, _) => Direction::Download,
        _ => Direction::Both,
    };
    let parameters = bandwidth(
        args.protocol,
        &args.link,
        direction,
        if up > 0 { up } else { down },
        args.streams,
        args.timing,
        args.negotiation,
    );
    let mut setup = setup(&args.link, parameters);
    setup.download = (down > 0).then_some(Amount::Count(down));
    let server = dial_address(&args.server, args.link.transport);
    let probe = setup.probe.clone();
    let begun = Instant::now();
    let mut findings = Findings::default();
    let (took, client) = {
        let measure = async {
            let client = Client::prepare(setup, &[server], 1, &mut findings).await;
            let mut client = client.map_err(explain)?;
            client.run().await.map_err(explain)?;
            Ok::<_, anyhow::Error>((begun.elapsed(), client))
        };
        let measure = tokio::time::timeout(args.timeout, measure);
        tokio::pin!(measure);
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.tick().await;
        let (mut last, mut sent, mut received) = (begun, 0, 0);
        loop {
            tokio::select! {
                measured = &mut measure => break measured.with_context(|| format!("not done after {:?}", args.timeout))??,
                _ = seconds.tick() => {
                    let (now, up, down) = (Instant::now(), load(&probe.counters.sent), load(&probe.counters.received));
                    record::write(&Line {
                        r#type: "intermediate",
                        time_seconds: (now - last).as_secs_f64(),
                        upload_bytes: up - sent,
                        download_bytes: down - received,
                        details: None,
                    });
                    (last, sent, received) = (now, up, down);
                }
            }
        }
    };
    // Outside of the time given: what was measured is not lost to a peer that keeps a connection from closing.
    client.close().await;
    let connect = findings.recorders.get(&Distribution::HandshakeEstablished);
    record::write(&Line {
        r#type: "final",
        time_seconds: took.as_secs_f64(),
        upload_bytes: load(&probe.counters.sent),
        download_bytes: load(&probe.counters.received),
        details: args.details.then(|| Details {
            timing: args.timing,
            connect_seconds: connect.map(|recorder| recorder.max() as f64 / 1e9),
            upload: findings.upload,
            download: findings.download,
        }),
    });
    Ok(())
}

/// Opens substreams.
pub async fn client_substream(args: args::ClientSubstream) -> anyhow::Result<()> {
    let (count, negotiation) = (args.substreams, args.negotiation);
    let parameters = Parameters::Substreams {
        count,
        mode: OpenMode::Burst,
        rate: None,
        negotiation,
    };
    let setup = setup(&args.link, parameters);
    let server = dial_address(&args.server, args.link.transport);
    let probe = setup.probe.clone();
    let mut findings = Findings::default();
    let measure = async {
        let client = Client::prepare(setup, &[server], 1, &mut findings).await;
        let mut client = client.map_err(explain)?;
        client.run().await.map_err(explain)?;
        Ok::<_, anyhow::Error>(client)
    };
    let measured = tokio::time::timeout(args.timeout, measure).await;
    let client = measured.with_context(|| format!("not done after {:?}", args.timeout))??;
    client.close().await;
    let seconds = |distribution, value: fn(&perfrun_api::histogram::Recorder) -> f64| {
        findings
            .recorders
            .get(&distribution)
            .map(|recorder| value(recorder) / 1e9)
    };
    record::write(&Substreams {
        r#type: "substreams",
        substreams: count,
        failures: load(&probe.counters.failures),
        mean_seconds: seconds(Distribution::Open, |r| r.mean()),
        p50_seconds: seconds(Distribution::Open, |r| r.value_at_quantile(0.5) as f64),
        p99_seconds: seconds(Distribution::Open, |r| r.value_at_quantile(0.99) as f64),
        max_seconds: seconds(Distribution::Open, |r| r.max() as f64),
        mean_compat_seconds: seconds(Distribution::OpenCompat, |r| r.mean()),
    });
    Ok(())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Substreams {
    r#type: &'static str,
    substreams: u32,
    failures: u64,
    mean_seconds: Option<f64>,
    p50_seconds: Option<f64>,
    p99_seconds: Option<f64>,
    max_seconds: Option<f64>,
    mean_compat_seconds: Option<f64>,
}

fn bandwidth(
    protocol: BandwidthProtocol,
    link: &Link,
    direction: Direction,
    bytes: u64,
    streams: u32,
    timing: Timing,
    negotiation: Negotiation,
) -> Parameters {
    Parameters::Bandwidth {
        protocol: match protocol {
            BandwidthProtocol::Litep2pPerf => Protocol::Litep2pPerf,
            BandwidthProtocol::Perf => Protocol::Perf,
        },
        direction,
        amount: Amount::Count(bytes),
        streams,
        chunk_bytes: ByteSize(link.chunk_bytes.0),
        timing,
        negotiation,
    }
}

fn setup(link: &Link, parameters: Parameters) -> Setup {
    let metrics = Metrics::new(&Observed::default(), Role::Client);
    Setup {
        stack: link.stack,
        transport: link.transport,
        probe: Arc::new(Probe::new(
            metrics.trial(link.stack, link.transport, &TrialLabels::default()),
            Sampling::from(&parameters),
        )),
        parameters,
        listen: (IpAddr::from([0, 0, 0, 0]), 0),
        identity: None,
        max_streams: None,
        download: None,
        stack_metrics: metrics.stacks(),
    }
}

fn load(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(std::sync::atomic::Ordering::Relaxed)
}

fn explain(Failed(failure): Failed) -> anyhow::Error {
    anyhow::anyhow!("{} ({})", failure.message, failure.reason)
}

/// The identity of a key in ASCII, as litep2p-perf reads it.
fn seed(key: &str) -> [u8; 32] {
    let mut seed = [0; 32];
    for (to, from) in seed.iter_mut().zip(key.bytes()) {
        *to = from;
    }
    seed
}

/// The multiaddr of a server given as `ADDRESS:PORT`, as the published perf tool takes it; any other is as it was given.
fn dial_address(text: &str, transport: Transport) -> String {
    match text.parse::<SocketAddr>() {
        Ok(socket) => stack::socket_address(transport, socket),
        Err(_) => text.to_owned(),
    }
}

/// `ADDRESS:PORT`, or the address and port of a multiaddr such as `/ip4/0.0.0.0/tcp/33333`.
fn listen_address(text: &str) -> anyhow::Result<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = || {
        format!(
            "unable to listen on {text:?}: give ADDRESS:PORT or a multiaddr such as /ip4/0.0.0.0/tcp/33333"
        )
    };
    let parts: Vec<&str> = text.split('/').collect();
    match parts.as_slice() {
        ["", "ip4" | "ip6", ip, "tcp" | "udp", port, ..] => {
            let ip: IpAddr = ip.parse().with_context(wrong)?;
            Ok(SocketAddr::new(ip, port.parse().with_context(wrong)?))
        }
        _ => bail!(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_are_read_in_both_notations() {
        let expected: SocketAddr = "0.0.0.0:33333".parse().unwrap();
        assert_eq!(listen_address("0.0.0.0:33333").unwrap(), expected);
        assert_eq!(listen_address("/ip4/0.0.0.0/tcp/33333").unwrap(), expected);
        assert_eq!(
            listen_address("/ip4/0.0.0.0/udp/33333/quic-v1").unwrap(),
            expected
        );
        assert_eq!(
            listen_address("/ip6/::/tcp/1").unwrap(),
            "[::]:1".parse::<SocketAddr>().unwrap()
        );
        assert!(
            listen_address("/dns/host/tcp/1")
                .unwrap_err()
                .to_string()
                .contains("/ip4/0.0.0.0/tcp/33333")
        );
    }

    #[test]
    fn servers_are_dialled_in_both_notations() {
        let dialled = |text, transport| dial_address(text, transport);
        assert_eq!(dialled("10.1.2.3:7", Transport::Tcp), "/ip4/10.1.2.3/tcp/7");
        assert_eq!(dialled("[::1]:7", Transport::QuicV1), "/ip6/::1/udp/7/quic-v1");
        assert_eq!(dialled("/dns4/host/tcp/7", Transport::Tcp), "/dns4/host/tcp/7");
    }

    #[test]
    fn keys_are_padded_and_cut_to_a_seed() {
        assert_eq!(&seed("secret")[..8], b"secret\0\0");
        assert_eq!(seed(&"x".repeat(40)), [b'x'; 32]);
    }
}
