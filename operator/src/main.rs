//! `perfrun-operator`.

use clap::Parser;
use perfrun_operator::{
    args::{Args, Command},
    operator, self_test, store,
};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    args.start_logging()?;
    // A build together with the stacks has two providers, and rustls does not choose one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match &args.command {
        None => operator::run(args).await,
        Some(Command::SelfTest(settings)) => self_test::run(settings).await,
        Some(Command::Store(settings)) => store::run(settings).await,
    }
}
