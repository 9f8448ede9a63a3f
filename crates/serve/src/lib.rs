//! HTTP servers that strangers may reach: the control ports of nodes and link agents, metrics pages, the
//! operator's admin port, and the page of `perfrun run --ui`.
//!
//! [`serve`] bounds what anyone may take of a server. [`require_token`] keeps strangers out of routes, and
//! [`metrics_router`] is the route of a metrics page.

#![warn(missing_docs)]

mod address;
mod caller;
mod connections;
mod metrics;
mod token;

pub use address::listening_address;
pub use connections::{Limits, serve};
pub use metrics::metrics_router;
pub use token::require_token;
