//! `perfrun-node`: the benchmark node.

fn main() -> anyhow::Result<()> {
    perfrun_node::program::main()
}
