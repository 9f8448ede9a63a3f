//! Correct links and wrong ones.

use std::num::{NonZeroU32, NonZeroU64};

use super::{
    losses::{bursts_interval, random_interval},
    simulated::{arrivals, echoes, simulated_round_trip},
    *,
};
use crate::{
    impairment::{Chance, Jitter, JitterDistribution, Loss, Reorder},
    probe::Rate,
    ratio::Ratio,
};

fn percent(percent: f64) -> Ratio {
    Ratio::from_percent(percent).unwrap()
}

fn delay(milliseconds: u64) -> Impairment {
    Impairment {
        delay: Duration::from_millis(milliseconds),
        ..Impairment::default()
    }
}

fn lossy(ratio: f64) -> Impairment {
    let loss = Loss::Random {
        ratio: percent(ratio),
        correlation: Ratio::ZERO,
    };
    Impairment {
        loss: Some(loss),
        ..Impairment::default()
    }
}

fn measured(p50_ns: u64, lost_forward: u32) -> Measurement {
    Measurement {
        round_trip: Some(RoundTrip {
            min_ns: p50_ns,
            p50_ns,
            p99_ns: p50_ns,
        }),
        forward: Delivery {
            sent: 4000,
            received: 4000 - lost_forward,
        },
        backward: Delivery {
            sent: 4000 - lost_forward,
            received: 4000 - lost_forward,
        },
        rate: None,
    }
}

fn outside(forward: &Impairment, backward: &Impairment, measured: &Measurement) -> Vec<Quantity> {
    let plan = ProbePlan::new(forward, backward);
    let verdict = judge(forward, backward, Duration::ZERO, &plan, measured);
    verdict.outside().map(|finding| finding.quantity).collect()
}

#[test]
fn a_link_that_loses_nothing_or_everything_has_one_count() {
    assert_eq!(random_interval(10, 0.0), (0, 0));
    assert_eq!(random_interval(10, 1.0), (10, 10));
}

#[test]
fn a_round_trip_is_both_delays_within_its_tolerance() {
    let (there, back) = (delay(10), delay(15));
    assert_eq!(outside(&there, &back, &measured(25_000_000, 0)), []);
    assert_eq!(outside(&there, &back, &measured(25_290_000, 0)), []);
    assert_eq!(
        outside(&there, &back, &measured(25_400_000, 0)),
        [Quantity::RoundTripMedian]
    );
    assert_eq!(
        outside(&there, &back, &measured(10_100_000, 0)),
        [Quantity::RoundTripMedian]
    );
    assert_eq!(outside(&delay(100), &delay(100), &measured(201_900_000, 0)), []);
    // The delay between the machines does not count against the impairment.
    let plan = ProbePlan::new(&there, &back);
    let base = Duration::from_millis(2);
    assert!(judge(&there, &back, base, &plan, &measured(27_100_000, 0)).is_effective());
}

#[test]
fn loss_that_is_missing_or_too_much_is_found() {
    assert_eq!(outside(&lossy(1.0), &delay(0), &measured(0, 40)), []);
    assert_eq!(
        outside(&lossy(1.0), &delay(0), &measured(0, 0)),
        [Quantity::LossForward]
    );
    assert_eq!(
        outside(&lossy(1.0), &delay(0), &measured(0, 80)),
        [Quantity::LossForward]
    );
    assert_eq!(
        outside(&delay(0), &delay(0), &measured(0, 1)),
        [Quantity::LossForward]
    );
}

#[test]
fn intervals_of_bursts_are_exact() {
    // The same loss in both states is not a burst.
    assert_eq!(bursts_interval(4000, [0.3, 0.2, 0.01, 0.01]), (25, 57));
    assert_eq!(bursts_interval(4000, [0.0, 0.5, 1.0, 0.01]), (25, 57));
    assert_eq!(bursts_interval(10, [1.0, 0.0, 1.0, 0.0]), (9, 9));
    // Compared with enough simulated links to find the ends to a few counts.
    let chain = [0.002, 0.2, 1.0, 0.0].map(|ratio| Ratio::new(ratio).unwrap());
    let [enter_bad, leave_bad, loss_in_bad, loss_in_good] = chain;
    let bursts = Impairment {
        loss: Some(Loss::GilbertElliott {
            enter_bad,
            leave_bad,
            loss_in_bad,
            loss_in_good,
        }),
        ..Impairment::default()
    };
    let plan = ProbePlan::new(&bursts, &bursts);
    let (least, most) = bursts_interval(4000, chain.map(Ratio::get));
    let within = (0..4000).filter(|seed| {
        let lost = 4000 - arrivals(&bursts, echoes(&plan), *seed).count() as u32;
        (least..=most).contains(&lost)
    });
    // 99 % of 4000, within four standard deviations.
    let within = within.count();
    assert!(
        (3935..=3985).contains(&within),
        "{within} of 4000 in {least}..={most}"
    );
}

#[test]
fn rates_of_links_with_jitter_are_judged_by_the_rate_that_jitter_leaves() {
    let steady = Impairment {
        rate_bits_per_second: NonZeroU64::new(4_000_000),
        ..delay(100)
    };
    let jittery = Impairment {
        jitter: Some(Jitter {
            amount: Duration::from_millis(20),
            distribution: JitterDistribution::Normal,
            correlation: Ratio::ZERO,
        }),
        ..steady.clone()
    };
    let of = |direction: &Impairment| shares_of_rate(direction, &ProbePlan::new(direction, direction));
    assert_eq!(of(&steady), (1.0, 1.0));
    let (least, most) = of(&jittery);
    assert!((0.8..0.99).contains(&least) && most < 1.1, "{least} {most}");
}

#[test]
fn overtaking_packets_use_none_of_the_rate() {
    let overtaking = Impairment {
        rate_bits_per_second: NonZeroU64::new(100_000_000),
        reorder: Some(Reorder {
            ratio: percent(25.0),
            correlation: Ratio::ZERO,
            gap: NonZeroU32::MIN,
        }),
        ..delay(10)
    };
    // What is sent is 1.15 of the rate, of which three quarters fit.
    let (least, most) = shares_of_rate(&overtaking, &ProbePlan::new(&overtaking, &overtaking));
    assert!(least > 1.03 && most < 1.2, "{least} {most}");
}

#[test]
fn too_few_echoes_to_detect_the_loss_are_not_judged() {
    let judged = |ratio, lost| {
        let link = lossy(ratio);
        let plan = ProbePlan::new(&link, &delay(0));
        let verdict = judge(&link, &delay(0), Duration::ZERO, &plan, &measured(0, lost));
        let mut losses = verdict.findings.iter();
        losses
            .find(|finding| finding.quantity == Quantity::LossForward)
            .unwrap()
            .judgement
    };
    // One of seven such links loses nothing.
    assert_eq!(judged(0.05, 0), Judgement::NotJudged);
    assert_eq!(judged(0.05, 2), Judgement::NotJudged);
    assert_eq!(judged(0.05, 20), Judgement::Outside);
    assert_eq!(judged(1.0, 40), Judgement::Within);
    // No loss is configured, and none is measured.
    assert_eq!(judged(0.0, 0), Judgement::Within);
}

#[test]
fn bursts_have_a_wider_interval_than_single_losses() {
    let bursts = Impairment {
        loss: Some(Loss::GilbertElliott {
            enter_bad: percent(0.1),
            leave_bad: percent(10.0),
            loss_in_bad: Ratio::ONE,
            loss_in_good: Ratio::ZERO,
        }),
        ..Impairment::default()
    };
    let plan = ProbePlan::new(&bursts, &bursts);
    let (least, most) = loss_interval(&bursts, &plan, 4000);
    let single = random_interval(4000, 0.001 / 0.101);
    assert!(least < single.0 && most > single.1, "{least} {most} {single:?}");
    assert_eq!(outside(&bursts, &delay(0), &measured(0, 40)), []);
    assert_eq!(
        outside(&bursts, &delay(0), &measured(0, 400)),
        [Quantity::LossForward]
    );
}

#[test]
fn corruption_looks_like_loss() {
    let corrupt = Impairment {
        corrupt: Some(Chance {
            ratio: percent(10.0),
            correlation: Ratio::ZERO,
        }),
        ..delay(0)
    };
    assert_eq!(outside(&corrupt, &delay(0), &measured(0, 400)), []);
    // Where netem corrupts, 6 of 86 bytes are harmless.
    assert_eq!(outside(&corrupt, &delay(0), &measured(0, 340)), []);
    assert_eq!(
        outside(&corrupt, &delay(0), &measured(0, 0)),
        [Quantity::LossForward]
    );
}

fn jittery(jitter: u64, impairment: Impairment) -> Impairment {
    Impairment {
        jitter: Some(Jitter {
            amount: Duration::from_millis(jitter),
            distribution: JitterDistribution::Normal,
            correlation: Ratio::ZERO,
        }),
        ..impairment
    }
}

#[test]
fn jitter_without_an_effect_is_found() {
    let link = jittery(5, delay(50));
    let with = |p99_ns| Measurement {
        round_trip: Some(RoundTrip {
            min_ns: 50_000_000,
            p50_ns: 50_000_000,
            p99_ns,
        }),
        ..measured(0, 0)
    };
    let outside = |forward: &Impairment, p99_ns| outside(forward, &delay(0), &with(p99_ns));
    // 2.33 deviations.
    assert_eq!(outside(&link, 61_600_000), []);
    assert_eq!(outside(&link, 50_000_000), [Quantity::RoundTripSpread]);
    assert_eq!(outside(&link, 53_000_000), [Quantity::RoundTripSpread]);
    // A spread that the machine adds is not the fault of the jitter.
    assert_eq!(outside(&link, 200_000_000), []);
    // Too little jitter to find an effect, and no jitter.
    let hardly = Impairment {
        jitter: Some(Jitter {
            amount: Duration::from_micros(500),
            ..link.jitter.unwrap()
        }),
        ..delay(50)
    };
    assert_eq!(outside(&hardly, 50_000_000), []);
    assert_eq!(outside(&delay(50), 50_000_000), []);
}

/// Links like the presets wan, leo, mobile4g, mobile3g and satellite: jitter, delay and rate of both ways.
#[test]
fn jitter_as_it_should_be_is_never_found_missing() {
    for (jitter, milliseconds, megabits) in [
        (1, 25, [100, 100]),
        (2, 20, [15, 100]),
        (3, 30, [10, 40]),
        (10, 100, [1, 4]),
        (3, 300, [5, 50]),
    ] {
        let [forward, backward] = megabits.map(|megabits| Impairment {
            rate_bits_per_second: NonZeroU64::new(megabits * 1_000_000),
            ..jittery(jitter, delay(milliseconds))
        });
        // Few round trips vary most.
        let plan = ProbePlan::with_echo_time(&forward, &backward, Duration::from_millis(200));
        let simulated = simulated_round_trips(&forward, &backward, &plan);
        for run in 1000..1200 {
            let Simulated { median, spread } = simulated_round_trip(&forward, &backward, &plan, run).unwrap();
            let nanoseconds = |time: Duration| time.as_nanos() as u64;
            let round_trip = RoundTrip {
                min_ns: 0,
                p50_ns: nanoseconds(median),
                p99_ns: nanoseconds(median + spread),
            };
            let finding = spread_finding(&simulated, round_trip).expect("it is enough to tell");
            assert_eq!(finding.judgement, Judgement::Within, "{jitter} ms: {finding}");
        }
    }
}

#[test]
fn skewed_jitter_moves_the_median() {
    let jittery = Impairment {
        jitter: Some(Jitter {
            amount: Duration::from_millis(20),
            distribution: JitterDistribution::Pareto,
            correlation: Ratio::ZERO,
        }),
        ..delay(50)
    };
    // The median of the table is (2^(1/3) - 1.5) · 4/3 jitters away from the mean.
    let median = 50.0 + 20.0 * (2f64.powf(1.0 / 3.0) - 1.5) * 4.0 / 3.0;
    let spread = |p50_ns| Measurement {
        round_trip: Some(RoundTrip {
            min_ns: 0,
            p50_ns,
            p99_ns: p50_ns + 100_000_000,
        }),
        ..measured(0, 0)
    };
    assert_eq!(outside(&jittery, &delay(0), &spread((median * 1e6) as u64)), []);
    assert_eq!(
        outside(&jittery, &delay(0), &spread(50_000_000)),
        [Quantity::RoundTripMedian]
    );
}

#[test]
fn a_rate_is_judged_if_enough_was_offered() {
    let slow = Impairment {
        rate_bits_per_second: NonZeroU64::new(100_000_000),
        ..delay(0)
    };
    let with = |offered, received| {
        let rate = Rate {
            offered_bits_per_second: offered,
            received_bits_per_second: received,
        };
        let measured = Measurement {
            rate: Some(rate),
            ..measured(0, 0)
        };
        let plan = ProbePlan::new(&slow, &delay(0));
        let verdict = judge(&slow, &delay(0), Duration::ZERO, &plan, &measured);
        verdict
            .findings
            .iter()
            .find(|finding| finding.quantity == Quantity::RateForward)
            .unwrap()
            .judgement
    };
    assert_eq!(with(115_000_000, 98_000_000), Judgement::Within);
    assert_eq!(with(115_000_000, 115_000_000), Judgement::Outside);
    assert_eq!(with(115_000_000, 60_000_000), Judgement::Outside);
    assert_eq!(with(70_000_000, 60_000_000), Judgement::NotJudged);
}

#[test]
fn findings_are_sentences() {
    let finding = QuantityFinding::new(Quantity::LossForward, 3.0, 25.0, 57.0);
    let expected = "datagrams lost on the way there: 3.000, expected 25.000 to 57.000: not as configured";
    assert_eq!(finding.to_string(), expected);
}
