//! The options of `sch_netem`, to bytes and back.
//!
//! Layouts are those of linux/pkt_sched.h, in the byte order of the machine. All attributes are sent, even if
//! they change nothing: netem keeps what a change does not mention.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use perfrun_link::{
    distribution,
    impairment::{Chance, Impairment, Jitter, JitterDistribution, Loss, Reorder},
    ratio::Ratio,
};
use rtnetlink::packet_core::{DefaultNla, Emitable, NLA_F_NESTED};

use crate::netlink::attribute;

const CORRELATIONS: u16 = 1;
const DELAY_DISTRIBUTION: u16 = 2;
const REORDER: u16 = 3;
const CORRUPT: u16 = 4;
const LOSS: u16 = 5;
const RATE: u16 = 6;
const RATE64: u16 = 8;
const LATENCY64: u16 = 10;
const JITTER64: u16 = 11;
const PRNG_SEED: u16 = 14;
/// The attribute in `LOSS` of its model.
const LOSS_GILBERT_ELLIOTT: u16 = 2;

/// `struct tc_netem_qopt`
const FIXED: usize = 24;
/// The resolution of netem's clock before it had nanoseconds.
const NANOSECONDS_PER_TICK_SHIFT: u32 = 6;

/// The option that starts the random decisions of a seed, since Linux 6.6. Older kernels ignore it.
pub(crate) fn seed(seed: u64) -> Vec<u8> {
    emitted(&[DefaultNla::new(PRNG_SEED, seed.to_ne_bytes().to_vec())])
}

/// netem's own parameters. Probabilities are scaled to 32 bits, times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Netem {
    latency: i64,
    jitter: i64,
    limit: u32,
    loss: u32,
    /// p, r, h and 1-k.
    gilbert_elliott: Option<[u32; 4]>,
    duplicate: u32,
    gap: u32,
    /// The correlations of delay, loss and duplication.
    correlations: [u32; 3],
    /// Each as probability and correlation.
    reorder: [u32; 2],
    corrupt: [u32; 2],
    bytes_per_second: u64,
}

impl Netem {
    pub(crate) fn of(impairment: &Impairment) -> Self {
        let nanoseconds =
            |time: Duration| i64::try_from(time.as_nanos()).expect("times are checked to be short");
        let scaled = |ratio: Option<Ratio>| ratio.map_or(0, Ratio::to_scaled);
        let jitter = impairment.jitter.as_ref();
        let duplicate = impairment.duplicate.as_ref();
        let corrupt = impairment.corrupt.as_ref();
        let reorder = impairment.reorder.as_ref();
        let (loss, loss_correlation, gilbert_elliott) = match impairment.loss {
            None => (0, 0, None),
            Some(Loss::Random { ratio, correlation }) => (ratio.to_scaled(), correlation.to_scaled(), None),
            Some(Loss::GilbertElliott {
                enter_bad,
                leave_bad,
                loss_in_bad,
                loss_in_good,
            }) => {
                // The kernel expects h, the share that passes in the bad state.
                let passes = u32::MAX - loss_in_bad.to_scaled();
                let model = [
                    enter_bad.to_scaled(),
                    leave_bad.to_scaled(),
                    passes,
                    loss_in_good.to_scaled(),
                ];
                (0, 0, Some(model))
            }
        };
        Self {
            latency: nanoseconds(impairment.delay),
            jitter: jitter.map_or(0, |jitter| nanoseconds(jitter.amount)),
            limit: impairment.limit_packets(),
            loss,
            gilbert_elliott,
            duplicate: scaled(duplicate.map(|chance| chance.ratio)),
            gap: reorder.map_or(0, |reorder| reorder.gap.get()),
            correlations: [
                scaled(jitter.map(|jitter| jitter.correlation)),
                loss_correlation,
                scaled(duplicate.map(|chance| chance.correlation)),
            ],
            reorder: [
                scaled(reorder.map(|reorder| reorder.ratio)),
                scaled(reorder.map(|reorder| reorder.correlation)),
            ],
            corrupt: [
                scaled(corrupt.map(|chance| chance.ratio)),
                scaled(corrupt.map(|chance| chance.correlation)),
            ],
            bytes_per_second: impairment
                .rate_bits_per_second
                .map_or(0, |rate| rate.get().div_ceil(8)),
        }
    }

    /// Encodes the value of TCA_OPTIONS.
    pub(crate) fn encode(&self, impairment: &Impairment) -> Vec<u8> {
        let ticks =
            |nanoseconds: i64| u32::try_from(nanoseconds >> NANOSECONDS_PER_TICK_SHIFT).unwrap_or(u32::MAX);
        let fixed = [
            ticks(self.latency),
            self.limit,
            self.loss,
            self.gap,
            self.duplicate,
            ticks(self.jitter),
        ];
        let mut attributes = vec![
            DefaultNla::new(CORRELATIONS, longs(&self.correlations)),
            DefaultNla::new(REORDER, longs(&self.reorder)),
            DefaultNla::new(CORRUPT, longs(&self.corrupt)),
            // The overheads and cells behind the rate are not used.
            DefaultNla::new(
                RATE,
                longs(&[u32::try_from(self.bytes_per_second).unwrap_or(u32::MAX), 0, 0, 0]),
            ),
            DefaultNla::new(LATENCY64, self.latency.to_ne_bytes().to_vec()),
            DefaultNla::new(JITTER64, self.jitter.to_ne_bytes().to_vec()),
        ];
        if self.bytes_per_second > u64::from(u32::MAX) {
            attributes.push(DefaultNla::new(
                RATE64,
                self.bytes_per_second.to_ne_bytes().to_vec(),
            ));
        }
        if let Some(model) = &self.gilbert_elliott {
            let model = DefaultNla::new(LOSS_GILBERT_ELLIOTT, longs(model));
            attributes.push(DefaultNla::new(LOSS | NLA_F_NESTED, emitted(&[model])));
        }
        if let Some(jitter) = &impairment.jitter {
            // Also for a uniform distribution, which is netem's behaviour without a table: an earlier table
            // can only be replaced.
            let table = distribution::table(jitter.distribution);
            let bytes = table.into_iter().flat_map(i16::to_ne_bytes).collect();
            attributes.push(DefaultNla::new(DELAY_DISTRIBUTION, bytes));
        }
        let mut options = longs(&fixed);
        options.extend(emitted(&attributes));
        options
    }

    /// Decodes the value of TCA_OPTIONS that the kernel reports, which does not say which table is used.
    /// `None` if it is malformed.
    pub(crate) fn decode(options: &[u8]) -> Option<Self> {
        let (fixed, attributes) = options.split_at_checked(FIXED)?;
        let [latency, limit, loss, gap, duplicate, jitter] = parsed(fixed)?;
        let nanoseconds = |kind, ticks: u32| match attribute(attributes, kind) {
            Some(value) => value.try_into().ok().map(i64::from_ne_bytes),
            None => Some(i64::from(ticks) << NANOSECONDS_PER_TICK_SHIFT),
        };
        let pair = |kind| attribute(attributes, kind).map_or(Some([0; 2]), parsed);
        let rate = match attribute(attributes, RATE64) {
            Some(value) => u64::from_ne_bytes(value.try_into().ok()?),
            None => attribute(attributes, RATE).map_or(Some(0), |value| {
                let [bytes_per_second, _, _, _] = parsed(value)?;
                Some(u64::from(bytes_per_second))
            })?,
        };
        let gilbert_elliott = match attribute(attributes, LOSS) {
            Some(model) => Some(parsed(attribute(model, LOSS_GILBERT_ELLIOTT)?)?),
            None => None,
        };
        Some(Self {
            latency: nanoseconds(LATENCY64, latency)?,
            jitter: nanoseconds(JITTER64, jitter)?,
            limit,
            loss,
            gilbert_elliott,
            duplicate,
            gap,
            correlations: attribute(attributes, CORRELATIONS).map_or(Some([0; 3]), parsed)?,
            reorder: pair(REORDER)?,
            corrupt: pair(CORRUPT)?,
            bytes_per_second: rate,
        })
    }

    /// The parameters as an impairment. Shares are as exact as the kernel's 32 bits. The distribution of a
    /// delay is not known.
    pub(crate) fn impairment(&self) -> Impairment {
        let ratio = |scaled: u32| {
            let share = f64::from(scaled) / f64::from(u32::MAX);
            Ratio::new((share * 1e9).round() / 1e9).expect("a 32-bit number is at most the largest")
        };
        let chance = |[share, correlation]: [u32; 2]| {
            (share > 0).then(|| Chance {
                ratio: ratio(share),
                correlation: ratio(correlation),
            })
        };
        let [delay_correlation, loss_correlation, duplicate_correlation] = self.correlations;
        let nanoseconds = |time: i64| Duration::from_nanos(time.unsigned_abs());
        let loss = match self.gilbert_elliott {
            Some([enter_bad, leave_bad, passes_in_bad, loss_in_good]) => Some(Loss::GilbertElliott {
                enter_bad: ratio(enter_bad),
                leave_bad: ratio(leave_bad),
                loss_in_bad: ratio(u32::MAX - passes_in_bad),
                loss_in_good: ratio(loss_in_good),
            }),
            None => (self.loss > 0).then(|| Loss::Random {
                ratio: ratio(self.loss),
                correlation: ratio(loss_correlation),
            }),
        };
        Impairment {
            delay: nanoseconds(self.latency),
            jitter: (self.jitter != 0).then(|| Jitter {
                amount: nanoseconds(self.jitter),
                distribution: JitterDistribution::default(),
                correlation: ratio(delay_correlation),
            }),
            loss,
            duplicate: chance([self.duplicate, duplicate_correlation]),
            corrupt: chance(self.corrupt),
            reorder: (self.reorder[0] > 0).then(|| Reorder {
                ratio: ratio(self.reorder[0]),
                correlation: ratio(self.reorder[1]),
                gap: NonZeroU32::new(self.gap).unwrap_or(NonZeroU32::MIN),
            }),
            rate_bits_per_second: NonZeroU64::new(self.bytes_per_second.saturating_mul(8)),
            limit_packets: NonZeroU32::new(self.limit),
        }
    }
}

fn longs(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// The first values of a structure, which newer kernels may have made longer. `None` if it is shorter.
fn parsed<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let mut values = [0; N];
    for (value, bytes) in values.iter_mut().zip(bytes.get(..4 * N)?.chunks_exact(4)) {
        *value = u32::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some(values)
}

pub(super) fn emitted(attributes: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = vec![0; attributes.iter().map(Emitable::buffer_len).sum()];
    let mut rest = bytes.as_mut_slice();
    for attribute in attributes {
        let (place, behind) = rest.split_at_mut(attribute.buffer_len());
        attribute.emit(place);
        rest = behind;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_back_as_they_were_set() {
        let bursts = Impairment {
            loss: Some(Loss::GilbertElliott {
                enter_bad: percent(0.5),
                leave_bad: percent(12.5),
                loss_in_bad: percent(90.0),
                loss_in_good: percent(0.01),
            }),
            ..Impairment::default()
        };
        for set in [everything(), bursts, Impairment::default()] {
            let known = Impairment {
                jitter: set.jitter.clone().map(|jitter| Jitter {
                    distribution: JitterDistribution::default(),
                    ..jitter
                }),
                limit_packets: NonZeroU32::new(set.limit_packets()),
                ..set.clone()
            };
            assert_eq!(Netem::of(&set).impairment(), known);
        }
    }

    fn percent(percent: f64) -> Ratio {
        Ratio::from_percent(percent).unwrap()
    }

    fn everything() -> Impairment {
        Impairment {
            delay: Duration::from_millis(100),
            jitter: Some(Jitter {
                amount: Duration::from_millis(10),
                distribution: JitterDistribution::Normal,
                correlation: percent(25.0),
            }),
            loss: Some(Loss::Random {
                ratio: percent(1.0),
                correlation: percent(5.0),
            }),
            duplicate: Some(Chance {
                ratio: percent(2.0),
                correlation: percent(6.0),
            }),
            corrupt: Some(Chance {
                ratio: percent(3.0),
                correlation: percent(7.0),
            }),
            reorder: Some(Reorder {
                ratio: percent(4.0),
                correlation: percent(8.0),
                gap: NonZeroU32::new(5).unwrap(),
            }),
            rate_bits_per_second: NonZeroU64::new(20_000_000),
            limit_packets: NonZeroU32::new(4321),
        }
    }

    fn scaled(ratio: f64) -> u32 {
        percent(ratio).to_scaled()
    }

    /// What `tc qdisc add dev X root netem limit 4321 delay 100ms 10ms 25% distribution normal loss 1% 5%
    /// duplicate 2% 6% corrupt 3% 7% reorder 4% 8% gap 5 rate 20mbit` sends, attribute by attribute.
    #[test]
    fn options_have_the_bytes_that_tc_sends() {
        let impairment = everything();
        let options = Netem::of(&impairment).encode(&impairment);
        let fixed = longs(&[1_562_500, 4321, 42_949_673, 5, 85_899_346, 156_250]);
        assert_eq!(options[..FIXED], fixed);
        let value = |kind| attribute(&options[FIXED..], kind).unwrap().to_vec();
        assert_eq!(
            value(CORRELATIONS),
            longs(&[scaled(25.0), scaled(5.0), scaled(6.0)])
        );
        assert_eq!(value(REORDER), longs(&[scaled(4.0), scaled(8.0)]));
        assert_eq!(value(CORRUPT), longs(&[scaled(3.0), scaled(7.0)]));
        assert_eq!(value(RATE), longs(&[2_500_000, 0, 0, 0]));
        assert_eq!(value(LATENCY64), 100_000_000i64.to_ne_bytes());
        assert_eq!(value(JITTER64), 10_000_000i64.to_ne_bytes());
        assert_eq!(value(DELAY_DISTRIBUTION).len(), 2 * distribution::SIZE);
        assert_eq!(attribute(&options[FIXED..], RATE64), None);
        assert_eq!(attribute(&options[FIXED..], LOSS), None);
    }

    #[test]
    fn gilbert_elliott_is_nested_and_has_the_share_that_passes() {
        let bursts = Impairment {
            loss: Some(Loss::GilbertElliott {
                enter_bad: percent(1.0),
                leave_bad: percent(25.0),
                loss_in_bad: percent(70.0),
                loss_in_good: percent(0.1),
            }),
            ..Impairment::default()
        };
        let options = Netem::of(&bursts).encode(&bursts);
        let model = attribute(attribute(&options[FIXED..], LOSS).unwrap(), LOSS_GILBERT_ELLIOTT).unwrap();
        assert_eq!(
            model,
            longs(&[scaled(1.0), scaled(25.0), u32::MAX - scaled(70.0), scaled(0.1)])
        );
        assert_eq!(options[8..12], [0; 4]); // the other loss model loses nothing
    }

    #[test]
    fn rates_above_32_bits_have_an_attribute_of_their_own() {
        let fast = Impairment {
            rate_bits_per_second: NonZeroU64::new(40_000_000_000),
            ..Impairment::default()
        };
        let options = Netem::of(&fast).encode(&fast);
        assert_eq!(
            attribute(&options[FIXED..], RATE64).unwrap(),
            5_000_000_000u64.to_ne_bytes()
        );
        assert_eq!(
            attribute(&options[FIXED..], RATE).unwrap()[..4],
            u32::MAX.to_ne_bytes()
        );
    }

    #[test]
    fn an_encoded_impairment_is_decoded_unchanged() {
        let bursts = Loss::GilbertElliott {
            enter_bad: percent(1.0),
            leave_bad: percent(25.0),
            loss_in_bad: Ratio::ONE,
            loss_in_good: Ratio::ZERO,
        };
        for impairment in [
            Impairment::default(),
            everything(),
            Impairment {
                loss: Some(bursts),
                ..everything()
            },
            Impairment {
                rate_bits_per_second: NonZeroU64::new(40_000_000_000),
                ..everything()
            },
        ] {
            let netem = Netem::of(&impairment);
            assert_eq!(Netem::decode(&netem.encode(&impairment)), Some(netem));
        }
    }

    #[test]
    fn kernels_before_nanoseconds_are_understood() {
        let options = longs(&[1_562_500, 4321, 0, 0, 0, 0]);
        let netem = Netem::decode(&options).unwrap();
        assert_eq!((netem.latency, netem.limit), (100_000_000, 4321));
    }

    #[test]
    fn options_that_are_cut_off_are_not_taken_for_others() {
        let impairment = everything();
        let netem = Netem::of(&impairment);
        let options = netem.encode(&impairment);
        assert_eq!(Netem::decode(&options[..FIXED - 1]), None);
        let without_reorder = &options[..FIXED + 16];
        assert_ne!(Netem::decode(without_reorder), Some(netem));
    }
}
