//! New connections.

use perfrun_contract::{distribution::Distribution, matrix::Transport, parameters::Amount};

use super::Trial;

pub(super) fn measure(trial: &mut Trial<'_>, transport: Transport, amount: Amount, in_flight: u32) {
    let count = match amount {
        Amount::Count(count) => count as u32,
        Amount::Seconds(_) => 200,
    };
    let latency = trial.latency;
    let slow = latency * (6.0 + 2.5 * f64::from(in_flight));
    if transport != Transport::QuicV1 {
        trial.times(Distribution::HandshakeTransport, count, latency * 0.7);
    }
    trial.times(Distribution::HandshakeEstablished, count, slow);
    trial.times(Distribution::HandshakeFirstByte, count, slow + latency);
    trial.client.seconds = f64::from(count) * (slow + latency) / f64::from(in_flight);
}
