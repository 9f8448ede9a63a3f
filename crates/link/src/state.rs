//! How a link does: what was asked for, what happened, and whether it can be trusted.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};
use thiserror::Error;

use crate::emulation::Tally;
use crate::impairment::{Impairment, Mode};
use crate::route::Link;

/// A delay that is wrong by this much at the 99th percentile still is that delay.
const LATENESS_TOLERANCE: Duration = Duration::from_micros(500);
/// The same as a share of the delay.
const LATENESS_TOLERANCE_RATIO: f64 = 0.05;

/// A link at work. Counted is what happened since it was last set, or since counting began anew. Packets that were on
/// their way at that moment count when they leave, unless they left from a link that was set before.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// What was asked for.
    pub link: Link,
    /// Who impairs.
    pub backend: Kind,
    /// How packets pass.
    pub mode: Mode,
    /// What was done, for each of the routes, in their order.
    pub traffic: Vec<Traffic>,
    /// The thread, if the kernel does it not alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
}

/// Who shall impair.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Display, EnumString, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Backend {
    /// The kernel where it can, this process otherwise.
    #[default]
    Auto,
    /// netem, or an error.
    Kernel,
    /// This process, or an error.
    Userspace,
}

/// Who impairs.
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// netem.
    Kernel,
    /// A thread of this process.
    Userspace,
}

/// What was done to the packets of a route.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "countedBy")]
pub enum Traffic {
    /// By this process.
    Userspace(Tally),
    /// By netem, which counts less, and counts packets that left from a link that was set before, too.
    #[serde(rename_all = "camelCase")]
    Kernel {
        /// Left the link.
        packets_out: u64,
        /// Lost as was asked for, or over the limit.
        dropped: u64,
        /// On their way.
        held: u32,
    },
}

/// The thread that serves a link.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// How late it was.
    pub lateness: Lateness,
    /// Frames that came faster than it took them, and are lost.
    pub overflowed: u64,
    /// Packets that came to it and are for nobody impaired; a few when peers change.
    pub unmatched: u64,
    /// Frames that the kernel did not take back.
    pub refused: u64,
}

/// How the thread that serves a link is scheduled. Without real-time priority packets are late by as much as other
/// processes keep the cores busy.
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Scheduling {
    /// SCHED_FIFO. Needs CAP_SYS_NICE in the first user namespace, or RLIMIT_RTPRIO.
    RealTime,
    /// Ordinary, with a short slice, which needs no privilege and halves the longest delays.
    ShortSlice,
    /// Ordinary: the kernel is older than 6.12 and has no other.
    Ordinary,
}

/// How much after their time frames left.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lateness {
    /// Frames that left.
    pub frames: u64,
    /// Half of them were later, in nanoseconds.
    pub p50_ns: u64,
    /// One of a hundred was later, in nanoseconds.
    pub p99_ns: u64,
    /// The latest, in nanoseconds.
    pub max_ns: u64,
}

/// A reason not to trust what was measured over a link.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Concern {
    /// The machine is too busy, or the thread has no priority.
    #[error(
        "one packet of a hundred was late by more than {late:?}, and at most {tolerated:?} would be fair: leave a core to the emulator, or give it SYS_NICE"
    )]
    Late {
        /// The 99th percentile.
        late: Duration,
        /// What would be fair.
        tolerated: Duration,
    },
    /// The emulator lost packets on its own account.
    #[error(
        "{0} packets came faster than the emulator could take them and were lost, which nobody asked for: lower the rate, or leave a core to the emulator"
    )]
    Overflowed(u64),
    /// The emulator held as many as it holds where neither a rate nor a limit was set.
    #[error(
        "{0} packets were more than the link holds on its own account and were lost, which nobody asked for: set a rate, or a limit of packets"
    )]
    OverLimit(u64),
    /// The kernel did not take frames back.
    #[error("{0} frames could not be sent on, which nobody asked for: is the interface up?")]
    Refused(u64),
}

impl State {
    /// What limits the trust in measurements over this link.
    pub fn concerns(&self) -> Vec<Concern> {
        let mut concerns = Vec::new();
        if let Some(worker) = &self.worker {
            // The shortest delay suffers the most.
            let delays = self.link.routes().iter().map(|route| route.impairment.delay);
            let shortest = delays.filter(|delay| !delay.is_zero()).min().unwrap_or_default();
            let tolerated = shortest.mul_f64(LATENESS_TOLERANCE_RATIO).max(LATENESS_TOLERANCE);
            let late = Duration::from_nanos(worker.lateness.p99_ns);
            if late > tolerated {
                concerns.push(Concern::Late { late, tolerated });
            }
            if worker.overflowed > 0 {
                concerns.push(Concern::Overflowed(worker.overflowed));
            }
            if worker.refused > 0 {
                concerns.push(Concern::Refused(worker.refused));
            }
        }
        let routes = self.link.routes().iter().map(|route| &route.impairment);
        let over_limit = routes
            .zip(&self.traffic)
            .map(|(impairment, traffic)| traffic.over_own_limit(impairment))
            .sum();
        if over_limit > 0 {
            concerns.push(Concern::OverLimit(over_limit));
        }
        concerns
    }
}

impl Traffic {
    /// Packets over a limit that is the emulator's own. One that was set is asked for, and so is the queue of a rate: a
    /// sender that is faster is to lose.
    fn over_own_limit(&self, impairment: &Impairment) -> u64 {
        if impairment.rate_bits_per_second.is_some() || impairment.limit_packets.is_some() {
            return 0;
        }
        match self {
            Self::Userspace(tally) => tally.over_limit,
            // Where losses are asked for, netem counts them together with the others.
            Self::Kernel { .. } if impairment.loss.is_some() => 0,
            Self::Kernel { dropped, .. } => *dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU32, NonZeroU64};

    use super::*;
    use crate::impairment::Loss;
    use crate::ratio::Ratio;

    fn state(delay_milliseconds: u64, p99_ns: u64) -> State {
        let impairment = Impairment {
            delay: Duration::from_millis(delay_milliseconds),
            ..Impairment::default()
        };
        State {
            link: Link::to(["10.0.0.1".parse().unwrap()], impairment).unwrap(),
            backend: Kind::Userspace,
            mode: Mode::SuperPackets,
            traffic: vec![Traffic::Userspace(Tally::default())],
            worker: Some(Worker {
                scheduling: Scheduling::RealTime,
                lateness: Lateness {
                    frames: 1000,
                    p50_ns: 1,
                    p99_ns,
                    max_ns: p99_ns,
                },
                overflowed: 0,
                unmatched: 0,
                refused: 0,
            }),
        }
    }

    #[test]
    fn lateness_is_judged_by_the_delay() {
        assert_eq!(state(1, 500_000).concerns(), []);
        assert_eq!(state(100, 5_000_000).concerns(), []);
        let late = Concern::Late {
            late: Duration::from_millis(6),
            tolerated: Duration::from_millis(5),
        };
        assert_eq!(state(100, 6_000_000).concerns(), [late]);
    }

    #[test]
    fn packets_that_the_emulator_lost_itself_are_a_concern() {
        let mut state = state(10, 0);
        state.worker.as_mut().unwrap().overflowed = 3;
        assert_eq!(state.concerns(), [Concern::Overflowed(3)]);
    }

    /// Concerns of 5 packets that were over the limit of a link like this, in user space and in the kernel.
    fn over_limit(impairment: Impairment) -> [Vec<Concern>; 2] {
        let tally = Tally {
            lost: 7,
            over_limit: 5,
            ..Tally::default()
        };
        let by_kernel = Traffic::Kernel {
            packets_out: 100,
            dropped: 5,
            held: 0,
        };
        [Traffic::Userspace(tally), by_kernel].map(|traffic| {
            let state = State {
                link: Link::to(["10.0.0.1".parse().unwrap()], impairment.clone()).unwrap(),
                traffic: vec![traffic],
                worker: None,
                ..state(10, 0)
            };
            state.concerns()
        })
    }

    #[test]
    fn packets_over_a_limit_that_nobody_set_are_a_concern() {
        let delayed = Impairment {
            delay: Duration::from_millis(10),
            ..Impairment::default()
        };
        let concern = || vec![Concern::OverLimit(5)];
        assert_eq!(over_limit(delayed.clone()), [concern(), concern()]);
        let limited = Impairment {
            limit_packets: NonZeroU32::new(1000),
            ..delayed.clone()
        };
        assert_eq!(over_limit(limited), [vec![], vec![]]);
        let slow = Impairment {
            rate_bits_per_second: NonZeroU64::new(1_000_000),
            ..delayed
        };
        assert_eq!(over_limit(slow), [vec![], vec![]]);
    }

    #[test]
    fn losses_that_were_asked_for_are_no_concern() {
        let lossy = Impairment {
            loss: Some(Loss::Random {
                ratio: Ratio::from_percent(1.0).unwrap(),
                correlation: Ratio::ZERO,
            }),
            ..Impairment::default()
        };
        // netem does not tell them from those over the limit.
        assert_eq!(over_limit(lossy), [vec![Concern::OverLimit(5)], vec![]]);
    }

    #[test]
    fn states_travel_as_json() {
        let state = state(10, 7);
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
    }
}
