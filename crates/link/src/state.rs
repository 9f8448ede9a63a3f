//! The state of a link: what is configured, what happened, and whether measurements over it can be trusted.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};
use thiserror::Error;

use crate::{
    fate::PacketCounts,
    impairment::{Impairment, Mode},
    route::{OutgoingLinks, Route},
};

/// A delay that is wrong by this much at the 99th percentile still counts as correct.
const LATENESS_TOLERANCE: Duration = Duration::from_micros(500);
/// A delay that is wrong by this share of itself still counts as correct.
const LATENESS_TOLERANCE_RATIO: f64 = 0.05;

/// The state of an impaired link. Counts begin when the link is set or when they are reset. Packets in flight
/// at that moment count when they leave, unless they left over a link that was set before.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkState {
    /// The configured links.
    pub link: OutgoingLinks,
    /// The backend that impairs the link.
    pub backend: ActiveBackend,
    /// Whether merged packets stay merged.
    pub mode: Mode,
    /// The traffic of each route, in the order of the routes.
    pub traffic: Vec<Traffic>,
    /// The thread that impairs the link. Absent if the kernel does it alone.
    pub worker: Option<Worker>,
}

/// The backend that is requested.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Display, EnumString, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Backend {
    /// The kernel if it can impair the link, otherwise this process.
    #[default]
    Auto,
    /// netem, or an error.
    Kernel,
    /// This process, or an error.
    Userspace,
}

/// The backend that impairs a link.
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ActiveBackend {
    /// netem.
    Kernel,
    /// A thread of this process.
    Userspace,
}

/// What happened to the packets of a route.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "countedBy")]
pub enum Traffic {
    /// Counted by this process.
    Userspace(PacketCounts),
    /// Counted by netem, which has fewer counters and also counts packets that left over a link that was set
    /// before.
    #[serde(rename_all = "camelCase")]
    Kernel {
        /// The number of packets that left the link.
        packets_out: u64,
        /// The number of packets lost as configured, or dropped because the queue was full.
        dropped: u64,
        /// The number of packets in flight or queued.
        held: u32,
    },
}

/// The thread that serves a link.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    /// How the thread is scheduled.
    pub scheduling: Scheduling,
    /// How late frames left.
    pub lateness: Lateness,
    /// The number of frames lost because they arrived faster than the thread read them.
    pub overflowed: u64,
    /// The number of packets for peers that are not impaired. A few are normal when peers change.
    pub unmatched: u64,
    /// The number of frames that the kernel did not accept back.
    pub refused: u64,
    /// CPU time of the thread, in nanoseconds.
    #[serde(default)]
    pub cpu_ns: u64,
}

/// How the thread that serves a link is scheduled. Without real-time priority packets are late by as long as
/// other processes keep the cores busy.
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Scheduling {
    /// SCHED_FIFO. Needs CAP_SYS_NICE in the initial user namespace, or RLIMIT_RTPRIO.
    RealTime,
    /// Normal scheduling with a short slice, which needs no privilege and halves the longest delays. Linux
    /// before 6.12 accepts the request for a short slice, and ignores it.
    ShortSlice,
    /// Normal scheduling: the kernel refused the request for a short slice.
    Ordinary,
}

/// How long after their due time frames left.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lateness {
    /// The number of frames that left.
    pub frames: u64,
    /// The median lateness, in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile of the lateness, in nanoseconds.
    pub p99_ns: u64,
    /// The largest lateness, in nanoseconds.
    pub max_ns: u64,
}

/// A reason not to trust what was measured over a link.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Concern {
    /// The machine is too busy, or the thread has no priority.
    #[error(
        "1 % of the packets left more than {late:?} late; up to {tolerated:?} is acceptable: leave a core to the emulator, or give it SYS_NICE"
    )]
    Late {
        /// The 99th percentile of the lateness.
        late: Duration,
        /// The largest acceptable lateness.
        tolerated: Duration,
    },
    /// The emulator dropped packets because it could not keep up.
    #[error(
        "{0} packets were dropped because the emulator could not keep up: lower the rate, or leave a core to the emulator"
    )]
    Overflowed(u64),
    /// The emulator's own limit dropped packets: neither a rate nor a limit is configured.
    #[error(
        "{0} packets were dropped because they exceeded the emulator's own limit: set a rate, or a limit of packets"
    )]
    OverLimit(u64),
    /// The kernel did not accept frames back.
    #[error("{0} frames could not be forwarded: is the interface up?")]
    Refused(u64),
}

impl LinkState {
    /// The routes of the link, each with its traffic.
    pub fn routes(&self) -> impl Iterator<Item = (&Route, &Traffic)> {
        self.link.routes().iter().zip(&self.traffic)
    }

    /// Reasons not to trust measurements over this link.
    pub fn concerns(&self) -> Vec<Concern> {
        let mut concerns = Vec::new();
        if let Some(worker) = &self.worker {
            // Lateness distorts the shortest delay most.
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
        let over_limit = self
            .routes()
            .map(|(route, traffic)| traffic.packets_over_own_limit(&route.impairment))
            .fold(0, u64::saturating_add);
        if over_limit > 0 {
            concerns.push(Concern::OverLimit(over_limit));
        }
        concerns
    }
}

impl Traffic {
    /// The number of packets dropped by the emulator's own limit. A configured limit drops on purpose, and so
    /// does the queue of a rate: a sender that is faster must lose packets.
    fn packets_over_own_limit(&self, impairment: &Impairment) -> u64 {
        if impairment.rate_bits_per_second.is_some() || impairment.limit_packets.is_some() {
            return 0;
        }
        match self {
            Self::Userspace(counts) => counts.over_limit,
            // Where losses are configured, netem counts both kinds together.
            Self::Kernel { .. } if impairment.loss.is_some() => 0,
            Self::Kernel { dropped, .. } => *dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU32, NonZeroU64};

    use super::*;
    use crate::{impairment::Loss, ratio::Ratio};

    fn state(delay_milliseconds: u64, p99_ns: u64) -> LinkState {
        let impairment = Impairment {
            delay: Duration::from_millis(delay_milliseconds),
            ..Impairment::default()
        };
        LinkState {
            link: OutgoingLinks::to(["10.0.0.1".parse().unwrap()], impairment).unwrap(),
            backend: ActiveBackend::Userspace,
            mode: Mode::SuperPackets,
            traffic: vec![Traffic::Userspace(PacketCounts::default())],
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
                cpu_ns: 0,
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
    fn packets_that_the_emulator_cannot_keep_up_with_are_a_concern() {
        let mut state = state(10, 0);
        state.worker.as_mut().unwrap().overflowed = 3;
        assert_eq!(state.concerns(), [Concern::Overflowed(3)]);
    }

    /// The concerns about 5 packets over the limit of such a link, in user space and in the kernel.
    fn over_limit(impairment: Impairment) -> [Vec<Concern>; 2] {
        let counts = PacketCounts {
            lost: 7,
            over_limit: 5,
            ..PacketCounts::default()
        };
        let by_kernel = Traffic::Kernel {
            packets_out: 100,
            dropped: 5,
            held: 0,
        };
        [Traffic::Userspace(counts), by_kernel].map(|traffic| {
            let state = LinkState {
                link: OutgoingLinks::to(["10.0.0.1".parse().unwrap()], impairment.clone()).unwrap(),
                traffic: vec![traffic],
                worker: None,
                ..state(10, 0)
            };
            state.concerns()
        })
    }

    #[test]
    fn packets_over_the_emulators_own_limit_are_a_concern() {
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
    fn configured_losses_are_not_a_concern() {
        let lossy = Impairment {
            loss: Some(Loss::Random {
                ratio: Ratio::from_percent(1.0).unwrap(),
                correlation: Ratio::ZERO,
            }),
            ..Impairment::default()
        };
        // netem counts losses and packets over the limit together.
        assert_eq!(over_limit(lossy), [vec![Concern::OverLimit(5)], vec![]]);
    }

    #[test]
    fn states_travel_as_json() {
        let state = state(10, 7);
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<LinkState>(&text).unwrap(), state);
    }
}
