//! A transfer through a relay, or without it.

use perfrun_contract::{distribution::Distribution, node::Transfer, workload::RelayPath};

use super::{Trial, spread};

pub(super) fn measure(trial: &mut Trial<'_>, path: RelayPath, bytes: u64) {
    let is_relayed = path == RelayPath::Relayed;
    let seconds = bytes as f64 / trial.rate("down", bytes as f64) * if is_relayed { 2.1 } else { 1.0 };
    trial.client.download = Some(Transfer {
        bytes,
        seconds,
        bytes_after_first: Some(bytes - 65536),
        first_to_last_seconds: Some(seconds),
    });
    trial.client.bytes_received = bytes;
    trial.server.bytes_sent = bytes;
    trial.client.seconds = seconds;
    let latency = trial.latency;
    let steps = if is_relayed { 2.0 } else { 1.0 };
    trial.times(Distribution::HandshakeEstablished, 1, latency * 9.0 * steps);
    trial.times(Distribution::Open, 1, latency * steps);
    trial.times(Distribution::FirstByte, 1, latency * 1.5 * steps);
    trial.times(Distribution::RoundTrip, 1, latency * steps);
    if is_relayed {
        trial.times(Distribution::RelayConnected, 1, latency);
        trial.times(Distribution::RelayRoundTrip, 1, latency);
        let reservation = (Distribution::Reservation, spread(1, latency * 2.0));
        trial.server.histograms.extend([reservation]);
        trial.relay.most_circuits = 1;
    }
}
