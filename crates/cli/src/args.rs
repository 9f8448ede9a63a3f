//! The command line.

mod cells;
mod cluster;
mod comparison;
mod doctor;
mod help;
mod link;
mod new;
mod reference;
mod shells;
mod tips;
mod usage;
mod version;

use std::{
    env,
    ffi::{OsStr, OsString},
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
    sync::LazyLock,
    time::Duration,
};

use clap::{
    ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use perfrun_api::{exit_status::Statuses, memory_budget::MemoryBudget, pod::NODE_IMAGE};
use perfrun_report::differences::Field;
use perfrun_serve::listening_address;
use strum::VariantNames;

use self::cluster::OUTPUT;
use crate::profile::CallGraph;

pub use self::cells::Where;
pub use self::cluster::{Cancel, Columns, Get, GetResults, List, Logs, Output, Target, Watch};
pub use self::comparison::ComparisonOptions;
pub use self::doctor::Doctor;
pub use self::link::{
    ClearLink, Expected, ImpairmentOptions, LinkCommand, NetworkNamespace, PeerAddress, ProbeLink, SetLink,
    ShowLink,
};
pub use self::new::New;
pub use self::reference::reference;
pub use self::shells::{Completions, Man};
pub use self::usage::InvalidCommandLine;

const RUN_NOTES: &str = "\
The results of each document go to a new folder, DIR/NAME-TIMESTAMP: results.json, report.md, report.html and \
samples.csv. The tables go to standard output, progress to standard error. Ctrl-C stops the run and saves its \
results; a second Ctrl-C exits immediately. Use --resume to continue a run that was stopped, killed or failed: \
completed trials are kept, failed ones are run again, and timeouts.run starts afresh.

With --cluster, perfrun applies all documents and then follows the runs one after the other. Ctrl-C stops following, \
and the runs continue: `perfrun watch` follows a run again, `perfrun cancel` stops it. The complete results also stay \
in the cluster.";

/// Benchmarks of peer-to-peer networking stacks: plan, run, report.
///
/// A PerfRun document names the stacks, transports and workload to measure, and the number of iterations.
/// `perfrun run` runs it on this machine, each node in its own network namespace. With `--cluster`, the
/// operator of a Kubernetes cluster runs it, each node in a pod. Installed as `kubectl-perfrun`, this program
/// is also `kubectl perfrun`.
#[derive(Debug, Parser)]
#[command(version = version::VERSION.as_str(), name = "perfrun")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Log filter, e.g. `info` or `perfrun_conductor=debug`. Logs go to standard error.
    #[arg(
        long,
        global = true,
        env = "RUST_LOG",
        hide_env_values = true,
        default_value = "warn,kube=off"
    )]
    pub log: String,
}

impl Cli {
    /// Parses the command line. If it is invalid, prints an explanation and exits.
    pub fn from_command_line() -> Self {
        let mut command = Self::described(program());
        let given: Vec<OsString> = env::args_os().collect();
        let matches = command
            .try_get_matches_from_mut(&given)
            .unwrap_or_else(|mut error| {
                tips::add(&mut error, &command, &given);
                error.exit()
            });
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
    }

    /// The command line of a program with this name.
    pub(crate) fn described(program: &'static str) -> clap::Command {
        // Many commands share these options, and all but two always need a cluster.
        let target = |command: clap::Command, change: fn(clap::Arg) -> clap::Arg| {
            Target::IDS
                .iter()
                .fold(command, |command, id| command.mut_arg(id, change))
        };
        help::explained(with_statuses(Self::command(), program, ""), program)
            .bin_name(program)
            .mut_subcommand("run", |run| {
                let run = run.mut_arg("large", |option| option.requires("cluster"));
                target(run, |option| option.requires("cluster"))
            })
            .mut_subcommand("conformance", |conformance| {
                target(conformance, |option| option.conflicts_with("node"))
            })
    }
}

/// Adds the exit statuses to the help of a command and of those in it.
fn with_statuses(command: clap::Command, program: &str, path: &str) -> clap::Command {
    let command = command.mut_subcommands(|inner| {
        let path = format!("{path} {}", inner.get_name());
        with_statuses(inner, program, path.trim_start())
    });
    let statuses = match Statuses::of(path) {
        Some(statuses) => statuses.help(),
        None if command.has_subcommands() => {
            format!("`{program} {path} COMMAND --help` lists the exit statuses.")
        }
        None => return command,
    };
    let notes = command.get_after_help().map(|notes| format!("{notes}\n\n"));
    command.after_help(notes.unwrap_or_default() + &statuses)
}

/// The command that the user types: kubectl runs `kubectl-perfrun` for `kubectl perfrun`.
pub fn program() -> &'static str {
    static PROGRAM: LazyLock<&str> = LazyLock::new(|| called(env::args_os().next().as_deref()));
    &PROGRAM
}

/// The program as the user typed it, so that a command for it works.
pub fn typed() -> String {
    as_typed(env::args_os().next().as_deref())
}

fn as_typed(file: Option<&OsStr>) -> String {
    let program = called(file);
    match file.map(OsStr::to_string_lossy) {
        Some(path) if program == "perfrun" && path.contains('/') => path.into_owned(),
        _ => program.to_owned(),
    }
}

fn called(file: Option<&OsStr>) -> &'static str {
    match file.map(Path::new).and_then(Path::file_name) {
        Some(name) if name == "kubectl-perfrun" => "kubectl perfrun",
        _ => "perfrun",
    }
}

const CONFORMANCE_NOTES: &str = "\
With --image, perfrun needs no operator. It makes a Secret and three pods, reaches the pods as `kubectl port-forward` \
does, and deletes everything at the end, after a failure and after Ctrl-C. It needs a role with the verbs create, get, \
list, watch and delete on pods, create on pods/portforward, get on pods/log, and create and delete on secrets.";

/// A node program to check.
#[derive(Args, Debug)]
#[command(after_help = CONFORMANCE_NOTES, group(ArgGroup::new("tested").args(["node", "image"]).required(true)))]
pub struct Conformance {
    /// The program and its first arguments, separated by spaces, for example `python3 node.py`.
    #[arg(long, value_name = "COMMAND")]
    pub node: Option<String>,
    /// The node that the program exchanges bytes with. By default, the perfrun-node in the folder of perfrun.
    #[arg(long, value_name = "PATH", conflicts_with = "image")]
    pub reference: Option<PathBuf>,
    /// A container image whose entry point is the node: check it in pods of a cluster, not on this machine.
    #[arg(long, help_heading = "Cluster")]
    pub image: Option<String>,
    /// The image of the node that the node under test exchanges bytes with, as `--reference` names a program.
    /// No registry has the default: build it with `cargo xtask image node`, and load it into the Kubernetes
    /// nodes, or push it to a registry and name it here.
    #[arg(long, value_name = "IMAGE", default_value = NODE_IMAGE, conflicts_with = "node", help_heading = "Cluster")]
    pub reference_image: String,
    /// How long a pod may take until its node is ready. Pulling the image counts.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "2m",
        value_parser = link::time,
        conflicts_with = "node",
        help_heading = "Cluster"
    )]
    pub provision_timeout: Duration,
    #[command(flatten)]
    pub target: Target,
    /// Make only the checks with this text in their name.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub filter: String,
    /// Leave out the checks with this text in their name. May be repeated.
    #[arg(long, value_name = "TEXT")]
    pub skip: Vec<String>,
    /// Also write the outcome to this file, as JUnit's XML.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

/// A node program to describe.
#[derive(Args, Debug)]
pub struct Describe {
    /// The program and its first arguments, for example `python3 node.py`.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run every PerfRun in a file, on this machine or on a cluster.
    Run(Run),
    /// Write a first document for a workload, with a comment on each field.
    New(New),
    /// Say what this machine can do for a run, and what would spoil numbers.
    Doctor(Doctor),
    /// Print what a file would run: nodes, cells, trials, and which cells are skipped and why.
    Plan(PlanArgs),
    /// Check whether a program or an image speaks the node contract, and may take part in runs.
    Conformance(Conformance),
    /// Start a node program and print what its stacks can do, for `stacks` of a document.
    Describe(Describe),
    /// Check documents of runs and schedules by the rules of a cluster.
    Validate(Validate),
    /// Print results, or draw plots of them.
    Report(Report),
    /// Compare results: within one run, between two runs, or across many.
    Compare(Compare),
    /// Print the medians of many runs as CSV, for tools that look for trends.
    History(History),
    /// List the runs on a cluster.
    #[command(visible_alias = "ls")]
    List(List),
    /// Follow a run on a cluster until it ends, then save and show its results.
    Watch(Watch),
    /// Print the results of a run on a cluster.
    #[command(subcommand)]
    Get(Get),
    /// Stop a run on a cluster. The results so far are kept.
    Cancel(Cancel),
    /// Print the logs of a run's nodes on a cluster.
    Logs(Logs),
    /// Impair a link by hand, show its state, or measure it.
    #[command(subcommand)]
    Link(LinkCommand),
    /// Print a script by which a shell completes command lines of perfrun.
    Completions(Completions),
    /// Write a page for `man` for each command. Packages of perfrun use this command.
    #[command(hide = true)]
    Man(Man),
}

/// Headings of options in `--help`.
const MEASUREMENT: &str = "Measurement";
const OBSERVATION: &str = "Observation";

/// Options of `perfrun run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_NOTES)]
pub struct Run {
    /// File with one or more PerfRun documents (YAML or JSON); `-` reads standard input.
    #[arg(required_unless_present = "resume")]
    pub file: Option<PathBuf>,
    /// Resume a run that was interrupted or failed. DIR is its results folder.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["file", "results", "base", "candidate", "aa", "max_regression"]
    )]
    pub resume: Option<PathBuf>,
    /// Do not use network namespaces: all nodes share the loopback interface. The results record this.
    #[arg(long, help_heading = MEASUREMENT)]
    pub loopback: bool,
    /// Program to run as a node, for all nodes or those of one stack variant [default: perfrun-node beside
    /// perfrun].
    #[arg(long, value_name = "[VARIANT=]PATH", help_heading = MEASUREMENT)]
    pub node: Vec<NodeArg>,
    #[command(flatten)]
    pub comparison: ComparisonOptions,
    /// Seed of the random order of trials, to repeat a run in the same order [default: that of the document,
    /// or a new one]. `plan.seed` of the results has the seed.
    #[arg(long, value_name = "N", conflicts_with = "resume", value_parser = seed, help_heading = MEASUREMENT)]
    pub seed: Option<u32>,
    /// Serve a web page that shows the run in progress, and its report at the end. The page uses CPU time of
    /// this machine, so do not use it for measurements that matter.
    #[arg(
        long,
        value_name = "ADDR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "127.0.0.1:0",
        value_parser = address_here,
        help_heading = OBSERVATION
    )]
    pub ui: Option<SocketAddr>,
    /// After the measured trials, run one more of each cell while `perf` samples its nodes. Flame graphs and
    /// stacks go to `profiles` in the results folder, and the report links them. `fp` costs less, and needs
    /// nodes that are built with frame pointers.
    #[arg(
        long,
        value_name = "CALL_GRAPH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "dwarf",
        help_heading = OBSERVATION
    )]
    pub profile: Option<CallGraph>,
    /// Begin when this machine has been quiet for two seconds: other processes use at most 10 % of its CPUs,
    /// and its hypervisor gives at most 5 % of their time to other machines. If that takes longer than
    /// DURATION, fail with exit status 1. Without this option, perfrun only says that the machine is busy.
    #[arg(long, value_name = "DURATION", value_parser = link::time, help_heading = MEASUREMENT)]
    pub wait_quiet: Option<Duration>,
    #[command(flatten)]
    pub output: Output,
    /// Serve the metrics of all nodes, and the results so far, for Prometheus at http://ADDRESS:PORT/metrics.
    /// After the last run, perfrun waits until every scraper has read them once more.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listening_address, help_heading = OBSERVATION)]
    pub metrics_listen: Option<SocketAddr>,
    /// Let the operator of a Kubernetes cluster run the documents, and follow the runs.
    #[arg(long, conflicts_with_all = ["loopback", "node", "resume", "base", "candidate", "aa", "max_regression", "seed", "metrics_listen", "ui", "wait_quiet"], help_heading = "Cluster")]
    pub cluster: bool,
    #[command(flatten)]
    pub target: Target,
}

/// The address of a page without a password.
fn address_here(text: &str) -> Result<SocketAddr, String> {
    let address = listening_address(text)?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(
            "the page has no password and is only for this machine: use a loopback address, and `ssh -L` to reach it from \
             elsewhere"
                .to_owned(),
        ),
    }
}

fn seed(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("it must be a whole number, from 0 to {}", u32::MAX))
}

/// A program for nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeArg {
    /// The stack variant whose nodes run the program. `None` if all nodes without a program of their own run
    /// it.
    pub variant: Option<String>,
    pub path: PathBuf,
    /// The option that names it.
    pub option: &'static str,
}

impl NodeArg {
    /// The option as the user wrote it.
    pub fn written(&self) -> String {
        let variant = self.variant.as_ref().filter(|_| self.option == NODE);
        let variant = variant.map_or_else(String::new, |variant| format!("{variant}="));
        format!("{} {variant}{}", self.option, self.path.display())
    }
}

/// The option that names programs of any variant.
const NODE: &str = "--node";

impl FromStr for NodeArg {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A '/' before the '=' marks a path: `./a=b`.
        let named = text.split_once('=').filter(|(name, _)| !name.contains('/'));
        Ok(match named {
            Some((variant, path)) => Self {
                variant: Some(variant.to_owned()),
                path: path.into(),
                option: NODE,
            },
            None => Self {
                variant: None,
                path: text.into(),
                option: NODE,
            },
        })
    }
}

/// Options of `perfrun plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// File with one or more PerfRun documents; `-` reads standard input.
    pub file: PathBuf,
    /// List each cell, each network and each skipped cell. Otherwise, long lists are summed up.
    #[arg(long, conflicts_with = "json")]
    pub all: bool,
    /// Print JSON, one plan per line.
    #[arg(long)]
    pub json: bool,
    /// Seed of the random order of trials, as for `perfrun run`. Without one, trials are in the order of the
    /// document.
    #[arg(long, value_name = "N", value_parser = seed)]
    pub seed: Option<u32>,
    #[command(flatten)]
    pub comparison: ComparisonOptions,
}

/// Options of `perfrun validate`.
#[derive(Args, Debug)]
pub struct Validate {
    /// Files with PerfRun and PerfSchedule documents; `-` reads standard input. A folder stands for the
    /// .yaml, .yml and .json files in it. Its subfolders are not read.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}

/// Options of `perfrun report`.
#[derive(Args, Debug)]
pub struct Report {
    /// Results folder of a run, or its results.json, which gzip may have compressed to results.json.gz.
    pub results: PathBuf,
    #[command(flatten)]
    pub output_options: OutputOptions,
    /// Show only cells with all of these fields: `client`, `server`, `transport`, `network` and `ipFamily`,
    /// as `where` in a document, and `load`, the last part of a cell's id, without its network, such as
    /// `echo-10x1000`. Repeat the option to add cells. The raw reference of these cells is shown, too.
    /// Skipped cells are those of the whole run, and so is the verdict. Findings are left out, because they
    /// are of the whole run.
    #[arg(long = "where", value_name = "FIELD=VALUE,...")]
    pub cells: Vec<Where>,
    /// Write plots to this folder as SVG files.
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    pub svg: Option<PathBuf>,
    /// Write summary.csv to this folder: the median of each metric of each cell, with its interval. For echo
    /// trials, also write their samples in the format of the published WebRTC transport benchmarks: one CSV
    /// file without a header for each side of each trial.
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    pub csv: Option<PathBuf>,
}

/// How results are printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputOptions {
    /// Format of the output.
    #[arg(long, short, value_enum, default_value_t = Format::Table, help_heading = OUTPUT)]
    pub output: Format,
    /// Print all tables, not only the main ones. Other formats than `table` always have all.
    #[arg(long, help_heading = OUTPUT)]
    pub all: bool,
    /// How inconclusive findings count: in `junit` as failures or as skipped tests, in `github` as warnings
    /// or as notices. The exit status of `perfrun compare` is then 4 or 0.
    #[arg(long, value_enum, default_value_t = Inconclusive::Fail, help_heading = OUTPUT)]
    pub inconclusive: Inconclusive,
    #[command(flatten)]
    pub size: Size,
}

/// How large the results are that are read.
#[derive(Args, Clone, Copy, Debug)]
pub struct Size {
    /// Read results that take more than 256 MiB of memory: those of a run, or of all runs that are compared.
    /// Use it only if you trust who made them: a small file may take all memory.
    #[arg(long)]
    pub large: bool,
}

impl Size {
    /// The memory that results may take.
    pub fn memory(self) -> MemoryBudget {
        if self.large {
            MemoryBudget::unlimited()
        } else {
            MemoryBudget::of_results()
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Inconclusive {
    Fail,
    Pass,
}

const COMPARE_NOTES: &str = "\
What is compared with what:
  RUN                     a run with `compare` or `expect`: what it found
  BASE CANDIDATE          two runs: their differences, never better or worse, since machines differ between runs
  --base RUN... --candidate RUN...
                          at least 6 runs of each side, measured in turn: the first of each are a pair, and so on
  --history DIR RUN       a run and at least 5 earlier ones of the same name in DIR: whether it is as they predict

RUN is a results folder, a results.json or a results.json.gz. A folder that holds results folders stands for all of \
them. Cells with the same name are compared, except the raw reference. Runs must be alike in everything but the node \
program and the version of one stack.";

/// Options of `perfrun compare`.
#[derive(Args, Debug)]
#[command(after_help = COMPARE_NOTES)]
pub struct Compare {
    /// One run, or the baseline and the candidate.
    #[arg(value_name = "RESULTS", required_unless_present = "base")]
    pub results: Vec<PathBuf>,
    /// Runs of the baseline.
    #[arg(long, value_name = "RESULTS", num_args = 1.., requires = "candidate", conflicts_with = "results")]
    pub base: Vec<PathBuf>,
    /// Runs of the candidate.
    #[arg(long, value_name = "RESULTS", num_args = 1.., requires = "base")]
    pub candidate: Vec<PathBuf>,
    /// Compare a run with the earlier ones of the same name in this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "base")]
    pub history: Option<PathBuf>,
    /// Compare although these differ, for example `kernel,cpu`.
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', value_parser = fields())]
    pub allow: Vec<Field>,
    #[command(flatten)]
    pub output_options: OutputOptions,
}

fn fields() -> impl TypedValueParser<Value = Field> {
    PossibleValuesParser::new(Field::VARIANTS).try_map(|name| name.parse::<Field>())
}

/// Options of `perfrun history`.
#[derive(Args, Debug)]
pub struct History {
    /// Folder with results folders.
    pub folder: PathBuf,
    #[command(flatten)]
    pub size: Size,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Format {
    /// Tables for a terminal.
    Table,
    /// Tables in Markdown.
    Md,
    /// All results, as JSON.
    Json,
    /// The interval samples, as CSV; of one run only.
    Csv,
    /// A web page with tables and plots, in one file; of one run only.
    Html,
    /// What was compared or expected, as JUnit's XML.
    Junit,
    /// Tables in Markdown, and on standard error the findings as workflow commands of GitHub Actions.
    Github,
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use perfrun_api::exit_status::COMMANDS;

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
    fn options_of_local_runs_are_refused_with_a_cluster() {
        assert!(parsed("run a.yaml --cluster --json -q --output-dir there").is_ok());
        for local in [
            "--loopback",
            "--node bin/node",
            "--seed 7",
            "--candidate bin/node",
            "--aa",
            "--max-regression openP50=10%",
            "--wait-quiet 60s",
        ] {
            let refused = parsed(&format!("run a.yaml --cluster {local}"));
            assert_eq!(refused.unwrap_err(), ErrorKind::ArgumentConflict, "{local}");
        }
        let refused = parsed("run --resume results/a --cluster");
        assert_eq!(refused.unwrap_err(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn options_that_change_a_document_are_refused_when_a_run_is_resumed() {
        for change in ["--candidate bin/node", "--aa", "--max-regression openP50=10%"] {
            assert!(parsed(&format!("run a.yaml {change}")).is_ok(), "{change}");
            assert!(parsed(&format!("plan a.yaml {change}")).is_ok(), "{change}");
            let refused = parsed(&format!("run --resume results/a {change}"));
            assert_eq!(refused.unwrap_err(), ErrorKind::ArgumentConflict, "{change}");
        }
    }

    #[test]
    fn options_of_clusters_are_refused_without_a_cluster() {
        for option in ["-n lab", "--context lab", "--kubeconfig lab", "--large"] {
            assert!(parsed(&format!("run a.yaml --cluster {option}")).is_ok());
            let refused = parsed(&format!("run a.yaml {option}"));
            assert_eq!(
                refused.unwrap_err(),
                ErrorKind::MissingRequiredArgument,
                "{option}"
            );
        }
        assert!(parsed("conformance --image node:1 -n lab --reference-image peer:1").is_ok());
        for option in ["-n lab", "--reference-image peer:1", "--provision-timeout 5s"] {
            let refused = parsed(&format!("conformance --node node.py {option}"));
            assert_eq!(refused.unwrap_err(), ErrorKind::ArgumentConflict, "{option}");
        }
        assert!(parsed("list -n lab").is_ok());
        assert_eq!(parsed("list -n lab -A").unwrap_err(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn the_help_of_every_command_lists_its_exit_statuses() {
        fn check(command: &mut clap::Command, path: &str) -> usize {
            let name = command.get_name().to_owned();
            let path = format!("{path} {name}");
            let inner: usize = command
                .get_subcommands_mut()
                .map(|inner| check(inner, &path))
                .sum();
            if inner > 0 {
                return inner;
            }
            let help = command.render_long_help().to_string();
            assert!(help.contains("\nExit status:\n  0    "), "{path}: {help}");
            1
        }
        let mut command = Cli::described("perfrun");
        // Without those of all commands together.
        assert_eq!(check(&mut command, ""), COMMANDS.len() - 1);
        assert!(
            command
                .render_long_help()
                .to_string()
                .contains("\nExit status:\n")
        );
    }

    #[test]
    fn the_plugin_of_kubectl_names_itself_as_it_is_called() {
        assert_eq!(
            called(Some(OsStr::new("/usr/bin/kubectl-perfrun"))),
            "kubectl perfrun"
        );
        assert_eq!(called(Some(OsStr::new("target/perfrun"))), "perfrun");
        assert_eq!(called(None), "perfrun");
        let typed = |file: &str| as_typed(Some(OsStr::new(file)));
        assert_eq!(typed("target/release/perfrun"), "target/release/perfrun");
        assert_eq!(typed("perfrun"), "perfrun");
        assert_eq!(typed("/usr/bin/kubectl-perfrun"), "kubectl perfrun");
        let mut command = Cli::described("kubectl perfrun");
        command.build();
        let watch = command.find_subcommand_mut("watch").unwrap();
        assert!(watch.render_usage().to_string().contains("kubectl perfrun watch"));
    }

    #[test]
    fn a_node_program_may_be_for_one_variant() {
        let parsed = |text: &str| text.parse::<NodeArg>().unwrap();
        let program = |variant: Option<&str>, path: &str| NodeArg {
            variant: variant.map(str::to_owned),
            path: path.into(),
            option: "--node",
        };
        assert_eq!(parsed("bin/node"), program(None, "bin/node"));
        assert_eq!(parsed("next=bin/node"), program(Some("next"), "bin/node"));
        assert_eq!(parsed("next=bin/node").written(), "--node next=bin/node");
        assert_eq!(parsed("./a=b"), program(None, "./a=b"));
    }
}
