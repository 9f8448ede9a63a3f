//! What a node does in a trial: one module for each workload, the same for every stack.
//!
//! `client` and `server` run a side of a trial and call the modules of workloads, which know neither of them.
//! What all modules share is below them: `setup`, `findings`, `failed` and `peer`.

mod bandwidth;
mod client;
mod echo;
mod failed;
mod findings;
mod handshakes;
mod peer;
mod ping;
mod relay;
mod server;
mod setup;
mod substreams;

pub(crate) use self::{
    client::Client,
    failed::{Failed, failure},
    findings::Findings,
    relay::serve as serve_relay,
    server::{Listening, serve},
    setup::Setup,
};
