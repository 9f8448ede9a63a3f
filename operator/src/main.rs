//! `perfrun-operator`.

use clap::Parser;
use perfrun_operator::{
    args::{Args, Command},
    operator, self_test,
};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    args.start_logging()?;
    // Built together with the stacks it has two, and rustls does not choose.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match &args.command {
        None => operator::run(args).await,
        Some(Command::SelfTest(asked)) => self_test::run(asked).await,
    }
}
