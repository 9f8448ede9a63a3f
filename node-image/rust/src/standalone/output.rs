//! The output of the commands: JSON lines for programs, sentences for people.
//!
//! A bandwidth client prints the JSON lines of the published perf tools: `intermediate` once a second with
//! the bytes of that interval, and `final` at the end with all bytes and the time since before the dial.

use perfrun_contract::{
    matrix::Negotiation,
    node::{BYTES_FOR_A_RATE_MIN, Transfer},
    units::{self, Unit},
    workload::Timing,
};
use serde::Serialize;

use crate::output_lines;

/// The form of the output.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Json,
    Sentences,
}

impl Form {
    /// JSON if `json` is set or the output is not a terminal.
    pub(crate) fn new(json: bool, is_terminal: bool) -> Self {
        if json || !is_terminal {
            Self::Json
        } else {
            Self::Sentences
        }
    }

    /// Prints one of the two forms.
    pub(crate) fn print<J: Serialize>(self, json: impl FnOnce() -> J, sentences: impl FnOnce() -> String) {
        match self {
            Self::Json => output_lines::write_json(&json()),
            Self::Sentences => output_lines::write_line(&sentences()),
        }
    }
}

/// The addresses of a server.
#[derive(Serialize)]
pub(super) struct Listening {
    r#type: &'static str,
    addresses: Vec<String>,
}

impl Listening {
    pub(crate) fn new(addresses: Vec<String>) -> Self {
        Self {
            r#type: "listening",
            addresses,
        }
    }

    pub(crate) fn sentences(&self) -> String {
        let each = self
            .addresses
            .iter()
            .map(|address| format!("Listening on {address}"));
        each.collect::<Vec<_>>().join("\n")
    }
}

/// A line of the published perf tools. `time_seconds` of an intermediate line is the interval.
#[serde_with_macros::skip_serializing_none]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    r#type: &'static str,
    time_seconds: f64,
    upload_bytes: u64,
    download_bytes: u64,
    /// Fields that the published tools do not print. Only on request, because a consumer may be strict.
    #[serde(flatten)]
    details: Option<Details>,
}

#[serde_with_macros::skip_serializing_none]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    timing: Timing,
    connect_seconds: Option<f64>,
    relay_round_trip_seconds: Option<f64>,
    round_trip_seconds: Option<f64>,
    upload: Option<Transfer>,
    download: Option<Transfer>,
}

/// The bytes of an interval.
pub(super) struct Interval {
    /// Time since before the dial.
    pub(crate) after_seconds: f64,
    /// Length of the interval.
    pub(crate) seconds: f64,
    pub(crate) uploaded: u64,
    pub(crate) downloaded: u64,
}

impl Interval {
    pub(crate) fn line(&self) -> Line {
        Line {
            r#type: "intermediate",
            time_seconds: self.seconds,
            upload_bytes: self.uploaded,
            download_bytes: self.downloaded,
            details: None,
        }
    }

    pub(crate) fn sentence(&self) -> String {
        let moved = [("uploaded", self.uploaded), ("downloaded", self.downloaded)]
            .into_iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(verb, bytes)| {
                let amount = units::text(Unit::Bytes, bytes as f64);
                format!("{verb} {amount}, {}", rate(bytes, self.seconds))
            });
        let moved = moved.collect::<Vec<_>>();
        let what = if moved.is_empty() {
            "no data".to_owned()
        } else {
            moved.join("; ")
        };
        format!("{:.1} s: {what}", self.after_seconds)
    }
}

/// The result of a bandwidth client.
pub(super) struct ClientResult {
    /// Time from before the dial until the end.
    pub(crate) seconds: f64,
    pub(crate) uploaded: u64,
    pub(crate) downloaded: u64,
    pub(crate) streams: u32,
    pub(crate) timing: Timing,
    pub(crate) connect_seconds: Option<f64>,
    /// Median round trips through a relay: with the relay, and with the peer behind it.
    pub(crate) relay_round_trip_seconds: Option<f64>,
    pub(crate) round_trip_seconds: Option<f64>,
    pub(crate) upload: Option<Transfer>,
    pub(crate) download: Option<Transfer>,
}

impl ClientResult {
    pub(crate) fn line(&self, with_details: bool) -> Line {
        Line {
            r#type: "final",
            time_seconds: self.seconds,
            upload_bytes: self.uploaded,
            download_bytes: self.downloaded,
            details: with_details.then_some(Details {
                timing: self.timing,
                connect_seconds: self.connect_seconds,
                relay_round_trip_seconds: self.relay_round_trip_seconds,
                round_trip_seconds: self.round_trip_seconds,
                upload: self.upload,
                download: self.download,
            }),
        }
    }

    /// Time and bandwidth of each direction, with the start and the end of the time.
    pub(crate) fn sentences(&self) -> String {
        let mut lines = vec![];
        if let Some(seconds) = self.connect_seconds {
            lines.push(format!("Connected in {}.", time(seconds)));
        }
        if let (Some(relay), Some(peer)) = (self.relay_round_trip_seconds, self.round_trip_seconds) {
            lines.push(format!(
                "Half of the round trips took less than {} with the relay, and {} with the source.",
                time(relay),
                time(peer)
            ));
        }
        let directions = [
            ("Uploaded", self.upload.map(|upload| self.upload(upload))),
            (
                "Downloaded",
                self.download.map(|download| self.download(download)),
            ),
        ];
        let mut without_a_rate = false;
        for (verb, direction) in directions {
            let Some(direction) = direction else { continue };
            without_a_rate |= direction.rate.is_none();
            let streams = match self.streams {
                1 => String::new(),
                streams => format!(" on {streams} streams"),
            };
            let rate = direction.rate.map_or(String::new(), |rate| format!(": {rate}"));
            lines.push(format!(
                "{verb} {}{streams} in {}{rate} ({}, {}).",
                units::size(direction.bytes),
                time(direction.seconds),
                self.timing,
                direction.span
            ));
        }
        if without_a_rate {
            // A sink has no other timing.
            let compat = if self.round_trip_seconds.is_some() {
                ""
            } else {
                "; client --timing compat prints what the published tools print"
            };
            lines.push(format!(
                "Below 1 MiB, a strict time is mostly one round trip and gives no bandwidth{compat}."
            ));
        }
        lines.join("\n")
    }

    fn upload(&self, upload: Transfer) -> DirectionResult {
        let is_strict = self.timing == Timing::Strict;
        DirectionResult {
            bytes: upload.bytes,
            seconds: upload.seconds,
            rate: (!is_strict || upload.bytes >= BYTES_FOR_A_RATE_MIN)
                .then(|| rate(upload.bytes, upload.seconds)),
            span: if is_strict {
                "until the server had read everything"
            } else {
                "until the client had written everything"
            },
        }
    }

    /// After an upload, the request waits until the server has read that. A strict time therefore begins with
    /// the first bytes of the download, which do not count for the rate.
    fn download(&self, download: Transfer) -> DirectionResult {
        let whole = DirectionResult {
            bytes: download.bytes,
            seconds: download.seconds,
            rate: None,
            span: "from the request to the last byte",
        };
        match (
            self.timing,
            download.first_to_last_seconds,
            download.bytes_after_first,
        ) {
            (Timing::Compat, ..) => DirectionResult {
                rate: Some(rate(download.bytes, download.seconds)),
                ..whole
            },
            (Timing::Strict, Some(seconds), Some(bytes))
                if download.bytes >= BYTES_FOR_A_RATE_MIN && seconds > 0.0 =>
            {
                DirectionResult {
                    seconds,
                    rate: Some(rate(bytes, seconds)),
                    span: "from the first bytes to the last",
                    ..whole
                }
            }
            (Timing::Strict, ..) => whole,
        }
    }
}

/// One direction of a result.
struct DirectionResult {
    bytes: u64,
    seconds: f64,
    rate: Option<String>,
    /// The start and the end of the time.
    span: &'static str,
}

/// The result of a substreams client. Times are `None` if no substream was opened.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Substreams {
    pub(crate) r#type: &'static str,
    pub(crate) substreams: u32,
    pub(crate) failures: u64,
    pub(crate) mean_seconds: Option<f64>,
    pub(crate) p50_seconds: Option<f64>,
    pub(crate) p99_seconds: Option<f64>,
    pub(crate) max_seconds: Option<f64>,
    pub(crate) mean_compat_seconds: Option<f64>,
    #[serde(skip)]
    pub(crate) negotiation: Negotiation,
    /// Advice if some substreams did not open.
    #[serde(skip)]
    pub(crate) advice: Option<&'static str>,
}

impl Substreams {
    pub(crate) fn sentences(&self) -> String {
        let mut lines = vec![];
        let opened = u64::from(self.substreams).saturating_sub(self.failures);
        let count = if self.failures == 0 {
            format!("{opened} substream{}", if opened == 1 { "" } else { "s" })
        } else {
            format!("{opened} of {} substreams", self.substreams)
        };
        let lazy = match self.negotiation {
            Negotiation::V1 => "",
            Negotiation::V1Lazy => " (v1lazy: open before the server has answered)",
        };
        let shown = |seconds: Option<f64>| seconds.map_or("?".to_owned(), time);
        lines.push(format!(
            "Opened {count} in {}{lazy}: {} on average, half of them within {}, 99 % within {}.",
            shown(self.max_seconds),
            shown(self.mean_seconds),
            shown(self.p50_seconds),
            shown(self.p99_seconds),
        ));
        if let Some(seconds) = self.mean_compat_seconds {
            lines.push(format!(
                "Counted from after the last request, as litep2p-perf does: {} on average.",
                time(seconds)
            ));
        }
        if self.failures > 0 {
            let advice = self.advice.map_or(String::new(), |advice| format!(" {advice}."));
            lines.push(format!("{} failed to open.{advice}", self.failures));
        }
        lines.join("\n")
    }
}

fn time(seconds: f64) -> String {
    units::text(Unit::Seconds, seconds)
}

fn rate(bytes: u64, seconds: f64) -> String {
    units::text(Unit::BitsPerSecond, bytes as f64 * 8.0 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_for_terminals_unless_json_is_requested() {
        assert_eq!(Form::new(false, true), Form::Sentences);
        assert_eq!(Form::new(true, true), Form::Json);
        assert_eq!(Form::new(false, false), Form::Json);
        assert_eq!(Form::new(true, false), Form::Json);
    }

    fn measured(timing: Timing, bytes: u64) -> ClientResult {
        ClientResult {
            seconds: 9.0,
            uploaded: bytes,
            downloaded: bytes,
            streams: 1,
            timing,
            connect_seconds: Some(0.001_234),
            relay_round_trip_seconds: None,
            round_trip_seconds: None,
            upload: Some(Transfer {
                bytes,
                seconds: 2.0,
                ..Transfer::default()
            }),
            download: Some(Transfer {
                bytes,
                seconds: 4.0,
                bytes_after_first: Some(bytes * 3 / 4),
                first_to_last_seconds: Some(0.5),
            }),
        }
    }

    #[test]
    fn each_direction_has_its_own_time_and_bandwidth() {
        assert_eq!(
            measured(Timing::Strict, 64 << 20).sentences(),
            "Connected in 1.23 ms.\n\
             Uploaded 64 MiB in 2.00 s: 268 Mbit/s (strict, until the server had read everything).\n\
             Downloaded 64 MiB in 500 ms: 805 Mbit/s (strict, from the first bytes to the last)."
        );
        let several = ClientResult {
            streams: 4,
            ..measured(Timing::Compat, 1 << 20)
        };
        assert_eq!(
            several.sentences(),
            "Connected in 1.23 ms.\n\
             Uploaded 1 MiB on 4 streams in 2.00 s: 4.19 Mbit/s (compat, until the client had written everything).\n\
             Downloaded 1 MiB on 4 streams in 4.00 s: 2.10 Mbit/s (compat, from the request to the last byte)."
        );
        let one_way = ClientResult {
            upload: None,
            connect_seconds: None,
            ..measured(Timing::Strict, 1 << 30)
        };
        assert_eq!(
            one_way.sentences(),
            "Downloaded 1 GiB in 500 ms: 12.9 Gbit/s (strict, from the first bytes to the last)."
        );
    }

    #[test]
    fn a_transfer_through_a_relay_has_round_trips() {
        let relayed = ClientResult {
            upload: None,
            relay_round_trip_seconds: Some(0.000_036),
            round_trip_seconds: Some(0.000_136),
            ..measured(Timing::Strict, 64 << 20)
        };
        assert_eq!(
            relayed.sentences(),
            "Connected in 1.23 ms.\n\
             Half of the round trips took less than 36.0 µs with the relay, and 136 µs with the source.\n\
             Downloaded 64 MiB in 500 ms: 805 Mbit/s (strict, from the first bytes to the last)."
        );
        let small = ClientResult {
            connect_seconds: None,
            relay_round_trip_seconds: None,
            download: measured(Timing::Strict, 1500).download,
            ..relayed
        };
        assert_eq!(
            small.sentences(),
            "Downloaded 1500 B in 4.00 s (strict, from the request to the last byte).\n\
             Below 1 MiB, a strict time is mostly one round trip and gives no bandwidth."
        );
    }

    #[test]
    fn a_small_transfer_has_a_bandwidth_only_as_the_published_tools_time_it() {
        assert_eq!(
            measured(Timing::Strict, 1500).sentences(),
            "Connected in 1.23 ms.\n\
             Uploaded 1500 B in 2.00 s (strict, until the server had read everything).\n\
             Downloaded 1500 B in 4.00 s (strict, from the request to the last byte).\n\
             Below 1 MiB, a strict time is mostly one round trip and gives no bandwidth; client --timing compat \
             prints what the published tools print."
        );
        assert_eq!(
            measured(Timing::Compat, 1024).sentences(),
            "Connected in 1.23 ms.\n\
             Uploaded 1 KiB in 2.00 s: 4.10 kbit/s (compat, until the client had written everything).\n\
             Downloaded 1 KiB in 4.00 s: 2.05 kbit/s (compat, from the request to the last byte)."
        );
    }

    #[test]
    fn an_interval_shows_its_bytes_and_rates() {
        let mut interval = Interval {
            after_seconds: 3.004,
            seconds: 1.0,
            uploaded: 51_500_000,
            downloaded: 0,
        };
        assert_eq!(interval.sentence(), "3.0 s: uploaded 49.1 MiB, 412 Mbit/s");
        interval.downloaded = 1 << 20;
        interval.seconds = 0.5;
        assert_eq!(
            interval.sentence(),
            "3.0 s: uploaded 49.1 MiB, 824 Mbit/s; downloaded 1.00 MiB, 16.8 Mbit/s"
        );
        (interval.uploaded, interval.downloaded) = (0, 0);
        assert_eq!(interval.sentence(), "3.0 s: no data");
    }

    fn substreams(failures: u64, negotiation: Negotiation) -> Substreams {
        Substreams {
            r#type: "substreams",
            substreams: 32,
            failures,
            mean_seconds: Some(683e-6),
            p50_seconds: Some(651e-6),
            p99_seconds: Some(1.0e-3),
            max_seconds: Some(1.1e-3),
            mean_compat_seconds: (failures == 0).then_some(650e-6),
            negotiation,
            advice: Some("Open fewer"),
        }
    }

    #[test]
    fn substreams_have_an_average_by_both_clocks() {
        assert_eq!(
            substreams(0, Negotiation::V1).sentences(),
            "Opened 32 substreams in 1.10 ms: 683 µs on average, half of them within 651 µs, 99 % within 1.00 ms.\n\
             Counted from after the last request, as litep2p-perf does: 650 µs on average."
        );
        assert_eq!(
            substreams(2, Negotiation::V1Lazy).sentences(),
            "Opened 30 of 32 substreams in 1.10 ms (v1lazy: open before the server has answered): 683 µs on average, half of \
             them within 651 µs, 99 % within 1.00 ms.\n\
             2 failed to open. Open fewer."
        );
    }

    #[test]
    fn every_address_of_a_server_has_its_line() {
        let listening = Listening::new(vec!["/ip4/10.0.0.1/tcp/1".into(), "/ip6/::1/tcp/1".into()]);
        assert_eq!(
            listening.sentences(),
            "Listening on /ip4/10.0.0.1/tcp/1\nListening on /ip6/::1/tcp/1"
        );
    }
}
