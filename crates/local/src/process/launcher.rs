//! The thread whose children node processes are.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use perfrun_contract::node::variables;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open};
use rustix::thread::sched_setaffinity;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::ChildStderr;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::output::{Line, LogTail, for_each_line};
use super::{Error, Exit, NodeCommand, NodeProcess, StopRequest, Token};
use crate::namespace::Namespace;
use crate::network::Slot;

/// Longer lines of a log are cut.
const LOG_LINE_MAX: usize = 8 * 1024;

/// The rest of a longer log is not kept in its file: a peer that provokes warnings must not fill the disk. It
/// is still read, and its last lines are still in the messages about the node.
const LOG_FILE_MAX: usize = 16 * 1024 * 1024;

/// How long to read the log after a node has exited: a process that left its group may keep the pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts nodes, as children of one thread that lives as long as this value and all nodes.
#[derive(Debug)]
pub struct Launcher {
    token: Token,
    requests: mpsc::UnboundedSender<StartRequest>,
}

/// A request to start one node.
struct StartRequest {
    command: NodeCommand,
    control: OwnedFd,
    token: OwnedFd,
    namespace: Option<Namespace>,
    reply: oneshot::Sender<Result<Started, Error>>,
}

/// The launcher's part of a [`NodeProcess`].
///
/// Not the `NodeProcess` itself: dropping that in the thread of the launcher would wait for the same thread.
struct Started {
    pid: u32,
    log: LogTail,
    stop_requests: mpsc::UnboundedSender<StopRequest>,
    exit: watch::Receiver<Option<Exit>>,
    reaped: std::sync::mpsc::Receiver<()>,
}

impl Launcher {
    /// Starts the thread and creates the token of the run.
    pub fn start() -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(Error::StartLauncher)?;
        let (requests, received) = mpsc::unbounded_channel();
        thread::Builder::new()
            .name("perfrun-nodes".to_owned())
            .spawn(move || runtime.block_on(launch_all(received)))
            .map_err(Error::StartLauncher)?;
        Ok(Self {
            token: Token::random(),
            requests,
        })
    }

    /// The token of this run, which all of its nodes require.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Starts a node in a slot. Returns when its program has been executed, before the node is ready.
    pub async fn spawn(&self, command: NodeCommand, slot: &Slot) -> Result<NodeProcess, Error> {
        let name = command.name.clone();
        let (listener, control) = listen().map_err(|source| Error::Listen {
            name: name.clone(),
            source,
        })?;
        let token = self.token.to_file().map_err(|source| Error::WriteToken {
            name: name.clone(),
            source,
        })?;
        let namespace = slot
            .namespace()
            .map(Namespace::try_clone)
            .transpose()
            .map_err(|source| Error::Spawn {
                name: name.clone(),
                program: command.program.clone(),
                source,
            })?;
        let (reply, started) = oneshot::channel();
        self.requests
            .send(StartRequest {
                command,
                control: listener.into(),
                token,
                namespace,
                reply,
            })
            .map_err(|_| Error::ReachLauncher)?;
        let Started {
            pid,
            log,
            stop_requests,
            exit,
            reaped,
        } = started.await.map_err(|_| Error::ReachLauncher)??;
        Ok(NodeProcess {
            name,
            pid,
            control,
            addresses: slot.addresses(),
            token: self.token.clone(),
            log,
            stop_requests,
            exit,
            reaped: Mutex::new(reaped),
        })
    }
}

/// A control socket in the namespace of perfrun, that of the calling thread.
fn listen() -> io::Result<(TcpListener, std::net::SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?; // nodes are asynchronous
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Starts nodes on request. Returns when the launcher is dropped and all of its nodes have exited.
async fn launch_all(mut requests: mpsc::UnboundedReceiver<StartRequest>) {
    let mut nodes = JoinSet::new();
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some(request) => launch(request, &mut nodes),
                None => break,
            },
            Some(_) = nodes.join_next() => {}
        }
    }
    while nodes.join_next().await.is_some() {}
}

fn launch(request: StartRequest, nodes: &mut JoinSet<()>) {
    let StartRequest {
        mut command,
        control,
        token,
        namespace,
        reply,
    } = request;
    let log_file = command.log.take();
    let started = execute(&command, control, token, namespace)
        .map_err(|source| Error::Spawn {
            name: command.name.clone(),
            program: command.program.clone(),
            source,
        })
        .and_then(|child| {
            Watched::new(child).map_err(|source| Error::Watch {
                name: command.name.clone(),
                source,
            })
        });
    let node = match started {
        Ok(node) => node,
        Err(error) => {
            let _ = reply.send(Err(error)); // no receiver: the caller no longer waits
            return;
        }
    };
    let (stop_requests, received) = mpsc::unbounded_channel();
    let (publish, exit) = watch::channel(None);
    let (reaping, reaped) = std::sync::mpsc::channel();
    let log = LogTail::default();
    let started = Started {
        pid: node.child.id(),
        log: log.clone(),
        stop_requests,
        exit,
        reaped,
    };
    let output = Output {
        log,
        log_file,
        name: command.name,
    };
    nodes.spawn(node.supervise(received, output, reaping, publish));
    // No receiver: the caller no longer waits. Then the sender of stop requests is dropped, and the node is
    // killed.
    let _ = reply.send(Ok(started));
}

/// Forks and executes. Runs on the thread that becomes the parent.
fn execute(
    command: &NodeCommand,
    control: OwnedFd,
    token: OwnedFd,
    namespace: Option<Namespace>,
) -> io::Result<Child> {
    // The descriptors keep their numbers: moving them could overwrite a descriptor that `Command` still uses
    // in the child. /proc/self/fd, because minimal containers lack /dev/fd.
    let control_argument = format!("fd:{}", control.as_raw_fd());
    let token_file = format!("/proc/self/fd/{}", token.as_raw_fd());
    let (parent, cpus) = (getpid(), command.cpus);

    let mut child = Command::new(&command.program);
    child
        .args(&command.args)
        .arg("--control")
        .arg(control_argument)
        // That of perfrun itself, if something set it, is the digest of another program.
        .env_remove(variables::PROGRAM_SHA256)
        .envs(command.env.iter().map(|(key, value)| (key, value)))
        .env(variables::TOKEN_FILE, token_file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0); // Ctrl-C in a terminal is for perfrun only, which then stops its nodes
    let before_exec = move || {
        die_with(parent)?;
        if let Some(namespace) = &namespace {
            namespace.enter()?;
        }
        if let Some(cpus) = &cpus {
            sched_setaffinity(None, cpus)?;
        }
        inherit_only([control.as_fd(), token.as_fd()])
    };
    // SAFETY: the closure makes system calls only, neither allocates nor takes locks.
    unsafe { child.pre_exec(before_exec) };
    child.spawn()
}

/// Makes the kernel kill the calling process when the thread that forked it ends.
fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The thread may have ended just before.
    if getppid() == Some(parent) {
        Ok(())
    } else {
        Err(Errno::SRCH.into())
    }
}

/// Keeps only these descriptors open across exec, even if perfrun has inherited others without close-on-exec.
fn inherit_only(descriptors: [BorrowedFd<'_>; 2]) -> io::Result<()> {
    let (first, last, flag) = (3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: sets a flag and closes nothing. Kernels before 5.11 refuse the call. Then the descriptors that
    // perfrun has inherited stay open; those that Rust opens are close-on-exec anyway.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flag) };
    for descriptor in descriptors {
        fcntl_setfd(descriptor, FdFlags::empty())?;
    }
    Ok(())
}

/// A child process whose end is observed.
struct Watched {
    child: Child,
    pid: Pid,
    /// Readable after the child has died. Unlike its number, it never refers to another process.
    pidfd: AsyncFd<OwnedFd>,
    stderr: ChildStderr,
}

/// Where a node's output goes.
struct Output {
    name: String,
    log: LogTail,
    log_file: Option<File>,
}

impl Watched {
    /// Kills the child if it cannot be watched.
    fn new(mut child: Child) -> io::Result<Self> {
        match Self::observe(&mut child) {
            Ok((pid, pidfd, stderr)) => Ok(Self {
                child,
                pid,
                pidfd,
                stderr,
            }),
            Err(error) => {
                let _ = child.kill(); // may fail if the child has exited already
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn observe(child: &mut Child) -> io::Result<(Pid, AsyncFd<OwnedFd>, ChildStderr)> {
        let pid = Pid::from_child(child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        // SAFETY: an OwnedFd stays open, and is the same descriptor, as long as it lives.
        let pidfd = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?;
        let stderr = child.stderr.take().expect("stderr is piped");
        Ok((pid, pidfd, ChildStderr::from_std(stderr)?))
    }

    /// Waits until the node has exited, and publishes how.
    async fn supervise(
        mut self,
        stop_requests: mpsc::UnboundedReceiver<StopRequest>,
        output: Output,
        reaping: std::sync::mpsc::Sender<()>,
        publish: watch::Sender<Option<Exit>>,
    ) {
        let Output { name, log, log_file } = output;
        let mut reading = tokio::spawn(for_each_line(
            self.stderr,
            LOG_LINE_MAX,
            keep_log(name.clone(), log.clone(), log_file, LOG_FILE_MAX),
        ));

        let killed = obey_stop_requests(self.pid, &self.pidfd, stop_requests).await;
        // The dead child keeps its number, and that of its group, until it is reaped. Its own children are
        // killed now.
        signal_group(self.pid, Signal::KILL);
        let status = self.child.wait().ok();
        drop(reaping);

        if timeout(DRAIN_TIMEOUT, &mut reading).await.is_err() {
            reading.abort();
            tracing::warn!(
                node = name,
                "a process that the node has started keeps its output open"
            );
        }
        publish.send_replace(Some(Exit {
            status,
            killed,
            last_lines: log.lines(),
        }));
    }
}

/// Carries out stop requests until the child has died. Returns whether perfrun has sent SIGKILL.
async fn obey_stop_requests(
    pid: Pid,
    pidfd: &AsyncFd<OwnedFd>,
    mut stop_requests: mpsc::UnboundedReceiver<StopRequest>,
) -> bool {
    let mut deadline: Option<Instant> = None;
    let mut killed = false;
    loop {
        tokio::select! {
            biased;
            _ = pidfd.readable() => return killed,
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() && !killed => {
                signal_group(pid, Signal::KILL);
                killed = true;
            }
            request = stop_requests.recv(), if !killed => match request {
                Some(StopRequest::Stop(grace)) => {
                    signal_group(pid, Signal::TERM);
                    let end = Instant::now() + grace;
                    deadline = Some(deadline.map_or(end, |earlier| earlier.min(end)));
                }
                Some(StopRequest::Kill) | None => {
                    signal_group(pid, Signal::KILL);
                    killed = true;
                }
            },
        }
    }
}

/// Only for a child that has not been reaped, so that its number cannot refer to another process.
fn signal_group(leader: Pid, signal: Signal) {
    let _ = rustix::process::kill_process_group(leader, signal); // fails if the whole group is dead already
}

/// If a file refuses a line, usually because the disk is full, or has this number of bytes, it gets no more
/// lines, and the node continues.
fn keep_log(
    name: String,
    log: LogTail,
    mut file: Option<File>,
    mut room: usize,
) -> impl FnMut(Line) + Send + 'static {
    move |Line { mut text, cut }| {
        if cut {
            text.push_str(" [..]");
        }
        text.push('\n');
        room = room.saturating_sub(text.len());
        if room == 0
            && let Some(mut file) = file.take()
        {
            tracing::warn!(
                node = name,
                "the node's log is too long for its file, which ends here"
            );
            // If the disk is full, the end is seen, too.
            let _ = file.write_all(b"[..] the rest of the log was not kept\n");
        }
        if let Some(error) = file
            .as_mut()
            .and_then(|file| file.write_all(text.as_bytes()).err())
        {
            tracing::warn!(node = name, %error, "failed to write the node's log, which ends here");
            file = None;
        }
        text.pop();
        log.push(text);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn a_log_without_end_ends_in_its_file_and_its_last_lines_are_known() {
        let mut file = tempfile::tempfile().unwrap();
        let tail = LogTail::default();
        let mut keep = keep_log("a".to_owned(), tail.clone(), file.try_clone().ok(), 10);
        for text in ["123", "456", "789", "0"] {
            let text = text.to_owned();
            keep(Line { text, cut: false });
        }
        let mut kept = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut kept).unwrap();
        assert_eq!(kept, "123\n456\n[..] the rest of the log was not kept\n");
        assert_eq!(tail.lines(), ["123", "456", "789", "0"]);
    }
}
