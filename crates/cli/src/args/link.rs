//! Options of `perfrun link`.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    str::FromStr,
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use perfrun_api::network::{Bursts, DirectionImpairment};
use perfrun_contract::quantity::{BitRate, Percent};
use perfrun_link::{Backend, Impairment, JitterDistribution, Prefix, impairment};

#[derive(Debug, Subcommand)]
pub enum LinkCommand {
    /// Impair the packets that an interface sends to peers.
    Set(Box<SetLink>),
    /// Show how an interface is impaired, and its packet counts.
    Show(ShowLink),
    /// Measure a link from one end to the other, and compare it with the expected impairment.
    Probe(Box<ProbeLink>),
    /// Remove an impairment, including one left behind by a killed process.
    Clear(ClearLink),
}

const SET_NOTES: &str = "\
Impairs packets sent to the peers; to impair packets from the peers, run the command there. All peers share one link. \
The command replaces any impairment that perfrun has set on this interface.

With the kernel backend, the impairment stays until `perfrun link clear`; `tc qdisc` shows it. In user space, it lasts \
while this command runs; Ctrl-C or SIGTERM removes it. If the command is killed, no packets reach the peers until the \
link is set again or cleared.";

/// Options of `perfrun link set`.
#[derive(Args, Debug)]
#[command(after_help = SET_NOTES)]
pub struct SetLink {
    #[command(flatten)]
    pub namespace: NetworkNamespace,
    /// Interface that sends the packets.
    #[arg(long, short, default_value = "eth0")]
    pub interface: String,
    /// Addresses or prefixes of the peers.
    #[arg(long, required = true, num_args = 1.., value_name = "PEER")]
    pub to: Vec<Prefix>,
    #[command(flatten)]
    pub impairment: ImpairmentOptions,
    /// What impairs the packets: the kernel, this process in user space, or the kernel if it can (auto).
    #[arg(long, default_value_t, value_name = "auto|kernel|userspace")]
    pub backend: Backend,
    /// Print JSON: one object when the impairment is set and, in user space, another when it is removed.
    #[arg(long)]
    pub json: bool,
}

/// Options of `perfrun link show`.
#[derive(Args, Debug)]
pub struct ShowLink {
    #[command(flatten)]
    pub namespace: NetworkNamespace,
    /// Interface that sends the packets.
    #[arg(long, short, default_value = "eth0")]
    pub interface: String,
    /// Show which backends work here, even if the interface is impaired.
    #[arg(long)]
    pub capabilities: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const PROBE_NOTES: &str = "\
One end answers, the other measures:
  perfrun link probe --netns b --serve
  perfrun link probe --netns a --to 10.0.0.2
On one machine, one command can be both ends:
  perfrun link probe --netns a --to-netns b --to 10.0.0.2

Write the expected impairment as options of `perfrun link set` without their dashes, separated by commas: \
--forward delay=25ms,loss=1%. An expected rate is measured by filling the link; that of --backward only if this \
command is both ends.";

/// Options of `perfrun link probe`.
#[derive(Args, Debug)]
#[command(after_help = PROBE_NOTES)]
pub struct ProbeLink {
    #[command(flatten)]
    pub namespace: NetworkNamespace,
    /// Answer measurements of the other end, until Ctrl-C.
    #[arg(long, conflicts_with_all = ["to", "to_netns", "to_pid", "forward", "backward", "fill", "json"])]
    pub serve: bool,
    /// Address of the end that answers (default port: 7065).
    #[arg(long, required_unless_present = "serve", value_name = "ADDRESS[:PORT]")]
    pub to: Option<PeerAddress>,
    /// Also answer, in this network namespace.
    #[arg(long, value_name = "NAME|PATH", conflicts_with = "to_pid")]
    pub to_netns: Option<String>,
    /// Also answer, in the network namespace of this process.
    #[arg(long, value_name = "PID")]
    pub to_pid: Option<u32>,
    /// Address of this end [default: chosen by the routing table].
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub from: Option<PeerAddress>,
    /// Expected impairment of packets to the other end.
    #[arg(long, value_name = "FIGURES")]
    pub forward: Option<Expected>,
    /// Expected impairment of packets from the other end.
    #[arg(long, value_name = "FIGURES")]
    pub backward: Option<Expected>,
    /// Round-trip time without impairment, measured before it was set.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub base: Duration,
    /// How long to measure round trips. Filling the link takes half that time.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub time: Duration,
    /// Fill the link at this rate, and measure the rate that arrives.
    #[arg(long, value_name = "RATE")]
    pub fill: Option<BitRate>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `perfrun link clear`.
#[derive(Args, Debug)]
pub struct ClearLink {
    #[command(flatten)]
    pub namespace: NetworkNamespace,
    /// Interface that sends the packets.
    #[arg(long, short, default_value = "eth0")]
    pub interface: String,
}

/// A network namespace, by default that of perfrun.
#[derive(Args, Clone, Debug, Default)]
pub struct NetworkNamespace {
    /// Network namespace: a name that `ip netns` lists, or the path of a namespace file.
    #[arg(long, value_name = "NAME|PATH", conflicts_with = "pid")]
    pub netns: Option<String>,
    /// Use the network namespace of this process.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
}

/// How packets in one direction are impaired.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Impairment")]
pub struct ImpairmentOptions {
    /// Delay of each packet, e.g. 25ms.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub delay: Option<Duration>,
    /// Variation of the delay from packet to packet, e.g. 2ms.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub jitter: Option<Duration>,
    /// Distribution of the delay [default: uniform].
    #[arg(long, requires = "jitter", value_name = "uniform|normal|pareto|paretonormal")]
    pub distribution: Option<JitterDistribution>,
    /// Correlation of each delay with the previous one, e.g. 25%.
    #[arg(long, requires = "jitter", value_name = "SHARE")]
    pub correlation: Option<Percent>,
    /// Share of packets that are lost, independently of each other, e.g. 1%.
    #[arg(long, value_name = "SHARE")]
    pub loss: Option<Percent>,
    /// Correlation of each loss with the previous one. Prefer --burst.
    #[arg(long, requires = "loss", value_name = "SHARE")]
    pub loss_correlation: Option<Percent>,
    /// Losses in bursts: the probabilities that a packet begins and ends a bad period, then the shares of
    /// packets lost in bad periods [100%] and in good ones [0%].
    #[arg(
        long,
        conflicts_with = "loss",
        value_parser = bursts,
        value_name = "ENTER,LEAVE[,LOSS_IN_BAD[,LOSS_IN_GOOD]]"
    )]
    pub burst: Option<Bursts>,
    /// Share of packets that arrive twice.
    #[arg(long, value_name = "SHARE")]
    pub duplicate: Option<Percent>,
    /// Share of packets that arrive with one wrong bit. Most are then discarded because of their checksum.
    #[arg(long, value_name = "SHARE")]
    pub corrupt: Option<Percent>,
    /// Share of packets that skip the delay and overtake others.
    #[arg(long, value_name = "SHARE")]
    pub reorder: Option<Percent>,
    /// Let at most one in this number of packets overtake others.
    #[arg(long, requires = "reorder", value_name = "PACKETS")]
    pub reorder_gap: Option<NonZeroU32>,
    /// Rate of the link, counting whole Ethernet frames, e.g. 100Mbit.
    #[arg(long, value_name = "RATE")]
    pub rate: Option<BitRate>,
    /// Number of packets that the link holds, in transit and waiting [default: derived from rate and delay].
    #[arg(long, value_name = "PACKETS")]
    pub queue: Option<NonZeroU32>,
}

impl ImpairmentOptions {
    /// The impairment that the options describe.
    pub fn to_impairment(&self) -> Result<Impairment, impairment::InvalidImpairment> {
        let direction = DirectionImpairment {
            delay: self.delay.map(Into::into),
            jitter: self.jitter.filter(|amount| !amount.is_zero()).map(Into::into),
            distribution: self.distribution,
            correlation: self.correlation,
            loss: self.loss,
            loss_correlation: self.loss_correlation,
            bursts: self.burst.clone(),
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            reorder: self.reorder,
            reorder_gap: self.reorder_gap.map(NonZeroU32::get),
            rate: self.rate,
            queue: self.queue.map(NonZeroU32::get),
        };
        let impairment = direction.impairment();
        impairment.check().map(|()| impairment)
    }
}

fn bursts(text: &str) -> Result<Bursts, String> {
    let shares: Vec<Percent> = text
        .split(',')
        .map(|share| share.trim().parse().map_err(|error| format!("{error}")))
        .collect::<Result<_, _>>()?;
    match shares[..] {
        [enter, leave, ref losses @ ..] if losses.len() <= 2 => Ok(Bursts {
            enter,
            leave,
            loss_in_bad: losses.first().copied(),
            loss_in_good: losses.get(1).copied(),
        }),
        _ => Err("write two to four shares, e.g. 1%,25%".to_owned()),
    }
}

/// The expected impairment of a link: `delay=25ms,loss=1%`.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected(pub Impairment);

impl FromStr for Expected {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        #[derive(Parser)]
        #[command(no_binary_name = true, disable_help_flag = true)]
        struct Options {
            #[command(flatten)]
            impairment: ImpairmentOptions,
        }
        let mut options: Vec<String> = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match options.last_mut() {
                // The next share of --burst.
                Some(last) if !part.contains('=') => *last = format!("{last},{part}"),
                _ => options.push(format!("--{}", part.trim())),
            }
        }
        let parsed = Options::try_parse_from(options).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.trim_start_matches("error: ").to_owned()
        })?;
        let impairment = parsed.impairment.to_impairment();
        impairment.map(Self).map_err(|problem| problem.to_string())
    }
}

/// The address of a peer, with or without a port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PeerAddress {
    pub address: IpAddr,
    pub port: Option<u16>,
}

impl FromStr for PeerAddress {
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

pub(super) fn time(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<kube::core::Duration>().ok();
    let time = parsed.filter(|time| !time.is_negative());
    time.map(Into::into)
        .ok_or_else(|| "write a number and a unit: 25ms, 1.5s, 500us".to_owned())
}

#[cfg(test)]
mod tests {
    use perfrun_link::{Chance, Jitter, Loss, Ratio, Reorder};

    use super::*;

    fn expected(text: &str) -> Result<Impairment, String> {
        text.parse::<Expected>().map(|expected| expected.0)
    }

    #[test]
    fn options_of_a_link_become_an_impairment() {
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
                distribution: JitterDistribution::Normal,
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
    fn invalid_impairments_are_refused_with_the_reason() {
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
            let peer: PeerAddress = text.parse().unwrap();
            (peer.address.to_string(), peer.port)
        };
        assert_eq!(peer("10.0.0.2"), ("10.0.0.2".to_owned(), None));
        assert_eq!(peer("10.0.0.2:7"), ("10.0.0.2".to_owned(), Some(7)));
        assert_eq!(peer("fd00::2"), ("fd00::2".to_owned(), None));
        assert_eq!(peer("[fd00::2]:7"), ("fd00::2".to_owned(), Some(7)));
        assert!("eth0".parse::<PeerAddress>().is_err());
    }
}
