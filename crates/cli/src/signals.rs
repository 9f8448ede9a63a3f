//! Signals that end a command.

use std::{fs, io};

use perfrun_api::exit_status::INTERRUPTED;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio_util::sync::CancellationToken;

/// A token that the first SIGINT, SIGTERM or SIGHUP cancels. A second SIGINT or SIGTERM exits immediately. A
/// second SIGHUP does not, because both the kernel and the shell may send one when a terminal is closed.
pub(crate) fn cancel_on_signal() -> CancellationToken {
    let cancel = CancellationToken::new();
    tokio::spawn(watch(cancel.clone()));
    cancel
}

async fn watch(cancel: CancellationToken) -> io::Result<()> {
    let mut interrupt = unix::signal(SignalKind::interrupt())?;
    let mut terminate = unix::signal(SignalKind::terminate())?;
    let mut hang_up = HangUp::listen()?;
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = hang_up.recv() => {
                cancel.cancel();
                continue;
            }
        }
        if cancel.is_cancelled() {
            // Nodes die with this process, and every file is complete at all times.
            std::process::exit(INTERRUPTED.into());
        }
        cancel.cancel();
    }
}

/// Closed terminals, which send SIGHUP.
pub(crate) struct HangUp(Option<unix::Signal>);

impl HangUp {
    /// Starts to wait for SIGHUP, unless this process ignores it, as under `nohup`. Listening to a signal
    /// would end that.
    pub(crate) fn listen() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let heard = !is_ignored(&status, Signal::HUP);
        heard
            .then(|| unix::signal(SignalKind::hangup()))
            .transpose()
            .map(Self)
    }

    /// Waits for the next SIGHUP; forever, if it is ignored.
    pub(crate) async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// Whether a process ignores a signal, by its `/proc/PID/status`.
fn is_ignored(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal.as_raw() - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_begins_with_sighup() {
        let status =
            |mask: &str| format!("SigBlk:\t0000000000000003\nSigIgn:\t{mask}\nSigCgt:\t0000000000000003\n");
        let nohup = status("0000000000001001");
        assert!(is_ignored(&nohup, Signal::HUP) && is_ignored(&nohup, Signal::PIPE));
        assert!(!is_ignored(&nohup, Signal::INT));
        assert!(!is_ignored(&status("0000000000001000"), Signal::HUP));
        assert!(!is_ignored("", Signal::HUP));
    }
}
