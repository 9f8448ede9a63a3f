//! The command line.

mod cluster;
mod link;

use std::{
    env,
    ffi::OsStr,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
    sync::LazyLock,
};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use self::cluster::{Cancel, Get, GetResults, List, Logs, Output, Target, Watch};
pub use self::link::{
    Clear as ClearLink, Expected, Link, Peer, Place, Probe as ProbeLink, Set as SetLink, Show as ShowLink,
};

const EXIT_STATUS: &str = "\
Exit status:
  0    all was well: every trial was completed, every document is valid
  1    something failed, or was refused: standard error says what
  2    the command line was not understood
  130  the run was stopped by Ctrl-C or SIGTERM; `perfrun run --resume` goes on with it";

const RUN_NOTES: &str = "\
Each document gets a folder of its own, DIR/NAME-TIMESTAMP, with results.json, report.md, report.html and samples.csv. The tables \
go to standard output, progress to standard error. Ctrl-C saves what was measured; a second one ends at once. A run \
that was stopped, killed, or that failed can be gone on with by --resume: trials that were completed are not run again, \
those that failed are, and timeouts.run counts from anew.

With --cluster all documents are applied, then followed one after the other. Ctrl-C stops following: the runs go on, \
`perfrun watch` follows them again, `perfrun cancel` stops them. Complete results stay in the cluster, too.

Exit status:
  0    every trial was completed, perhaps in a second attempt
  1    a trial failed, or the run did, or it was refused or cancelled: standard error and the report say why
  2    the command line was not understood
  130  stopped by Ctrl-C or SIGTERM";

/// Benchmarks of peer-to-peer networking stacks: plan, run, report.
///
/// A PerfRun document says which stacks, over which transports, under which workload, how often. `perfrun run` runs it
/// on this machine, each node in a network namespace of its own; `perfrun run --cluster` has the operator of a
/// Kubernetes cluster run it, each node in a pod. Installed as `kubectl-perfrun`, this is `kubectl perfrun`.
#[derive(Debug, Parser)]
#[command(version, name = "perfrun", after_help = EXIT_STATUS)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Log filter, e.g. `info` or `perfrun_conductor=debug`; logs go to standard error.
    #[arg(long, global = true, env = "RUST_LOG", default_value = "warn,kube=off")]
    pub log: String,
}

impl Cli {
    /// What the command line says; if it says nothing sensible, ends the process with an explanation.
    pub fn from_command_line() -> Self {
        let mut command = Self::described(program());
        let matches = command.get_matches_mut();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
    }

    /// The command line of a program of that name.
    fn described(program: &'static str) -> clap::Command {
        // These options are shared by many commands; only this one can do without a cluster.
        let needs_cluster = |run: clap::Command| {
            Target::IDS.iter().fold(run, |run, id| {
                run.mut_arg(id, |option| option.requires("cluster"))
            })
        };
        Self::command()
            .bin_name(program)
            .mut_subcommand("run", needs_cluster)
    }
}

/// What the user calls this program: kubectl runs `kubectl-perfrun` for `kubectl perfrun`.
pub fn program() -> &'static str {
    static PROGRAM: LazyLock<&str> = LazyLock::new(|| called(env::args_os().next().as_deref()));
    &PROGRAM
}

fn called(file: Option<&OsStr>) -> &'static str {
    match file.map(Path::new).and_then(Path::file_name) {
        Some(name) if name == "kubectl-perfrun" => "kubectl perfrun",
        _ => "perfrun",
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run every PerfRun of a file, on this machine or on a cluster.
    Run(Run),
    /// Print what a file would run: nodes, cells, trials, and what is skipped and why.
    Plan(Plan),
    /// Check a file by the rules of the resource.
    Validate(Validate),
    /// Print results, or draw them.
    Report(Report),
    /// List the runs of a cluster.
    #[command(visible_alias = "ls")]
    List(List),
    /// Follow a run of a cluster to its end, and show what came out.
    Watch(Watch),
    /// Print the results of a run of a cluster.
    #[command(subcommand)]
    Get(Get),
    /// Stop a run of a cluster; what was measured until then is kept.
    Cancel(Cancel),
    /// Print what the nodes of a run of a cluster log.
    Logs(Logs),
    /// Impair a link by hand, see how it is doing, measure it.
    #[command(subcommand)]
    Link(Link),
}

/// Options of `perfrun run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_NOTES)]
pub struct Run {
    /// PerfRun document or stream of documents (YAML or JSON); `-` reads standard input.
    #[arg(required_unless_present = "resume")]
    pub file: Option<PathBuf>,
    /// Go on with a run that was interrupted or failed: the folder of its results.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "results"])]
    pub resume: Option<PathBuf>,
    /// Do without network namespaces: all nodes share the loopback interface. Results say so.
    #[arg(long)]
    pub loopback: bool,
    /// Program of the nodes, or of the nodes of one stack variant [default: perfrun-node beside perfrun].
    #[arg(long, value_name = "[VARIANT=]PATH")]
    pub node: Vec<NodeProgram>,
    /// Serve a page that shows the run while it goes on, and its report when it has ended. It takes some of the machine's
    /// time, so numbers that matter are measured without.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    pub ui: Option<SocketAddr>,
    /// Where what comes out goes.
    #[command(flatten)]
    pub output: Output,
    /// Serve metrics of all nodes, and results so far, for Prometheus: at http://ADDRESS/metrics. When the last run has
    /// ended, whoever has read them is waited for once more.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Have the operator of a Kubernetes cluster run it, and follow it.
    #[arg(long, conflicts_with_all = ["loopback", "node", "resume", "metrics_listen", "ui"], help_heading = "Cluster")]
    pub cluster: bool,
    /// Which cluster.
    #[command(flatten)]
    pub target: Target,
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
    /// Write the samples of echo trials into this folder, as the published WebRTC transport benchmarks have them: a CSV file
    /// without header for each side of each trial.
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
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
    /// A page with tables and plots, in one file.
    Html,
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    fn parsed(line: &str) -> Result<Cli, ErrorKind> {
        let words = std::iter::once("perfrun").chain(line.split_whitespace());
        let matches = Cli::described("perfrun").try_get_matches_from(words);
        matches
            .and_then(|matches| Cli::from_arg_matches(&matches))
            .map_err(|error| error.kind())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::described("perfrun").debug_assert();
    }

    #[test]
    fn what_only_a_local_run_has_is_refused_with_a_cluster() {
        assert!(parsed("run a.yaml --cluster --json -q --output-dir there").is_ok());
        for local in ["--loopback", "--node bin/node"] {
            let refused = parsed(&format!("run a.yaml --cluster {local}"));
            assert_eq!(refused.unwrap_err(), ErrorKind::ArgumentConflict, "{local}");
        }
        let refused = parsed("run --resume results/a --cluster");
        assert_eq!(refused.unwrap_err(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn what_only_a_cluster_has_is_refused_without_one() {
        for option in ["-n lab", "--context lab", "--kubeconfig lab"] {
            assert!(parsed(&format!("run a.yaml --cluster {option}")).is_ok());
            let refused = parsed(&format!("run a.yaml {option}"));
            assert_eq!(
                refused.unwrap_err(),
                ErrorKind::MissingRequiredArgument,
                "{option}"
            );
        }
        assert!(parsed("list -n lab").is_ok());
        assert_eq!(parsed("list -n lab -A").unwrap_err(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn kubectl_s_plugin_is_called_as_one_calls_it() {
        assert_eq!(
            called(Some(OsStr::new("/usr/bin/kubectl-perfrun"))),
            "kubectl perfrun"
        );
        assert_eq!(called(Some(OsStr::new("target/perfrun"))), "perfrun");
        assert_eq!(called(None), "perfrun");
        let mut command = Cli::described("kubectl perfrun");
        command.build();
        let watch = command.find_subcommand_mut("watch").unwrap();
        assert!(watch.render_usage().to_string().contains("kubectl perfrun watch"));
    }

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
