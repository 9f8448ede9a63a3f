//! Bytes up and down.

use perfrun_contract::{distribution::Distribution, node::Transfer, parameters::Amount, workload::Direction};

use super::Trial;

pub(super) fn measure(trial: &mut Trial<'_>, direction: Direction, amount: Amount, streams: u32) {
    if let Amount::Seconds(seconds) = amount {
        trial.intervals = seconds.ceil() as u64;
    }
    let transfer = |what: &str| {
        let bytes = match amount {
            Amount::Count(bytes) => bytes * u64::from(streams),
            Amount::Seconds(seconds) => (trial.rate(what, 1e9) * seconds) as u64,
        };
        let rate = trial.rate(what, bytes as f64);
        let after_first = bytes.saturating_sub(65536);
        Transfer {
            bytes,
            seconds: bytes as f64 / rate + 50e-6,
            bytes_after_first: Some(after_first),
            first_to_last_seconds: Some(after_first as f64 / rate),
        }
    };
    let upload = (direction != Direction::Download).then(|| transfer("up"));
    let download = (direction != Direction::Upload).then(|| transfer("down"));
    let Trial { client, server, .. } = trial;
    (client.upload, server.upload, client.download) = (upload, upload, download);
    client.bytes_sent = upload.map_or(0, |t| t.bytes);
    client.bytes_received = download.map_or(0, |t| t.bytes);
    (server.bytes_received, server.bytes_sent) = (client.bytes_sent, client.bytes_received);
    client.seconds = upload.map_or(0.0, |t| t.seconds) + download.map_or(0.0, |t| t.seconds);
    trial.times(Distribution::HandshakeEstablished, 1, trial.latency * 9.0);
}
