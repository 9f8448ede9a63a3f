//! Options of the commands that talk to a cluster.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Format;

/// Heading of [`Target`]'s options in `--help`.
const HEADING: &str = "Cluster";

/// Which cluster, and which namespace of it.
#[derive(Args, Clone, Debug, Default)]
pub struct Target {
    /// Namespace [default: that of the kubeconfig's context].
    #[arg(long, short, help_heading = HEADING, value_parser = namespace)]
    pub namespace: Option<String>,
    /// Context of the kubeconfig [default: its current one].
    #[arg(long, help_heading = HEADING)]
    pub context: Option<String>,
    /// Kubeconfig [default: KUBECONFIG, or ~/.kube/config, or the service account of a pod].
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub kubeconfig: Option<PathBuf>,
}

impl Target {
    /// Names of these options, as clap knows them.
    pub const IDS: [&str; 3] = ["namespace", "context", "kubeconfig"];
}

/// Where progress and results of a run go.
#[derive(Args, Clone, Debug)]
pub struct Output {
    /// Where results go, in a folder NAME-TIMESTAMP.
    #[arg(
        long,
        visible_alias = "output-dir",
        value_name = "DIR",
        default_value = "results"
    )]
    pub results: PathBuf,
    /// Show no progress, only the result.
    #[arg(long, short)]
    pub quiet: bool,
    /// Print results as JSON, one document per line, instead of tables.
    #[arg(long)]
    pub json: bool,
}

const WATCH_NOTES: &str = "\
Results are kept as by `perfrun run`. Ctrl-C stops watching; the run goes on.

Exit status:
  0    every trial was completed
  1    a trial failed, or the run did, was cancelled or deleted: standard error says why
  2    the command line was not understood
  130  stopped by Ctrl-C or SIGTERM";

/// Options of `perfrun list`.
#[derive(Args, Debug)]
pub struct List {
    /// List those of all namespaces.
    #[arg(long, short = 'A', conflicts_with = "namespace", help_heading = HEADING)]
    pub all_namespaces: bool,
    /// Where.
    #[command(flatten)]
    pub target: Target,
}

/// Options of `perfrun watch`.
#[derive(Args, Debug)]
#[command(after_help = WATCH_NOTES)]
pub struct Watch {
    /// Name of the PerfRun.
    #[arg(value_parser = run_name)]
    pub name: String,
    /// Where what comes out goes.
    #[command(flatten)]
    pub output: Output,
    /// Where it runs.
    #[command(flatten)]
    pub target: Target,
}

/// What to get.
#[derive(Debug, Subcommand)]
pub enum Get {
    /// Print the results of a run that has ended.
    Results(GetResults),
}

/// Options of `perfrun get results`.
#[derive(Args, Debug)]
pub struct GetResults {
    /// Name of the PerfRun.
    #[arg(value_parser = run_name)]
    pub name: String,
    /// What to print.
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Where it ran.
    #[command(flatten)]
    pub target: Target,
}

/// Options of `perfrun cancel`.
#[derive(Args, Debug)]
pub struct Cancel {
    /// Name of the PerfRun.
    #[arg(value_parser = run_name)]
    pub name: String,
    /// Do not wait until it has stopped.
    #[arg(long)]
    pub no_wait: bool,
    /// Where it runs.
    #[command(flatten)]
    pub target: Target,
}

/// Options of `perfrun logs`.
#[derive(Args, Debug)]
pub struct Logs {
    /// Name of the PerfRun.
    #[arg(value_parser = run_name)]
    pub name: String,
    /// Only those of this node, e.g. `client-0`.
    #[arg(long)]
    pub node: Option<String>,
    /// Go on until the run ends.
    #[arg(long, short)]
    pub follow: bool,
    /// Where it runs.
    #[command(flatten)]
    pub target: Target,
}

/// The name of a PerfRun, also as kubectl prints it: `perfrun/NAME`, `pr/NAME`.
fn run_name(text: &str) -> Result<String, String> {
    let name = match text.split_once('/') {
        Some(("perfrun" | "perfruns" | "pr" | "perfrun.perfrun.io" | "perfruns.perfrun.io", name)) => name,
        _ => text,
    };
    label(name)
}

fn namespace(text: &str) -> Result<String, String> {
    label(text)
}

/// Anything else would become another path of the API.
fn label(text: &str) -> Result<String, String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    if fits {
        Ok(text.to_owned())
    } else {
        Err(
            "names are 1 to 63 lower-case letters, digits and '-', and begin and end with a letter or digit"
                .into(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_written_as_kubectl_prints_them() {
        for text in ["tcp", "perfrun/tcp", "pr/tcp", "perfrun.perfrun.io/tcp"] {
            assert_eq!(run_name(text).as_deref(), Ok("tcp"));
        }
    }

    #[test]
    fn what_would_be_another_path_is_no_name() {
        for text in [
            "",
            "a/status",
            "pod/a",
            "..",
            "a?b",
            "A",
            "-a",
            "a-",
            &"a".repeat(64),
        ] {
            assert!(run_name(text).is_err(), "{text}");
        }
    }
}
