//! The probe: measures a link from one peer to the other.
//!
//! One peer [`serve`]s, the other [`measure`]s round trips, loss in each direction, and the rate towards the
//! server. [`perfrun_link::probe::judge`] compares the result with the configured link. To measure the rate
//! in the other direction, peers swap roles. `wire` describes the datagrams.

mod client;
pub(crate) mod server;
pub(crate) mod wire;

pub use client::{Error, measure};
pub use server::serve;
