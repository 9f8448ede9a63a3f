//! Which packets are lost, and which are not.

use super::*;

pub(crate) fn loss_is_the_share_that_was_set(backend: Backend) {
    const PACKETS: u32 = 50_000;
    let Some(lab) = Lab::new(backend) else { return };
    let mut emulator = lab.emulator(&to_far(lossy(1.0)));
    for ratio in [0.1, 1.0, 5.0] {
        let expected = ratio / 100.0 * f64::from(PACKETS);
        let width = binomial_width(ratio / 100.0, PACKETS.into());
        eventually(
            &format!("lost of {PACKETS} at {ratio} %"),
            || {
                // Randomness starts again.
                emulator.set(&to_far(lossy(ratio))).unwrap();
                PACKETS as usize - stream(&lab, address(FAR), PACKETS, 200, 25).distinct()
            },
            |lost| (*lost as f64 - expected).abs() <= width,
        );
    }
}

pub(crate) fn equal_seeds_lose_the_same_packets(backend: Backend) {
    let Some(lab) = Lab::new(backend) else { return };
    let mut emulator = lab.emulator(&to_far(lossy(5.0)));
    let mut arrived = |seed| {
        emulator.reseed(seed).unwrap();
        stream(&lab, address(FAR), 2000, 200, 20).numbers
    };
    let first = arrived(1);
    assert!((1..2000).contains(&first.len()), "{}", first.len());
    if backend == Backend::Kernel && !netem_has_seeds() {
        let reason = "netem has seeds since Linux 6.6";
        return skip(Need::Netem, "equal_seeds_lose_the_same_packets", reason);
    }
    assert_eq!(arrived(1), first);
    assert_ne!(arrived(2), first);
}

fn netem_has_seeds() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_str().unwrap().split('.');
    release.map_while(|number| number.parse::<u32>().ok()).ge([6, 6])
}

pub(crate) fn bursts() -> Impairment {
    Impairment {
        loss: Some(Loss::GilbertElliott {
            enter_bad: percent(1.0),
            leave_bad: percent(25.0),
            loss_in_bad: Ratio::ONE,
            loss_in_good: Ratio::ZERO,
        }),
        ..Impairment::default()
    }
}

/// The lengths of runs of lost packets.
pub(crate) fn runs_of_losses(lab: &Lab, packets: u32) -> Vec<f64> {
    runs_of_missing(&stream(lab, address(FAR), packets, 200, 25).numbers)
}

fn runs_of_missing(numbers: &[u32]) -> Vec<f64> {
    let gaps = numbers.windows(2).map(|pair| f64::from(pair[1] - pair[0] - 1));
    gaps.filter(|gap| *gap > 0.0).collect()
}

pub(crate) fn losses_come_in_bursts_if_configured(backend: Backend) {
    const PACKETS: u32 = 50_000;
    let Some(lab) = Lab::new(backend) else { return };
    let _emulator = lab.emulator(&to_far(bursts()));
    eventually(
        "mean length of runs of lost packets, and their share",
        || {
            let runs = runs_of_losses(&lab, PACKETS);
            let lost: f64 = runs.iter().sum();
            (lost / runs.len() as f64, lost / f64::from(PACKETS))
        },
        // About 480 runs whose lengths deviate by 3.5: 2.576 standard deviations of their mean.
        |(length, share)| (length - 4.0).abs() < 0.41 && (share - 0.01 / 0.26).abs() < 0.006,
    );
}

/// Sends like QUIC. If the link decided about merged packets, it would lose all of them together.
pub(crate) fn packets_of_super_packets_are_lost_one_by_one(backend: Backend) {
    const DATAGRAMS: u32 = 40;
    const PACKETS: u32 = 500 * DATAGRAMS;
    const RATIO: f64 = 0.05;
    let Some(lab) = Lab::new(backend) else { return };
    let mut emulator = lab.emulator(&to_far(lossy(RATIO * 100.0)));
    let width = binomial_width(RATIO, PACKETS.into());
    eventually(
        "mean length of runs of lost packets, and how many were lost",
        || {
            // Randomness starts again.
            emulator.set(&to_far(lossy(RATIO * 100.0))).unwrap();
            let arrivals = stream_merged(&lab, address(FAR), PACKETS, 1200, DATAGRAMS, DATAGRAMS);
            let runs = runs_of_missing(&arrivals.numbers);
            let length = runs.iter().sum::<f64>() / runs.len() as f64;
            (length, PACKETS as usize - arrivals.distinct())
        },
        // 1 / 0.95 is right.
        |(length, lost)| *length < 1.5 && (*lost as f64 - RATIO * f64::from(PACKETS)).abs() <= width,
    );
}

/// The kernel's default queue of 1000 packets would be full after 25 ms.
pub(crate) fn a_link_without_loss_loses_nothing(backend: Backend) {
    let Some(lab) = Lab::new(backend) else { return };
    let mut emulator = lab.emulator(&to_far(delay(100)));
    // Half of the link's rate for a second, on any machine.
    let link = long_and_fat(100);
    eventually(
        "lost",
        || {
            emulator.set(&to_far(link.clone())).unwrap();
            let arrived = stream(&lab, address(FAR), 40_000, 1400, 40).distinct();
            (40_000 - arrived, emulator.state().unwrap().traffic)
        },
        |(lost, traffic)| *lost == 0 && dropped(traffic[0]) == 0,
    );
    nothing_is_lost_of_a_full_link(&lab, &mut emulator);
}

/// With many times the packets in flight that the kernel's default queue holds.
fn nothing_is_lost_of_a_full_link(lab: &Lab, emulator: &mut Emulator) {
    const BYTES: usize = 1400;
    const FRAME_BITS: f64 = (BYTES + HEADERS) as f64 * 8.0;
    // 923 of 1000 Mbit/s, and 8000 packets in flight, which netem counts as 2000 because they are merged.
    // User-mode-linux is too slow for that rate: there 2000 single packets are in flight.
    let (milliseconds, per_millisecond, enough, count, merged) = if uml::is_here() {
        (1000, 5, 2.0, 12_500, 1)
    } else {
        (100, 80, 72.0, 80_000, 4)
    };
    let link = long_and_fat(milliseconds);
    let sent_to = |to| stream_merged(lab, address(to), count, BYTES, per_millisecond, merged);
    let each_millisecond = |arrivals: &Arrivals| arrivals.bits_per_second / FRAME_BITS / 1e3;
    eventually_if_fit(
        &format!("lost, {per_millisecond} packets in a millisecond for {milliseconds} ms each"),
        || {
            emulator.set(&to_far(link.clone())).unwrap();
            let arrivals = sent_to(FAR);
            let traffic = emulator.state().unwrap().traffic;
            let lost = count as usize - arrivals.distinct();
            let came = each_millisecond(&arrivals);
            // To an address without delay.
            let control = sent_to(FAR_UNIMPAIRED);
            let lost_otherwise = count as usize - control.distinct();
            let offered = each_millisecond(&control);
            // A link that is not full may lose nothing for that reason.
            let least = if lost == 0 { came } else { offered };
            let fit = least >= enough && lost_otherwise == 0;
            let reason = || {
                format!(
                    "this machine carries {came:.1} packets per millisecond with the delay and {offered:.1} without, where it loses \
                     {lost_otherwise}"
                )
            };
            ((lost, came, traffic), fit.then_some(()).ok_or_else(reason))
        },
        |(lost, came, traffic)| *lost == 0 && dropped(traffic[0]) == 0 && *came >= enough,
    );
}

fn long_and_fat(milliseconds: u64) -> Impairment {
    Impairment {
        rate_bits_per_second: NonZeroU64::new(1_000_000_000),
        ..delay(milliseconds)
    }
}

/// The number of packets dropped because the link was full.
fn dropped(traffic: Traffic) -> u64 {
    match traffic {
        Traffic::Userspace(counts) => counts.over_limit,
        Traffic::Kernel { dropped, .. } => dropped,
    }
}
