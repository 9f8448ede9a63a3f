//! Commands that this program starts. They end before it does: Ctrl-C stops them, with everything that they
//! have started.
//!
//! Each command leads a process group. So a signal also reaches what the command has started, even after the
//! command itself has ended. A terminal sends Ctrl-C to the group of this program, which passes it on.

use std::{
    env, fs,
    io::{self, ErrorKind, Write},
    os::unix::process::CommandExt,
    process::{self, Child, Command, ExitCode},
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use signal_hook::{
    consts::{SIGHUP, TERM_SIGNALS},
    iterator::Signals,
};

/// The variable by which an xtask knows that another one has started it. Its commands stay in its own group,
/// which the other one stops.
pub(crate) const NESTED: &str = "PERFRUN_XTASK_NESTED";

/// How long commands may take to end after a signal. A tutorial that removes its lab takes the longest.
const GRACE: Duration = Duration::from_secs(30);

/// Signals within this time count as one. `timeout` sends each twice, and so may a terminal that is closed.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// How often this program looks whether commands have ended after a signal.
const POLL: Duration = Duration::from_millis(50);

/// The exit status of a shell whose command was ended by Ctrl-C.
const INTERRUPTED_STATUS: u8 = 130;

/// The commands of this program. Unset in stand-ins and below another xtask, where commands stay in the group
/// of the program.
static CHILDREN: OnceLock<Children> = OnceLock::new();

/// From here on, Ctrl-C, SIGTERM and SIGHUP stop all commands, and no other commands start. A second signal
/// kills them and ends this program.
pub(crate) fn stop_on_signals() -> Result<()> {
    if env::var_os(NESTED).is_some() {
        return Ok(());
    }
    let hang_up = (!ignores_hang_up()).then_some(SIGHUP);
    let mut signals =
        Signals::new(TERM_SIGNALS.iter().copied().chain(hang_up)).context("failed to watch for Ctrl-C")?;
    let children = CHILDREN.get_or_init(Children::default);
    thread::spawn(move || {
        let mut first: Option<Instant> = None;
        for number in signals.forever() {
            match first {
                None => {
                    first = Some(Instant::now());
                    // Fails if the terminal is closed.
                    let _ = writeln!(io::stderr(), "\n==> stopping what runs; a second Ctrl-C kills it");
                    let signal = Signal::from_named_raw(number).unwrap_or(Signal::TERM);
                    thread::spawn(move || children.stop(signal, GRACE));
                }
                Some(first) if first.elapsed() < SAME_SIGNAL => {}
                Some(_) => {
                    send(&children.lock().groups, Signal::KILL);
                    process::exit(INTERRUPTED_STATUS.into());
                }
            }
        }
    });
    Ok(())
}

/// Whether this process ignores SIGHUP, the first of all signals, as under `nohup`. Watching for it would end
/// that.
fn ignores_hang_up() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// Whether a signal has arrived.
pub(crate) fn are_interrupted() -> bool {
    CHILDREN
        .get()
        .is_some_and(|children| children.lock().phase != Phase::Running)
}

/// The exit status after a signal, once all commands have ended. `None` without a signal.
pub(crate) fn exit_code() -> Option<ExitCode> {
    let phase = CHILDREN.get()?.wait_for_stop().phase;
    (phase == Phase::Stopped).then(|| INTERRUPTED_STATUS.into())
}

/// Starts a command. Fails after a signal.
pub(crate) fn start(command: &mut Command) -> io::Result<Started<'static>> {
    match CHILDREN.get() {
        Some(children) => children.start(command),
        None => Ok(Started {
            child: command.spawn()?,
            siblings: None,
        }),
    }
}

/// A command that runs.
pub(crate) struct Started<'a> {
    child: Child,
    siblings: Option<&'a Children>,
}

impl Started<'_> {
    /// Waits for the end of the command with `wait`. After a signal, the other commands have then ended, too.
    pub(crate) fn end<T>(self, wait: impl FnOnce(Child) -> T) -> T {
        let group = Pid::from_child(&self.child);
        let ended = wait(self.child);
        if let Some(children) = self.siblings {
            children.wait_for_stop().groups.retain(|other| *other != group);
        }
        ended
    }
}

#[derive(Default)]
struct Children {
    state: Mutex<State>,
    /// Notified when [`State::phase`] becomes [`Phase::Stopped`].
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// The groups of commands that have not been waited for, and after a signal of which something is left.
    groups: Vec<Pid>,
}

#[derive(Clone, Copy, Default, Eq, PartialEq)]
enum Phase {
    #[default]
    Running,
    Stopping,
    Stopped,
}

impl Children {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_stop(&self) -> MutexGuard<'_, State> {
        self.stopped
            .wait_while(self.lock(), |state| state.phase == Phase::Stopping)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, command: &mut Command) -> io::Result<Started<'_>> {
        // Locked until the command is in the list, so that a signal finds the command or prevents it.
        let mut state = self.lock();
        if state.phase != Phase::Running {
            return Err(ErrorKind::Interrupted.into());
        }
        let child = command.process_group(0).spawn()?;
        state.groups.push(Pid::from_child(&child));
        Ok(Started {
            child,
            siblings: Some(self),
        })
    }

    /// Sends a signal to all commands, waits until nothing is left of their groups, and kills what is left
    /// after `grace`.
    fn stop(&self, signal: Signal, grace: Duration) {
        let mut state = self.lock();
        state.phase = Phase::Stopping;
        send(&state.groups, signal);
        let end = Instant::now() + grace;
        while !state.groups.is_empty() && Instant::now() < end {
            drop(state);
            thread::sleep(POLL);
            state = self.lock();
            state
                .groups
                .retain(|group| test_kill_process_group(*group).is_ok());
        }
        send(&state.groups, Signal::KILL);
        state.phase = Phase::Stopped;
        self.stopped.notify_all();
    }
}

fn send(groups: &[Pid], signal: Signal) {
    for group in groups {
        // Fails if nothing is left of the group.
        let _ = kill_process_group(*group, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        os::unix::process::ExitStatusExt,
        process::{Command, ExitStatus, Stdio},
        thread,
        time::Duration,
    };

    use rustix::process::Signal;

    use super::{Children, GRACE};

    #[test]
    fn a_command_that_ignores_ctrl_c_is_killed_with_what_it_has_started() {
        for (script, signal, ended_by) in [
            ("trap '' INT; sleep 600 & echo; wait", Signal::INT, Signal::KILL),
            // The command ends, and what it has started does not.
            (
                "(trap '' TERM; echo; sleep 600) & wait",
                Signal::TERM,
                Signal::TERM,
            ),
        ] {
            let status = stopped(&Children::default(), script, signal, Duration::from_millis(200));
            assert_eq!(status.signal(), Some(ended_by.as_raw()), "{script}");
        }
    }

    #[test]
    fn a_command_that_ends_on_its_own_is_not_killed_and_none_starts_after_it() {
        let children = Children::default();
        let script = "trap 'exit 7' TERM; echo; while :; do sleep 0.1; done";
        let status = stopped(&children, script, Signal::TERM, GRACE);
        assert_eq!(status.code(), Some(7));
        assert!(children.start(&mut Command::new("true")).is_err());
    }

    /// Stops a script that prints an empty line when it is ready. Returns how it ended, after all processes
    /// that it had started.
    fn stopped(children: &Children, script: &str, signal: Signal, grace: Duration) -> ExitStatus {
        let mut sh = Command::new("sh");
        sh.args(["-c", script]).stdout(Stdio::piped());
        children.start(&mut sh).unwrap().end(|mut child| {
            let mut stdout = child.stdout.take().unwrap();
            stdout.read_exact(&mut [0]).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| children.stop(signal, grace));
                // Each of the processes keeps it open.
                stdout.read_to_end(&mut vec![]).unwrap();
                child.wait().unwrap()
            })
        })
    }
}
