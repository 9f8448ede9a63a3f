//! What a node does in a trial: one module for each workload, the same for every stack.
//!
//! `client`, `server` and `relaying` run a side of a trial; [`run`] calls the module of the workload. What
//! all modules share is below them: `setup`, `handover`, `measurements`, `failed` and `peer`.

mod bandwidth;
mod client;
mod echo;
mod failed;
mod handover;
mod handshakes;
mod measurements;
mod messages;
mod peer;
mod ping;
mod relay;
mod relay_stress;
mod relaying;
mod server;
mod setup;
mod substreams;

use std::time::Duration;

use perfrun_contract::parameters::Parameters;

pub(crate) use self::{
    client::{Client, Server},
    failed::{Failed, failure},
    handover::Handover,
    measurements::Measurements,
    relaying::serve as serve_relay,
    server::{Listening, serve},
    setup::Setup,
};

/// Runs the workload of a client.
async fn run(client: &mut Client<'_>) -> Result<(), Failed> {
    let Client {
        setup,
        peers,
        servers,
        slots,
        measurements,
        ..
    } = client;
    match &setup.parameters {
        Parameters::Bandwidth(load) => bandwidth::run(setup, peers, load, measurements).await,
        Parameters::Substreams(load) => substreams::run(setup, peers, load, measurements).await,
        Parameters::Handshakes(load) => {
            handshakes::run(setup, peers, *slots, load.amount, measurements).await
        }
        Parameters::Ping(load) => {
            let interval = Duration::from_secs_f64(load.interval_seconds);
            ping::run(setup, peers, load.count, interval, measurements).await
        }
        Parameters::Relay(load) => relay::run(setup, peers, load.bytes, load.pings, measurements).await,
        Parameters::RelayStress(load) => relay_stress::run(setup, servers, *slots, load, measurements).await,
        Parameters::Echo(load) => echo::run(setup, peers, load, measurements).await,
        Parameters::Messages(load) => messages::run(setup, peers, load, measurements).await,
    }
}
