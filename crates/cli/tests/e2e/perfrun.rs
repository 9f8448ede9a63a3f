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
use perfrun_api::results::{Results, TrialRecord};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    connections,
    document::{self, Document},
};
use perfrun_test_kit::{remains, skip};

/// However slow the machine, whatever takes longer hangs.
pub const PATIENCE: Duration = Duration::from_secs(90);

const PERFRUN: &str = env!("CARGO_BIN_EXE_perfrun");

/// What perfrun says where namespaces cannot be had.
pub const NO_NAMESPACES: &str = "nodes cannot be given network namespaces here";

/// The two ways to keep nodes apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    Namespaces,
    Loopback,
}

impl Mode {
    /// Those that can be had here. A test that goes without one of them says so.
    pub fn available() -> impl Iterator<Item = Self> {
        static REFUSAL: OnceLock<Option<String>> = OnceLock::new();
        let refusal = REFUSAL.get_or_init(|| {
            let place = Place::new();
            let ended = place.run(Self::Namespaces, &document::run("probe"), &[]);
            (!ended.status.success()).then(|| {
                assert!(ended.stderr.contains(NO_NAMESPACES), "{ended}");
                ended.stderr
            })
        });
        if let Some(refusal) = refusal {
            skip("in network namespaces", refusal.trim());
        }
        let namespaces = refusal.is_none().then_some(Self::Namespaces);
        namespaces.into_iter().chain([Self::Loopback])
    }

    pub fn flag(self) -> Option<&'static str> {
        (self == Self::Loopback).then_some("--loopback")
    }
}

/// The program of the nodes, which tests do not build.
pub fn node_program() -> PathBuf {
    let program = Path::new(PERFRUN).with_file_name("perfrun-node");
    assert!(
        program.is_file(),
        "there is no {}: run `cargo build -p perfrun-node`, or `cargo xtask test`, which does",
        program.display()
    );
    program
}

/// A folder of a test's own, gone when the test ends.
pub struct Place {
    folder: TempDir,
    _turn: Turn,
}

/// Tests that measure links have the machine to themselves; all others share it.
static MACHINE: RwLock<()> = RwLock::new(());

#[expect(dead_code, reason = "guards are held, not looked at")]
enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Place {
    pub fn new() -> Self {
        // A test may have several.
        Self::with(Turn::Shared(MACHINE.read_recursive()))
    }

    /// Waits until no other test has a place, and is the only one.
    pub fn alone() -> Self {
        // Also finds out what there is here, which takes a place.
        let _ = Mode::available().count();
        Self::with(Turn::Alone(MACHINE.write()))
    }

    fn with(turn: Turn) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            _turn: turn,
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where runs keep their results, one folder each.
    pub fn results(&self) -> PathBuf {
        self.path().join("results")
    }

    /// The only run in it.
    pub fn only_run(&self) -> PathBuf {
        let mut runs = entries(&self.results());
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.remove(0)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.path().join(name);
        fs::write(&file, text).unwrap();
        file
    }

    /// A program of a few lines.
    pub fn script(&self, name: &str, lines: &str) -> PathBuf {
        let file = self.write(name, &format!("#!/bin/sh\n{lines}\n"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    /// Perfrun in this folder, as a script would call it: no terminal, no input, no settings from outside.
    pub fn perfrun(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PERFRUN);
        command.args(args).current_dir(self.path()).env_remove("RUST_LOG");
        command
    }

    /// `perfrun run` of a document in this folder, with results in `results`.
    pub fn command(&self, mode: Mode, document: &Document, args: &[&str]) -> Command {
        node_program();
        self.write("document.yaml", &document.text());
        let mut command = self.perfrun(&["run", "document.yaml"]);
        if !args.contains(&"--results") {
            command.args(["--results", "results"]);
        }
        command.args(mode.flag()).args(args);
        command
    }

    pub fn run(&self, mode: Mode, document: &Document, args: &[&str]) -> Ended {
        Running::start(self.command(mode, document, args)).ended()
    }

    pub fn start(&self, mode: Mode, document: &Document) -> Running {
        Running::start(self.command(mode, document, &[]))
    }

    /// `perfrun run --resume` of the only run in this folder.
    pub fn resume(&self) -> Ended {
        let folder = self.only_run();
        self.call(&["run", "--resume", folder.to_str().unwrap()])
    }

    /// Any other command.
    pub fn call(&self, args: &[&str]) -> Ended {
        Running::start(self.perfrun(args)).ended()
    }
}

pub fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    entries
}

/// What results.json of a run says, checked against the published schema.
pub fn results(folder: &Path) -> Results {
    let text = fs::read_to_string(folder.join("results.json")).unwrap();
    parsed(&text)
}

/// Results as JSON has them, checked against the published schema.
pub fn parsed(json: &str) -> Results {
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
pub fn by_attempt(results: &Results) -> BTreeMap<(&str, u32), &TrialRecord> {
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

/// A process that goes on; killed when dropped.
pub struct Running {
    child: Child,
    stdout: Reader,
    stderr: Reader,
}

/// How a process ended, and what it said.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self::watch(command.spawn().unwrap())
    }

    pub fn start_with_input(mut command: Command, input: &str) -> Self {
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

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until standard error has a text.
    pub fn says(&mut self, text: &str) {
        let begun = Instant::now();
        while !self.stderr().contains(text) {
            let ended = self.child.try_wait().unwrap();
            let is_over = ended.is_some() && self.stderr.is_over() && !self.stderr().contains(text);
            assert!(
                !is_over && begun.elapsed() < PATIENCE,
                "it does not say {text:?} ({ended:?}):\n{}",
                self.stderr()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The nodes it has now, by name.
    pub fn nodes(&self) -> BTreeMap<String, u32> {
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

    /// The node of this role, once there is one that is not `former`.
    pub fn node(&self, role: &str, former: Option<u32>) -> u32 {
        eventually(&format!("there is a {role}"), || {
            self.nodes().get(role).copied().filter(|pid| Some(*pid) != former)
        })
    }

    /// The client, once it is not `former` and has a connection to a server: it has none between trials.
    pub fn client_in_a_trial(&self, former: Option<u32>) -> u32 {
        let client = self.node("client", former);
        eventually("the client has a connection", || {
            connections::is_connected(client).then_some(client)
        })
    }

    /// Its processes and namespaces, all of which must go.
    pub fn belongings(&self) -> Belongings {
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

    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Whether it has ended already.
    pub fn has_ended(&self) -> bool {
        !remains::is_alive(self.pid())
    }

    /// Waits until it has ended.
    pub fn ended(mut self) -> Ended {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end:\n{}", self.stderr());
            thread::sleep(Duration::from_millis(5));
        };
        Ended {
            status,
            stdout: self.stdout.rest(),
            stderr: self.stderr.rest(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// The exit status; `None` after a signal.
    pub fn code(&self) -> Option<i32> {
        assert!(!self.status.core_dumped(), "{self}");
        self.status.code()
    }

    pub fn expect(self, code: i32) -> Self {
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

    /// All of it. Whoever holds the other end is gone.
    fn rest(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            eventually("nobody holds the pipe", || thread.is_finished().then_some(()));
        }
        self.text()
    }
}

/// Processes and namespaces.
#[derive(Debug)]
pub struct Belongings {
    pub processes: BTreeSet<u32>,
    pub namespaces: BTreeSet<u64>,
}

impl Belongings {
    /// Waits until nothing of it is left.
    pub fn vanish(&self) {
        eventually("processes end with perfrun", || {
            (!self.processes.iter().any(|&pid| remains::is_alive(pid))).then_some(())
        });
        eventually("namespaces go with the processes", || {
            remains::present(&self.namespaces).is_empty().then_some(())
        });
    }
}

/// The children of a process, of whichever of its threads.
pub fn children(pid: u32) -> BTreeSet<u32> {
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

/// Sends a signal to a process that was seen a moment ago.
pub fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

pub fn eventually<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = holds() {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
