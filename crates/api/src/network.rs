//! Conditions of the links between nodes, by name: what a document says of them, and the presets.

mod presets;

use std::num::NonZeroU32;

use kube::{KubeSchema, core::Duration};
use perfrun_contract::{
    network::Conditions,
    quantity::{BitRate, Percent},
};
use perfrun_link::{Backend, Chance, Distribution, Impairment, Jitter, Loss, Ratio, Reorder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(crate) use self::presets::known;
pub use self::presets::{PRESETS, Preset, preset};
use crate::rule;

/// A condition of the links between servers and clients, under a name.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("!has(self.toServer) || self.direction != 'toClient'").message("toServer has no effect with direction: toClient"))]
#[x_kube(validation = Rule::new("!has(self.toClient) || self.direction != 'toServer'").message("toClient has no effect with direction: toServer"))]
#[x_kube(validation = Rule::new("!has(self.jitter) || has(self.delay)").message("jitter varies the delay, and there is none: set delay, to at least as much as jitter"))]
#[x_kube(validation = Rule::new("has(self.jitter) || !(has(self.distribution) || has(self.correlation))").message("distribution and correlation describe jitter, and there is none: set jitter"))]
#[x_kube(validation = Rule::new("!has(self.reorder) || has(self.delay)").message("packets overtake by skipping the delay, and there is none: set delay, or leave reorder out"))]
#[x_kube(validation = Rule::new("has(self.reorder) || !has(self.reorderGap)").message("reorderGap says which packets reorder may pick: set reorder"))]
#[x_kube(validation = Rule::new("has(self.loss) || !has(self.lossCorrelation)").message("lossCorrelation describes loss: set loss"))]
#[x_kube(validation = Rule::new("!has(self.loss) || !has(self.bursts)").message("set either loss, for packets lost one by one, or bursts"))]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// The name that `matrix.networks` and the results use. It must not be that of a preset.
    #[schemars(length(max = 63))]
    #[x_kube(validation = presets::own_name())]
    pub name: String,
    /// What happens to packets, in each of the directions that `direction` names.
    #[serde(flatten)]
    pub way: Way,
    /// Which packets it happens to: `toServer`, those that clients send; `toClient`, those that servers send; `both`, all
    /// of them, so that a round trip takes twice the delay.
    #[serde(default)]
    pub direction: Heading,
    /// What differs on the way to servers: fields that are set here replace those above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_server: Option<Way>,
    /// What differs on the way to clients: fields that are set here replace those above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_client: Option<Way>,
    /// The links of a relay, where they differ from those above. What is not set here is as between a client and a server,
    /// with the relay in the place of the other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayLinks>,
    /// Who impairs: `kernel`, sch_netem; `userspace`, a process of perfrun; `auto`, the kernel where it can, and
    /// perfrun elsewhere. Results record which one it was.
    #[serde(default)]
    pub backend: Backend,
}

/// Links of a relay, each the same in both directions. What is not set in one of them does not happen on it.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayLinks {
    /// Between clients and the relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Way>,
    /// Between servers and the relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Way>,
}

/// What happens to packets in one direction. Terms and meaning are those of tc-netem(8).
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Way {
    /// How much later each packet arrives, one way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::duration("0ms", "60s"))]
    pub delay: Option<Duration>,
    /// How much the delay varies from packet to packet: the half width of a uniform distribution, the standard deviation
    /// of a normal one, the scale of the others. Packets overtake each other, unless there is a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rule::duration("1us", "2s"))]
    pub jitter: Option<Duration>,
    /// How delays spread: `uniform` (the default), `normal`, `pareto` or `paretonormal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// How much a delay resembles the last one, e.g. `25%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::percent())]
    pub correlation: Option<Percent>,
    /// The share of packets that is lost, each for itself, e.g. `0.1%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::percent())]
    pub loss: Option<Percent>,
    /// How much the fate of a packet resembles that of the last one. This changes the share that is lost, too: for losses
    /// that come together, prefer `bursts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::percent())]
    pub loss_correlation: Option<Percent>,
    /// Losses that come together (the Gilbert-Elliott model): a link that is good or bad for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<Bursts>,
    /// The share of packets that arrives twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::percent())]
    pub duplicate: Option<Percent>,
    /// The share of packets that arrives with one wrong bit. Most are then discarded for their checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::percent())]
    pub corrupt: Option<Percent>,
    /// The share of packets that skips the delay, and so overtakes others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::percent())]
    pub reorder: Option<Percent>,
    /// Only every so many packets one may overtake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::integer(1, 1_000_000))]
    pub reorder_gap: Option<u32>,
    /// Bits per second that the link carries, e.g. `100Mbit`, counting whole Ethernet frames. All peers of a node share
    /// them, as hosts behind one line do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::bit_rate())]
    pub rate: Option<BitRate>,
    /// Packets that the link holds, on their way and waiting; more are dropped. By default what rate and delay make of
    /// it, and room for another round trip: never netem's own 1000, which would limit the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::integer(1, 100_000_000))]
    pub queue: Option<u32>,
}

/// A link that is good or bad for a while.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bursts {
    /// The chance of a packet in good times to be the last in them.
    #[x_kube(validation = rule::percent())]
    pub enter: Percent,
    /// The chance of a packet in bad times to be the last in them: `10%` makes bad times ten packets long on average.
    #[x_kube(validation = rule::percent())]
    pub leave: Percent,
    /// The share that is lost in bad times; all of them, if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::percent())]
    pub loss_in_bad: Option<Percent>,
    /// The share that is lost in good times; none, if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::percent())]
    pub loss_in_good: Option<Percent>,
}

/// Which packets something happens to.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Heading {
    /// All of them.
    #[default]
    Both,
    /// Those that clients send.
    ToServer,
    /// Those that servers send.
    ToClient,
}

/// A network with figures that no link can have.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("network {name}, {way}: {problem}")]
pub struct Impossible {
    /// Its name.
    pub name: String,
    /// In which direction.
    pub way: &'static str,
    /// What is wrong.
    pub problem: String,
}

impl Network {
    /// The figures of both directions.
    pub fn conditions(&self) -> Result<Conditions, Impossible> {
        let checked = |way: &Way, words: &'static str| {
            let impairment = way.impairment();
            let checked = way
                .check()
                .and_then(|()| impairment.check().map_err(|bad| bad.to_string()));
            checked.map(|()| impairment).map_err(|problem| Impossible {
                name: self.name.clone(),
                way: words,
                problem,
            })
        };
        let way = |heading: Heading, own: &Option<Way>, words: &'static str| {
            if self.direction != Heading::Both && self.direction != heading {
                return Ok(Impairment::default());
            }
            checked(&self.way.with(own), words)
        };
        let of_relay = |own: fn(&RelayLinks) -> &Option<Way>, words: &'static str| {
            let way = self.relay.as_ref().and_then(|links| own(links).as_ref());
            way.map(|way| checked(way, words)).transpose()
        };
        Ok(Conditions {
            client_relay: of_relay(|links| &links.client, "between clients and relay")?,
            server_relay: of_relay(|links| &links.server, "between servers and relay")?,
            name: self.name.clone(),
            to_server: way(Heading::ToServer, &self.to_server, "to servers")?,
            to_client: way(Heading::ToClient, &self.to_client, "to clients")?,
            backend: self.backend,
        })
    }
}

impl Way {
    /// These figures, and the other's where it has any.
    fn with(&self, own: &Option<Self>) -> Self {
        let own = own.clone().unwrap_or_default();
        // One model of loss takes the place of the other.
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

    /// Looks for figures that describe others which are not there. The rules of the resource see each direction only by
    /// itself, and not what it takes from both.
    fn check(&self) -> Result<(), String> {
        let describes =
            |what: &str, of: &str| Err(format!("{what} describes {of}, and there is none: set {of}"));
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

    fn impairment(&self) -> Impairment {
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
