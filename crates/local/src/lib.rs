//! Nodes on this machine: a network namespace for each of them, and the processes in it.
//!
//! Owns everything that outlives a function call here and must not outlive perfrun: namespaces, links and child
//! processes. All of it hangs on file descriptors and parenthood, nothing has a name in the file system, so that the
//! kernel cleans up after perfrun however it ends, SIGKILL included. Nothing is created in the network namespace that
//! perfrun was started in.
//!
//! In the order of use:
//!
//! 1. [`privilege::acquire`], at the very start of `main`, while there is only one thread;
//! 2. [`Network::create`] makes the switch and one [`Slot`] per node;
//! 3. [`Launcher::start`], then [`Launcher::spawn`] for each node, into its slot;
//! 4. [`NodeProcess::stop`], or drop it; then drop the network.
//!
//! [`LocalNodes`] does steps 2 to 4 for all nodes of a plan.

#![warn(missing_docs)]

pub mod namespace;
pub mod network;
pub mod nodes;
pub mod privilege;
pub mod process;

pub use network::{Addresses, Isolation, Network, Slot};
pub use nodes::LocalNodes;
pub use privilege::Privilege;
pub use process::{Exit, Launcher, NodeCommand, NodeProcess, Token};
