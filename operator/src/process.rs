//! The process: leadership, watches, metrics, pods without a run, the memory that runs share, the signal to
//! stop.

pub(crate) mod admin;
pub(crate) mod clock;
pub(crate) mod fence;
pub(crate) mod health;
pub(crate) mod lease;
pub(crate) mod metrics;
pub(crate) mod orphans;
pub(crate) mod shared_memory_budget;
pub(crate) mod signal;
pub(crate) mod watch;
