//! The published tools against perfrun-node in their place: each client with each server over one link, in
//! turn, with the sizes, security, negotiation and writes of the published tool.
//!
//! Four pairs tell apart which side a difference comes from. Versions of the stacks differ: libp2p-perf 0.3
//! is built on libp2p 0.53, and a program that the user has built may be of any version. iperf3 has two
//! pairs, because perfrun-node does not speak its protocol.

mod tool;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use perfrun_judge::Location;
use perfrun_local::{Slot, nodes::Program};
use strum::VariantNames;

use self::tool::Tool;
use crate::testbed::{Testbed, inside, listen, median};

const PORT: u16 = 4001;
/// An interval misses with this probability.
const ALPHA: f64 = 0.05;
/// An interval of this level needs this number of rounds.
pub(crate) const ROUNDS_MIN: u32 = 6;

/// A tool and its program, given as `NAME=PATH`.
#[derive(Clone, Debug)]
pub(crate) struct PublishedProgram {
    tool: Tool,
    program: PathBuf,
}

impl FromStr for PublishedProgram {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = text.split_once('=').and_then(|(name, path)| {
            Some(Self {
                tool: name.parse().ok()?,
                program: path.into(),
            })
        });
        pair.ok_or_else(|| {
            format!(
                "must be NAME=PATH, with NAME one of {}",
                Tool::VARIANTS.join(", ")
            )
        })
    }
}

/// One end of a transfer.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Published,
    Node,
}

/// Client and server; the reference is first.
static PAIRS: [(End, End); 4] = [
    (End::Published, End::Published),
    (End::Node, End::Node),
    (End::Published, End::Node),
    (End::Node, End::Published),
];

/// Goodput in bit/s.
struct Rates {
    upload: f64,
    download: f64,
}

pub(crate) async fn run(peers: &[PublishedProgram], rounds: u32) -> Result<()> {
    ensure!(
        !peers.is_empty(),
        "name a tool: --peer NAME=PATH (`cargo xtask bench peers` takes iperf3 and builds libp2p's perf if \
         none is named)"
    );
    let testbed = Testbed::of("raw", "tcp", "ping: {count: 1}").await?;
    let (server, client) = testbed.ends()?;
    let node = Program::beside_this_one("--node")?;
    for peer in peers {
        for transport in peer.tool.transports() {
            let ends = Ends {
                published: peer,
                node: &node,
                transport,
                server,
                client,
            };
            ends.compare(rounds).await?;
        }
    }
    testbed.nodes.stop().await;
    Ok(())
}

/// The server and the client of a pair, in their namespaces, and the programs that they may run.
struct Ends<'a> {
    published: &'a PublishedProgram,
    node: &'a Path,
    transport: &'static str,
    server: &'a Slot,
    client: &'a Slot,
}

impl Ends<'_> {
    async fn compare(&self, rounds: u32) -> Result<()> {
        let PublishedProgram { tool, program } = self.published;
        let name = tool.name(program).await?;
        let pairs = tool.pairs();
        let mut rates: Vec<Vec<Rates>> = pairs.iter().map(|_| vec![]).collect();
        for round in 0..rounds as usize {
            for place in 0..pairs.len() {
                // Another pair is first in each round, so that none always runs right after the same one.
                let place = (place + round) % pairs.len();
                rates[place].push(self.measure(pairs[place]).await?);
            }
        }
        println!(
            "\n{name} over {}, {} MiB, perfrun-node in writes of {} KiB, {rounds} rounds;\n{}:",
            self.transport,
            tool.size() >> 20,
            tool.chunk_kibibytes(),
            tool.clock()
        );
        println!(
            "{:<27} {:<9} {:>12} {:>10}  95 % interval of the ratio",
            "client → server", "direction", "Gbit/s", "ratio"
        );
        for direction in ["upload", "download"] {
            let of = |rates: &[Rates]| -> Vec<f64> {
                let rate = |rates: &Rates| match direction {
                    "upload" => rates.upload,
                    _ => rates.download,
                };
                rates.iter().map(rate).collect()
            };
            let reference = of(&rates[0]);
            for ((client, server), rates) in pairs.iter().zip(&rates) {
                let rates = of(rates);
                let ratios: Vec<f64> = rates.iter().zip(&reference).map(|(a, b)| (a / b).ln()).collect();
                let located = Location::of(&ratios, ALPHA).context("there is a round")?;
                let (least, most) = located.interval.context("there are enough rounds")?;
                println!(
                    "{:<27} {direction:<9} {:>12.3} {:>10.3}  {:.3} to {:.3}",
                    format!("{} → {}", client.name(program), server.name(program)),
                    median(&rates) / 1e9,
                    located.estimate.exp(),
                    least.exp(),
                    most.exp(),
                );
            }
        }
        Ok(())
    }

    async fn measure(&self, pair: (End, End)) -> Result<Rates> {
        let size = self.published.tool.size();
        if self.published.tool.times_both() {
            return self.transfer(pair, size, size).await;
        }
        Ok(Rates {
            upload: self.transfer(pair, size, 0).await?.upload,
            download: self.transfer(pair, 0, size).await?.download,
        })
    }

    /// A transfer with a server of its own: that of iperf3 does not listen for a moment after each client.
    async fn transfer(&self, (client, server): (End, End), up: u64, down: u64) -> Result<Rates> {
        let tool = self.published.tool;
        let at = SocketAddr::new(self.server.addresses().v4.into(), PORT);
        let args = tool.serve(server, self.transport, at);
        let mut listening = listen(self.server, self.program(server), &args).await?;
        let program = self.program(client);
        let output = inside(self.client, program)?
            .args(tool.dial(client, self.transport, at, up, down))
            .env("RUST_LOG", "litep2p-perf=info")
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(Duration::from_mins(2), output)
            .await
            .with_context(|| format!("{} did not end within two minutes", program.display()))??;
        listening.kill().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{} failed: {text}{}",
            program.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        tool.rates(client, &text, up, down)
            .with_context(|| format!("{} printed no time: {text}", program.display()))
    }

    fn program(&self, end: End) -> &Path {
        match end {
            End::Published => &self.published.program,
            End::Node => self.node,
        }
    }
}

impl End {
    fn name(self, published: &Path) -> String {
        match self {
            Self::Published => published
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            Self::Node => "perfrun-node".to_owned(),
        }
    }
}
