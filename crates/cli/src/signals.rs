//! Signals that end a command.

use std::{fs, io};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Closed terminals, which send SIGHUP.
pub struct HangUp(Option<unix::Signal>);

impl HangUp {
    /// Starts to wait for SIGHUP, unless this process ignores it, as under `nohup`. Listening to a signal
    /// would end that.
    pub fn listen() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let heard = !is_ignored(&status, Signal::HUP);
        heard
            .then(|| unix::signal(SignalKind::hangup()))
            .transpose()
            .map(Self)
    }

    /// Waits for the next SIGHUP; forever, if it is ignored.
    pub async fn recv(&mut self) {
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
