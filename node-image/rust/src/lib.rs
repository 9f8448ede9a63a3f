//! The benchmark node: serves and measures p2p stacks.
//!
//! [`perfrun_stack`] delivers streams, [`wire`] says what is sent on them, `workload` does and times it,
//! `observer` watches what it costs. `trials` and `control` put that under a conductor, [`standalone`] under
//! a shell.

pub mod agent;
pub mod allocator;
pub mod args;
mod clock;
mod control;
#[doc(hidden)]
pub mod fuzzing;
mod info;
mod latencies;
mod metrics;
mod observer;
mod output_lines;
pub mod process;
pub mod program;
mod request;
mod restart;
mod sampler;
pub mod serve;
pub mod standalone;
mod trial;
mod trials;
pub mod wire;
mod workload;
