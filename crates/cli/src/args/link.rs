//! Options of `perfrun link`.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    str::FromStr,
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use perfrun_contract::quantity::{BitRate, Percent};
use perfrun_link::{
    Backend, Chance, Distribution, Impairment, Jitter, Loss, Prefix, Ratio, Reorder, impairment,
};

/// What to do with a link.
#[derive(Debug, Subcommand)]
pub enum Link {
    /// Impair what an interface sends to peers.
    Set(Box<Set>),
    /// Say what is at work on an interface, and how it is going.
    Show(Show),
    /// Measure a link from one end to the other, and compare it with what it should be.
    Probe(Box<Probe>),
    /// Remove an impairment, also one that a killed process has left behind.
    Clear(Clear),
}

const SET_NOTES: &str = "\
What is sent to the peers is impaired; what comes from them is impaired by them. All peers share one link. What was set \
before on this interface is replaced.

In the kernel the link stays as it is set until `perfrun link clear`; `tc qdisc` shows it. In user space it is impaired \
while this command runs: Ctrl-C or SIGTERM ends both. If it is killed, nothing passes to the peers until the link is set \
again or cleared.

Exit status:
  0    the link was set, and in user space removed again
  1    it could not be set, or its emulator has ended: standard error says why
  2    the command line was not understood";

/// Options of `perfrun link set`.
#[derive(Args, Debug)]
#[command(after_help = SET_NOTES)]
pub struct Set {
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Interface that sends.
    #[arg(long, short, default_value = "eth0")]
    pub interface: String,
    /// Addresses or prefixes of peers.
    #[arg(long, required = true, num_args = 1.., value_name = "PEER")]
    pub to: Vec<Prefix>,
    /// What happens to packets.
    #[command(flatten)]
    pub figures: Figures,
    /// Who impairs: the kernel, this process, or the kernel where it can.
    #[arg(long, default_value_t, value_name = "auto|kernel|userspace")]
    pub backend: Backend,
    /// Print JSON: one object when the link is set, and in user space another one when it has ended.
    #[arg(long)]
    pub json: bool,
}

/// Options of `perfrun link show`.
#[derive(Args, Debug)]
pub struct Show {
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Interface that sends.
    #[arg(long, short, default_value = "eth0")]
    pub interface: String,
    /// Say what would work here, also if something is at work.
    #[arg(long)]
    pub capabilities: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const PROBE_NOTES: &str = "\
One end answers, the other asks:
  perfrun link probe --netns b --serve
  perfrun link probe --netns a --to 10.0.0.2
On one machine, one command can be both:
  perfrun link probe --netns a --to-netns b --to 10.0.0.2

What the link should be is written as options of `perfrun link set` without their dashes, joined by commas: \
--forward delay=25ms,loss=1%. A rate that should be there is measured by filling the link; one of --backward only if \
this command is both ends.

Exit status:
  0    measured, and as it should be if that was said
  1    not as it should be, or not measured: standard error says why
  2    the command line was not understood";

/// Options of `perfrun link probe`.
#[derive(Args, Debug)]
#[command(after_help = PROBE_NOTES)]
pub struct Probe {
    /// Where this end is.
    #[command(flatten)]
    pub place: Place,
    /// Be the end that answers, until Ctrl-C.
    #[arg(long, conflicts_with_all = ["to", "to_netns", "to_pid", "forward", "backward", "fill", "json"])]
    pub serve: bool,
    /// Address of the end that answers.
    #[arg(long, required_unless_present = "serve", value_name = "ADDRESS[:PORT]")]
    pub to: Option<Peer>,
    /// Be the end that answers as well, in this network namespace.
    #[arg(long, value_name = "NAME|PATH", conflicts_with = "to_pid")]
    pub to_netns: Option<String>,
    /// The same, in the network namespace of a process.
    #[arg(long, value_name = "PID")]
    pub to_pid: Option<u32>,
    /// Address at this end [default: as routes have it].
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub from: Option<Peer>,
    /// What should happen to packets on the way there.
    #[arg(long, value_name = "FIGURES")]
    pub forward: Option<Expected>,
    /// What should happen to packets on the way back.
    #[arg(long, value_name = "FIGURES")]
    pub backward: Option<Expected>,
    /// Round trip without an impairment, as it was measured before one was set.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub base: Duration,
    /// How long to ask. Filling the link takes half as long.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub time: Duration,
    /// Fill the link with this rate, and say how much of it arrives.
    #[arg(long, value_name = "RATE")]
    pub fill: Option<BitRate>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `perfrun link clear`.
#[derive(Args, Debug)]
pub struct Clear {
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// Interface that sends.
    #[arg(long, short, default_value = "eth0")]
    pub interface: String,
}

/// A network namespace; by default the one that perfrun is in.
#[derive(Args, Clone, Debug, Default)]
pub struct Place {
    /// Network namespace, as `ip netns` lists it, or a file that stands for it.
    #[arg(long, value_name = "NAME|PATH", conflicts_with = "pid")]
    pub netns: Option<String>,
    /// The network namespace of a process.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
}

/// What happens to packets in one direction.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Impairment")]
pub struct Figures {
    /// How much later each packet arrives, e.g. 25ms.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub delay: Option<Duration>,
    /// How much the delay varies from packet to packet, e.g. 2ms.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub jitter: Option<Duration>,
    /// How delays spread.
    #[arg(long, requires = "jitter", value_name = "uniform|normal|pareto|paretonormal")]
    pub distribution: Option<Distribution>,
    /// How much a delay resembles the last one, e.g. 25%.
    #[arg(long, requires = "jitter", value_name = "SHARE")]
    pub correlation: Option<Percent>,
    /// Packets that are lost, each for itself, e.g. 1%.
    #[arg(long, value_name = "SHARE")]
    pub loss: Option<Percent>,
    /// How much the fate of a packet resembles that of the last one; prefer --burst.
    #[arg(long, requires = "loss", value_name = "SHARE")]
    pub loss_correlation: Option<Percent>,
    /// Losses that come together: the chances of a packet to be the last before bad times and the last in them, then the
    /// shares lost in bad [100%] and in good times [0%].
    #[arg(
        long,
        conflicts_with = "loss",
        value_name = "ENTER,LEAVE[,LOSS_IN_BAD[,LOSS_IN_GOOD]]"
    )]
    pub burst: Option<Burst>,
    /// Packets that arrive twice.
    #[arg(long, value_name = "SHARE")]
    pub duplicate: Option<Percent>,
    /// Packets that arrive with one wrong bit; most are then discarded for their checksum.
    #[arg(long, value_name = "SHARE")]
    pub corrupt: Option<Percent>,
    /// Packets that skip the delay, and so overtake others.
    #[arg(long, value_name = "SHARE")]
    pub reorder: Option<Percent>,
    /// Only every so many packets one may overtake.
    #[arg(long, requires = "reorder", value_name = "PACKETS")]
    pub reorder_gap: Option<NonZeroU32>,
    /// What the link carries, whole Ethernet frames counted, e.g. 100Mbit.
    #[arg(long, value_name = "RATE")]
    pub rate: Option<BitRate>,
    /// Packets that the link holds, on their way and waiting [default: what rate and delay make of it].
    #[arg(long, value_name = "PACKETS")]
    pub queue: Option<NonZeroU32>,
}

impl Figures {
    /// The same, if there can be such a link.
    pub fn impairment(&self) -> Result<Impairment, impairment::Problem> {
        let ratio = |share: Option<Percent>| share.map(Percent::ratio).filter(|ratio| !ratio.is_zero());
        let or_none = |share: Option<Percent>| ratio(share).unwrap_or_default();
        let chance = |share: Option<Percent>| {
            ratio(share).map(|ratio| Chance {
                ratio,
                correlation: Ratio::ZERO,
            })
        };
        let single = ratio(self.loss).map(|ratio| Loss::Random {
            ratio,
            correlation: or_none(self.loss_correlation),
        });
        let bursts = self.burst.as_ref().map(|burst| Loss::GilbertElliott {
            enter_bad: burst.enter.ratio(),
            leave_bad: burst.leave.ratio(),
            loss_in_bad: burst.loss_in_bad.map_or(Ratio::ONE, Percent::ratio),
            loss_in_good: or_none(burst.loss_in_good),
        });
        let impairment = Impairment {
            delay: self.delay.unwrap_or_default(),
            jitter: self
                .jitter
                .filter(|amount| !amount.is_zero())
                .map(|amount| Jitter {
                    amount,
                    distribution: self.distribution.unwrap_or_default(),
                    correlation: or_none(self.correlation),
                }),
            loss: bursts.or(single),
            duplicate: chance(self.duplicate),
            corrupt: chance(self.corrupt),
            reorder: ratio(self.reorder).map(|ratio| Reorder {
                ratio,
                correlation: Ratio::ZERO,
                gap: self.reorder_gap.unwrap_or(NonZeroU32::MIN),
            }),
            rate_bits_per_second: self.rate.map(BitRate::bits_per_second),
            limit_packets: self.queue,
        };
        impairment.check().map(|()| impairment)
    }
}

/// A link that is good or bad for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    enter: Percent,
    leave: Percent,
    loss_in_bad: Option<Percent>,
    loss_in_good: Option<Percent>,
}

impl FromStr for Burst {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shares: Vec<Percent> = text
            .split(',')
            .map(|share| share.trim().parse().map_err(|error| format!("{error}")))
            .collect::<Result<_, _>>()?;
        match shares[..] {
            [enter, leave, ref losses @ ..] if losses.len() <= 2 => Ok(Self {
                enter,
                leave,
                loss_in_bad: losses.first().copied(),
                loss_in_good: losses.get(1).copied(),
            }),
            _ => Err("write two to four shares, e.g. 1%,25%".to_owned()),
        }
    }
}

/// What a link should be: `delay=25ms,loss=1%`.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected(pub Impairment);

impl FromStr for Expected {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        #[derive(Parser)]
        #[command(no_binary_name = true, disable_help_flag = true)]
        struct Options {
            #[command(flatten)]
            figures: Figures,
        }
        let mut options: Vec<String> = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match options.last_mut() {
                // Another share of a burst.
                Some(last) if !part.contains('=') => *last = format!("{last},{part}"),
                _ => options.push(format!("--{}", part.trim())),
            }
        }
        let parsed = Options::try_parse_from(options).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.trim_start_matches("error: ").to_owned()
        })?;
        let impairment = parsed.figures.impairment();
        impairment.map(Self).map_err(|problem| problem.to_string())
    }
}

/// An address with or without a port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: Option<u16>,
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = text.parse::<SocketAddr>().map(|socket| Self {
            address: socket.ip(),
            port: Some(socket.port()),
        });
        let alone = || text.parse().map(|address| Self { address, port: None });
        whole
            .or_else(|_| alone())
            .map_err(|_| "write an address, 10.0.0.2, 10.0.0.2:7000, fd00::2 or [fd00::2]:7000".to_owned())
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<kube::core::Duration>().ok();
    let time = parsed.filter(|time| !time.is_negative());
    time.map(Into::into)
        .ok_or_else(|| "write a number and a unit: 25ms, 1.5s, 500us".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(text: &str) -> Result<Impairment, String> {
        text.parse::<Expected>().map(|expected| expected.0)
    }

    #[test]
    fn figures_become_an_impairment() {
        let all = "delay=25ms,jitter=2ms,distribution=normal,correlation=25%,burst=1%,25%,90%,0.1%,duplicate=0.1%,\
                   corrupt=0.01%,reorder=1%,reorder-gap=5,rate=100Mbit,queue=1000";
        let ratio = |percent| Ratio::from_percent(percent).unwrap();
        let chance = |percent| {
            Some(Chance {
                ratio: ratio(percent),
                correlation: Ratio::ZERO,
            })
        };
        let impairment = Impairment {
            delay: Duration::from_millis(25),
            jitter: Some(Jitter {
                amount: Duration::from_millis(2),
                distribution: Distribution::Normal,
                correlation: ratio(25.0),
            }),
            loss: Some(Loss::GilbertElliott {
                enter_bad: ratio(1.0),
                leave_bad: ratio(25.0),
                loss_in_bad: ratio(90.0),
                loss_in_good: ratio(0.1),
            }),
            duplicate: chance(0.1),
            corrupt: chance(0.01),
            reorder: Some(Reorder {
                ratio: ratio(1.0),
                correlation: Ratio::ZERO,
                gap: NonZeroU32::new(5).unwrap(),
            }),
            rate_bits_per_second: std::num::NonZeroU64::new(100_000_000),
            limit_packets: NonZeroU32::new(1000),
        };
        assert_eq!(expected(all), Ok(impairment));
        assert_eq!(expected(""), Ok(Impairment::default()));
        assert_eq!(expected("loss=0%"), Ok(Impairment::default()));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("dealy=25ms", "--dealy"),
            ("delay=25", "25ms"),
            ("delay=-1s", "25ms"),
            ("loss=1", "0.25%"),
            ("jitter=5ms", "set a delay of at least as much"),
            ("burst=1%", "two to four shares"),
            ("loss=1%,burst=1%,2%", "cannot be used with"),
            ("distribution=normal", "required"),
        ] {
            let error = expected(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn peers_have_a_port_or_not() {
        let peer = |text: &str| {
            let peer: Peer = text.parse().unwrap();
            (peer.address.to_string(), peer.port)
        };
        assert_eq!(peer("10.0.0.2"), ("10.0.0.2".to_owned(), None));
        assert_eq!(peer("10.0.0.2:7"), ("10.0.0.2".to_owned(), Some(7)));
        assert_eq!(peer("fd00::2"), ("fd00::2".to_owned(), None));
        assert_eq!(peer("[fd00::2]:7"), ("fd00::2".to_owned(), Some(7)));
        assert!("eth0".parse::<Peer>().is_err());
    }
}
