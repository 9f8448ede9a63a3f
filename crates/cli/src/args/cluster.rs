//! Options of the commands that talk to a cluster.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{OutputOptions, Size};

/// The heading of the options of [`Target`] in `--help`.
const HEADING: &str = "Cluster";
/// The heading of the options of [`Output`].
pub(super) const OUTPUT: &str = "Output";

/// A cluster, and a namespace in it.
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
    /// The identifiers of these options in clap.
    pub const IDS: [&str; 3] = ["namespace", "context", "kubeconfig"];
}

/// Options for the progress and results of a run.
#[derive(Args, Clone, Debug)]
pub struct Output {
    /// Folder for results. Each run gets a folder NAME-TIMESTAMP in it.
    #[arg(
        long,
        visible_alias = "output-dir",
        value_name = "DIR",
        default_value = "results",
        help_heading = OUTPUT
    )]
    pub results: PathBuf,
    /// Print all tables at the end, not only the main ones. report.html and report.md always have all.
    #[arg(long, help_heading = OUTPUT)]
    pub all: bool,
    /// Do not show progress, only the results.
    #[arg(long, short, help_heading = OUTPUT)]
    pub quiet: bool,
    /// Print the results as JSON, one document per line, instead of tables.
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    #[command(flatten)]
    pub size: Size,
}

const WATCH_NOTES: &str = "\
Results are saved like those of `perfrun run`. Ctrl-C stops watching, and the run continues.";

/// Options of `perfrun list`.
#[derive(Args, Debug)]
pub struct List {
    /// List the runs of all namespaces.
    #[arg(long, short = 'A', conflicts_with = "namespace", help_heading = HEADING)]
    pub all_namespaces: bool,
    /// Show more columns.
    #[arg(long, short, value_enum)]
    pub output: Option<Columns>,
    #[command(flatten)]
    pub target: Target,
}

/// Columns of a list, as of `kubectl get -o wide`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Columns {
    /// Also the workload, the duration, and the time since the end.
    Wide,
}

/// Options of `perfrun watch`.
#[derive(Args, Debug)]
#[command(after_help = WATCH_NOTES)]
pub struct Watch {
    /// Name of the PerfRun.
    #[arg(value_parser = run_name)]
    pub name: String,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub target: Target,
}

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
    #[command(flatten)]
    pub output_options: OutputOptions,
    #[command(flatten)]
    pub target: Target,
}

/// Options of `perfrun cancel`.
#[derive(Args, Debug)]
pub struct Cancel {
    /// Name of the PerfRun.
    #[arg(value_parser = run_name)]
    pub name: String,
    /// Do not wait until the run has stopped.
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub target: Target,
}

/// Options of `perfrun logs`.
#[derive(Args, Debug)]
pub struct Logs {
    /// Name of the PerfRun.
    #[arg(value_parser = run_name)]
    pub name: String,
    /// Print only the log of this node, e.g. `client-0`.
    #[arg(long)]
    pub node: Option<String>,
    /// Keep printing new lines until the run ends.
    #[arg(long, short)]
    pub follow: bool,
    #[command(flatten)]
    pub target: Target,
}

/// The name of a PerfRun, also as kubectl prints it: `perfrun/NAME`, `pfr/NAME`.
fn run_name(text: &str) -> Result<String, String> {
    let name = match text.split_once('/') {
        Some(("perfrun" | "perfruns" | "pfr" | "perfrun.perfrun.io" | "perfruns.perfrun.io", name)) => name,
        _ => text,
    };
    label(name)
}

fn namespace(text: &str) -> Result<String, String> {
    label(text)
}

/// Any other text could change the path of an API request.
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
            "names have 1 to 63 lower-case letters, digits and '-', and begin and end with a letter or digit"
                .into(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_written_as_kubectl_prints_them() {
        for text in ["tcp", "perfrun/tcp", "pfr/tcp", "perfrun.perfrun.io/tcp"] {
            assert_eq!(run_name(text).as_deref(), Ok("tcp"));
        }
    }

    #[test]
    fn text_that_would_change_a_path_is_refused_as_a_name() {
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
