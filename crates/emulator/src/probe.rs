//! Proof that a link is what it was set to be: measured over the link itself, from one peer to the other.
//!
//! One peer [`serve`]s, the other [`measure`]s: round trips, loss in each direction, and the rate that is available
//! towards the server. [`perfrun_link::probe::judge`] compares that with what was asked for. For the rate in the other
//! direction, peers swap roles. Datagrams are described in `wire`.

mod client;
mod server;
mod wire;

pub use client::{Error, measure};
pub use server::serve;
