//! Options and output of the published tools, and of perfrun-node in their place.

use std::net::SocketAddr;

use strum::{EnumString, VariantNames};

use super::{End, Rates};

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
}

impl Tool {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::Litep2pPerf => "litep2p-perf (litep2p)",
            Self::Litep2pPerfLibp2p => "litep2p-perf (libp2p)",
        }
    }

    /// What the printed times cover.
    pub(super) fn clock(self) -> &'static str {
        match self {
            Self::Perf => "from the dial to the last byte",
            Self::Litep2pPerf | Self::Litep2pPerfLibp2p => {
                "an upload ends with its last write, a download begins with its request"
            }
        }
    }

    pub(super) fn transports(self) -> &'static [&'static str] {
        match self {
            Self::Perf => &["tcp", "quic-v1"],
            Self::Litep2pPerf | Self::Litep2pPerfLibp2p => &["tcp"],
        }
    }

    /// Whether one exchange uploads and then downloads, and prints both times.
    pub(super) fn times_both(self) -> bool {
        self != Self::Perf
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
        };
        format!("--stack {stack} --transport {transport} --protocol {protocol} --chunk-bytes 1Ki")
    }

    /// Goodput according to what a client printed. `None` if it printed no time.
    pub(super) fn rates(self, end: End, printed: &str, up: u64, down: u64) -> Option<Rates> {
        let [upload, download] = match (self, end) {
            (Self::Perf, _) => {
                let seconds = last(printed)?["timeSeconds"].as_f64();
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

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The final line of a tool that prints JSON.
fn last(printed: &str) -> Option<serde_json::Value> {
    let lines = printed.lines().rev();
    lines
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find(|line| line["type"] == "final")
}

/// Of a line `… Uploaded 64.00 MiB bytes in 0.1234s bandwidth …`.
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
}
