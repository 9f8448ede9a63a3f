//! `perfrun-operator`.

use clap::Parser;
use perfrun_operator::{args::Args, operator};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    args.start_logging()?;
    operator::run(args).await
}
