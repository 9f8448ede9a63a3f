//! A route with an impairment: its configuration, its memory, and the fate of the next packet.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Nanos,
    random::{ChanceState, Delays, Losses, Random},
    rate::RateClock,
};
use crate::impairment::{Impairment, Reorder};

/// A packet, or a super-packet that passes as one.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The bytes on the wire. A super-packet counts with the headers that each of its packets will have.
    pub wire_bytes: u64,
    /// The number of packets on the wire.
    pub packets: u32,
}

/// One copy of a packet that will arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Departure {
    /// The time at which the copy leaves the link.
    pub due: Nanos,
    /// Which bit is corrupted, as a random number. `None` if the copy is intact.
    pub corrupt: Option<u32>,
}

/// What a link did since counting began, in packets of the wire.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PacketCounts {
    /// Packets that reached the link.
    pub packets_in: u64,
    /// Packets that left the link, copies included. If fewer left than came, the rest is lost, over the limit
    /// or in flight; if more left, they were in flight when counting began.
    pub packets_out: u64,
    /// Packets lost, as configured.
    pub lost: u64,
    /// Packets duplicated, as configured.
    pub duplicated: u64,
    /// Packets corrupted, as configured.
    pub corrupted: u64,
    /// Packets that skipped the delay, as configured.
    pub reordered: u64,
    /// Packets dropped because the link was full.
    pub over_limit: u64,
}

/// One direction of a link, while packets pass over it to the peers of a route.
#[derive(Debug)]
pub struct ImpairedRoute {
    impairment: Impairment,
    random: Random,
    delays: Delays,
    losses: Option<Losses>,
    duplicate: Option<ChanceState>,
    corrupt: Option<ChanceState>,
    reorder: Option<Overtaking>,
    rate: Option<RateClock>,
    capacity: Capacity,
    held: u32,
    counts: PacketCounts,
}

/// What a link holds before it is full.
#[derive(Debug)]
enum Capacity {
    /// This number of packets, as in netem.
    Packets(u32),
    /// The packets that queue for `longest` at most. Packets in flight do not count: otherwise small packets
    /// (acknowledgements, echoes) would take the capacity from each other.
    Wait { longest_transit: Nanos, longest: Nanos },
}

#[derive(Debug)]
struct Overtaking {
    chance: ChanceState,
    gap: u32,
    since: u32,
}

impl ImpairedRoute {
    /// A route that no packet has passed yet.
    pub fn new(impairment: &Impairment, mut random: Random) -> Self {
        Self {
            impairment: impairment.clone(),
            delays: Delays::new(impairment.delay, impairment.jitter.as_ref(), &mut random),
            losses: impairment
                .loss
                .as_ref()
                .map(|loss| Losses::new(loss, &mut random)),
            duplicate: impairment
                .duplicate
                .as_ref()
                .map(|chance| ChanceState::of(chance, &mut random)),
            corrupt: impairment
                .corrupt
                .as_ref()
                .map(|chance| ChanceState::of(chance, &mut random)),
            reorder: impairment
                .reorder
                .as_ref()
                .map(|reorder| Overtaking::new(reorder, &mut random)),
            rate: impairment
                .rate_bits_per_second
                .map(|rate| RateClock::new(rate.get())),
            capacity: match impairment.longest_wait() {
                None => Capacity::Packets(impairment.limit_packets()),
                Some(longest) => Capacity::Wait {
                    longest_transit: nanoseconds(impairment.longest_transit()),
                    longest: nanoseconds(longest),
                },
            },
            held: 0,
            counts: PacketCounts::default(),
            random,
        }
    }

    /// Starts the random decisions again, with other numbers. Packets in flight and the counts stay.
    pub fn reseed(&mut self, random: Random) {
        *self = Self {
            rate: self.rate.take(),
            held: self.held,
            counts: self.counts,
            ..Self::new(&self.impairment, random)
        };
    }

    /// Decides about a packet that arrives now: none, one or two copies of it leave the link.
    ///
    /// The order of decisions is that of `netem_enqueue`. A copy is delayed on its own, and is not copied
    /// again.
    pub fn decide(&mut self, packet: Packet, now: Nanos) -> [Option<Departure>; 2] {
        self.counts.packets_in += u64::from(packet.packets);
        let twice = self
            .duplicate
            .as_mut()
            .is_some_and(|chance| chance.happens(&mut self.random));
        if twice {
            self.counts.duplicated += u64::from(packet.packets);
        }
        let lost = self.draw_loss(packet);
        let copy = twice && !lost && !self.draw_loss(packet);
        // A packet that is both copied and lost passes once, as in the kernel.
        let original = twice || !lost;
        [
            copy.then(|| self.pass(packet, now)).flatten(),
            original.then(|| self.pass(packet, now)).flatten(),
        ]
    }

    /// Removes a copy that has left the link.
    pub fn release(&mut self, packet: Packet) {
        self.held -= packet.packets;
        self.counts.packets_out += u64::from(packet.packets);
    }

    /// Removes a copy that could not be forwarded.
    pub fn discard(&mut self, packet: Packet) {
        self.held -= packet.packets;
    }

    /// Resets the counts. Packets in flight stay there, and count when they leave.
    pub fn reset_counts(&mut self) {
        self.counts = PacketCounts::default();
    }

    /// What the link did since counting began.
    pub fn counts(&self) -> PacketCounts {
        self.counts
    }

    /// Decides at random whether the packet is lost, and counts it if so.
    fn draw_loss(&mut self, packet: Packet) -> bool {
        let lost = self
            .losses
            .as_mut()
            .is_some_and(|losses| losses.next(&mut self.random));
        if lost {
            self.counts.lost += u64::from(packet.packets);
        }
        lost
    }

    fn is_full(&self, now: Nanos) -> bool {
        match (&self.capacity, &self.rate) {
            (Capacity::Packets(limit), _) => self.held >= *limit,
            (
                Capacity::Wait {
                    longest_transit,
                    longest,
                },
                Some(rate),
            ) => rate.wait(now + longest_transit) > *longest,
            (Capacity::Wait { .. }, None) => false,
        }
    }

    fn pass(&mut self, packet: Packet, now: Nanos) -> Option<Departure> {
        let corrupt = self
            .corrupt
            .as_mut()
            .is_some_and(|chance| chance.happens(&mut self.random));
        let corrupt = corrupt.then(|| self.random.next_u32());
        if self.is_full(now) {
            self.counts.over_limit += u64::from(packet.packets);
            return None;
        }
        self.held += packet.packets;
        if corrupt.is_some() {
            self.counts.corrupted += u64::from(packet.packets);
        }
        let overtakes = self
            .reorder
            .as_mut()
            .is_some_and(|reorder| reorder.next(&mut self.random));
        if overtakes {
            self.counts.reordered += u64::from(packet.packets);
            return Some(Departure { due: now, corrupt });
        }
        let arrival = now + self.delays.next(&mut self.random);
        let due = match &mut self.rate {
            Some(rate) => rate.send(arrival, packet.wire_bytes),
            None => arrival,
        };
        Some(Departure { due, corrupt })
    }
}

impl Overtaking {
    fn new(reorder: &Reorder, random: &mut Random) -> Self {
        Self {
            chance: ChanceState::new(reorder.ratio, reorder.correlation, random),
            gap: reorder.gap.get(),
            since: 0,
        }
    }

    fn next(&mut self, random: &mut Random) -> bool {
        let overtakes = self.since + 1 >= self.gap && self.chance.happens(random);
        self.since = if overtakes {
            0
        } else {
            self.since.saturating_add(1)
        };
        overtakes
    }
}

fn nanoseconds(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU32, NonZeroU64};

    use super::*;
    use crate::{
        impairment::{Chance, Jitter, JitterDistribution, Loss},
        ratio::Ratio,
    };

    const START: Nanos = 1_000_000_000;
    const DELAY: Nanos = 20_000_000;
    const PACKET: Packet = Packet {
        wire_bytes: 1250,
        packets: 1,
    };

    fn delayed() -> Impairment {
        Impairment {
            delay: Duration::from_nanos(DELAY),
            ..Impairment::default()
        }
    }

    fn link(impairment: Impairment) -> ImpairedRoute {
        impairment.check().unwrap();
        ImpairedRoute::new(&impairment, Random::new(1))
    }

    fn percent(percent: f64) -> Ratio {
        Ratio::from_percent(percent).unwrap()
    }

    fn chance(ratio: f64) -> Option<Chance> {
        Some(Chance {
            ratio: percent(ratio),
            correlation: Ratio::ZERO,
        })
    }

    fn clean(due: Nanos) -> Option<Departure> {
        Some(Departure { due, corrupt: None })
    }

    #[test]
    fn a_link_with_only_a_delay_only_delays() {
        let mut link = link(delayed());
        assert_eq!(link.decide(PACKET, START), [None, clean(START + DELAY)]);
        link.release(PACKET);
        assert_eq!(
            link.counts(),
            PacketCounts {
                packets_in: 1,
                packets_out: 1,
                ..PacketCounts::default()
            }
        );
    }

    #[test]
    fn a_rate_applies_after_the_delay() {
        let mut link = link(Impairment {
            rate_bits_per_second: NonZeroU64::new(1_000_000_000),
            ..delayed()
        });
        assert_eq!(link.decide(PACKET, START), [None, clean(START + DELAY + 10_000)]);
        assert_eq!(link.decide(PACKET, START), [None, clean(START + DELAY + 20_000)]);
    }

    #[test]
    fn a_full_link_drops_and_counts_it() {
        let mut link = link(Impairment {
            limit_packets: NonZeroU32::new(2),
            ..delayed()
        });
        for expected in [true, true, false, false] {
            assert_eq!(link.decide(PACKET, START)[1].is_some(), expected);
        }
        link.release(PACKET);
        assert!(link.decide(PACKET, START)[1].is_some());
        let counts = link.counts();
        assert_eq!((counts.packets_in, counts.over_limit), (5, 2));
    }

    #[test]
    fn resetting_the_counts_forgets_no_packet() {
        let mut link = link(Impairment {
            limit_packets: NonZeroU32::new(2),
            ..delayed()
        });
        for _ in 0..3 {
            link.decide(PACKET, START);
        }
        assert_eq!((link.counts().packets_in, link.counts().over_limit), (3, 1));
        link.reset_counts();
        assert_eq!(link.counts(), PacketCounts::default());
        // The link is still full.
        assert_eq!(link.decide(PACKET, START), [None; 2]);
        link.release(PACKET);
        let expected = PacketCounts {
            packets_in: 1,
            packets_out: 1,
            over_limit: 1,
            ..PacketCounts::default()
        };
        assert_eq!(link.counts(), expected);
    }

    #[test]
    fn one_seed_decides_the_same_again() {
        let mut link = link(Impairment {
            loss: Some(Loss::Random {
                ratio: percent(50.0),
                correlation: percent(25.0),
            }),
            ..delayed()
        });
        let mut fate = |seed| {
            link.reseed(Random::new(seed));
            [(); 100].map(|()| link.decide(PACKET, START)[1].is_some())
        };
        let first = fate(1);
        assert_eq!(fate(1), first);
        assert_ne!(fate(2), first);
        assert_eq!(link.counts().packets_in, 300, "counts stay");
    }

    #[test]
    fn each_kind_of_impairment_gets_its_share_and_is_counted() {
        const PACKETS: u64 = 100_000;
        let mut link = link(Impairment {
            loss: Some(Loss::Random {
                ratio: percent(5.0),
                correlation: Ratio::ZERO,
            }),
            duplicate: chance(10.0),
            corrupt: chance(3.0),
            limit_packets: NonZeroU32::new(u32::MAX),
            ..delayed()
        });
        let (mut arrived, mut corrupt) = (0, 0);
        for _ in 0..PACKETS {
            for departure in link.decide(PACKET, START).into_iter().flatten() {
                arrived += 1;
                corrupt += u64::from(departure.corrupt.is_some());
            }
        }
        let counts = link.counts();
        assert_eq!(counts.corrupted, corrupt);
        let near = |count: u64, share: f64, of: u64| {
            let of = of as f64;
            (count as f64 - share * of).abs() < 3.9 * (share * (1.0 - share) * of).sqrt()
        };
        assert!(near(counts.duplicated, 0.1, PACKETS), "{counts:?}");
        assert!(near(corrupt, 0.03, arrived), "{counts:?}");
        // A copy can be lost as well, unless its original was.
        assert!(near(counts.lost, 0.05, PACKETS + counts.duplicated), "{counts:?}");
        assert_eq!(arrived, PACKETS + counts.duplicated - counts.lost);
    }

    #[test]
    fn overtaking_packets_skip_the_delay_and_keep_their_distance() {
        let reorder = Reorder {
            ratio: percent(50.0),
            correlation: Ratio::ZERO,
            gap: NonZeroU32::new(5).unwrap(),
        };
        let mut link = link(Impairment {
            reorder: Some(reorder),
            ..delayed()
        });
        let overtook: Vec<_> = (0..20_000)
            .filter(|_| link.decide(PACKET, START)[1] == clean(START))
            .collect();
        assert!(overtook.windows(2).all(|pair| pair[1] - pair[0] >= 5));
        // Four packets that cannot, then half of each: 1 / (4 + 2) of all; 0.003 is four standard deviations.
        let share = overtook.len() as f64 / 20_000.0;
        assert!((share - 1.0 / 6.0).abs() < 0.003, "{share}");
        assert_eq!(link.counts().reordered, overtook.len() as u64);
    }

    #[test]
    fn a_link_without_a_configured_limit_holds_all_packets_in_flight() {
        // 100 ms at 1 Gbit/s, all of it sent at the link's rate: nothing may be dropped.
        let mut link = link(Impairment {
            delay: Duration::from_millis(100),
            rate_bits_per_second: NonZeroU64::new(1_000_000_000),
            ..Impairment::default()
        });
        let packet = Packet {
            wire_bytes: 1514,
            packets: 1,
        };
        let mut on_their_way = std::collections::VecDeque::new();
        for number in 0..100_000 {
            let now = START + number * 12_112;
            while on_their_way.front().is_some_and(|due| *due <= now) {
                on_their_way.pop_front();
                link.release(packet);
            }
            let [_, departure] = link.decide(packet, now);
            on_their_way.push_back(departure.unwrap().due);
        }
        assert_eq!(link.counts().over_limit, 0);
    }

    #[test]
    fn jitter_fills_no_queue() {
        let mut link = link(Impairment {
            delay: Duration::from_millis(50),
            jitter: Some(Jitter {
                amount: Duration::from_millis(50),
                distribution: JitterDistribution::Normal,
                correlation: Ratio::ZERO,
            }),
            rate_bits_per_second: NonZeroU64::new(20_000_000),
            ..Impairment::default()
        });
        // A tenth of the rate.
        for number in 0..20_000 {
            link.decide(PACKET, START + number * 5_000_000);
        }
        assert_eq!(link.counts().over_limit, 0);
    }

    #[test]
    fn small_packets_on_their_way_take_no_room() {
        // Acknowledgements of a download of 50 Mbit/s over a satellite's uplink take a fifth of its rate.
        let mut link = link(Impairment {
            delay: Duration::from_millis(300),
            rate_bits_per_second: NonZeroU64::new(5_000_000),
            ..Impairment::default()
        });
        let acknowledgement = Packet {
            wire_bytes: 66,
            packets: 1,
        };
        for number in 0..4000 {
            link.decide(acknowledgement, START + number * 485_000);
        }
        assert_eq!(link.counts().over_limit, 0);
        // At three times the rate every packet queues for two delays at most.
        let full = Packet {
            wire_bytes: 1514,
            packets: 1,
        };
        let begin = START + 4000 * 485_000;
        let departures = (0..10_000).filter_map(|number| {
            let now = begin + number * 807_467;
            link.decide(full, now)[1].map(|departure| departure.due - now)
        });
        let longest = departures.max().unwrap();
        assert!((897_000_000..=903_000_000).contains(&longest), "{longest}");
        assert!(link.counts().over_limit > 6000, "{:?}", link.counts());
    }
}
