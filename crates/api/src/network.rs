//! Networks: those of a document, and the presets.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a copy of each type, which no one else reaches"
)]

mod presets;
mod rules;

use std::num::NonZeroU32;

use kube::{KubeSchema, core::Duration};
use perfrun_contract::{
    network::NetworkImpairments,
    quantity::{BitRate, Percent},
};
use perfrun_link::{Backend, Chance, Impairment, Jitter, JitterDistribution, Loss, Ratio, Reorder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(crate) use self::presets::names as preset_names;
pub use self::presets::{PRESETS, Preset, preset};
use crate::{rule, structural::is_default};

/// A named condition of the links between servers and clients.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = rules::to_server_has_effect())]
#[x_kube(validation = rules::to_client_has_effect())]
#[x_kube(validation = rules::jitter_needs_delay())]
#[x_kube(validation = rules::distribution_needs_jitter())]
#[x_kube(validation = rules::reorder_needs_delay())]
#[x_kube(validation = rules::gap_needs_reorder())]
#[x_kube(validation = rules::correlation_needs_loss())]
#[x_kube(validation = rules::one_model_of_loss())]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// The name for `matrix.networks` and the results.
    #[schemars(length(max = 63))]
    #[x_kube(validation = rules::name())]
    pub name: String,
    /// What happens to packets, in each of the directions that `direction` names.
    #[serde(flatten)]
    pub impairment: DirectionImpairment,
    /// Impaired packets. `toServer`: those that clients send. `toClient`: those that servers send. `both`:
    /// all of them, so that a round trip takes twice the delay. Default: `both`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub direction: Directions,
    /// Differences on the way to servers: fields set here replace those above.
    pub to_server: Option<DirectionImpairment>,
    /// Differences on the way to clients: fields set here replace those above.
    pub to_client: Option<DirectionImpairment>,
    /// Links of a relay, where they differ from those above. A link that is not set here is like the one
    /// between a client and a server, with the relay in place of the other end.
    pub relay: Option<RelayLinks>,
    /// What impairs packets. `kernel`: sch_netem. `userspace`: a process of perfrun. `auto`: the kernel if it
    /// can, and perfrun otherwise. Results record which one it was. Default: `auto`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub backend: Backend,
}

/// Links of a relay, each with the same impairment in both directions. They inherit nothing: a field that is
/// not set has no effect.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayLinks {
    /// Between clients and the relay.
    pub client: Option<DirectionImpairment>,
    /// Between servers and the relay.
    pub server: Option<DirectionImpairment>,
}

/// What happens to packets in one direction. The terms are those of tc-netem(8).
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DirectionImpairment {
    /// How much later each packet arrives, one way.
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::duration("0ms", "60s"))]
    pub delay: Option<Duration>,
    /// How much the delay varies from packet to packet: the half width of a uniform distribution, the
    /// standard deviation of a normal one, the scale of the others. Packets overtake each other, unless
    /// `rate` is set.
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::duration("1us", "2s"))]
    pub jitter: Option<Duration>,
    /// Distribution of the delays. Default: `uniform`.
    pub distribution: Option<JitterDistribution>,
    /// How much a delay resembles the previous one, e.g. `25%`.
    #[x_kube(validation = rule::percent())]
    pub correlation: Option<Percent>,
    /// Share of packets that are lost independently, e.g. `0.1%`.
    #[x_kube(validation = rule::percent())]
    pub loss: Option<Percent>,
    /// How much the loss of a packet depends on that of the previous one. This also changes the share of lost
    /// packets: for losses in bursts, prefer `bursts`.
    #[x_kube(validation = rule::percent())]
    pub loss_correlation: Option<Percent>,
    /// Losses in bursts (the Gilbert-Elliott model): the link alternates between good and bad periods.
    pub bursts: Option<Bursts>,
    /// Share of packets that arrive twice.
    #[x_kube(validation = rule::percent())]
    pub duplicate: Option<Percent>,
    /// Share of packets that arrive with one wrong bit. Most of them are then discarded because of their
    /// checksum.
    #[x_kube(validation = rule::percent())]
    pub corrupt: Option<Percent>,
    /// Share of packets that skip the delay, and so overtake others.
    #[x_kube(validation = rule::percent())]
    pub reorder: Option<Percent>,
    /// Only one packet in this number may overtake others.
    #[x_kube(validation = rule::integer(1, 1_000_000))]
    pub reorder_gap: Option<u32>,
    /// Bits per second that the link carries, e.g. `100Mbit`, counting whole Ethernet frames. All peers of a
    /// node share them, like hosts behind one line.
    #[x_kube(validation = rule::bit_rate())]
    pub rate: Option<BitRate>,
    /// Packets that the link holds, in transit and waiting; more are dropped. The default follows from rate
    /// and delay, with room for another round trip. It is never netem's own 1000, which would limit the rate.
    #[x_kube(validation = rule::integer(1, 100_000_000))]
    pub queue: Option<u32>,
}

/// A link that alternates between good and bad periods.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bursts {
    /// Probability that a packet of a good period is its last one.
    #[x_kube(validation = rule::percent())]
    pub enter: Percent,
    /// Probability that a packet of a bad period is its last one: `10%` makes bad periods ten packets long on
    /// average.
    #[x_kube(validation = rule::percent())]
    pub leave: Percent,
    /// Share of packets lost in bad periods. Default: all.
    #[x_kube(validation = rule::percent())]
    pub loss_in_bad: Option<Percent>,
    /// Share of packets lost in good periods. Default: none.
    #[x_kube(validation = rule::percent())]
    pub loss_in_good: Option<Percent>,
}

/// Direction of the impaired packets.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Directions {
    /// All packets.
    #[default]
    Both,
    /// Packets that clients send.
    ToServer,
    /// Packets that servers send.
    ToClient,
}

/// The figures of a network contradict each other.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("network {name}, {direction}: {problem}")]
pub struct ImpossibleNetwork {
    /// Name of the network.
    pub name: String,
    /// The direction with these figures, in words.
    pub direction: &'static str,
    /// What is wrong with the figures.
    pub problem: String,
}

impl Network {
    /// The figures of all links, with all defaults filled in.
    pub fn impairments(&self) -> Result<NetworkImpairments, ImpossibleNetwork> {
        let checked = |configured: &DirectionImpairment, direction: &'static str| {
            let impairment = configured.impairment();
            let checked = configured
                .check()
                .and_then(|()| impairment.check().map_err(|bad| bad.to_string()));
            checked.map(|()| impairment).map_err(|problem| ImpossibleNetwork {
                name: self.name.clone(),
                direction,
                problem,
            })
        };
        let of_direction = |direction: Directions, own: &Option<DirectionImpairment>, words: &'static str| {
            if self.direction != Directions::Both && self.direction != direction {
                return Ok(Impairment::default());
            }
            checked(&self.impairment.with(own), words)
        };
        let of_relay = |own: fn(&RelayLinks) -> &Option<DirectionImpairment>, words: &'static str| {
            let configured = self.relay.as_ref().and_then(|links| own(links).as_ref());
            configured
                .map(|configured| checked(configured, words))
                .transpose()
        };
        Ok(NetworkImpairments {
            client_relay: of_relay(|links| &links.client, "between clients and relay")?,
            server_relay: of_relay(|links| &links.server, "between servers and relay")?,
            name: self.name.clone(),
            to_server: of_direction(Directions::ToServer, &self.to_server, "to servers")?,
            to_client: of_direction(Directions::ToClient, &self.to_client, "to clients")?,
            backend: self.backend,
        })
    }
}

impl DirectionImpairment {
    /// These figures, replaced by those that `own` sets.
    fn with(&self, own: &Option<Self>) -> Self {
        let own = own.clone().unwrap_or_default();
        // One model of loss replaces the other.
        let keeps_loss = own.loss.is_none() && own.bursts.is_none();
        Self {
            delay: own.delay.or(self.delay),
            jitter: own.jitter.or(self.jitter),
            distribution: own.distribution.or(self.distribution),
            correlation: own.correlation.or(self.correlation),
            loss: own.loss.or(self.loss.filter(|_| keeps_loss)),
            loss_correlation: own
                .loss_correlation
                .or(self.loss_correlation.filter(|_| keeps_loss)),
            bursts: own.bursts.or_else(|| self.bursts.clone().filter(|_| keeps_loss)),
            duplicate: own.duplicate.or(self.duplicate),
            corrupt: own.corrupt.or(self.corrupt),
            reorder: own.reorder.or(self.reorder),
            reorder_gap: own.reorder_gap.or(self.reorder_gap),
            rate: own.rate.or(self.rate),
            queue: own.queue.or(self.queue),
        }
    }

    /// Checks that no figure describes another one that is missing. The rules of the resource see each
    /// direction alone, without what it inherits.
    fn check(&self) -> Result<(), String> {
        let describes =
            |what: &str, of: &str| Err(format!("{what} describes {of}, but no {of} is set: set {of}"));
        if self.jitter.is_none() && (self.distribution.is_some() || self.correlation.is_some()) {
            return describes("distribution or correlation", "jitter");
        }
        if self.loss.is_none() && self.loss_correlation.is_some() {
            return describes("lossCorrelation", "loss");
        }
        if self.reorder.is_none() && self.reorder_gap.is_some() {
            return describes("reorderGap", "reorder");
        }
        Ok(())
    }

    /// The impairment that the figures describe, whose [`Impairment::check`] finds contradictions.
    pub fn impairment(&self) -> Impairment {
        let ratio = |percent: Option<Percent>| percent.map(Percent::ratio).filter(|ratio| !ratio.is_zero());
        let correlation = |percent| ratio(percent).unwrap_or_default();
        let chance = |percent| {
            Some(Chance {
                ratio: ratio(percent)?,
                correlation: Ratio::ZERO,
            })
        };
        let bursts = self.bursts.as_ref().map(|bursts| Loss::GilbertElliott {
            enter_bad: bursts.enter.ratio(),
            leave_bad: bursts.leave.ratio(),
            loss_in_bad: bursts.loss_in_bad.map_or(Ratio::ONE, Percent::ratio),
            loss_in_good: correlation(bursts.loss_in_good),
        });
        Impairment {
            delay: self.delay.map(Into::into).unwrap_or_default(),
            jitter: self.jitter.map(|amount| Jitter {
                amount: amount.into(),
                distribution: self.distribution.unwrap_or_default(),
                correlation: correlation(self.correlation),
            }),
            loss: bursts.or_else(|| {
                Some(Loss::Random {
                    ratio: ratio(self.loss)?,
                    correlation: correlation(self.loss_correlation),
                })
            }),
            duplicate: chance(self.duplicate),
            corrupt: chance(self.corrupt),
            reorder: ratio(self.reorder).map(|ratio| Reorder {
                ratio,
                correlation: Ratio::ZERO,
                gap: self
                    .reorder_gap
                    .and_then(NonZeroU32::new)
                    .unwrap_or(NonZeroU32::MIN),
            }),
            rate_bits_per_second: self.rate.map(BitRate::bits_per_second),
            limit_packets: self.queue.and_then(NonZeroU32::new),
        }
    }
}
