//! `perfrun link probe`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Context;
use perfrun_emulator::{
    awake::AwakeCpus,
    probe::{measure, serve},
};
use perfrun_link::{
    Impairment,
    probe::{Delivery, Fill, Measurement, ProbePlan, ProbeVerdict, Rate, judge, judge_rate_back},
};
use serde_json::json;
use tokio::net::UdpSocket;

use super::words;
use crate::{
    args::{self, NetworkNamespace, PeerAddress},
    output::{block_on, write_line_to_stderr, write_to_stdout},
    words::columns,
};

/// The default port of the end that answers.
const PORT: u16 = 7065;

/// Answers, or measures. Returns the exit status.
pub(super) fn probe(args: &args::ProbeLink) -> anyhow::Result<u8> {
    match args.to {
        None => block_on(answer(args)),
        Some(to) => block_on(measure_link(args, to)),
    }
}

async fn answer(args: &args::ProbeLink) -> anyhow::Result<u8> {
    let port = args.from.and_then(|from| from.port).unwrap_or(PORT);
    let socket = match args.from {
        Some(from) => bind(&args.namespace, SocketAddr::new(from.address, port)),
        None => bind(&args.namespace, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
            // The kernel may not support IPv6.
            .or_else(|_| bind(&args.namespace, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))),
    }?;
    write_line_to_stderr(format_args!(
        "perfrun: answering probes on port {} in {}; press Ctrl-C to stop",
        socket.local_addr()?.port(),
        args.namespace
    ));
    tokio::select! {
        ended = serve(socket) => match ended.context("failed to answer probes")? {},
        ended = tokio::signal::ctrl_c() => ended.context("failed to listen for signals").map(|()| 0),
    }
}

/// What was measured, and how it compares with what was expected.
struct ProbeOutcome {
    measurement: Measurement,
    /// The rate towards this end. `None` unless this command is both ends and a rate is expected.
    rate_backward: Option<Rate>,
    verdict: Option<ProbeVerdict>,
}

async fn measure_link(args: &args::ProbeLink, to: PeerAddress) -> anyhow::Result<u8> {
    let expected = |expected: &Option<args::Expected>| expected.clone().map(|expected| expected.0);
    // The measurement is of the link, not of how fast a CPU wakes up.
    let _awake = AwakeCpus::keep();
    let (forward, backward) = (expected(&args.forward), expected(&args.backward));
    let is_judged = forward.is_some() || backward.is_some();
    let (forward, backward) = (forward.unwrap_or_default(), backward.unwrap_or_default());
    let there = (args.to_netns.is_some() || args.to_pid.is_some()).then(|| NetworkNamespace {
        netns: args.to_netns.clone(),
        pid: args.to_pid,
    });
    let mut server = SocketAddr::new(to.address, to.port.unwrap_or(PORT));
    if let Some(there) = &there {
        let socket = bind(there, SocketAddr::new(to.address, to.port.unwrap_or(0)))?;
        server = socket.local_addr()?;
        tokio::spawn(serve(socket));
    }
    let any: IpAddr = match to.address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = args.from.map_or(SocketAddr::new(any, 0), |from| {
        SocketAddr::new(from.address, from.port.unwrap_or(0))
    });
    let client = bind(&args.namespace, from)?;
    let plan = plan(args, &forward, &backward);
    let here = route_source(&client, server).await?;
    let measurement = measure(client, server, &plan).await?;
    let mut verdict = is_judged.then(|| judge(&forward, &backward, args.base, &plan, &measurement));
    let mut rate_backward = None;
    if let Some(there) = there.filter(|_| backward.rate_bits_per_second.is_some()) {
        let (only_rate, measured) =
            measure_backward(args, &there, SocketAddr::new(here, 0), to, &forward, &backward).await?;
        if let Some(verdict) = &mut verdict {
            let finding = judge_rate_back(&backward, &only_rate, &measured);
            verdict.findings.extend(finding);
        }
        rate_backward = measured.rate;
    }
    let outcome = ProbeOutcome {
        measurement,
        rate_backward,
        verdict,
    };
    write_to_stdout(&if args.json {
        object(&outcome).to_string() + "\n"
    } else {
        text(&outcome)
    })?;
    let is_right = outcome.verdict.is_none_or(|verdict| verdict.is_effective());
    Ok(u8::from(!is_right))
}

fn plan(args: &args::ProbeLink, forward: &Impairment, backward: &Impairment) -> ProbePlan {
    let mut plan = ProbePlan::with_echo_time(forward, backward, args.time);
    if let Some(fill) = args.fill {
        plan.fill = Some(Fill::at(fill.bits_per_second().get(), args.time));
    }
    plan
}

/// Fills the link towards this end, which answers while the other end measures.
async fn measure_backward(
    args: &args::ProbeLink,
    there: &NetworkNamespace,
    here: SocketAddr,
    to: PeerAddress,
    forward: &Impairment,
    backward: &Impairment,
) -> anyhow::Result<(ProbePlan, Measurement)> {
    let socket = bind(&args.namespace, here)?;
    let server = socket.local_addr()?;
    let serving = tokio::spawn(serve(socket));
    let client = bind(there, SocketAddr::new(to.address, 0))?;
    let plan = ProbePlan::rate_back(forward, backward, args.time);
    let measured = measure(client, server, &plan).await;
    serving.abort();
    Ok((plan, measured?))
}

/// The address that a socket sends from.
async fn route_source(socket: &UdpSocket, to: SocketAddr) -> anyhow::Result<IpAddr> {
    socket.connect(to).await.with_context(|| {
        format!(
            "failed to find a route to {to}: check the address, and that both ends use its address family"
        )
    })?;
    Ok(socket.local_addr()?.ip())
}

fn bind(namespace: &NetworkNamespace, address: SocketAddr) -> anyhow::Result<UdpSocket> {
    let socket = namespace.enter(|| {
        let bound = std::net::UdpSocket::bind(address);
        let socket = bound.with_context(|| format!("failed to bind {address} in {namespace}"))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    })?;
    Ok(UdpSocket::from_std(socket)?)
}

fn object(outcome: &ProbeOutcome) -> serde_json::Value {
    let mut object = json!({"measurement": outcome.measurement});
    if let Some(rate) = outcome.rate_backward {
        object["rateBackward"] = json!(rate);
    }
    if let Some(verdict) = &outcome.verdict {
        object["asExpected"] = json!(verdict.is_effective());
        object["findings"] = json!(verdict.findings);
    }
    object
}

fn text(outcome: &ProbeOutcome) -> String {
    let Measurement {
        round_trip,
        forward,
        backward,
        rate,
    } = &outcome.measurement;
    let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
    let mut text = match round_trip {
        Some(times) => {
            let [min, p50, p99] = [times.min_ns, times.p50_ns, times.p99_ns].map(words::short_time);
            columns(&[
                row(&["ROUND TRIP", "MIN", "P50", "P99"]),
                row(&["", &min, &p50, &p99]),
            ])
        }
        None => "No answer arrived.\n".to_owned(),
    };
    let mut rows = vec![row(&["DIRECTION", "SENT", "LOST", "OFFERED", "ARRIVED"])];
    for (direction, delivery, rate) in [
        ("there", forward, *rate),
        ("back", backward, outcome.rate_backward),
    ] {
        let [offered, arrived] = rate.map_or([String::new(), String::new()], |rate| {
            [rate.offered_bits_per_second, rate.received_bits_per_second].map(megabits)
        });
        let lost = lost(delivery);
        rows.push(row(&[
            direction,
            &delivery.sent.to_string(),
            &lost,
            &offered,
            &arrived,
        ]));
    }
    text += &columns(&rows);
    for finding in outcome.verdict.iter().flat_map(|verdict| &verdict.findings) {
        text += &format!("{finding}\n");
    }
    text
}

fn lost(delivery: &Delivery) -> String {
    let share = f64::from(delivery.lost()) / f64::from(delivery.sent.max(1)) * 100.0;
    format!("{} ({share:.2}%)", delivery.lost())
}

fn megabits(bits_per_second: u64) -> String {
    format!("{:.1} Mbit/s", bits_per_second as f64 / 1e6)
}
