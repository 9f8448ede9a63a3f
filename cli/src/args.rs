//! The command line.

use std::{path::PathBuf, str::FromStr};

use clap::{Args, Parser, Subcommand, ValueEnum};

const EXIT_STATUS: &str = "\
Exit status:
  0    all was well: every trial was completed, every document is valid
  1    something failed, or was refused: standard error says what
  2    the command line was not understood
  130  the run was stopped by Ctrl-C or SIGTERM; `perfrun run --resume` goes on with it";

const RUN_NOTES: &str = "\
Each document gets a folder of its own, DIR/NAME-TIMESTAMP, with results.json, report.md and samples.csv. The tables \
go to standard output, progress to standard error. Ctrl-C saves what was measured; a second one ends at once. A run \
that was stopped, killed, or that failed can be gone on with by --resume: trials that were completed are not run again, \
those that failed are, and timeouts.run counts from anew.

Exit status:
  0    every trial was completed, perhaps in a second attempt
  1    a trial failed, or the run did, or it was refused: standard error and the report say why
  2    the command line was not understood
  130  stopped by Ctrl-C or SIGTERM";

/// Benchmarks of peer-to-peer networking stacks: plan, run, report.
///
/// A PerfRun document says which stacks, over which transports, under which workload, how often. `perfrun run` runs it
/// on this machine, each node in a network namespace of its own.
#[derive(Debug, Parser)]
#[command(version, name = "perfrun", after_help = EXIT_STATUS)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Log filter, e.g. `info` or `perfrun_conductor=debug`; logs go to standard error.
    #[arg(long, global = true, env = "RUST_LOG", default_value = "warn")]
    pub log: String,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run every PerfRun of a file on this machine.
    Run(Run),
    /// Print what a file would run: nodes, cells, trials, and what is skipped and why.
    Plan(Plan),
    /// Check a file by the rules of the resource.
    Validate(Validate),
    /// Print results, or draw them.
    Report(Report),
}

/// Options of `perfrun run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_NOTES)]
pub struct Run {
    /// PerfRun document or stream of documents (YAML or JSON); `-` reads standard input.
    #[arg(required_unless_present = "resume")]
    pub file: Option<PathBuf>,
    /// Where results go, in a folder NAME-TIMESTAMP.
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
    /// Go on with a run that was interrupted or failed: the folder of its results.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "results"])]
    pub resume: Option<PathBuf>,
    /// Do without network namespaces: all nodes share the loopback interface. Results say so.
    #[arg(long)]
    pub loopback: bool,
    /// Program of the nodes, or of the nodes of one stack variant [default: perfrun-node beside perfrun].
    #[arg(long, value_name = "[VARIANT=]PATH")]
    pub node: Vec<NodeProgram>,
    /// Show no progress, only the result.
    #[arg(long, short)]
    pub quiet: bool,
    /// Print results as JSON, one document per line, instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// A program for nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeProgram {
    /// The stack variant whose nodes run it; none: all others.
    pub variant: Option<String>,
    /// The program.
    pub path: PathBuf,
}

impl FromStr for NodeProgram {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A path with '=' in it can be told by a '/' before that: `./a=b`.
        let named = text.split_once('=').filter(|(name, _)| !name.contains('/'));
        Ok(match named {
            Some((variant, path)) => Self {
                variant: Some(variant.to_owned()),
                path: path.into(),
            },
            None => Self {
                variant: None,
                path: text.into(),
            },
        })
    }
}

/// Options of `perfrun plan`.
#[derive(Args, Debug)]
pub struct Plan {
    /// PerfRun document or stream of documents; `-` reads standard input.
    pub file: PathBuf,
    /// Print JSON, one plan per line.
    #[arg(long)]
    pub json: bool,
}

/// Options of `perfrun validate`.
#[derive(Args, Debug)]
pub struct Validate {
    /// PerfRun documents or streams of them; `-` reads standard input.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}

/// Options of `perfrun report`.
#[derive(Args, Debug)]
pub struct Report {
    /// Folder of a run, or its results.json.
    pub results: PathBuf,
    /// What to print.
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Draw plots into this folder.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
}

/// What to print.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Format {
    /// Tables for a terminal.
    Table,
    /// The same in Markdown.
    Md,
    /// Everything, as JSON.
    Json,
    /// The interval samples, as CSV.
    Csv,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_program_may_be_for_one_variant() {
        let parsed = |text: &str| text.parse::<NodeProgram>().unwrap();
        let program = |variant: Option<&str>, path: &str| NodeProgram {
            variant: variant.map(str::to_owned),
            path: path.into(),
        };
        assert_eq!(parsed("bin/node"), program(None, "bin/node"));
        assert_eq!(parsed("next=bin/node"), program(Some("next"), "bin/node"));
        assert_eq!(parsed("./a=b"), program(None, "./a=b"));
    }
}
