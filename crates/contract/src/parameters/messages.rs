//! The load of workload `messages`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Amount, Parameters, Use,
    bounds::{duration, ensure, timed},
    facts::{FILES_BESIDES, FILES_OF_HOST, Workload},
    way::Way,
};
use crate::{
    limits::{IN_FLIGHT_MAX, MESSAGE_MAX, MESSAGE_MIN, MESSAGE_RATE_MAX, MESSAGE_WINDOW_MAX, RECEIVERS_MAX},
    matrix::{Messaging, Protocol},
    metric::Metric,
    quantity::ByteSize,
    workload::{Direction, MessageMode},
};

pub(super) const USES: &[Use] = &[("`messages`", |_| {
    Parameters::Messages(Messages {
        mode: MessageMode::SerialAck,
        message_bytes: ByteSize(64),
        amount: Amount::Count(1),
        window: 1,
        rate: None,
        priority: false,
        receivers: 1,
    })
})];

/// Messages of one size from each peer of a client to its server, or to all servers in mode `broadcast`.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Messages {
    /// How they follow each other.
    pub mode: MessageMode,
    /// Bytes of a message, among them eight of its sequence number.
    pub message_bytes: ByteSize,
    /// Number of messages, or for how long to send.
    pub amount: Amount,
    /// Most messages that are sent and not acknowledged.
    pub window: u32,
    /// Messages per second of each peer, each due at its own moment. Absent if a message follows the last as
    /// soon as the mode allows.
    pub rate: Option<u32>,
    /// Whether stacks that have priorities send these messages before others.
    #[serde(default, skip_serializing_if = "is_false")]
    pub priority: bool,
    /// Servers to which each peer sends: all of them in mode `broadcast`, otherwise one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub receivers: u32,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Messages {
    /// Bytes of the first message, and the fewest of a message that carries the moment of its sending beside
    /// its number.
    pub const STAMPED: ByteSize = ByteSize(16);

    /// An acknowledgement follows this number of messages: a quarter of the window, so that the window does
    /// not run dry.
    pub fn acknowledged_each(&self) -> u32 {
        (self.window / 4).max(1)
    }
}

impl Workload for Messages {
    fn in_short(&self) -> String {
        format!("{}-{}", self.mode, self.message_bytes)
    }

    fn protocol(&self) -> Protocol {
        Protocol::Messages
    }

    fn check(&self) -> Result<(), String> {
        let (least, most) = (MESSAGE_MIN, MESSAGE_MAX);
        ensure((least.0..=most.0).contains(&self.message_bytes.0), || {
            format!(
                "messageBytes must be {least} to {most}, not {}",
                self.message_bytes
            )
        })?;
        ensure((1..=MESSAGE_WINDOW_MAX).contains(&self.window), || {
            format!("window must be 1 to {MESSAGE_WINDOW_MAX}, not {}", self.window)
        })?;
        ensure(self.window == 1 || self.mode == MessageMode::Stream, || {
            format!("window must be 1 in mode {}", self.mode)
        })?;
        ensure(
            self.rate
                .is_none_or(|rate| (1..=MESSAGE_RATE_MAX).contains(&rate)),
            || format!("rate must be 1 to {MESSAGE_RATE_MAX} messages per second"),
        )?;
        ensure((1..=RECEIVERS_MAX).contains(&self.receivers), || {
            format!("receivers must be 1 to {RECEIVERS_MAX}, not {}", self.receivers)
        })?;
        ensure(self.receivers == 1 || self.mode == MessageMode::Broadcast, || {
            format!("receivers must be 1 in mode {}", self.mode)
        })?;
        let in_flight = u64::from(self.window) * self.message_bytes.0;
        ensure(in_flight <= IN_FLIGHT_MAX.0, || {
            format!(
                "a window of {} messages of {} has more than {IN_FLIGHT_MAX} in flight",
                self.window, self.message_bytes
            )
        })?;
        match self.amount {
            Amount::Count(count) => ensure(count > 0, || "amount.count must be at least 1 message".into()),
            Amount::Seconds(seconds) => timed(seconds),
        }
    }

    fn own_metrics(&self) -> Vec<Metric> {
        let others = [
            Metric::MessagesPerSecond,
            Metric::UploadGoodput,
            Metric::AchievedShare,
            Metric::CpuSecondsPerMessage,
            Metric::DeliveryRatio,
            Metric::MessagesLost,
            Metric::Refused,
            Metric::OneWayUncertainty,
            Metric::Failures,
        ];
        [&Metric::ROUND_TRIP[..], &Metric::ONE_WAY, &others].concat()
    }

    fn speeds(&self) -> Vec<Metric> {
        vec![match (self.mode, self.rate) {
            (MessageMode::Serial, _) | (MessageMode::Broadcast, Some(_)) => Metric::OneWayP50,
            (MessageMode::SerialAck, _) | (MessageMode::Stream, Some(_)) => Metric::RoundTripP50,
            (MessageMode::Stream | MessageMode::Broadcast, None) => Metric::MessagesPerSecond,
        }]
    }

    fn costs(&self) -> Vec<Metric> {
        vec![Metric::CpuSecondsPerMessage]
    }

    /// The time that the messages take by their own schedule. Zero without one.
    fn duration(&self) -> Duration {
        match (self.amount, self.rate) {
            (Amount::Count(count), Some(rate)) => duration(count as f64 / f64::from(rate)),
            (amount, _) => amount.duration().unwrap_or_default(),
        }
    }

    fn pause(&self) -> Duration {
        match (self.amount, self.rate) {
            (Amount::Count(_), Some(rate)) => duration(f64::from(rate).recip()),
            _ => Duration::ZERO,
        }
    }

    /// A message waits until one that is a window before it is acknowledged. A broadcast waits for nothing.
    fn successive_round_trips(&self, _way: &Way) -> u64 {
        match (self.mode, self.amount) {
            (MessageMode::SerialAck | MessageMode::Stream, Amount::Count(count)) => {
                count.div_ceil(self.window.max(1).into())
            }
            _ => 0,
        }
    }

    fn is_in_process(&self) -> bool {
        self.mode == MessageMode::Serial
    }

    fn why_not_in_process(&self) -> Option<&'static str> {
        (self.mode == MessageMode::Broadcast)
            .then_some("a broadcast goes to separate processes, which memory cannot connect")
    }

    fn why_messaging_unsupported(&self, messaging: Messaging) -> Option<String> {
        (messaging == Messaging::Gossipsub && self.mode != MessageMode::Broadcast)
            .then(|| "gossipsub passes messages to all peers only: set the mode broadcast".into())
    }

    fn servers_of_peer(&self) -> usize {
        self.receivers as usize
    }

    fn is_stamped(&self) -> bool {
        self.mode != MessageMode::Serial && self.message_bytes >= Self::STAMPED
    }

    fn transfer(&self) -> Option<(Direction, Amount, u32)> {
        let amount = match (self.mode, self.amount) {
            // A message may be lost, and the loss is a result.
            (MessageMode::Broadcast, _) => return None,
            (_, Amount::Count(count)) => Amount::Count(count.saturating_mul(self.message_bytes.0)),
            (_, timed) => timed,
        };
        Some((Direction::Upload, amount, 1))
    }

    fn is_timed(&self) -> bool {
        true
    }

    fn client_files(&self, hosts: u64, _stream_is_connection: bool) -> u64 {
        FILES_OF_HOST * hosts * u64::from(self.receivers) + FILES_BESIDES
    }
}
