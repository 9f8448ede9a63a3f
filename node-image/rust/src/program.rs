//! The program. It is in the library because optimised code of generic types is compiled again for each crate
//! that calls it.

use std::{
    io::{IsTerminal, Write, stderr},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, error::ErrorKind};
use tracing_subscriber::EnvFilter;

use crate::{
    agent,
    args::{Cli, Command},
    process, serve,
    standalone::{self, InvalidCommandLine},
};

/// Exit status after an invalid command line, as that of the parser.
const USAGE: u8 = 2;

/// Runs the command of the command line until it ends.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without the backtrace, which RUST_BACKTRACE requests: it does not help a user.
            let _ = writeln!(stderr(), "perfrun-node: {error:#}");
            match error.is::<InvalidCommandLine>() {
                true => ExitCode::from(USAGE),
                false => ExitCode::FAILURE,
            }
        }
    }
}

fn run() -> Result<()> {
    let cli = Cli::parse();
    let filter = EnvFilter::try_new(&cli.log).unwrap_or_else(|error| {
        let message = format!(
            "unable to read --log, or RUST_LOG in the environment, as a filter: {:?}: {error}",
            cli.log
        );
        Cli::command().error(ErrorKind::ValueValidation, message).exit()
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .init();
    process::raise_descriptor_limit();
    // While the process has only one thread.
    process::count_cycles();
    let runtime = tokio::runtime::Runtime::new().context("failed to start the async runtime")?;
    let result = runtime.block_on(async {
        match cli.command {
            Command::Control(args) => serve::serve(args).await,
            Command::LinkAgent(args) => agent::serve(args).await,
            Command::Server(args) => standalone::server(args).await,
            Command::Client(args) => standalone::client(args).await,
            Command::ClientSubstream(args) => standalone::client_substream(args).await,
            Command::Perf(args) => standalone::perf(args).await,
            Command::Relay(args) => standalone::relay(args).await,
            Command::Source(args) => standalone::source(args).await,
            Command::Sink(args) => standalone::sink(args).await,
        }
    });
    // Without waiting for blocking tasks, which must not delay the exit.
    runtime.shutdown_background();
    result
}
