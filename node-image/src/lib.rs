//! The benchmark node: serves and measures p2p stacks.

pub mod stack;
