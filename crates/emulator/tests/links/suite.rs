//! Tests for both backends: delays, jitter, rates and copies here, other subjects in the modules.

mod handling;
mod losses;
mod probing;
mod tools;

use std::{
    collections::HashSet,
    num::{NonZeroU32, NonZeroU64},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use perfrun_emulator::{Emulator, Inspection, Options, Status};
use perfrun_link::{
    Ability, ActiveBackend, Backend, Chance, Impairment, Jitter, JitterDistribution, Loss, Obstacle,
    OutgoingLinks, Ratio, Reorder, Route, Scheduling, state::Traffic,
};
use perfrun_test_kit::{Need, skip, uml};

use crate::{
    lab::{FAR, FAR_UNIMPAIRED, FAR_V6, Lab, address, to_far},
    role,
    traffic::{Arrivals, Echo, HEADERS, round_trips, stream, stream_merged, tcp_bytes_per_second},
    witness::beside,
};

/// Declares the tests below for one of the backends.
macro_rules! tests {
    ($backend:expr) => {
        $crate::suite::tests! {
            $backend;
            round_trips_are_as_long_as_the_delay,
            jitter_spreads_as_it_should,
            loss_is_the_share_that_was_set,
            losses_come_in_bursts_if_configured,
            equal_seeds_lose_the_same_packets,
            packets_of_super_packets_are_lost_one_by_one,
            rates_are_as_set,
            copies_errors_and_overtaking_are_as_configured,
            a_link_without_loss_loses_nothing,
            others_are_not_impaired,
            neighbours_are_found_without_the_delay,
            changing_a_link_loses_nothing,
            counting_begins_anew,
            other_processes_see_the_impairment,
            a_removed_or_dropped_emulator_leaves_no_trace,
            a_link_without_impairment_leaves_no_trace_and_no_delay,
            the_probe_tells_a_correct_link_from_a_wrong_one,
            ping_sees_the_delay,
            iperf3_gets_the_rate,
        }
    };
    ($backend:expr; $($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                $crate::suite::$name($backend);
            }
        )*
    };
}
pub(crate) use handling::*;
pub(crate) use losses::*;
pub(crate) use probing::*;
pub(crate) use tests;
pub(crate) use tools::*;

/// How often a measurement may be wrong, or void, before the check ends: see [`eventually`].
const ATTEMPTS: usize = 6;

/// Ethernet, IPv4 and TCP with its timestamps around a segment, in an MTU of 1500.
pub(crate) const TCP_SHARE: f64 = 1448.0 / 1514.0;

pub(crate) const DELAYS: [u64; 5] = [1, 10, 50, 100, 300];

/// How many milliseconds a round trip may differ from the delay.
pub(crate) fn tolerance(milliseconds: f64) -> f64 {
    (milliseconds * 0.01).max(0.3)
}

pub(crate) fn delay(milliseconds: u64) -> Impairment {
    Impairment {
        delay: Duration::from_millis(milliseconds),
        ..Impairment::default()
    }
}

fn percent(percent: f64) -> Ratio {
    Ratio::from_percent(percent).unwrap()
}

pub(crate) fn lossy(percentage: f64) -> Impairment {
    let loss = Loss::Random {
        ratio: percent(percentage),
        correlation: Ratio::ZERO,
    };
    Impairment {
        loss: Some(loss),
        ..Impairment::default()
    }
}

fn chance(percentage: f64) -> Option<Chance> {
    Some(Chance {
        ratio: percent(percentage),
        correlation: Ratio::ZERO,
    })
}

/// 10 ms of jitter around a delay of 50 ms.
fn jittery(distribution: JitterDistribution) -> Impairment {
    Impairment {
        jitter: Some(Jitter {
            amount: Duration::from_millis(10),
            distribution,
            correlation: Ratio::ZERO,
        }),
        ..delay(50)
    }
}

/// Measures until the result is right twice in a row, and fails at the sixth wrong result. Other work on the
/// machine can disturb a measurement, and chance makes one of a hundred wrong.
///
/// Before the next wrong result, two in a row are right with probability r², if each is right with
/// probability r. So a check passes with probability 1 - (1 - r²)⁶. A link that is right only once in ten
/// times passes in 6 % of all runs. A correct link of which every fifth measurement is disturbed fails in 0.2
/// %.
pub(crate) fn eventually<T: std::fmt::Debug>(
    what: &str,
    mut measure: impl FnMut() -> T,
    is_right: impl Fn(&T) -> bool,
) {
    settle(what, || (measure(), None), is_right);
}

/// Like [`eventually`], with a witness that tells whether the machine was fit for the measurement, or why
/// not. On a fit machine the first result is enough if it is right. A wrong result on an unfit machine is
/// void; after six of these the check is skipped.
pub(crate) fn eventually_if_fit<T: std::fmt::Debug>(
    what: &str,
    mut measure: impl FnMut() -> (T, Result<(), String>),
    is_right: impl Fn(&T) -> bool,
) {
    let witnessed = || {
        let (measured, fitness) = measure();
        (measured, Some(fitness))
    };
    settle(what, witnessed, is_right);
}

fn settle<T: std::fmt::Debug>(
    what: &str,
    mut measure: impl FnMut() -> (T, Option<Result<(), String>>),
    is_right: impl Fn(&T) -> bool,
) {
    let (mut wrong, mut void) = (Vec::new(), Vec::new());
    let mut was_right = false;
    while wrong.len() < ATTEMPTS && void.len() < ATTEMPTS {
        let (measured, fitness) = measure();
        let right = is_right(&measured);
        let is_fit = matches!(fitness, Some(Ok(())));
        if right && (was_right || is_fit && wrong.is_empty()) {
            return;
        }
        was_right = right;
        match fitness {
            _ if right => {}
            Some(Err(reason)) => void.push(format!("{measured:?}, but {reason}")),
            _ => wrong.push(measured),
        }
    }
    assert!(wrong.len() < ATTEMPTS, "{what}: {wrong:?}; void: {void:?}");
    skip(Need::Speed, what, &void.join("; "));
}

pub(crate) fn median(round_trips: Vec<Option<f64>>) -> f64 {
    quantile(round_trips, 50)
}

/// The shortest round trip. A busy machine makes any of them longer, and none shorter.
pub(crate) fn least(round_trips: Vec<Option<f64>>) -> f64 {
    quantile(round_trips, 0)
}

fn quantile(round_trips: Vec<Option<f64>>, hundredths: usize) -> f64 {
    let mut times: Vec<_> = round_trips.into_iter().flatten().collect();
    times.sort_by(f64::total_cmp);
    assert!(!times.is_empty(), "nothing came back");
    times[times.len() * hundredths / 100]
}

/// Half the width of the interval that contains 99 of 100 binomial counts.
fn binomial_width(ratio: f64, draws: f64) -> f64 {
    // Half a count more, because counts are whole.
    2.576 * (ratio * (1.0 - ratio) * draws).sqrt() + 0.5
}

pub(crate) fn round_trips_are_as_long_as_the_delay(backend: Backend) {
    let Some(lab) = Lab::new(backend) else { return };
    let mut emulator = lab.emulator(&to_far(delay(1)));
    let echo = Echo::start(&lab, address(FAR));
    // A load far below the rate does not queue, in either order of rate and delay.
    let limited = Impairment {
        rate_bits_per_second: NonZeroU64::new(20_000_000),
        ..delay(50)
    };
    for impairment in DELAYS.map(delay).into_iter().chain([limited]) {
        emulator.set(&to_far(impairment.clone())).unwrap();
        let expected = impairment.delay.as_secs_f64() * 1e3;
        eventually_if_fit(
            &format!("median round trip, {impairment}"),
            || {
                let (times, lateness) = beside(|| round_trips(&lab, &echo, 100, Duration::from_millis(5)));
                let median = median(times);
                let off = (median - expected).abs();
                (median, lateness.allows_median(tolerance(expected), off))
            },
            |median| (median - expected).abs() <= tolerance(expected),
        );
        let latest = format!("round trip at the 99th percentile, {impairment}");
        if let Some(reason) = late_ones_say_nothing(&mut emulator) {
            skip(Need::Speed, &latest, reason);
            continue;
        }
        let limit = (expected * 0.05).max(2.0);
        // More packets are not worth the wait: the round trip takes 300 ms.
        let count = if expected <= 100.0 { 500 } else { 200 };
        eventually_if_fit(
            &latest,
            || {
                let (times, lateness) = beside(|| round_trips(&lab, &echo, count, Duration::from_millis(2)));
                let off = quantile(times, 99) - expected;
                (off, lateness.allows_slowest(0.01, limit, off))
            },
            |off| *off <= limit,
        );
    }
}

/// Why the latest round trips do not show the emulator's lateness. `None` if they do.
fn late_ones_say_nothing(emulator: &mut Emulator) -> Option<&'static str> {
    if uml::is_here() {
        return Some("user-mode-linux sleeps now and then for tens of milliseconds");
    }
    let worker = emulator.state().unwrap().worker?;
    (worker.scheduling != Scheduling::RealTime).then_some("the emulator has no real-time priority")
}

pub(crate) fn jitter_spreads_as_it_should(backend: Backend) {
    const TOLERANCE: f64 = 0.15;
    let Some(lab) = Lab::new(backend) else { return };
    let echo = Echo::start(&lab, address(FAR));
    let mut emulator = lab.emulator(&to_far(delay(50)));
    if uml::is_here() {
        skip(
            Need::Speed,
            "deviation of jitter",
            "user-mode-linux sleeps now and then for tens of milliseconds, and deviations square them",
        );
    }
    // The deviation, and the width of the middle nine tenths.
    let normal = (JitterDistribution::Normal, 10.0, 2.0 * 16.449);
    let uniform = (JitterDistribution::Uniform, 10.0 / 3f64.sqrt(), 0.9 * 20.0);
    for (distribution, deviation, width) in [normal, uniform] {
        emulator.set(&to_far(jittery(distribution))).unwrap();
        let interval = Duration::from_millis(if uml::is_here() { 5 } else { 1 });
        eventually_if_fit(
            &format!("deviation of {distribution} jitter, and its width"),
            || {
                let (times, lateness) = beside(|| round_trips(&lab, &echo, 1000, interval));
                let measured = spread(times);
                // The middle nine tenths end where the slowest twentieth begins.
                let fit = lateness.allows_slowest(0.05, TOLERANCE * width, (measured.1 - width).abs());
                (measured, fit)
            },
            |measured| {
                let is_near = |measured: f64, expected: f64| (measured / expected - 1.0).abs() <= TOLERANCE;
                is_near(measured.1, width) && (uml::is_here() || is_near(measured.0, deviation))
            },
        );
    }
}

fn spread(round_trips: Vec<Option<f64>>) -> (f64, f64) {
    let mut times: Vec<_> = round_trips.into_iter().flatten().collect();
    times.sort_by(f64::total_cmp);
    let count = times.len();
    let mean = times.iter().sum::<f64>() / count as f64;
    let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / count as f64;
    (variance.sqrt(), times[count * 95 / 100] - times[count * 5 / 100])
}

/// Compares two samples of each backend by the Kolmogorov-Smirnov test.
pub(crate) fn both_backends_give_the_same() {
    let jittery = jittery(JitterDistribution::ParetoNormal);
    // Both or none; the skip has been logged.
    if [Backend::Kernel, Backend::Userspace]
        .into_iter()
        .any(|backend| Lab::new(backend).is_none())
    {
        return;
    }
    // In milliseconds: two thirds of the shift at which two samples differ.
    let tolerance = 1.0;
    let samples = |backend| {
        let lab = Lab::new(backend).unwrap();
        let mut emulator = lab.emulator(&to_far(jittery.clone()));
        let interval = Duration::from_millis(if uml::is_here() { 5 } else { 1 });
        let echo = Echo::start(&lab, address(FAR));
        let (times, lateness) = beside(|| round_trips(&lab, &echo, 1000, interval));
        emulator.set(&to_far(bursts())).unwrap();
        let samples = [
            times.into_iter().flatten().collect(),
            runs_of_losses(&lab, 50_000),
        ];
        (samples, lateness.allows_mean(tolerance, 0.0))
    };
    eventually_if_fit(
        "distances of round trips, and of runs of losses, in units of the 1 % level",
        || {
            let (kernel, fit) = samples(Backend::Kernel);
            let (userspace, also_fit) = samples(Backend::Userspace);
            let distances = [0, 1].map(|of| distance(&kernel[of], &userspace[of]));
            (distances, fit.and(also_fit))
        },
        |distances| distances.iter().all(|distance| *distance < 1.0),
    );
}

/// The largest difference of two distribution functions, as a share of the value that one in a hundred pairs
/// of samples from one distribution exceeds.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let below = |sample: &[f64], limit: f64| {
        sample.iter().filter(|value| **value <= limit).count() as f64 / sample.len() as f64
    };
    let largest = a
        .iter()
        .chain(b)
        .map(|limit| (below(a, *limit) - below(b, *limit)).abs())
        .fold(0.0, f64::max);
    largest / (1.628 * (1.0 / a.len() as f64 + 1.0 / b.len() as f64).sqrt())
}

pub(crate) fn rates_are_as_set(backend: Backend) {
    let Some(lab) = Lab::new(backend) else { return };
    let limited = |megabits: u64| Impairment {
        rate_bits_per_second: NonZeroU64::new(megabits * 1_000_000),
        ..Impairment::default()
    };
    let mut emulator = lab.emulator(&to_far(limited(10)));
    let is_within = |measured: f64, megabits: u64| (measured / megabits as f64 - 1.0).abs() <= 0.03;
    // One datagram per millisecond is 11.5 Mbit/s.
    for (megabits, per_millisecond, count) in [(10, 1, 2000), (50, 5, 7500), (100, 10, 15_000)] {
        if megabits == 100 && uml::is_here() {
            skip(
                Need::Speed,
                "100 Mbit/s of UDP",
                "user-mode-linux cannot send as much in datagrams of a packet each",
            );
            continue;
        }
        emulator.set(&to_far(limited(megabits))).unwrap();
        eventually_if_fit(
            &format!("Mbit/s of UDP at {megabits} Mbit/s"),
            || {
                let arrivals = stream(&lab, address(FAR), count, 1400, per_millisecond);
                let sent = arrivals.sent_bits_per_second / 1e6;
                let passed_on = arrivals.passed_on(megabits as f64 * 1e6) / 1e6;
                let fit = sent > 1.1 * megabits as f64 && passed_on > 0.99 * megabits as f64;
                let reason = || {
                    format!(
                        "this machine sent {sent:.1} Mbit/s, of which a perfect link passes on {passed_on:.1}"
                    )
                };
                (
                    arrivals.bits_per_second / 1e6,
                    fit.then_some(()).ok_or_else(reason),
                )
            },
            |measured| is_within(*measured, megabits),
        );
    }
    // A slower link's queue takes a good part of the measured time, and its packets arrive together after a
    // loss.
    for megabits in [100, 1000] {
        if megabits == 1000 && uml::is_here() {
            skip(Need::Speed, "1000 Mbit/s", "user-mode-linux carries some 600");
            continue;
        }
        emulator.set(&to_far(limited(megabits))).unwrap();
        eventually(
            &format!("Mbit/s of TCP at {megabits} Mbit/s"),
            || {
                let (warm_up, time) = (Duration::from_millis(700), Duration::from_millis(2000));
                tcp_bytes_per_second(&lab, address(FAR), warm_up, time) * 8.0 / TCP_SHARE / 1e6
            },
            |measured| is_within(*measured, megabits),
        );
    }
}

pub(crate) fn copies_errors_and_overtaking_are_as_configured(backend: Backend) {
    const PACKETS: u32 = 20_000;
    let Some(lab) = Lab::new(backend) else { return };
    let near = |count: usize, ratio: f64| {
        let expected = ratio * f64::from(PACKETS);
        (count as f64 - expected).abs() <= binomial_width(ratio, PACKETS.into())
    };
    let mut emulator = lab.emulator(&to_far(Impairment {
        duplicate: chance(10.0),
        ..Impairment::default()
    }));
    eventually(
        "copies, and originals",
        || {
            let arrivals = stream(&lab, address(FAR), PACKETS, 200, 20);
            (arrivals.numbers.len() - arrivals.distinct(), arrivals.distinct())
        },
        |(copies, distinct)| near(*copies, 0.1) && *distinct == PACKETS as usize,
    );

    emulator
        .set(&to_far(Impairment {
            corrupt: chance(10.0),
            ..Impairment::default()
        }))
        .unwrap();
    eventually(
        "discarded for their checksum, and wrong ones that got through",
        || {
            let arrivals = stream(&lab, address(FAR), PACKETS, 200, 20);
            (PACKETS as usize - arrivals.distinct(), arrivals.wrong)
        },
        // netem also corrupts bits of the Ethernet header. Those of the sender's address harm nobody: 6 bytes
        // of 242.
        |(discarded, wrong)| (near(*discarded, 0.1) || near(*discarded, 0.1 * 236.0 / 242.0)) && *wrong == 0,
    );

    let reorder = Reorder {
        ratio: percent(25.0),
        correlation: Ratio::ZERO,
        gap: NonZeroU32::MIN,
    };
    emulator
        .set(&to_far(Impairment {
            reorder: Some(reorder),
            ..delay(20)
        }))
        .unwrap();
    eventually(
        "overtaking",
        || {
            let numbers = stream(&lab, address(FAR), PACKETS, 200, 20).numbers;
            // Packets that skip the delay arrive before the one that was sent right before them.
            let position: std::collections::HashMap<_, _> = numbers
                .iter()
                .zip(0..)
                .map(|(number, at)| (*number, at))
                .collect();
            let overtook = (1..PACKETS).filter(|number| {
                let at = |number: u32| position.get(&number).copied().unwrap_or(u32::MAX);
                at(*number) < at(number - 1)
            });
            overtook.count()
        },
        // A packet that skips after another that skipped does not overtake it: a quarter of three quarters.
        |overtook| (*overtook as f64 / f64::from(PACKETS) - 0.1875).abs() < 0.012,
    );
}
