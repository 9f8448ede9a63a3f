//! The process: leadership, watches, metrics, graceful end.

pub(crate) mod admin;
pub(crate) mod clock;
pub(crate) mod fence;
pub(crate) mod health;
pub(crate) mod lease;
pub(crate) mod metrics;
pub mod operator;
pub(crate) mod signal;
pub(crate) mod watch;
