//! A benchmark between two shells, without a conductor.

pub(crate) mod address;
mod advice;
mod output;

use std::{
    io::{IsTerminal, stdout},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use perfrun_contract::{
    matrix::{Negotiation, Stack, StackSettings, Transport},
    node::{Distribution, Reason, Role, TrialLabels},
    parameters::{Amount, Parameters},
    support::LITEP2P_QUIC_STREAMS,
    workload::{Direction, OpenMode, Timing},
};

use self::output::{ClientResult, Form, Interval, Listening, Substreams};
use crate::{
    args::{self, MOST_STREAMS, Observed, Output},
    metrics::Metrics,
    observer::Observer,
    sampler::Sampling,
    workload::{self, Client, Failed, Findings, Handover, Setup},
};

/// Serves until a signal. Prints the addresses to dial.
pub async fn server(args: args::Server) -> anyhow::Result<()> {
    let (transport, listen) = address::listen(&args.listen, args.stack.transport)?;
    let stack = args.stack.stack;
    let identity = identity(args.node_key.as_deref(), args.node_key_seed);
    if stack == Stack::Raw && identity.is_some() {
        bail!("raw has no identity: omit --node-key and --node-key-seed, or use another --stack");
    }
    let parameters = Parameters::Bandwidth {
        protocol: args.exchange.protocol.into(),
        direction: Direction::Both,
        amount: Amount::Count(0),
        streams: 1,
        chunk_bytes: args.exchange.chunk_bytes,
        timing: Timing::Strict,
        negotiation: Negotiation::V1,
    };
    advice::check_server(stack, transport, &parameters)?;
    let mut setup = setup(stack, transport, parameters);
    setup.listen = (listen.ip(), listen.port());
    setup.identity = identity;
    // One server serves many kinds of clients.
    setup.max_streams = Some(most_streams(stack, transport));
    let form = form(&args.output);
    let ready = |addresses: Vec<String>| {
        let listening = Listening::new(addresses);
        form.print(|| &listening, || listening.sentences());
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
        // A client's bad stream was logged when it ended, and does not concern the server.
        Err(Failed(failure)) if !is_of_a_stream(failure.reason) => {
            Err(advice::explain(&setup, Failed(failure)))
        }
        _ => Ok(()),
    }
}

fn is_of_a_stream(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::TooFewBytes | Reason::UnexpectedBytes | Reason::StreamFailed | Reason::Timeout
    )
}

/// Streams that one connection to a stand-alone server may have open.
fn most_streams(stack: Stack, transport: Transport) -> usize {
    match (stack, transport) {
        (Stack::Litep2p, Transport::QuicV1) => LITEP2P_QUIC_STREAMS as usize,
        _ => MOST_STREAMS as usize,
    }
}

/// Uploads, then downloads.
pub async fn client(args: args::Client) -> anyhow::Result<()> {
    let (up, down) = (args.upload_bytes.0, args.download_bytes.0);
    let direction = match (up, down) {
        (0, 0) => bail!("nothing to measure: set --upload-bytes or --download-bytes"),
        (_, 0) => Direction::Upload,
        (0, _) => Direction::Download,
        _ => Direction::Both,
    };
    let timing = args.timing.unwrap_or_default();
    let (transport, server) = address::dial(&args.server, args.stack.transport)?;
    let parameters = Parameters::Bandwidth {
        protocol: args.exchange.protocol.into(),
        direction,
        amount: Amount::Count(if up > 0 { up } else { down }),
        streams: args.streams,
        chunk_bytes: args.exchange.chunk_bytes,
        timing,
        negotiation: args.negotiation,
    };
    advice::check_client(args.stack.stack, transport, &parameters)?;
    let mut setup = setup(args.stack.stack, transport, parameters);
    setup.download = (down > 0).then_some(Amount::Count(down));
    let form = form(&Output {
        json: args.output.json || args.details,
    });
    let observer = setup.observer.clone();
    let begun = Instant::now();
    let mut findings = Findings::default();
    let (took, client) = {
        let measure = measure(setup, server, args.timeout, &mut findings);
        tokio::pin!(measure);
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.tick().await;
        let (mut last, mut sent, mut received) = (begun, 0, 0);
        loop {
            tokio::select! {
                client = &mut measure => break (begun.elapsed(), client?),
                _ = seconds.tick() => {
                    let (now, up, down) = (Instant::now(), load(&observer.counters.sent), load(&observer.counters.received));
                    let interval = Interval {
                        after_seconds: (now - begun).as_secs_f64(),
                        seconds: (now - last).as_secs_f64(),
                        uploaded: up - sent,
                        downloaded: down - received,
                    };
                    form.print(|| interval.line(), || interval.sentence());
                    (last, sent, received) = (now, up, down);
                }
            }
        }
    };
    // Outside of --timeout: a peer that delays the close of its connection must not cost the measurement.
    client.close().await;
    let connect = findings.recorders.get(&Distribution::HandshakeEstablished);
    let measured = ClientResult {
        seconds: took.as_secs_f64(),
        uploaded: load(&observer.counters.sent),
        downloaded: load(&observer.counters.received),
        streams: args.streams,
        timing,
        connect_seconds: connect.map(|recorder| recorder.max() as f64 / 1e9),
        upload: findings.upload,
        download: findings.download,
    };
    // Nothing in the published line depends on the timing.
    let with_details = args.details || args.timing.is_some();
    form.print(|| measured.line(with_details), || measured.sentences());
    Ok(())
}

/// Opens substreams.
pub async fn client_substream(args: args::ClientSubstream) -> anyhow::Result<()> {
    let (transport, server) = address::dial(&args.server, args.stack.transport)?;
    let parameters = Parameters::Substreams {
        count: args.substreams,
        mode: OpenMode::Burst,
        rate: None,
        negotiation: args.negotiation,
    };
    advice::check_client(args.stack.stack, transport, &parameters)?;
    let setup = setup(args.stack.stack, transport, parameters);
    let form = form(&args.output);
    let observer = setup.observer.clone();
    let advice = advice::on_opening(&setup);
    let mut findings = Findings::default();
    let client = measure(setup, server, args.timeout, &mut findings).await?;
    client.close().await;
    let seconds = |distribution, value: fn(&perfrun_contract::histogram::Recorder) -> f64| {
        findings
            .recorders
            .get(&distribution)
            .map(|recorder| value(recorder) / 1e9)
    };
    let measured = Substreams {
        r#type: "substreams",
        substreams: args.substreams,
        failures: load(&observer.counters.failures),
        mean_seconds: seconds(Distribution::Open, |r| r.mean()),
        p50_seconds: seconds(Distribution::Open, |r| r.value_at_quantile(0.5) as f64),
        p99_seconds: seconds(Distribution::Open, |r| r.value_at_quantile(0.99) as f64),
        max_seconds: seconds(Distribution::Open, |r| r.max() as f64),
        mean_compat_seconds: seconds(Distribution::OpenCompat, |r| r.mean()),
        negotiation: args.negotiation,
        advice,
    };
    form.print(|| &measured, || measured.sentences());
    Ok(())
}

/// Connects and runs the workload.
async fn measure(
    setup: Setup,
    server: String,
    time: Duration,
    findings: &mut Findings,
) -> anyhow::Result<Client<'_>> {
    let requested = setup.clone();
    let run = async {
        let mut client = Client::prepare(setup, &[server], &[], 1, findings).await?;
        client.run().await?;
        Ok(client)
    };
    let ran = tokio::time::timeout(time, run).await.unwrap_or_else(|_| {
        let message = format!("not completed after {time:?}: increase --timeout");
        Err(Failed(workload::failure(Reason::Timeout, message)))
    });
    ran.map_err(|failed| advice::explain(&requested, failed))
}

fn form(output: &Output) -> Form {
    Form::new(output.json, stdout().is_terminal())
}

fn setup(stack: Stack, transport: Transport, parameters: Parameters) -> Setup {
    let metrics = Metrics::new(&Observed::default(), Role::Client);
    Setup {
        stack,
        settings: StackSettings::default(),
        transport,
        observer: Arc::new(Observer::new(
            metrics.trial(stack, transport, &TrialLabels::default()),
            Sampling::from(&parameters),
        )),
        parameters,
        listen: (IpAddr::from([0, 0, 0, 0]), 0),
        identity: None,
        max_streams: None,
        download: None,
        handover: Handover::default(),
        stack_metrics: metrics.stacks(),
    }
}

fn load(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(std::sync::atomic::Ordering::Relaxed)
}

/// The Ed25519 secret of a text, as in litep2p-perf, or of a number, as in rust-libp2p's examples.
fn identity(text: Option<&str>, number: Option<u8>) -> Option<[u8; 32]> {
    let bytes = match (text, number) {
        (Some(text), _) => text.as_bytes(),
        (None, Some(number)) => &[number],
        (None, None) => return None,
    };
    let mut secret = [0; 32];
    for (to, from) in secret.iter_mut().zip(bytes) {
        *to = *from;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_padded_and_cut_to_a_secret() {
        let secret = identity(Some("secret"), None).unwrap();
        assert_eq!(&secret[..8], b"secret\0\0");
        assert_eq!(identity(Some(&"x".repeat(40)), None), Some([b'x'; 32]));
        assert_eq!(identity(None, None), None);
    }

    #[test]
    fn a_number_is_the_first_byte_of_a_secret() {
        assert_eq!(identity(None, Some(0)), Some([0; 32]));
        let secret = identity(None, Some(255)).unwrap();
        assert_eq!((secret[0], &secret[1..]), (255, &[0; 31][..]));
    }
}
