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

use anyhow::{Context, bail, ensure};
use perfrun_contract::{
    distribution::Distribution,
    histogram::Recorder,
    matrix::{Stack, StackSettings, Transport},
    node::{Reason, TrialLabels},
    parameters::{self, Amount, Bandwidth, Parameters, Relay},
    quantity::ByteSize,
    role::Role,
    support::limits,
    workload::{Direction, OpenMode, RelayLimits, RelayPath, Timing},
};
use thiserror::Error;

use self::output::{ClientResult, Form, Interval, Listening, Substreams};
use crate::{
    args::{self, MetricsArgs, Output, STANDALONE_STREAMS_MAX},
    metrics::Metrics,
    observer::Observer,
    sampler::Sampling,
    workload::{self, Client, Failed, Handover, Measurements, Setup},
};

/// Marks an error about options, after which nothing was started.
#[derive(Debug, Error)]
#[error("invalid command line")]
pub(crate) struct InvalidCommandLine;

/// Round trips of a sink with its relay, and with its source.
const PINGS: u32 = 10;

/// Serves until a signal. Prints the addresses to dial.
pub async fn server(args: args::Server) -> anyhow::Result<()> {
    let setup = server_setup(&args).context(InvalidCommandLine)?;
    serve(&setup, workload::Listening::Here, &args.output).await
}

fn server_setup(args: &args::Server) -> anyhow::Result<Setup> {
    let (transport, listen) = address::listen(&args.listen, args.stack.transport)?;
    let stack = args.stack.stack;
    let identity = identity(args.node_key.as_deref(), args.node_key_seed);
    if stack == Stack::Raw && identity.is_some() {
        bail!("raw has no identity: omit --node-key and --node-key-seed, or use another --stack");
    }
    let parameters = Parameters::Bandwidth(Bandwidth {
        chunk_bytes: args.exchange.chunk_bytes,
        ..Bandwidth::new(args.exchange.protocol.into(), Direction::Both, Amount::Count(0))
    });
    advice::check_server(stack, transport, &parameters)?;
    let mut setup = setup(stack, transport, parameters);
    setup.listen = (listen.ip(), listen.port());
    setup.identity = identity;
    // One server serves many kinds of clients.
    let most_streams = limits(stack, transport)
        .max_streams
        .unwrap_or(STANDALONE_STREAMS_MAX);
    setup.max_streams = Some(most_streams as usize);
    Ok(setup)
}

/// Serves until a signal.
async fn serve(setup: &Setup, listening: workload::Listening<'_>, output: &Output) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let mut measurements = Measurements::default();
    let served = workload::serve(setup, listening, announce(output), stop, &mut measurements).await;
    ended(setup, served)
}

fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    crate::serve::stop_signal().context("failed to watch for signals")
}

/// Prints addresses.
fn announce(output: &Output) -> impl FnOnce(Vec<String>) + use<> {
    let form = form(output);
    move |addresses| {
        let listening = Listening::new(addresses);
        form.print(|| &listening, || listening.sentences());
    }
}

/// The end of what served. A client's bad stream was logged when it ended, and does not concern the server.
fn ended(setup: &Setup, served: Result<(), Failed>) -> anyhow::Result<()> {
    match served {
        Err(Failed(failure)) if !is_of_a_stream(failure.reason) => {
            Err(advice::explain(setup, Failed(failure)))
        }
        _ => Ok(()),
    }
}

/// libp2p's perf, by its own options.
pub async fn perf(args: args::Perf) -> anyhow::Result<()> {
    if !args.run_server {
        return client(args.client()).await;
    }
    let [tcp, quic] = [Transport::TcpTls, Transport::QuicV1].map(|transport| server(args.server(transport)));
    tokio::try_join!(tcp, quic).map(drop)
}

/// Relays until a signal. Prints the addresses at which sources reserve.
pub async fn relay(args: args::Relay) -> anyhow::Result<()> {
    let setup = relay_setup(&args).context(InvalidCommandLine)?;
    let stop = stop_signal()?;
    let mut measurements = Measurements::default();
    let served = workload::serve_relay(&setup, announce(&args.output), stop, &mut measurements).await;
    ended(&setup, served)
}

fn relay_setup(args: &args::Relay) -> anyhow::Result<Setup> {
    let (transport, listen) = address::listen(&args.listen, args.transport)?;
    ensure!(
        !listen.ip().is_unspecified(),
        "unable to listen on {:?}: the relay tells its peers this address, so it must be one that they can dial",
        args.listen
    );
    // A relay knows nothing of the transfers.
    let parameters = relayed(ByteSize(0), ByteSize(1));
    advice::check_server(Stack::Libp2p, transport, &parameters)?;
    let mut setup = setup(Stack::Libp2p, transport, parameters);
    setup.listen = (listen.ip(), listen.port());
    Ok(setup)
}

/// Reserves at a relay and serves behind it until a signal. Prints the address to dial.
pub async fn source(args: args::Source) -> anyhow::Result<()> {
    let (setup, relay) = source_setup(&args).context(InvalidCommandLine)?;
    let behind = workload::Listening::Behind {
        relay: &relay,
        peers: 1,
    };
    serve(&setup, behind, &args.output).await
}

/// What a source serves, and the address of its relay.
fn source_setup(args: &args::Source) -> anyhow::Result<(Setup, String)> {
    ensure!(
        args.relay.contains("/p2p/"),
        "unable to reserve at {}: use the address that the relay printed",
        args.relay
    );
    let (transport, relay) = address::dial(&args.relay, args.relayed.transport)?;
    let parameters = relayed(args.relayed.bytes, args.relayed.chunk_bytes);
    advice::check_server(Stack::Libp2p, transport, &parameters)?;
    Ok((setup(Stack::Libp2p, transport, parameters), relay))
}

/// Fetches from a source behind a relay.
pub async fn sink(args: args::Sink) -> anyhow::Result<()> {
    let (setup, source) = sink_setup(&args).context(InvalidCommandLine)?;
    exchange(setup, source, args.timeout, form(&args.output), true).await
}

/// What a sink fetches, and the address of its source.
fn sink_setup(args: &args::Sink) -> anyhow::Result<(Setup, String)> {
    ensure!(
        args.source.contains("/p2p-circuit/"),
        "unable to fetch from {}: use the address that the source printed, which has /p2p-circuit/",
        args.source
    );
    let (transport, source) = address::dial(&args.source, args.relayed.transport)?;
    let parameters = relayed(args.relayed.bytes, args.relayed.chunk_bytes);
    advice::check_client(Stack::Libp2p, transport, &parameters)?;
    Ok((setup(Stack::Libp2p, transport, parameters), source))
}

/// A transfer through a relay, after some round trips.
fn relayed(bytes: ByteSize, chunk_bytes: ByteSize) -> Parameters {
    Parameters::Relay(Relay {
        path: RelayPath::Relayed,
        bytes: bytes.0,
        chunk_bytes,
        pings: PINGS,
        limits: RelayLimits::default(),
    })
}

fn is_of_a_stream(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::TooFewBytes | Reason::UnexpectedBytes | Reason::StreamFailed | Reason::Timeout
    )
}

/// Uploads, then downloads.
pub async fn client(args: args::Client) -> anyhow::Result<()> {
    let (setup, server) = client_setup(&args).context(InvalidCommandLine)?;
    let form = form(&Output {
        json: args.output.json || args.details,
    });
    // Nothing in the published line depends on the timing.
    let with_details = args.details || args.timing.is_some();
    exchange(setup, server, args.timeout, form, with_details).await
}

/// What a client exchanges, and the address of its server.
fn client_setup(args: &args::Client) -> anyhow::Result<(Setup, String)> {
    let (up, down) = (args.upload_bytes.0, args.download_bytes.0);
    let direction = match (up, down) {
        (0, 0) => bail!("nothing to measure: set --upload-bytes or --download-bytes"),
        (_, 0) => Direction::Upload,
        (0, _) => Direction::Download,
        _ => Direction::Both,
    };
    let (transport, server) = address::dial(&args.server, args.stack.transport)?;
    let parameters = Parameters::Bandwidth(Bandwidth {
        protocol: args.exchange.protocol.into(),
        direction,
        amount: Amount::Count(if up > 0 { up } else { down }),
        streams: args.streams,
        chunk_bytes: args.exchange.chunk_bytes,
        timing: args.timing.unwrap_or_default(),
        negotiation: args.negotiation,
    });
    advice::check_client(args.stack.stack, transport, &parameters)?;
    let mut setup = setup(args.stack.stack, transport, parameters);
    setup.download = (down > 0).then_some(Amount::Count(down));
    Ok((setup, server))
}

/// Connects and transfers. Prints what moves in each second, and the result.
async fn exchange(
    setup: Setup,
    server: String,
    timeout: Duration,
    form: Form,
    with_details: bool,
) -> anyhow::Result<()> {
    let timing = match setup.parameters {
        Parameters::Bandwidth(Bandwidth { timing, .. }) => timing,
        _ => Timing::Strict,
    };
    let streams = setup.parameters.streams();
    let observer = setup.observer.clone();
    let begun = Instant::now();
    let mut measurements = Measurements::default();
    let (took, client) = {
        let measure = measure(setup, server, timeout, &mut measurements);
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
    let measured = ClientResult {
        seconds: took.as_secs_f64(),
        uploaded: load(&observer.counters.sent),
        downloaded: load(&observer.counters.received),
        streams,
        timing,
        connect_seconds: seconds(&measurements, Distribution::HandshakeEstablished, |r| {
            r.max() as f64
        }),
        relay_round_trip_seconds: seconds(&measurements, Distribution::RelayRoundTrip, |r| {
            r.value_at_quantile(0.5) as f64
        }),
        round_trip_seconds: seconds(&measurements, Distribution::RoundTrip, |r| {
            r.value_at_quantile(0.5) as f64
        }),
        upload: measurements.upload,
        download: measurements.download,
    };
    form.print(|| measured.line(with_details), || measured.sentences());
    Ok(())
}

/// Opens substreams.
pub async fn client_substream(args: args::ClientSubstream) -> anyhow::Result<()> {
    let (setup, server) = substreams_setup(&args).context(InvalidCommandLine)?;
    let form = form(&args.output);
    let observer = setup.observer.clone();
    let advice = advice::on_opening(&setup);
    let mut measurements = Measurements::default();
    let client = measure(setup, server, args.timeout, &mut measurements).await?;
    client.close().await;
    let measured = Substreams {
        r#type: "substreams",
        substreams: args.substreams,
        failures: load(&observer.counters.failures),
        mean_seconds: seconds(&measurements, Distribution::Open, |r| r.mean()),
        p50_seconds: seconds(&measurements, Distribution::Open, |r| {
            r.value_at_quantile(0.5) as f64
        }),
        p99_seconds: seconds(&measurements, Distribution::Open, |r| {
            r.value_at_quantile(0.99) as f64
        }),
        max_seconds: seconds(&measurements, Distribution::Open, |r| r.max() as f64),
        mean_compat_seconds: seconds(&measurements, Distribution::OpenCompat, |r| r.mean()),
        negotiation: args.negotiation,
        advice,
    };
    form.print(|| &measured, || measured.sentences());
    Ok(())
}

/// What a client opens, and the address of its server.
fn substreams_setup(args: &args::ClientSubstream) -> anyhow::Result<(Setup, String)> {
    let (transport, server) = address::dial(&args.server, args.stack.transport)?;
    let parameters = Parameters::Substreams(parameters::Substreams {
        count: args.substreams,
        mode: OpenMode::Burst,
        rate: None,
        negotiation: args.negotiation,
    });
    advice::check_client(args.stack.stack, transport, &parameters)?;
    Ok((setup(args.stack.stack, transport, parameters), server))
}

/// A value of a distribution, in seconds. `None` if nothing was recorded.
fn seconds(measurements: &Measurements, of: Distribution, value: fn(&Recorder) -> f64) -> Option<f64> {
    let recorder = measurements.recorders.get(&of)?;
    Some(value(recorder) / 1e9)
}

/// Connects and runs the workload.
async fn measure(
    setup: Setup,
    server: String,
    time: Duration,
    measurements: &mut Measurements,
) -> anyhow::Result<Client<'_>> {
    let requested = setup.clone();
    let run = async {
        let servers = workload::Server::all(&[server], &[]);
        let mut client = Client::prepare(setup, servers, 1, measurements).await?;
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
    let metrics = Metrics::new(&MetricsArgs::default(), Role::Client);
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
