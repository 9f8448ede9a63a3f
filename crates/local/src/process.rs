//! Node processes: starting, reading their output, stopping and reaping them.
//!
//! One thread, the launcher, does all of this. A child asks the kernel to kill it when its parent dies, and
//! for the kernel the parent is the *thread* that forked. So that thread must live as long as the nodes. It
//! also empties their pipes, so that a busy or blocked perfrun never stalls a node that writes.
//!
//! Besides its arguments, a node gets:
//!
//! - `--control fd:N`, a listening TCP socket that perfrun has bound to 127.0.0.1 in its own namespace. A
//!   socket stays in the namespace in which it was created, so control traffic never crosses the measured
//!   link;
//! - `PERFRUN_TOKEN_FILE`, a sealed file in memory with the token that callers of the control port must show;
//! - `/dev/null` as stdin and stdout, a pipe as stderr, and no other open file.

mod launcher;
mod output;
mod token;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use rustix::thread::CpuSet;
use thiserror::Error;
use tokio::sync::{mpsc, watch};

use super::network::Addresses;
pub use launcher::Launcher;
use output::LogTail;
pub use token::Token;

/// How long dropping a node waits until it has been reaped. SIGKILL takes milliseconds unless the kernel is
/// stuck.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a node could not be started.
#[derive(Debug, Error)]
pub enum Error {
    /// The thread whose children nodes are could not be started.
    #[error("failed to start the launcher")]
    StartLauncher(#[source] io::Error),
    /// The thread of the launcher has panicked, and its nodes have died with it.
    #[error("failed to reach the launcher, which has stopped")]
    ReachLauncher,
    /// The socket for the control port of a node could not be opened.
    #[error("failed to listen on 127.0.0.1 for the control port of {name}")]
    Listen {
        /// The name of the node.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file in memory with the token could not be written.
    #[error("failed to write the token for {name}")]
    WriteToken {
        /// The name of the node.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The program is missing, or the child could not enter its namespace.
    #[error("failed to start {name} ({})", program.display())]
    Spawn {
        /// The name of the node.
        name: String,
        /// The program to execute.
        program: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The node was started, could not be watched, and was killed.
    #[error("failed to watch {name}")]
    Watch {
        /// The name of the node.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A command that runs a node.
#[derive(Debug)]
pub struct NodeCommand {
    /// The name of the node in messages, such as `server-0`.
    pub name: String,
    /// The program. It must not leave behind children that change their process group.
    pub program: PathBuf,
    /// The arguments before `--control`.
    pub args: Vec<OsString>,
    /// Environment variables, set in addition to those of perfrun.
    pub env: Vec<(OsString, OsString)>,
    /// The CPUs that the node may use; all of perfrun's by default.
    pub cpus: Option<CpuSet>,
    /// The file to which every line of stderr is appended.
    pub log: Option<File>,
}

impl NodeCommand {
    /// A command without arguments.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            cpus: None,
            log: None,
        }
    }
}

/// A running node. Dropping it kills and reaps the process.
#[derive(Debug)]
pub struct NodeProcess {
    name: String,
    pid: u32,
    control: SocketAddr,
    addresses: Addresses,
    token: Token,
    log: LogTail,
    stop_requests: mpsc::UnboundedSender<StopRequest>,
    exit: watch::Receiver<Option<Exit>>,
    /// Disconnected when the process has been reaped.
    reaped: Mutex<std::sync::mpsc::Receiver<()>>,
}

/// A request to the launcher to end a node.
#[derive(Clone, Copy, Debug)]
enum StopRequest {
    /// SIGTERM now, SIGKILL after the grace.
    Stop(Duration),
    /// SIGKILL now.
    Kill,
}

/// How a node exited.
#[derive(Clone, Debug)]
pub struct Exit {
    /// `None` if the status is lost, because perfrun was started with SIGCHLD ignored.
    pub status: Option<ExitStatus>,
    /// Whether perfrun sent SIGKILL, immediately or after the grace period.
    pub killed: bool,
    /// The last lines of stderr.
    pub last_lines: Vec<String>,
}

impl NodeProcess {
    /// The name of the node in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id, valid until the process has exited.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The address of its control port, in the namespace of perfrun. It refuses connections after the node
    /// has exited.
    pub fn control_addr(&self) -> SocketAddr {
        self.control
    }

    /// The token that its control port requires.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// The addresses at which other nodes reach it.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The last lines of stderr so far.
    pub fn log_tail(&self) -> Vec<String> {
        self.log.lines()
    }

    /// The end of its log so far, for the end of a message.
    pub(crate) fn log_text(&self) -> String {
        quoted(&self.log_tail())
    }

    /// How the node exited. `None` if it still runs.
    pub fn try_wait(&self) -> Option<Exit> {
        self.exit.borrow().clone()
    }

    /// Waits until the node has exited.
    pub async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        // The guard of the watched value must not live across this function's end.
        let ended = exit
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|exit| exit.clone());
        ended.unwrap_or_else(|| Exit {
            status: None, // the thread of the launcher has ended, and the kernel has killed its children
            killed: true,
            last_lines: self.log_tail(),
        })
    }

    /// Sends SIGTERM, and SIGKILL if the node has not exited after the grace period. Continues if the
    /// returned future is dropped.
    pub async fn stop(&self, grace: Duration) -> Exit {
        let _ = self.stop_requests.send(StopRequest::Stop(grace)); // no receiver: the node has exited already
        self.exited().await
    }

    /// Kills the node, and waits until it has exited.
    pub async fn kill(&self) -> Exit {
        let _ = self.stop_requests.send(StopRequest::Kill); // no receiver: the node has exited already
        self.exited().await
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.stop_requests.send(StopRequest::Kill); // no receiver: the node has exited already
        let reaped = self.reaped.get_mut();
        if reaped.recv_timeout(REAP_TIMEOUT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!(node = self.name, pid = self.pid, "a killed node does not exit");
        }
    }
}

impl Exit {
    /// The status for people, without the log.
    pub fn status_text(&self) -> String {
        match self.status {
            None if self.killed => "exit status unknown, killed by perfrun".to_owned(),
            None => "exit status unknown".to_owned(),
            Some(status) if self.killed => format!("{status}, killed by perfrun"),
            // Killed from outside, often by the kernel.
            Some(status) if status.signal() == Some(Signal::KILL.as_raw()) => {
                format!("{status}; if memory ran out, dmesg says so")
            }
            Some(status) => status.to_string(),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status_text())?;
        f.write_str(&quoted(&self.last_lines))
    }
}

/// The end of a log, for the end of a message. If a panic is further up, because a backtrace follows it, the
/// lines begin there.
fn quoted(log: &[String]) -> String {
    if log.is_empty() {
        return "; its log is empty".to_owned();
    }
    let last = log.len().saturating_sub(LINES_SHOWN);
    let is_panic = |line: &String| line.contains("panicked at ") || line.starts_with("panic: ");
    let first = log[..last].iter().rposition(is_panic).unwrap_or(last);
    let shown = log[first..].iter().take(LINES_SHOWN);
    let lines: String = shown.map(|line| format!("\n  {line}")).collect();
    format!("; the end of its log:{lines}")
}

/// The number of lines in an error message. More would push the rest of the message off the screen.
const LINES_SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_backtrace_does_not_hide_the_panic() {
        let mut log = vec![
            "starting".to_owned(),
            "thread 'main' panicked at src/main.rs:7:5:".to_owned(),
        ];
        log.extend((0..LINES_SHOWN).map(|frame| format!("{frame}: core::ops::call")));
        let text = quoted(&log);
        assert!(
            text.starts_with("; the end of its log:\n  thread 'main' panicked at"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1 + LINES_SHOWN);
        log.truncate(LINES_SHOWN);
        assert!(quoted(&log).starts_with("; the end of its log:\n  starting"));
    }

    #[test]
    fn an_exit_reads_like_a_message() {
        let exit = Exit {
            status: Some(ExitStatus::from_raw(3 << 8)),
            killed: false,
            last_lines: vec!["cannot listen".to_owned()],
        };
        assert_eq!(
            exit.to_string(),
            "exit status: 3; the end of its log:\n  cannot listen"
        );
        let silent = Exit {
            status: Some(ExitStatus::from_raw(9)),
            killed: true,
            last_lines: vec![],
        };
        assert_eq!(
            silent.to_string(),
            "signal: 9 (SIGKILL), killed by perfrun; its log is empty"
        );
    }
}
