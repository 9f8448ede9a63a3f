//! The limit of open files of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

/// Open files for each process that is started: its pipes, its log, its namespaces, and connections to its
/// control port.
const PER_PROCESS: u64 = 8;

/// Open files for everything else: results, metrics, the page of a browser.
const OTHERS: u64 = 100;

/// The system allows too few open files.
#[derive(Debug, Error)]
#[error(
    "perfrun needs {needed} open files to start {processes} processes, and the system allows it {allowed}: \
     raise the limit (ulimit -Hn, or LimitNOFILE of a systemd unit), or use fewer nodes"
)]
pub struct TooFewFiles {
    processes: usize,
    needed: u64,
    allowed: u64,
}

/// The open files that starting this many processes takes.
pub fn needed(processes: usize) -> u64 {
    OTHERS + PER_PROCESS * processes as u64
}

/// Raises the limit to what this many processes need, if it is lower.
///
/// # Errors
///
/// If the system does not allow as many.
pub(crate) fn raise_limit(processes: usize) -> Result<(), TooFewFiles> {
    let needed = needed(processes);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(needed),
        maximum,
    };
    match maximum {
        Some(allowed) if allowed < needed => Err(TooFewFiles {
            processes,
            needed,
            allowed,
        }),
        _ => setrlimit(Resource::Nofile, raised).map_err(|_| TooFewFiles {
            processes,
            needed,
            allowed: current.unwrap_or(needed),
        }),
    }
}
