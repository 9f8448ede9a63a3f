//! Lines that come back.

use perfrun_contract::{distribution::Distribution, node::Plateau, parameters::Echo};

use super::{Trial, scatter};

pub(super) fn measure(trial: &mut Trial<'_>, load: &Echo) {
    let trips = |seconds: f64| (load.nominal_rate() * seconds * 0.97) as u64;
    let all = trips(load.duration_seconds);
    trial.times(Distribution::RoundTrip, all as u32, trial.latency);
    let seconds = load.duration_seconds - load.ramp_seconds();
    trial.client.plateau = Some(Plateau {
        ramp_seconds: load.ramp_seconds() + trial.latency,
        ramp_lateness_seconds: 0.0012 * scatter(trial.key, "late"),
        seconds,
        round_trips: trips(seconds),
    });
    trial.client.seconds = load.duration_seconds;
    for end in [&mut trial.client, &mut trial.server] {
        end.bytes_sent = all * load.message_bytes.0;
        end.bytes_received = end.bytes_sent;
    }
}
