//! The node as a conductor sees it: real processes, the control port, trials over loopback.
#![allow(clippy::unwrap_used)]

mod congestion;
mod contract;
mod cut_short;
mod echo;
mod failures;
mod flood;
mod growth;
mod handshakes;
mod hostile;
mod metrics;
mod relay;
mod requests;
mod stop;
mod support;
mod workloads;
