//! The command line.

use std::{path::PathBuf, str::FromStr};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Benchmarks of peer-to-peer networking stacks: plan, run, report.
///
/// A PerfRun document says which stacks, over which transports, under which workload, how often. `perfrun run` runs it
/// on this machine, each node in a network namespace of its own.
#[derive(Debug, Parser)]
#[command(version, name = "perfrun")]
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
pub struct Run {
    /// PerfRun document or stream of documents (YAML or JSON); `-` reads standard input.
    #[arg(required_unless_present = "resume")]
    pub file: Option<PathBuf>,
    /// Where results go, in a folder NAME-TIMESTAMP.
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
    /// Go on with a run that was interrupted: the folder of its results.
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
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
        Ok(match text.split_once('=') {
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
