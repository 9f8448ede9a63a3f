//! Many sinks at a relay.

use perfrun_contract::distribution::Distribution;

use super::Trial;

pub(super) fn measure(trial: &mut Trial<'_>, sinks: u32, seconds: f64, bytes: u64) {
    // More than some sinks bring no more.
    let carried = trial.rate("down", 1e9) * (f64::from(sinks) / 200.0).min(1.0);
    trial.client.seconds = seconds;
    trial.client.bytes_received = (carried * seconds) as u64;
    trial.server.bytes_sent = trial.client.bytes_received;
    let each = bytes as f64 * f64::from(sinks) / carried;
    trial.times(Distribution::Transfer, 1000, each);
    trial.times(Distribution::Lateness, sinks, 0.001);
    trial.relay.most_circuits = u64::from(sinks);
    if sinks >= 1000 {
        trial.relay.refused = [("circuit", 34), ("reservation", 2)]
            .map(|(what, count)| (format!("{what}: RESOURCE_LIMIT_EXCEEDED (201)"), count))
            .into();
    }
}
