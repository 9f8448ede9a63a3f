//! `perfrun-node`: the benchmark node.

use std::process::ExitCode;

fn main() -> ExitCode {
    perfrun_node::program::main()
}
