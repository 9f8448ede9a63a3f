//! What several test programs share. Only tests, benchmarks and fuzz targets depend on this crate.

pub mod api_server;
pub mod dashboards;
pub mod documents;
pub mod grammar;
pub mod memory;
#[cfg(feature = "namespaces")]
pub mod namespaces;
pub mod pictures;
pub mod records;
pub mod remains;
pub mod results;
#[cfg(feature = "s3")]
pub mod s3;
mod skip;
pub mod uml;

pub use skip::{FAILURES, LOG, Need, REQUIRE, fails, skip};
