//! The cost of an impaired link, compared with the same link without impairment: two network namespaces
//! joined by veth, in the same minutes on the same machine.
//!
//! One TCP connection sends as fast as it can. Its windows may grow to 256 MiB, because smaller ones would be
//! the limit at 50 ms. The CPU time of the emulator's thread includes work of the kernel on its behalf: while
//! the thread writes a frame, the peer's TCP receives it. Sender, receiver and emulator share the cores of
//! the machine, so a ratio depends as much on their number as on the emulator.
//!
//! [`netem`] compares netem as perfrun sets it with netem set by tc.

mod cpu;
pub(crate) mod netem;
mod pair;
mod tcp;

use std::{
    net::SocketAddr,
    num::NonZeroU64,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use perfrun_emulator::{
    Emulator, Options,
    probe::{measure, serve},
};
use perfrun_link::{
    Backend, Chance, Impairment, OutgoingLinks, Ratio,
    probe::{Measurement, ProbePlan},
};
use tokio::net::UdpSocket;

use self::{
    pair::{FAR, VethPair},
    tcp::Flow,
};
use crate::testbed::{Unit, median, print_ratio};

/// With merged packets.
const TARGET: f64 = 0.8;
/// With every packet on its own, in bit/s.
const TARGET_PER_PACKET: f64 = 2e9;
/// Goodput as a share of a rate of 1 Gbit/s. Headers leave at most 0.956.
const TARGET_RATE: f64 = 0.92;
/// Milliseconds to start, to change, to reset counters and to remove.
const TARGET_TIME: f64 = 20.0;
/// Starts, changes and removals.
const TIMES: usize = 20;

/// Runs all benchmarks of links, which takes some minutes.
pub(crate) async fn run(rounds: u32, seconds: f64) -> Result<()> {
    let pair = VethPair::create()?;
    let time = Duration::from_secs_f64(seconds);
    for milliseconds in [0, 10, 50] {
        let delayed = Impairment {
            // With a delay of zero the packets would not pass the emulator.
            delay: Duration::from_millis(milliseconds).max(Duration::from_nanos(1)),
            ..Impairment::default()
        };
        let what = format!("TCP over {milliseconds} ms, merged packets, against plain veth");
        against_plain(&pair, &what, &delayed, rounds, time, Some(TARGET))?;
    }
    per_packet(&pair, rounds, time)?;
    limited(&pair, rounds, time)?;
    times(&pair)?;
    probes(&pair).await
}

/// Prints the ratio and the cost. Returns the rates over the impaired link.
fn against_plain(
    pair: &VethPair,
    what: &str,
    impairment: &Impairment,
    rounds: u32,
    time: Duration,
    target: Option<f64>,
) -> Result<Vec<f64>> {
    let mut pairs = vec![];
    let mut carried = vec![];
    for round in 0..rounds {
        // Who goes first alternates, so that neither always finds the machine as the other left it.
        let (plain, ours) = if round % 2 == 0 {
            let plain = plain(pair, impairment, time)?;
            (plain, impaired(pair, impairment, time)?)
        } else {
            let ours = impaired(pair, impairment, time)?;
            (plain(pair, impairment, time)?, ours)
        };
        pairs.push((ours.bits_per_second, plain));
        carried.push(ours);
    }
    print_ratio(what, &pairs, Unit::Bits, target);
    print_cost(&carried);
    Ok(pairs.into_iter().map(|(ours, _)| ours).collect())
}

fn per_packet(pair: &VethPair, rounds: u32, time: Duration) -> Result<()> {
    // One packet in a million arrives twice, which TCP tolerates. This makes the emulator decide on every
    // packet.
    let deciding = Impairment {
        duplicate: Some(Chance {
            ratio: Ratio::from_percent(0.0001)?,
            correlation: Ratio::ZERO,
        }),
        ..Impairment::default()
    };
    let rates = against_plain(
        pair,
        "TCP, every packet on its own, against plain veth",
        &deciding,
        rounds,
        time,
        None,
    )?;
    println!(
        "  every packet on its own: {:.2} Gbit/s (target ≥ {:.0})",
        median(&rates) / 1e9,
        TARGET_PER_PACKET / 1e9
    );
    Ok(())
}

fn limited(pair: &VethPair, rounds: u32, time: Duration) -> Result<()> {
    const RATE: u64 = 1_000_000_000;
    for milliseconds in [0, 20] {
        let limited = Impairment {
            delay: Duration::from_millis(milliseconds),
            rate_bits_per_second: NonZeroU64::new(RATE),
            ..Impairment::default()
        };
        let mut shares = vec![];
        let mut carried = vec![];
        for _ in 0..rounds {
            let ours = impaired(pair, &limited, time)?;
            shares.push(ours.bits_per_second / RATE as f64);
            carried.push(ours);
        }
        let each: Vec<String> = shares.iter().map(|share| format!("{share:.3}")).collect();
        println!(
            "TCP over {milliseconds} ms at 1 Gbit/s: goodput {:.3} of the rate (target ≥ {TARGET_RATE})\n  rounds: {}",
            median(&shares),
            each.join(" ")
        );
        print_cost(&carried);
    }
    Ok(())
}

/// The rate of a connection over an impaired link, and its cost.
struct Carried {
    bits_per_second: f64,
    emulator_seconds_per_gibibyte: f64,
    /// Frames that the emulator lost because it could not keep up.
    lost: u64,
}

fn print_cost(rounds: &[Carried]) {
    let costs: Vec<f64> = rounds
        .iter()
        .map(|round| round.emulator_seconds_per_gibibyte)
        .collect();
    println!("  emulator: {:.2} CPU-s/GiB", median(&costs));
    let lost: Vec<String> = rounds.iter().map(|round| round.lost.to_string()).collect();
    if rounds.iter().any(|round| round.lost > 0) {
        println!(
            "  frames that the emulator lost because it could not keep up: {}",
            lost.join(" ")
        );
    }
}

/// The rate in bit/s without impairment.
fn plain(pair: &VethPair, impairment: &Impairment, time: Duration) -> Result<f64> {
    let flow = Flow::start(pair)?;
    flow.carry(warm_up(impairment))?;
    Ok(flow.carry(time)?.bits_per_second())
}

fn impaired(pair: &VethPair, impairment: &Impairment, time: Duration) -> Result<Carried> {
    let mut emulator = start(pair, impairment)?;
    let flow = Flow::start(pair)?;
    flow.carry(warm_up(impairment))?;
    // By now the thread has set its name.
    let thread = cpu::thread("netem")?;
    let before = cpu::seconds(thread)?;
    let carried = flow.carry(time)?;
    let used = cpu::seconds(thread)? - before;
    let worker = emulator.state()?.worker.context("there is a thread")?;
    drop(flow);
    emulator.remove()?;
    Ok(Carried {
        bits_per_second: carried.bits_per_second(),
        emulator_seconds_per_gibibyte: used / (carried.bytes as f64 / f64::from(1 << 30)),
        lost: worker.overflowed,
    })
}

/// The window of the sender doubles in a round trip, and that of the receiver grows more slowly.
fn warm_up(impairment: &Impairment) -> Duration {
    Duration::from_millis(500) + 40 * impairment.delay
}

fn link(impairment: &Impairment) -> Result<OutgoingLinks> {
    Ok(OutgoingLinks::to([FAR.parse()?], impairment.clone())?)
}

fn start(pair: &VethPair, impairment: &Impairment) -> Result<Emulator> {
    let options = Options {
        backend: Backend::Userspace,
        seed: None,
    };
    let link = link(impairment)?;
    pair.near
        .run(|| Emulator::start("eth0", &link, options).context("failed to impair the link"))
}

/// The time to set up, change, count and remove links.
fn times(pair: &VethPair) -> Result<()> {
    let delayed = |milliseconds| Impairment {
        delay: Duration::from_millis(milliseconds),
        ..Impairment::default()
    };
    let mut steps = [
        ("start", vec![]),
        ("set", vec![]),
        ("recount", vec![]),
        ("open", vec![]),
        ("re-impair", vec![]),
        ("remove", vec![]),
    ];
    for _ in 0..TIMES {
        let mut begun = Instant::now();
        let mut lap = |step: &mut (&str, Vec<f64>)| {
            step.1.push(begun.elapsed().as_secs_f64() * 1e3);
            begun = Instant::now();
        };
        let mut emulator = start(pair, &delayed(25))?;
        lap(&mut steps[0]);
        emulator.set(&link(&delayed(50))?)?;
        lap(&mut steps[1]);
        emulator.reset_counts()?;
        lap(&mut steps[2]);
        emulator.set(&OutgoingLinks::default())?;
        lap(&mut steps[3]);
        emulator.set(&link(&delayed(25))?)?;
        lap(&mut steps[4]);
        emulator.remove()?;
        lap(&mut steps[5]);
    }
    for (step, times) in steps {
        let worst = times.iter().copied().fold(0.0, f64::max);
        println!(
            "time to {step} a link: median {:.2} ms, worst {worst:.2} ms of {TIMES} (target ≤ {TARGET_TIME} ms)",
            median(&times)
        );
    }
    Ok(())
}

/// The time to probe a link of 25 ms, and the measured round trip.
async fn probes(pair: &VethPair) -> Result<()> {
    const PROBES: usize = 5;
    let delayed = Impairment {
        delay: Duration::from_millis(25),
        ..Impairment::default()
    };
    let emulator = start(pair, &delayed)?;
    let plan = ProbePlan::new(&delayed, &Impairment::default());
    let mut times = vec![];
    let mut medians = vec![];
    for _ in 0..PROBES {
        let begun = Instant::now();
        let measured = probe(pair, &plan).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        let Some(round_trip) = measured.round_trip else {
            bail!("the probe got no answer")
        };
        medians.push(round_trip.p50_ns as f64 / 1e6);
    }
    emulator.remove()?;
    println!(
        "time to probe a link of 25 ms: median {:.0} ms of {PROBES}; it measured round trips of {:.3} ms",
        median(&times),
        median(&medians)
    );
    Ok(())
}

async fn probe(pair: &VethPair, plan: &ProbePlan) -> Result<Measurement> {
    let bind = |address: &str| -> Result<std::net::UdpSocket> {
        let socket = std::net::UdpSocket::bind((address, 0))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let server = UdpSocket::from_std(pair.far.run(|| bind(FAR))?)?;
    let address: SocketAddr = server.local_addr()?;
    let client = UdpSocket::from_std(pair.near.run(|| bind("0.0.0.0"))?)?;
    let serving = tokio::spawn(serve(server));
    let measured = measure(client, address, plan).await;
    serving.abort();
    Ok(measured?)
}
