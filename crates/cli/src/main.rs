//! `perfrun`: benchmarks of peer-to-peer networking stacks.

use std::{
    io::{IsTerminal, stderr},
    process::ExitCode,
};

use anyhow::Context;
use perfrun_api::exit_status::{INCOMPLETE, USAGE};
use perfrun_cli::{
    args::{Cli, Command, Get, InvalidCommandLine},
    cluster, compare, completions, conformance, describe, doctor, history, link, man, new,
    output::{block_on, write_line_to_stderr},
    plan, report, run, validate,
};
use perfrun_local::{LocalIsolation, privilege};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    match perfrun(Cli::from_command_line()) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            write_line_to_stderr(format_args!("perfrun: {error:#}"));
            ExitCode::from(match error.is::<InvalidCommandLine>() {
                true => USAGE,
                false => INCOMPLETE,
            })
        }
    }
}

fn perfrun(cli: Cli) -> anyhow::Result<u8> {
    let filter = EnvFilter::try_new(&cli.log).map_err(|error| {
        InvalidCommandLine(format!(
            "unable to read --log, or RUST_LOG in the environment, as a filter: {:?}: {error}",
            cli.log
        ))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .init();
    match cli.command {
        Command::New(args) => new::write_document(&args).map(|()| 0),
        Command::Doctor(args) => {
            // Before the first thread starts, as below.
            let privilege = privilege::acquire();
            block_on(doctor::doctor(&args, privilege))
        }
        Command::Plan(args) => plan::print_plans(&args).map(|()| 0),
        Command::Conformance(args) => block_on(async {
            match &args.node {
                Some(node) => conformance::conformance(node, &args).await,
                None => cluster::conformance(&args, |starter| conformance::check(&args, starter)).await,
            }
        }),
        Command::Describe(args) => block_on(describe::describe(&args)).map(|()| 0),
        Command::Validate(args) => validate::validate(&args),
        Command::Report(args) => report::report(&args).map(|()| 0),
        Command::Compare(args) => compare::compare(&args),
        Command::History(args) => history::history(&args).map(|()| 0),
        Command::List(args) => block_on(cluster::list(&args)),
        Command::Watch(args) => block_on(cluster::watch(&args)),
        Command::Get(Get::Results(args)) => block_on(cluster::get_results(&args)),
        Command::Cancel(args) => block_on(cluster::cancel(&args)),
        Command::Logs(args) => block_on(cluster::logs(&args)),
        Command::Link(command) => link::link(&command),
        Command::Completions(args) => completions::print_script(&args).map(|()| 0),
        Command::Man(args) => man::write_pages(&args).map(|()| 0),
        Command::Run(args) if args.cluster => block_on(cluster::run(&args)),
        Command::Run(args) => {
            let isolation = run::isolation(&args)?;
            if isolation == LocalIsolation::Namespaces {
                // Before the first thread starts: only a process with one thread can enter a user namespace.
                privilege::acquire().context(
                    "nodes cannot have network namespaces here: run as root, or use --loopback, \
                     which lets all nodes share one interface",
                )?;
            }
            block_on(run::run(args, isolation))
        }
    }
}
