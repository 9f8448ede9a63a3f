//! The conductor against nodes that honour the contract and misbehave as their script says.
#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says enough about what went wrong"
)]

mod agent;
mod bench;
mod calls;
mod clocks;
mod disturbed;
mod failures;
mod interim;
mod links;
mod lost;
mod node;
mod renewed;
mod resume;
mod stops;
mod trials;
