//! Links between two network namespaces, impaired by either backend and measured by sockets of these tests
//! and by other programs.
//!
//! The same tests run for both backends. Where the kernel has no netem, `uml` boots a kernel that has it, in
//! which this binary runs the tests of the kernel backend. All tests need root; one link is measured at a
//! time.

// Helpers outside of `#[test]` functions panic to fail a test, and print for its output.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod kernel;
mod lab;
mod privileges;
mod role;
mod suite;
mod traffic;
mod uml;
mod userspace;
mod witness;
