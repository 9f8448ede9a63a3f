//! The real `perfrun` and the real `perfrun-node`, from a command to files, tables and exit statuses.
//!
//! Where it matters, a test runs in network namespaces, if they are available, and with `--loopback`. A test
//! removes everything that it starts and creates, even if it fails.

// Helpers outside of `#[test]` functions fail a test by panicking, as those do; what they print is for its
// output.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod browser;
mod clocks;
#[cfg(feature = "cluster")]
mod cluster;
mod commands;
mod compare;
mod compared;
mod conformance;
mod connections;
mod disk;
mod doctor;
mod document;
mod go;
mod ipv6;
mod kept;
mod killed;
mod limits;
mod links;
mod metrics;
mod new;
mod output;
mod page;
mod perfrun;
mod pictures;
mod profile;
mod programs;
mod refused;
mod report_page;
mod resumed;
mod stopped;
mod users;
mod verdict;
mod workloads;
