//! Links between two network namespaces, impaired by either back end and measured by sockets of our own and by others'
//! tools.
//!
//! The same tests run for both back ends. Where the kernel has no netem, `uml` boots one that has, in which this binary
//! runs those of the kernel's back end. All need root; one link is measured at a time.

// Helpers outside of `#[test]` functions fail a test by panicking, as those do; what they print is for its output.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod kernel;
mod lab;
mod privileges;
mod role;
mod suite;
mod tools;
mod traffic;
mod uml;
mod userspace;
mod witness;
