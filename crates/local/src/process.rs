//! Node processes: started, listened to, ended and reaped.
//!
//! One thread, the launcher's, does all of it. A child asks the kernel to kill it when its parent dies, and the kernel
//! takes the *thread* that forked for its parent; that thread therefore has to last as long as the nodes. It also
//! empties their pipes, so that a busy or blocked perfrun never stalls a node that writes.
//!
//! A node gets, besides its arguments:
//!
//! - `--control fd:N`, a listening TCP socket that perfrun bound to 127.0.0.1 in its own namespace. Sockets stay in the
//!   namespace they were made in, so control traffic never crosses the measured link;
//! - `PERFRUN_TOKEN_FILE`, a sealed file in memory with the token that callers of the control port must show;
//! - nothing on stdin, and no other open file.

mod launcher;
mod output;
mod token;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{mpsc, watch};

use super::network::Addresses;
pub use launcher::Launcher;
use output::LogTail;
pub use token::Token;

/// How long dropping a node waits for it to be gone. SIGKILL takes milliseconds unless the kernel itself is stuck.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a node could not be started.
#[derive(Debug, Error)]
pub enum Error {
    /// The thread that nodes are children of.
    #[error("failed to start the launcher")]
    StartLauncher(#[source] io::Error),
    /// The launcher's thread has panicked; its nodes died with it.
    #[error("failed to reach the launcher, which has stopped")]
    ReachLauncher,
    /// The socket for the node's control port.
    #[error("failed to listen on 127.0.0.1 for the control port of {name}")]
    Listen {
        /// The node.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file in memory that holds the token.
    #[error("failed to write the token for {name}")]
    WriteToken {
        /// The node.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program is missing, or the child could not enter its namespace.
    #[error("failed to start {name} ({})", program.display())]
    Spawn {
        /// The node.
        name: String,
        /// What should have run.
        program: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It was started, could not be watched, and was killed.
    #[error("failed to watch {name}")]
    Watch {
        /// The node.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What to run as a node.
#[derive(Debug)]
pub struct NodeCommand {
    /// What messages call it, such as `server-0`.
    pub name: String,
    /// The program. It must not leave children behind that change their process group.
    pub program: PathBuf,
    /// Arguments; `--control` follows them.
    pub args: Vec<OsString>,
    /// Set on top of perfrun's own environment.
    pub env: Vec<(OsString, OsString)>,
    /// Every line of its stderr is appended here.
    pub log: Option<File>,
    /// Every line of its stdout is sent here. A record that finds the channel full is dropped: nodes must not wait.
    pub records: Option<mpsc::Sender<String>>,
}

impl NodeCommand {
    /// A command without arguments.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            log: None,
            records: None,
        }
    }
}

/// A running node. Dropped, it is killed and reaped.
#[derive(Debug)]
pub struct NodeProcess {
    name: String,
    pid: u32,
    control: SocketAddr,
    addresses: Addresses,
    token: Token,
    log: LogTail,
    orders: mpsc::UnboundedSender<Order>,
    exit: watch::Receiver<Option<Exit>>,
    /// Disconnected when the process has been reaped.
    reaped: Mutex<std::sync::mpsc::Receiver<()>>,
}

/// What the launcher is asked to do with a node.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// SIGTERM now, SIGKILL after the grace.
    Stop(Duration),
    /// SIGKILL now.
    Kill,
}

/// How a node ended.
#[derive(Clone, Debug)]
pub struct Exit {
    /// Absent if the kernel has told somebody else, which happens where perfrun was started with SIGCHLD ignored.
    pub status: Option<ExitStatus>,
    /// Whether we sent SIGKILL, be it at once or because the grace was over.
    pub killed: bool,
    /// The last lines of its stderr.
    pub last_lines: Vec<String>,
    /// Lines of stdout that nobody took in time, or that were too long to be records.
    pub records_lost: u64,
}

impl NodeProcess {
    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id, valid until it has exited.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Where its control port answers, in perfrun's own namespace. Refuses connections once the node is gone.
    pub fn control_addr(&self) -> SocketAddr {
        self.control
    }

    /// What its control port wants to see.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Where the other nodes reach it.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The last lines of its stderr so far.
    pub fn log_tail(&self) -> Vec<String> {
        self.log.lines()
    }

    /// How it ended, if it has.
    pub fn try_wait(&self) -> Option<Exit> {
        self.exit.borrow().clone()
    }

    /// Waits until it has ended, by itself or otherwise.
    pub async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        // The guard of the watched value must not live across this function's end.
        let ended = exit
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|exit| exit.clone());
        ended.unwrap_or_else(|| Exit {
            status: None, // the launcher's thread is gone, and the kernel has killed its children
            killed: true,
            last_lines: self.log_tail(),
            records_lost: 0,
        })
    }

    /// Asks it to stop, and kills it if it has not after the grace. Goes on if the returned future is dropped.
    pub async fn stop(&self, grace: Duration) -> Exit {
        let _ = self.orders.send(Order::Stop(grace)); // no receiver: it has ended already
        self.exited().await
    }

    /// Kills it.
    pub async fn kill(&self) -> Exit {
        let _ = self.orders.send(Order::Kill); // no receiver: it has ended already
        self.exited().await
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Kill); // no receiver: it has ended already
        let reaped = self.reaped.get_mut().unwrap_or_else(PoisonError::into_inner);
        if reaped.recv_timeout(REAP_TIMEOUT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!(node = self.name, pid = self.pid, "killed node does not go away");
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{status}")?,
            None => write!(f, "exit status unknown")?,
        }
        if self.killed {
            write!(f, ", killed by perfrun")?;
        }
        if self.last_lines.is_empty() {
            return write!(f, ", without a word in its log");
        }
        write!(f, "; the end of its log:")?;
        let shown = self.last_lines.len().saturating_sub(LINES_SHOWN);
        self.last_lines[shown..]
            .iter()
            .try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// More would push the rest of an error message off the screen.
const LINES_SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn an_exit_reads_like_a_message() {
        let exit = Exit {
            status: Some(ExitStatus::from_raw(3 << 8)),
            killed: false,
            last_lines: vec!["cannot listen".to_owned()],
            records_lost: 0,
        };
        assert_eq!(
            exit.to_string(),
            "exit status: 3; the end of its log:\n  cannot listen"
        );
        let silent = Exit {
            status: Some(ExitStatus::from_raw(9)),
            killed: true,
            last_lines: vec![],
            ..exit
        };
        assert_eq!(
            silent.to_string(),
            "signal: 9 (SIGKILL), killed by perfrun, without a word in its log"
        );
    }
}
