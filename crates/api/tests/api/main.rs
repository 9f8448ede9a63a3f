//! The document, its plan, its measurements and its results, each as whole values.
#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says enough about what went wrong"
)]

mod bounds;
mod changes;
mod crd;
mod documents;
mod examples;
mod fixtures;
mod measurements;
mod networks;
mod parameters;
mod plans;
mod results;
mod skips;
