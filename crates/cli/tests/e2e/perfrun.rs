//! Perfrun as a process, its nodes, and its results.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use perfrun_api::results::Results;
use perfrun_contract::record::TrialRecord;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    connections,
    document::{self, Document},
};
use perfrun_test_kit::{Need, remains, skip};

/// What takes longer hangs, even on a slow machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(240);

pub(crate) const PERFRUN: &str = env!("CARGO_BIN_EXE_perfrun");

/// The error of perfrun if namespaces are not available.
pub(crate) const NO_NAMESPACES: &str = "nodes cannot have network namespaces here";

/// The two ways to keep nodes apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    Namespaces,
    Loopback,
}

impl Mode {
    /// The modes that are available here. A test that runs without one of them reports that.
    pub(crate) fn available() -> impl Iterator<Item = Self> {
        static REFUSAL: OnceLock<Option<String>> = OnceLock::new();
        let refusal = REFUSAL.get_or_init(|| {
            let scratch = Scratch::new();
            let ended = scratch.run(Self::Namespaces, &document::run("probe"), &[]);
            (!ended.status.success()).then(|| {
                assert!(ended.stderr.contains(NO_NAMESPACES), "{ended}");
                ended.stderr
            })
        });
        if let Some(refusal) = refusal {
            skip(Need::Namespaces, "in network namespaces", refusal.trim());
        }
        let namespaces = refusal.is_none().then_some(Self::Namespaces);
        namespaces.into_iter().chain([Self::Loopback])
    }

    pub(crate) fn flag(self) -> Option<&'static str> {
        (self == Self::Loopback).then_some("--loopback")
    }
}

/// The program of the nodes, which tests do not build.
pub(crate) fn node_program() -> PathBuf {
    let program = Path::new(PERFRUN).with_file_name("perfrun-node");
    assert!(
        program.is_file(),
        "there is no {}: run `cargo build -p perfrun-node`, or `cargo xtask test`, which does",
        program.display()
    );
    program
}

/// The scratch folder of a test, removed when the test ends.
pub(crate) struct Scratch {
    folder: TempDir,
    _lock: MachineLock,
}

/// Tests that measure links have the machine to themselves; all others share it.
static MACHINE: RwLock<()> = RwLock::new(());

#[expect(dead_code, reason = "guards are held, not looked at")]
enum MachineLock {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Scratch {
    pub(crate) fn new() -> Self {
        // A test may have several.
        Self::with(MachineLock::Shared(MACHINE.read_recursive()))
    }

    /// Waits until no other test has a scratch folder, and keeps others from getting one.
    pub(crate) fn alone() -> Self {
        // Also finds out what there is here, which takes a scratch folder.
        let _ = Mode::available().count();
        Self::with(MachineLock::Alone(MACHINE.write()))
    }

    fn with(lock: MachineLock) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            _lock: lock,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The results folders of the runs.
    pub(crate) fn results(&self) -> PathBuf {
        self.path().join("results")
    }

    /// The results folder of the only run.
    pub(crate) fn only_run(&self) -> PathBuf {
        let mut runs = entries(&self.results());
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.remove(0)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.path().join(name);
        fs::write(&file, text).unwrap();
        file
    }

    /// A program of a few lines.
    pub(crate) fn script(&self, name: &str, lines: &str) -> PathBuf {
        let file = self.write(name, &format!("#!/bin/sh\n{lines}\n"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    /// perfrun in this folder, as a script would call it: no terminal, no input, no settings from outside.
    pub(crate) fn perfrun(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PERFRUN);
        command.args(args).current_dir(self.path()).env_remove("RUST_LOG");
        command
    }

    /// `perfrun run` of a document in this folder, with results in `results`.
    pub(crate) fn command(&self, mode: Mode, document: &Document, args: &[&str]) -> Command {
        node_program();
        self.write("document.yaml", &document.text());
        let mut command = self.perfrun(&["run", "document.yaml"]);
        if !args.contains(&"--results") {
            command.args(["--results", "results"]);
        }
        command.args(mode.flag()).args(args);
        command
    }

    pub(crate) fn run(&self, mode: Mode, document: &Document, args: &[&str]) -> Ended {
        Running::start(self.command(mode, document, args)).ended()
    }

    pub(crate) fn start(&self, mode: Mode, document: &Document) -> Running {
        Running::start(self.command(mode, document, &[]))
    }

    /// `perfrun run --resume` of the only run in this folder.
    pub(crate) fn resume(&self) -> Ended {
        let folder = self.only_run();
        self.call(&["run", "--resume", folder.to_str().unwrap()])
    }

    /// Any other command.
    pub(crate) fn call(&self, args: &[&str]) -> Ended {
        Running::start(self.perfrun(args)).ended()
    }
}

pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    entries
}

/// The content of results.json, checked against the published schema.
pub(crate) fn results(folder: &Path) -> Results {
    let text = fs::read_to_string(folder.join("results.json")).unwrap();
    parsed(&text)
}

/// Results in JSON, checked against the published schema.
pub(crate) fn parsed(json: &str) -> Results {
    static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| {
        let schema = include_str!("../../../../schema/results.schema.json");
        jsonschema::draft202012::new(&serde_json::from_str(schema).unwrap()).unwrap()
    });
    let value: Value = serde_json::from_str(json).unwrap();
    let errors: Vec<String> = schema
        .iter_errors(&value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert_eq!(errors, [""; 0]);
    serde_json::from_value(value).unwrap()
}

/// The records by trial and attempt.
pub(crate) fn by_attempt(results: &Results) -> BTreeMap<(&str, u32), &TrialRecord> {
    let records = results
        .trials
        .iter()
        .map(|record| ((record.trial.id.as_str(), record.attempt), record));
    let by_attempt: BTreeMap<_, _> = records.collect();
    assert_eq!(
        by_attempt.len(),
        results.trials.len(),
        "no attempt is there twice"
    );
    by_attempt
}

/// The command, started by another program with these arguments before it.
pub(crate) fn started_by(starter: &[&str], command: &Command) -> Command {
    let mut started = Command::new(starter[0]);
    started
        .args(&starter[1..])
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(command.get_current_dir().unwrap_or(Path::new(".")))
        .env_remove("RUST_LOG");
    started
}

/// The command, started by `unshare` with the rights of root, which other users have in a user namespace.
pub(crate) fn unshared(args: &[&str], command: &Command) -> Command {
    let user_namespace = ["--user", "--map-root-user"];
    let is_root = rustix::process::geteuid().is_root();
    let rights: &[&str] = if is_root { &[] } else { &user_namespace };
    started_by(&[&["unshare"], rights, args].concat(), command)
}

/// A running process, killed when dropped.
pub(crate) struct Running {
    child: Child,
    stdout: Reader,
    stderr: Reader,
}

/// How a process ended, and its output.
#[derive(Debug)]
pub(crate) struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self::watch(command.spawn().unwrap())
    }

    pub(crate) fn start_with_input(mut command: Command, input: &str) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Self::watch(child)
    }

    fn watch(mut child: Child) -> Self {
        Self {
            stdout: Reader::start(child.stdout.take().unwrap()),
            stderr: Reader::start(child.stderr.take().unwrap()),
            child,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until standard error has a text.
    pub(crate) fn wait_for_output(&mut self, text: &str) {
        let begun = Instant::now();
        while !self.stderr().contains(text) {
            let ended = self.child.try_wait().unwrap();
            let is_over = ended.is_some() && self.stderr.is_over() && !self.stderr().contains(text);
            assert!(
                !is_over && begun.elapsed() < TEST_TIMEOUT,
                "it does not say {text:?} ({ended:?}):\n{}",
                self.stderr()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The nodes that it has now, by name.
    pub(crate) fn nodes(&self) -> BTreeMap<String, u32> {
        let arguments = |pid: u32| -> Option<String> {
            let cmdline = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let arguments: Vec<&[u8]> = cmdline.split(|&byte| byte == 0).collect();
            let role = arguments.iter().position(|argument| *argument == b"--role")?;
            Some(String::from_utf8_lossy(arguments.get(role + 1)?).into_owned())
        };
        children(self.pid())
            .into_iter()
            .filter_map(|pid| Some((arguments(pid)?, pid)))
            .collect()
    }

    /// The node of this role, when it is not `former`.
    pub(crate) fn node(&self, role: &str, former: Option<u32>) -> u32 {
        eventually(&format!("there is a {role}"), || {
            self.nodes().get(role).copied().filter(|pid| Some(*pid) != former)
        })
    }

    /// The client, once it is not `former` and has a connection to a server: it has none between trials.
    pub(crate) fn client_in_a_trial(&self, former: Option<u32>) -> u32 {
        let client = self.node("client", former);
        eventually("the client has a connection", || {
            connections::is_connected(client).then_some(client)
        })
    }

    /// The processes and namespaces of perfrun, none of which may be left at the end.
    pub(crate) fn belongings(&self) -> Belongings {
        let own = remains::namespaces_of(std::process::id());
        let children = children(self.pid());
        let everyone = children.iter().copied().chain([self.pid()]);
        Belongings {
            namespaces: everyone
                .flat_map(remains::namespaces_of)
                .filter(|id| !own.contains(id))
                .collect(),
            processes: children,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Presses Ctrl-C once standard error has a text, and waits until it has ended.
    pub(crate) fn interrupt_after(mut self, text: &str) {
        self.wait_for_output(text);
        self.signal(Signal::INT);
        self.ended().expect(130);
    }

    /// Whether it has ended already.
    pub(crate) fn has_ended(&self) -> bool {
        !remains::is_alive(self.pid())
    }

    /// Waits until it has ended.
    pub(crate) fn ended(mut self) -> Ended {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                begun.elapsed() < TEST_TIMEOUT,
                "it does not end:\n{}",
                self.stderr()
            );
            thread::sleep(Duration::from_millis(5));
        };
        Ended {
            status,
            stdout: self.stdout.rest(),
            stderr: without_the_machine(&self.stderr.rest()),
        }
    }
}

/// What perfrun itself has to say: other tests keep this machine busy, or do not.
fn without_the_machine(stderr: &str) -> String {
    let lines = stderr.split_inclusive('\n');
    lines
        .filter(|line| !line.starts_with("this machine is busy: "))
        .collect()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// The exit status; `None` after a signal.
    pub(crate) fn code(&self) -> Option<i32> {
        assert!(!self.status.core_dumped(), "{self}");
        self.status.code()
    }

    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code(), Some(code), "{self}");
        self
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            status,
            stdout,
            stderr,
        } = self;
        write!(f, "{status}\n--- stdout:\n{stdout}\n--- stderr:\n{stderr}")
    }
}

/// Reads a pipe to its end, beside the test.
struct Reader {
    text: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(mut pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(vec![]));
        let sink = Arc::clone(&text);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                sink.extend_from_slice(&buffer[..length]);
            }
        });
        Self {
            text,
            thread: Some(thread),
        }
    }

    fn text(&self) -> String {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// All output. The process at the other end has exited.
    fn rest(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            eventually("nobody holds the pipe", || thread.is_finished().then_some(()));
        }
        self.text()
    }
}

/// Processes and namespaces.
#[derive(Debug)]
pub(crate) struct Belongings {
    pub processes: BTreeSet<u32>,
    pub namespaces: BTreeSet<u64>,
}

impl Belongings {
    /// Waits until none of them is left.
    pub(crate) fn vanish(&self) {
        eventually("processes end with perfrun", || {
            (!self.processes.iter().any(|&pid| remains::is_alive(pid))).then_some(())
        });
        eventually("namespaces go with the processes", || {
            remains::present(&self.namespaces).is_empty().then_some(())
        });
    }
}

/// The children of all threads of a process.
pub(crate) fn children(pid: u32) -> BTreeSet<u32> {
    entries(Path::new(&format!("/proc/{pid}/task")))
        .into_iter()
        .filter_map(|task| fs::read_to_string(task.join("children")).ok())
        .flat_map(|children| {
            children
                .split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Sends a signal to a process that has just been observed.
pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

pub(crate) fn eventually<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = holds() {
            return value;
        }
        assert!(
            begun.elapsed() < TEST_TIMEOUT,
            "not within {TEST_TIMEOUT:?}: {what}"
        );
        thread::sleep(Duration::from_millis(10));
    }
}
