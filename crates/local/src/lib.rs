//! Nodes on this machine: a network namespace for each node, and the processes in it.
//!
//! Owns all resources that must not outlive perfrun: namespaces, links and child processes. File descriptors
//! and parent processes hold them, and none has a name in the file system. So the kernel cleans up after
//! perfrun even if it is killed by SIGKILL. Nothing is created in the network namespace in which perfrun was
//! started.
//!
//! In the order of use:
//!
//! 1. [`privilege::acquire`], at the very start of `main`, while the process has only one thread;
//! 2. [`LocalNetwork::create`] makes the switch and one [`Slot`] per node;
//! 3. [`Launcher::start`], then [`Launcher::spawn`] for each node, into its slot;
//! 4. [`NodeProcess::stop`], or drop the node; then drop the network.
//!
//! [`LocalNodes`] does steps 2 to 4 for all nodes of a plan.

#![warn(missing_docs)]

pub mod cpus;
mod digest;
pub mod namespace;
pub mod network;
pub mod nodes;
pub mod open_files;
pub mod privilege;
pub mod process;

pub use network::{Addresses, LocalIsolation, LocalNetwork, Slot};
pub use nodes::LocalNodes;
pub use privilege::Privilege;
pub use process::{Exit, Launcher, NodeCommand, NodeProcess, Token};
