//! Developer commands: `cargo xtask demo | test | tools | go | e2e | soak | fuzz | charts | crds | results |
//! pictures | prose | docs | tutorials | node | image | bench | lab`.
//!
//! A fresh clone builds this crate first, so it depends on nothing that needs `protoc`, a stack under test or
//! Kubernetes. It starts other programs and compares files.

mod bench;
mod benchmark;
mod build;
mod chart;
mod children;
mod cluster;
mod compiler;
mod crds;
mod demo;
mod dependencies;
mod e2e;
mod files;
mod fuzz;
mod generated;
mod go;
mod graph;
mod image;
mod install;
mod lab;
mod node;
mod patch;
mod pictures;
mod pinned;
mod programs;
mod prose;
mod results;
mod shell;
mod site;
mod soak;
mod stand_in;
mod step;
mod test;
mod timed_tests;
mod times;
mod tools;
mod tutorials;
mod workflows;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::{
    shell::{Profile, Workspace},
    stand_in::StandIn,
};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "perfrun's developer commands"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build perfrun and run examples/quickstart.yaml, from a fresh clone to the table
    Demo,
    /// Run every check there is and end with a summary
    Test(test::Args),
    /// Install and build what checks need besides this workspace; `test` does so, too
    Tools,
    /// Build perfrun-node-go, the node of go-libp2p, beside the other programs; `test` does so, too
    Go {
        /// Put it beside the programs of the release profile
        #[arg(long)]
        release: bool,
    },
    /// Run the end-to-end tests on a cluster of their own; `test` does so, too, as root
    E2e {
        /// Run only the tests with one of these in their name
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Run random documents on a cluster of their own, while random parts of it fail
    #[command(disable_help_flag = true)]
    Soak {
        /// Options of perfrun-soak: --minutes, --seed, --round, --keep
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
        args: Vec<OsString>,
    },
    /// Search for input that breaks a parser; print a table, and keep such input
    Fuzz(fuzz::Args),
    /// Check the Helm chart without a cluster; `test` does so, too
    Charts,
    /// Write the generated files: CRDs, schemas, reference pages, the chart's copies and README
    Crds {
        /// Write nothing; fail when a committed file differs from what would be generated
        #[arg(long)]
        check: bool,
    },
    /// Write the tables and plots of documents from the results in docs/results, or measure those again
    Results(results::Args),
    /// Make the pictures of pages and dashboards in docs/img, by the tests that show these
    Pictures,
    /// Check the language of documents, comments and messages, and spelling; `test` does so, too
    Prose {
        /// Files and folders to check, from the root of the repository (default: all)
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Build the documentation as a site, and follow its links; `test` does so, too
    Docs,
    /// Build perfrun-node with another version of a stack, for `perfrun run --candidate`
    Node(node::Args),
    /// Run the commands of the tutorials as printed; `test` does so, too
    Tutorials,
    /// Build a container image: of perfrun-node, of perfrun-node-go or of the operator
    Image(image::Args),
    /// Measure perfrun itself. Arguments go to perfrun-bench, or after `go` to the benchmark of the Go node
    Bench {
        /// Benchmarks to run (default: all but `cluster`, `netem`, `peers` and `scale`), and options of
        /// perfrun-bench. With one benchmark, --keep keeps its output in docs/results/benchmarks
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "NAME")]
        args: Vec<OsString>,
    },
    /// A real Kubernetes cluster on this machine; `cargo xtask lab help` lists its commands
    #[command(disable_help_flag = true)]
    Lab {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        args: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let ended = match stand_in::started_as() {
        Some((StandIn::Checking, arguments)) => compiler::run(&arguments),
        Some((StandIn::Fuzzing, arguments)) => fuzz::compile(&arguments),
        Some((StandIn::Timing, arguments)) => timed_tests::run(&arguments),
        None => run(Args::parse().command),
    };
    let code = ended.unwrap_or_else(|error| {
        #[expect(clippy::print_stderr, reason = "where a command line tool says why it failed")]
        {
            eprintln!("error: {error:#}");
        }
        ExitCode::FAILURE
    });
    children::exit_code().unwrap_or(code)
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    children::stop_on_signals()?;
    let mut workspace = Workspace::locate()?;
    match command {
        Command::Demo => demo::run(&workspace),
        Command::Test(args) => test::run(workspace, &args),
        Command::Tools => tools::run(&workspace),
        Command::Go { release } => {
            let profile = if release { Profile::Release } else { Profile::Dev };
            go::run(&workspace, profile)
        }
        Command::E2e { names } => e2e::run(&workspace, &names),
        Command::Soak { args } => soak::run(&workspace, &args),
        Command::Fuzz(args) => fuzz::run(&mut workspace, &args),
        Command::Charts => chart::run(&workspace),
        Command::Crds { check } => crds::run(&workspace, check),
        Command::Results(args) => results::run(&workspace, &args),
        Command::Pictures => pictures::run(&workspace),
        Command::Prose { paths } => prose::run(&workspace, &paths),
        Command::Docs => site::run(&workspace),
        Command::Tutorials => tutorials::run(&workspace),
        Command::Node(args) => node::run(&workspace, &args),
        Command::Image(args) => image::run(&workspace, &args),
        Command::Bench { args } => bench::run(&workspace, &args),
        Command::Lab { args } => lab::run(&workspace, &args),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Args, Command};

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn options_after_bench_belong_to_perfrun_bench() {
        let Command::Bench { args } = Args::parse_from(["xtask", "bench", "raw-tcp", "--json"]).command
        else {
            panic!("not parsed as bench");
        };
        assert_eq!(args, ["raw-tcp", "--json"]);
    }
}
