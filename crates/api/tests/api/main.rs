//! Documents, plans, measurements and results, compared as whole values.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod changes;
mod comparisons;
mod crd;
mod documents;
mod examples;
mod feasibility;
mod fixtures;
mod measurements;
mod networks;
mod parameters;
mod plans;
mod results;
mod schedules;
mod settings;
mod skips;
