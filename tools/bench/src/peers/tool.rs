//! Options and output of the published tools, and of perfrun-node in their place.

use std::{net::SocketAddr, path::Path};

use anyhow::Result;
use strum::{EnumString, VariantNames};

use super::{End, PAIRS, Rates};
use crate::iperf::{self, SAME, words};

/// The text of `--node-key` that litep2p-perf documents.
const NODE_KEY: &str = "secret";
/// The peer id of [`NODE_KEY`].
const PEER_ID: &str = "12D3KooWBpZHDZu7YSbvPaPXKhkRNJvR7MkTJMQQAVBKx9mCqz3q";

/// A published tool.
#[derive(Clone, Copy, Debug, EnumString, PartialEq, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Tool {
    /// rust-libp2p's perf. That of go-libp2p has the same options, but writes 64 KiB at a time.
    Perf,
    /// litep2p-perf with litep2p.
    #[strum(serialize = "litep2p-perf")]
    Litep2pPerf,
    /// litep2p-perf with libp2p.
    #[strum(serialize = "litep2p-perf-libp2p")]
    Litep2pPerfLibp2p,
    /// iperf3, with the node's raw TCP in its place.
    #[strum(serialize = "iperf3")]
    Iperf3,
}

impl Tool {
    /// The name in the heading. For iperf3 it has the version.
    pub(super) async fn name(self, program: &Path) -> Result<String> {
        Ok(match self {
            Self::Perf => "perf".to_owned(),
            Self::Litep2pPerf => "litep2p-perf (litep2p)".to_owned(),
            Self::Litep2pPerfLibp2p => "litep2p-perf (libp2p)".to_owned(),
            Self::Iperf3 => iperf::version(program).await?,
        })
    }

    /// The pairs that understand each other.
    pub(super) fn pairs(self) -> &'static [(End, End)] {
        match self {
            Self::Iperf3 => &PAIRS[..2],
            // The published servers read blocks of 1 KiB. If the end of our upload shares a block with the
            // size of the download, they miss the size, and wait for ever.
            Self::Litep2pPerf | Self::Litep2pPerfLibp2p => &PAIRS[..3],
            Self::Perf => &PAIRS,
        }
    }

    /// Bytes of one transfer, which takes a few tenths of a second.
    pub(super) fn size(self) -> u64 {
        match self {
            Self::Iperf3 => 1 << 30,
            _ => 256 << 20,
        }
    }

    /// The size of one write.
    pub(super) fn chunk_kibibytes(self) -> u32 {
        match self {
            Self::Iperf3 => 64,
            _ => 1,
        }
    }

    /// What the printed times cover.
    pub(super) fn clock(self) -> &'static str {
        match self {
            Self::Perf => "from the dial to the last byte",
            Self::Litep2pPerf | Self::Litep2pPerfLibp2p => {
                "an upload ends with its last write, a download begins with its request"
            }
            Self::Iperf3 => "the rate at which the receiver reads",
        }
    }

    pub(super) fn transports(self) -> &'static [&'static str] {
        match self {
            Self::Perf => &["tcp", "quic-v1"],
            Self::Litep2pPerf | Self::Litep2pPerfLibp2p | Self::Iperf3 => &["tcp"],
        }
    }

    /// Whether one exchange uploads and then downloads, and prints both times.
    pub(super) fn times_both(self) -> bool {
        !matches!(self, Self::Perf | Self::Iperf3)
    }

    /// The arguments of a server.
    pub(super) fn serve(self, end: End, transport: &str, at: SocketAddr) -> Vec<String> {
        match (self, end) {
            (Self::Perf, End::Published) => words(&format!("--run-server --server-address {at}")),
            // The published client of go-libp2p dials this identity only.
            (Self::Perf, End::Node) => {
                let options = self.options(transport);
                words(&format!("server {options} --listen {at} --node-key-seed 0"))
            }
            (Self::Iperf3, End::Published) => words(&iperf::serve(at)),
            (Self::Iperf3, End::Node) => {
                let options = self.options(transport);
                words(&format!("server {options} --listen {at}"))
            }
            (_, End::Published) => {
                let listen = multiaddr(at);
                words(&format!("server --listen-address {listen} --node-key {NODE_KEY}"))
            }
            (_, End::Node) => {
                let (options, listen) = (self.options(transport), multiaddr(at));
                words(&format!(
                    "server {options} --listen {listen} --node-key {NODE_KEY}"
                ))
            }
        }
    }

    /// The arguments of a client, which transfers these bytes.
    pub(super) fn dial(self, end: End, transport: &str, at: SocketAddr, up: u64, down: u64) -> Vec<String> {
        let bytes = format!("--upload-bytes {up} --download-bytes {down}");
        let options = self.options(transport);
        let server = format!("{}/p2p/{PEER_ID}", multiaddr(at));
        match (self, end) {
            (Self::Perf, End::Published) => {
                words(&format!("--server-address {at} --transport {transport} {bytes}"))
            }
            (Self::Perf, End::Node) => words(&format!(
                "client {options} --negotiation v1lazy --server {at} {bytes}"
            )),
            (Self::Iperf3, End::Published) => {
                let reverse = if down > 0 { "-R" } else { "" };
                words(&iperf::dial(at, &format!("{SAME} -n {} {reverse}", up + down)))
            }
            (Self::Iperf3, End::Node) => {
                words(&format!("client {options} --timing strict --server {at} {bytes}"))
            }
            (_, End::Published) => words(&format!("client --server-address {server} {bytes}")),
            (_, End::Node) => words(&format!(
                "client {options} --timing compat --server {server} {bytes}"
            )),
        }
    }

    /// What makes perfrun-node equal to this tool.
    fn options(self, transport: &str) -> String {
        let (stack, transport, protocol) = match self {
            // The published programs of Rust use TLS over TCP.
            Self::Perf if transport == "tcp" => ("libp2p", "tcp-tls", "perf"),
            Self::Perf => ("libp2p", transport, "perf"),
            Self::Litep2pPerf => ("litep2p", transport, "litep2p-perf"),
            Self::Litep2pPerfLibp2p => ("libp2p", transport, "litep2p-perf"),
            Self::Iperf3 => ("raw", transport, "perf"),
        };
        let chunk = self.chunk_kibibytes();
        format!("--stack {stack} --transport {transport} --protocol {protocol} --chunk-bytes {chunk}Ki")
    }

    /// Goodput according to what a client printed. `None` if it printed no time. The rate of a direction
    /// without a transfer has no meaning.
    pub(super) fn rates(self, end: End, printed: &str, up: u64, down: u64) -> Option<Rates> {
        let [upload, download] = match (self, end) {
            (Self::Perf, _) => {
                let seconds = last(printed)?["timeSeconds"].as_f64();
                [seconds, seconds]
            }
            (Self::Iperf3, End::Published) => {
                let rate = iperf::goodput(printed.as_bytes()).ok()?;
                return Some(Rates {
                    upload: rate,
                    download: rate,
                });
            }
            (Self::Iperf3, End::Node) => {
                let direction = if up > 0 { "upload" } else { "download" };
                let seconds = last(printed)?[direction]["seconds"].as_f64();
                [seconds, seconds]
            }
            (_, End::Node) => {
                let last = last(printed)?;
                ["upload", "download"].map(|direction| last[direction]["seconds"].as_f64())
            }
            (_, End::Published) => ["Uploaded ", "Downloaded "].map(|verb| seconds_of_log(printed, verb)),
        };
        let rate = |bytes: u64, seconds: f64| bytes as f64 * 8.0 / seconds;
        Some(Rates {
            upload: rate(up, upload?),
            download: rate(down, download?),
        })
    }
}

fn multiaddr(at: SocketAddr) -> String {
    format!("/ip4/{}/tcp/{}", at.ip(), at.port())
}

/// The final line of a tool that prints JSON.
fn last(printed: &str) -> Option<serde_json::Value> {
    let lines = printed.lines().rev();
    lines
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find(|line| line["type"] == "final")
}

/// The seconds in a line `… Uploaded 64.00 MiB bytes in 0.1234s bandwidth …`.
fn seconds_of_log(printed: &str, verb: &str) -> Option<f64> {
    let (_, after) = printed.split_once(verb)?;
    let (_, after) = after.split_once(" in ")?;
    let (seconds, _) = after.split_once("s bandwidth")?;
    seconds.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(tool: Tool, end: End, printed: &str) -> Option<(f64, f64)> {
        let rates = tool.rates(end, printed, 1_000_000, 2_000_000)?;
        Some((rates.upload, rates.download))
    }

    #[test]
    fn the_final_line_of_a_perf_tool_counts() {
        let printed = "{\"type\":\"intermediate\",\"timeSeconds\":1.0,\"uploadBytes\":5,\"downloadBytes\":0}\n\
                       {\"type\":\"final\",\"timeSeconds\":2.0,\"uploadBytes\":1000000,\"downloadBytes\":0}\n";
        assert_eq!(rates(Tool::Perf, End::Published, printed), Some((4e6, 8e6)));
        let (intermediate, _) = printed.split_once('\n').unwrap();
        assert_eq!(rates(Tool::Perf, End::Node, intermediate), None);
    }

    #[test]
    fn litep2p_perf_logs_its_times() {
        let printed = "2026-11-26T14:00:00Z  INFO litep2p-perf: Uploaded 0.95 MB bytes in 0.5000s bandwidth 15.26 Mbit/s\n\
                       2026-11-26T14:00:01Z  INFO litep2p-perf: Downloaded 1.91 MB bytes in 1.0000s bandwidth 15.26 Mbit/s\n";
        assert_eq!(
            rates(Tool::Litep2pPerf, End::Published, printed),
            Some((16e6, 16e6))
        );
        assert_eq!(rates(Tool::Litep2pPerf, End::Published, "panicked"), None);
    }

    #[test]
    fn the_node_prints_details_of_both_directions() {
        let printed =
            r#"{"type":"final","timeSeconds":9.0,"upload":{"seconds":1.0},"download":{"seconds":2.0}}"#;
        assert_eq!(
            rates(Tool::Litep2pPerfLibp2p, End::Node, printed),
            Some((8e6, 8e6))
        );
    }

    #[test]
    fn iperf3_reports_the_rate_at_the_receiver() {
        let printed = r#"{"start":{},"intervals":[],"end":{
            "sum_sent":{"start":0,"end":0.011758,"seconds":0.011758,"bytes":8388608,
                "bits_per_second":5707506718.829733,"retransmits":0,"sender":false},
            "sum_received":{"start":0,"end":0.011723,"seconds":0.011723,"bytes":8388608,
                "bits_per_second":5724546958.969546,"sender":false}}}"#;
        let rate = 5_724_546_958.969_546;
        assert_eq!(rates(Tool::Iperf3, End::Published, printed), Some((rate, rate)));
        let printed = r#"{"start":{},"intervals":[],"end":{},"error":"unable to connect to server"}"#;
        assert_eq!(rates(Tool::Iperf3, End::Published, printed), None);
    }

    #[test]
    fn the_node_in_place_of_iperf3_prints_one_direction() {
        let node = |direction: &str, up, down| {
            let printed = format!(r#"{{"type":"final","timeSeconds":9.0,"{direction}":{{"seconds":2.0}}}}"#);
            Tool::Iperf3.rates(End::Node, &printed, up, down)
        };
        assert_eq!(node("upload", 1_000_000, 0).unwrap().upload, 4e6);
        assert_eq!(node("download", 0, 1_000_000).unwrap().download, 4e6);
        assert!(node("upload", 0, 1_000_000).is_none());
    }

    #[test]
    fn iperf3_and_the_node_transfer_the_same() {
        let at = "10.0.0.1:4001".parse().unwrap();
        let dial = |end, up, down| Tool::Iperf3.dial(end, "tcp", at, up, down).join(" ");
        let iperf3 = "-c 10.0.0.1 -p 4001 -J -l 64K -N -n 4096";
        assert_eq!(dial(End::Published, 4096, 0), iperf3);
        assert_eq!(dial(End::Published, 0, 4096), format!("{iperf3} -R"));
        assert_eq!(
            dial(End::Node, 0, 4096),
            "client --stack raw --transport tcp --protocol perf --chunk-bytes 64Ki --timing strict --server \
             10.0.0.1:4001 --upload-bytes 0 --download-bytes 4096"
        );
        assert_eq!(Tool::Iperf3.pairs().len(), 2);
    }
}
