//! Messages one way, some of them acknowledged.

use perfrun_contract::{
    distribution::Distribution,
    node::Transfer,
    parameters::{Amount, Messages},
    workload::MessageMode,
};

use super::Trial;

pub(super) fn measure(trial: &mut Trial<'_>, load: &Messages) {
    let bytes = load.message_bytes.0;
    let one_way = trial.latency / 2.0 + bytes as f64 / trial.rate("up", 1e9);
    let (distribution, time) = match load.mode {
        MessageMode::Serial | MessageMode::Broadcast => (Distribution::OneWay, one_way),
        MessageMode::SerialAck | MessageMode::Stream => (Distribution::RoundTrip, one_way * 2.0),
    };
    // The more of them are in flight, the more of them each read gets.
    let at_once = f64::from(load.window).sqrt();
    let each = time / at_once;
    let count = match load.amount {
        Amount::Count(count) => count,
        Amount::Seconds(seconds) => (seconds / each) as u64,
    };
    let timed = count.div_ceil(load.acknowledged_each().into());
    trial.times(distribution, timed as u32, time * at_once);
    let seconds = count as f64 * each;
    let transfer = Transfer {
        bytes: count * bytes,
        seconds,
        bytes_after_first: Some((count - 1) * bytes),
        first_to_last_seconds: Some(seconds - each),
    };
    let Trial { client, server, .. } = trial;
    (client.seconds, client.bytes_sent) = (seconds, transfer.bytes);
    server.bytes_received = transfer.bytes;
    (client.upload, server.upload) = (Some(transfer), Some(transfer));
}
