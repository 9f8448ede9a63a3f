//! Fuzz targets: one for each parser of untrusted bytes.
//!
//! A [`Target`] reads bytes with a parser, and panics if the parser panics, takes too much memory, or accepts
//! what it must not. `tests/corpus.rs` gives each target the inputs of `corpus/NAME/` and mutations of them.
//! `tests/libfuzzer.rs` is the program of `cargo xtask fuzz`, which searches for inputs that run new code.

mod calls;
mod documents;
mod grammar;
mod json;
mod links;
mod memory;
mod wire;

use perfrun_api::cluster::RECORD_BYTES;

/// A parser, and how to feed it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name, which is that of the folder of its corpus.
    pub name: &'static str,
    /// Reads bytes. Panics on a fault of the parser.
    read: fn(&[u8]),
    /// Most bytes that reading may hold at a time.
    most_bytes: u64,
}

/// In bytes.
const MIB: u64 = 1 << 20;

/// All targets.
pub const TARGETS: &[Target] = &[
    // Peers
    target("echo", wire::echo, 8 * MIB),
    target("introduction", wire::introduction, 8 * MIB),
    target("litep2p-perf", wire::litep2p_perf, 8 * MIB),
    target("messages", wire::messages, 8 * MIB),
    target("perf", wire::perf, 8 * MIB),
    target("ping", wire::ping, 8 * MIB),
    target("relay", wire::relay, 8 * MIB),
    target("test-data", wire::test_data, 8 * MIB),
    // Conductors
    target("address", calls::address, 8 * MIB),
    target("request", calls::request, 8 * MIB),
    // Nodes and link agents
    target("agent", calls::agent, 256 * MIB),
    target("histogram", calls::histogram, 16 * MIB),
    target("info", calls::info, 8 * MIB),
    target("metrics", calls::metrics, 8 * MIB),
    target("status", calls::status, 256 * MIB),
    target("status-grammar", grammar::status, 256 * MIB),
    // Authors and editors
    target("document", documents::document, 64 * MIB),
    target("document-grammar", grammar::document, 64 * MIB),
    // One record, while the buffer for it grows.
    target("journal", documents::journal, 4 * RECORD_BYTES as u64),
    target("results", documents::results, 1024 * MIB),
    target("schedule", grammar::schedule, 64 * MIB),
    // The kernel, and senders of packets
    target("frame", links::frame, 8 * MIB),
    target("netlink", links::netlink, 8 * MIB),
    target("probe", links::probe, 8 * MIB),
];

const fn target(name: &'static str, read: fn(&[u8]), most_bytes: u64) -> Target {
    Target {
        name,
        read,
        most_bytes,
    }
}

impl Target {
    /// The target of this name.
    pub fn named(name: &str) -> Option<Self> {
        TARGETS.iter().find(|target| target.name == name).copied()
    }

    /// Reads bytes once.
    ///
    /// # Panics
    ///
    /// On a fault of the parser: it panics, accepts what it must not, or takes more memory than it may.
    pub fn read(&self, bytes: &[u8]) {
        let took = memory::peak(|| (self.read)(bytes));
        assert!(
            took <= self.most_bytes,
            "{}: reading {} bytes took {took} bytes, more than {}",
            self.name,
            bytes.len(),
            self.most_bytes
        );
    }
}
