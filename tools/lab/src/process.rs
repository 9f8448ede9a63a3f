//! A process that outlives this program, identified by its number and its start time.
//!
//! The kernel reuses process numbers. A process is signalled through a descriptor that was opened before its
//! start time was compared, so no other process can be signalled.

use std::{
    fs::{self, File},
    io::Write,
    os::fd::OwnedFd,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid};
use serde::{Deserialize, Serialize};

const TICK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Process {
    pub pid: i32,
    /// Clock ticks between boot and the start of the process, as in its `stat`.
    pub started: u64,
}

impl Process {
    pub(crate) fn of(pid: i32) -> Result<Self> {
        let (_, started) =
            stat(pid).with_context(|| format!("failed to read the start time of process {pid}"))?;
        Ok(Self { pid, started })
    }

    /// Whether the process exists. A zombie has released everything and counts as ended.
    pub(crate) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|(state, started)| started == self.started && !"ZX".contains(state))
    }

    /// A descriptor of exactly this process.
    pub(crate) fn open(self) -> Option<OwnedFd> {
        let descriptor = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        self.is_alive().then_some(descriptor)
    }

    pub(crate) fn kill(self) {
        if let Some(descriptor) = self.open() {
            // Sending can only fail because the process has ended.
            let _ = pidfd_send_signal(descriptor, Signal::KILL);
        }
    }

    /// Waits until a killed process has ended.
    pub(crate) fn wait(self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            if self.is_over() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "process {} was killed and is still there after {} s; `cat /proc/{0}/stack` may say what it waits for",
                    self.pid,
                    limit.as_secs()
                );
            }
            thread::sleep(TICK);
        }
    }

    /// A child has ended when it is reaped: the first process of a PID namespace does not end before all
    /// others in the namespace.
    fn is_over(self) -> bool {
        let child = Pid::from_raw(self.pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
        match child {
            Some(Ok(None)) => false,
            Some(Ok(Some(_))) => true,
            Some(Err(_)) | None => !self.is_alive(),
        }
    }
}

fn stat(pid: i32) -> Option<(char, u64)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// State and start time. The process name before them may contain spaces and parentheses.
fn parse_stat(text: &str) -> Option<(char, u64)> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// A process that waits until it is released. It exits if this program dies first, so no process is lost
/// between its start and its record.
pub(crate) struct Held {
    pub process: Process,
    gate: ChildStdin,
    pub stdout: Option<ChildStdout>,
}

/// The beginning of every script that is given to [`spawn`].
pub(crate) const GATE: &str = "read -r go || exit 1\n";

/// Starts `sh -c script` in the namespaces that the calling thread's children get.
pub(crate) fn spawn(script: &str, args: &[String], log: &File, stdout: Stdio) -> Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", script])
        .args(args)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(log.try_clone().context("failed to share a log file")?)
        .spawn()
        .context("failed to start /bin/sh")
}

impl Held {
    /// Must not run on a thread inside a machine, where /proc shows other numbers.
    pub(crate) fn new(mut child: Child) -> Result<Self> {
        let process = i32::try_from(child.id())
            .context("a process number fits an i32")
            .and_then(Process::of);
        let gate = child.stdin.take().context("a piped stdin is there")?;
        Ok(Self {
            process: process.inspect_err(|_| abandon(&mut child))?,
            gate,
            stdout: child.stdout.take(),
        })
    }

    /// Lets the process continue. Call it when the process is in the record.
    pub(crate) fn release(mut self) -> Result<()> {
        self.gate
            .write_all(b"go\n")
            .with_context(|| format!("process {} exited before it was released", self.process.pid))
    }
}

fn abandon(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::{fs::File, process::Stdio, time::Duration};

    use super::{GATE, Held, Process, parse_stat, spawn};

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let numbers: Vec<_> = (4..=52).map(|field| field.to_string()).collect();
        let text = format!("17 (a) b) S {}", numbers.join(" "));
        assert_eq!(parse_stat(&text), Some(('S', 22)));
        assert_eq!(parse_stat("17 (sh"), None);
    }

    #[test]
    fn our_own_start_is_known() {
        let pid = std::process::id().try_into().unwrap();
        let own = Process::of(pid).unwrap();
        assert!(own.is_alive() && own.started > 0);
        let other = Process { started: 1, ..own };
        assert!(!other.is_alive() && other.open().is_none());
    }

    #[test]
    fn a_held_process_begins_when_it_is_let_go_and_dies_when_it_is_dropped() {
        let log = File::create("/dev/null").unwrap();
        let script = format!("{GATE}exec sleep 60");
        let start = || Held::new(spawn(&script, &[], &log, Stdio::null()).unwrap()).unwrap();

        let dropped = start().process;
        dropped.wait(Duration::from_secs(5)).unwrap();

        let held = start();
        let process = held.process;
        held.release().unwrap();
        assert!(process.is_alive());
        process.kill();
        process.wait(Duration::from_secs(5)).unwrap();
    }
}
