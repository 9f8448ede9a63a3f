//! The program `perf`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{self, Output, Stdio},
    time::Duration,
};

use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

/// Samples per second of CPU time. An odd number does not beat with timers of round periods.
const FREQUENCY: &str = "499";

/// How long `perf` may take to attach to the nodes.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How long it may take to write its last samples.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause between two looks at the file that `perf` writes.
const PAUSE: Duration = Duration::from_millis(10);

/// An error because of which a run, or a cell, has no profile.
#[derive(Debug, Error)]
pub enum Error {
    #[error(
        "unable to profile: there is no `perf` on PATH; install it (Debian: linux-perf, Ubuntu: linux-tools-generic, \
         Fedora: perf), or run without --profile"
    )]
    FindPerf,
    #[error("failed to start `perf`")]
    StartPerf(#[source] io::Error),
    #[error(
        "unable to profile: `perf` may not sample processes here ({reason}); run as root, or set sysctl \
         kernel.perf_event_paranoid to 2 or less{now}; a container needs the capability PERFMON and a seccomp \
         profile that allows perf_event_open"
    )]
    Refused {
        /// What `perf` reported.
        reason: String,
        /// The current value of the setting, in parentheses.
        now: String,
    },
    #[error("`perf record` ended early: {0}")]
    EndedEarly(String),
    #[error("`perf` did not begin or end its recording in time")]
    Timeout,
    #[error("`perf script` failed: {0}")]
    Script(String),
}

/// How `perf` finds the callers of a function.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum CallGraph {
    /// From a copy of the stack: works with every node.
    Dwarf,
    /// From frame pointers: cheaper, for nodes that are built with them.
    Fp,
}

impl CallGraph {
    fn option(self) -> &'static str {
        match self {
            // Twice the default: stacks of futures are deep.
            Self::Dwarf => "dwarf,16384",
            Self::Fp => "fp",
        }
    }
}

fn record(call_graph: CallGraph, pids: &[u32], file: &Path) -> Command {
    let mut command = Command::new("perf");
    command
        // Without build ids, which it would copy to the home folder together with the programs.
        .args(["record", "--quiet", "--no-buildid", "--no-buildid-cache"])
        .args(["--freq", FREQUENCY, "--pid", &listed(pids)])
        .args(["--call-graph", call_graph.option()])
        .arg("--output")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Ctrl-C on a terminal is for perfrun alone.
        .process_group(0)
        .kill_on_drop(true);
    command
}

fn listed(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Checks that `perf` is installed and may sample processes of this user, by sampling this one.
pub async fn check(call_graph: CallGraph) -> Result<(), Error> {
    let mut trial = record(call_graph, &[process::id()], Path::new("/dev/null"));
    let output = trial.args(["--", "true"]).output().await.map_err(not_started)?;
    if output.status.success() {
        return Ok(());
    }
    let now = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .map(|value| format!(" (now {})", value.trim()))
        .unwrap_or_default();
    Err(Error::Refused {
        reason: reported(&output),
        now,
    })
}

fn not_started(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::FindPerf,
        _ => Error::StartPerf(error),
    }
}

/// The first line of a message that says something.
fn reported(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let mut lines = text.lines().map(str::trim);
    let line = lines.find(|line| !matches!(*line, "" | "Error:"));
    line.map_or_else(|| output.status.to_string(), str::to_owned)
}

/// A recording in progress. Dropping it kills `perf`.
pub struct Recording {
    perf: Child,
    file: PathBuf,
}

impl Recording {
    /// Begins to sample processes. Returns when `perf` is attached to them.
    pub async fn start(call_graph: CallGraph, pids: &[u32], file: PathBuf) -> Result<Self, Error> {
        let mut perf = record(call_graph, pids, &file).spawn().map_err(not_started)?;
        let deadline = Instant::now() + START_TIMEOUT;
        // It writes what the processes have mapped before anything else.
        while fs::metadata(&file).map_or(0, |metadata| metadata.len()) == 0 {
            if perf.try_wait().map_err(Error::StartPerf)?.is_some() {
                let output = perf.wait_with_output().await.map_err(Error::StartPerf)?;
                return Err(Error::EndedEarly(reported(&output)));
            }
            if Instant::now() > deadline {
                return Err(Error::Timeout);
            }
            sleep(PAUSE).await;
        }
        Ok(Self { perf, file })
    }

    /// Ends the recording.
    pub async fn stop(self) -> Result<Recorded, Error> {
        let pid = self.perf.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::INT); // it has ended if its processes have
        }
        let recorded = Recorded(self.file);
        match timeout(STOP_TIMEOUT, self.perf.wait_with_output()).await {
            Ok(_) => Ok(recorded),
            Err(_) => Err(Error::Timeout),
        }
    }
}

/// A recording that has ended. Dropping it removes its file, which only fits the programs of this machine.
pub struct Recorded(PathBuf);

impl Recorded {
    /// The samples of these processes, as `perf script` prints them. Names of functions are mangled, which
    /// older versions of `perf` cannot undo for Rust.
    pub async fn script(&self, pids: &[u32]) -> Result<Vec<u8>, Error> {
        let output = Command::new("perf")
            // Inlined functions would take hours: it starts another program for each address.
            .args(["script", "--no-demangle", "--no-inline", "--pid", &listed(pids)])
            // Without periods, so that each sample counts as one.
            .args(["--fields", "comm,tid,time,event,ip,sym,dso", "--input"])
            .arg(&self.0)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(not_started)?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(Error::Script(reported(&output)))
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
