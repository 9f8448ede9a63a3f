//! Nodes in network namespaces of their own, as root and as an ordinary user.
//!
//! Namespaces belong to processes, so most tests here are about processes other than this one. They are this same
//! binary, executed again with [`ROLE`] set: as a stand-in for perfrun (`scenario_*`), or for a node (`node_*`).

// Helpers outside of `#[test]` functions fail a test by panicking, as those do; what they print is for its output.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "support/remains.rs"]
mod remains;
#[path = "support/skip.rs"]
mod skip;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic;
use std::path::Path;
use std::pin::pin;
use std::process::{self, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use perfrun_cli::local::{
    Addresses, Isolation, Launcher, Network, NodeCommand, NodeProcess, Privilege, Slot, privilege,
};
use tokio::sync::mpsc;

use remains::{is_alive, processes};
use skip::skip;

/// What this binary is to be instead of a list of tests.
const ROLE: &str = "PERFRUN_TEST_ROLE";
/// Arguments of a role.
const ARGUMENT: &str = "PERFRUN_TEST_ARGUMENT";
/// The exit code of a scenario that cannot have what it needs.
const SKIPPED: i32 = 77;
/// `nobody`, on every distribution.
const NOBODY: u32 = 65534;
/// The image of the running process, whether or not its path can be reached by the user it runs as.
const MYSELF: &str = "/proc/self/exe";
const PATIENCE: Duration = Duration::from_secs(20);

// --- As the user who runs the tests, and as nobody ---

#[test]
fn two_nodes_reach_each_other_and_nothing_else() {
    for user in User::available() {
        user.run("scenario_reach");
    }
}

#[test]
fn the_namespace_of_perfrun_gets_no_link() {
    for user in User::available() {
        user.run("scenario_links");
    }
}

#[test]
fn settings_are_those_of_the_nodes_alone() {
    for user in User::available() {
        user.run("scenario_settings");
    }
}

#[test]
fn a_slot_takes_another_node_after_the_first_was_killed() {
    for user in User::available() {
        user.run("scenario_replace");
    }
}

#[test]
fn two_nodes_have_their_network_within_100_ms() {
    for user in User::available() {
        user.run("scenario_fast");
    }
}

#[test]
fn dropping_the_network_removes_its_namespaces() {
    for user in User::available() {
        user.run("scenario_drop");
    }
}

#[test]
fn killing_perfrun_leaves_no_process_and_no_namespace() {
    for user in User::available() {
        if !user.can_have_namespaces() {
            continue;
        }
        let mut perfrun = user.start("scenario_hold");
        let held = Held::read(perfrun.stdout.as_mut().unwrap());
        assert_eq!(held.pids.len(), 2);
        assert_eq!(held.namespaces.len(), 2);
        assert_eq!(held.alive(), held.pids, "the nodes run before the kill");
        assert_eq!(
            held.present(),
            held.namespaces,
            "the namespaces exist before the kill"
        );

        perfrun.kill().unwrap();
        perfrun.wait().unwrap();
        eventually("nodes die with perfrun", || held.alive().is_empty());
        eventually("namespaces go with the nodes", || held.present().is_empty());
    }
}

#[test]
fn killing_perfrun_while_it_starts_nodes_leaves_nothing() {
    for user in User::available() {
        if !user.can_have_namespaces() {
            continue;
        }
        for delay in [0, 1, 2, 4, 7, 12, 20, 35, 60].map(Duration::from_millis) {
            let mut perfrun = user.start("scenario_churn");
            let mut ready = String::new();
            BufReader::new(perfrun.stdout.take().unwrap())
                .read_line(&mut ready)
                .unwrap();
            assert_eq!(ready, "ready\n");
            let tag = perfrun.id();
            eventually("nodes are started", || !started_by(tag).is_empty());
            thread::sleep(delay);
            perfrun.kill().unwrap();
            perfrun.wait().unwrap();
            eventually("nodes die with perfrun", || started_by(tag).is_empty());
        }
    }
}

#[test]
fn an_ordinary_user_becomes_root_of_the_nodes_only() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.path().join("result");
    for user in User::available() {
        let Some(output) = user.output_of("scenario_write", file.to_str().unwrap()) else {
            continue;
        };
        if user.uid() != 0 {
            assert_eq!(String::from_utf8_lossy(&output.stdout), "UserNamespace");
        }
        assert_eq!(fs::metadata(&file).unwrap().uid(), user.uid());
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_refusal_says_which_limit_to_raise_and_changes_nothing() {
    for user in User::available() {
        user.run("scenario_refused");
    }
}

// --- Without namespaces, in this process ---

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_exits_early_leaves_its_last_words() {
    let (launcher, network) = loopback().await;
    let command = shell("for i in $(seq 300); do echo line $i >&2; done; echo 'cannot listen' >&2; exit 3");
    let node = launcher.spawn(command, &network.slots()[0]).await.unwrap();
    let exit = within(node.exited()).await;
    assert_eq!(exit.status.unwrap().code(), Some(3));
    assert!(!exit.killed);
    assert_eq!(exit.last_lines.len(), 200);
    assert_eq!(exit.last_lines[..1], ["line 102"]);
    assert_eq!(exit.last_lines[198..], ["line 300", "cannot listen"]);
    assert_eq!(node.try_wait().unwrap().status, exit.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_may_stop_by_itself_within_the_grace() {
    let (launcher, network) = loopback().await;
    let command = shell("trap 'echo stopping >&2; exit 0' TERM; echo up >&2; while :; do sleep 0.05; done");
    let node = launcher.spawn(command, &network.slots()[0]).await.unwrap();
    log_says(&node, "up").await;
    let exit = within(node.stop(PATIENCE)).await;
    assert_eq!((exit.status.unwrap().code(), exit.killed), (Some(0), false));
    assert!(exit.last_lines.contains(&"stopping".to_owned()), "{exit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_ignores_sigterm_is_killed_after_the_grace_with_what_it_started() {
    let (launcher, network) = loopback().await;
    let command = shell("trap '' TERM; sleep 1000 & echo $! >&2; while :; do sleep 1; done");
    let node = launcher.spawn(command, &network.slots()[0]).await.unwrap();
    let started: u32 = first_log_line(&node).await.parse().unwrap();
    let (begun, grace) = (Instant::now(), Duration::from_millis(300));
    let exit = within(node.stop(grace)).await;
    assert!(begun.elapsed() >= grace);
    assert_eq!((exit.status.unwrap().signal(), exit.killed), (Some(9), true));
    eventually("what the node started dies with it", || !is_alive(started));
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_goes_on_when_nobody_waits_for_it() {
    let (launcher, network) = loopback().await;
    let node = launcher
        .spawn(shell("echo up >&2; sleep 1000"), &network.slots()[0])
        .await
        .unwrap();
    log_says(&node, "up").await;
    {
        let mut stop = pin!(node.stop(PATIENCE));
        tokio::select! {
            biased;
            _ = &mut stop => {}
            () = std::future::ready(()) => {} // asked once, and forgotten
        }
    }
    assert_eq!(within(node.exited()).await.status.unwrap().signal(), Some(15));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_floods_its_outputs_is_not_held_up() {
    let (launcher, network) = loopback().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.log");
    let (records, mut received) = mpsc::channel(4); // and nobody takes them
    let mut command = node("node_flood", "");
    command.log = Some(fs::File::create(&path).unwrap());
    command.records = Some(records);
    let node = launcher.spawn(command, &network.slots()[0]).await.unwrap();
    let exit = within(node.exited()).await;
    assert_eq!(exit.status.unwrap().code(), Some(0), "{exit}");
    assert_eq!(exit.last_lines.last().unwrap(), "the end");
    assert_eq!(exit.records_lost, u64::from(FLOOD_LINES) - 4);
    assert!(received.recv().await.is_some());
    let log = fs::read_to_string(&path).unwrap();
    assert_eq!(
        log.lines().count(),
        FLOOD_LINES as usize + 2,
        "and the endless line, cut"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_the_log_file_and_nothing_else() {
    let (launcher, network) = loopback().await;
    let mut command = shell("echo one >&2; echo two >&2");
    command.log = Some(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let node = launcher.spawn(command, &network.slots()[0]).await.unwrap();
    assert_eq!(within(node.exited()).await.last_lines, ["one", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_control_socket_and_token_and_no_other_file() {
    let (launcher, network) = loopback().await;
    // As a shell would pass a descriptor on: without close-on-exec.
    let stray = fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&stray, rustix::io::FdFlags::empty()).unwrap();
    let node = launcher
        .spawn(node("node_control", ""), &network.slots()[1])
        .await
        .unwrap();
    let told = ask_control(&node);
    assert_eq!(told["token"], node.token().as_str());
    assert_eq!(told["files"], "5", "the standard ones, socket and token");
    assert_eq!(told["group"], node.pid().to_string(), "its own process group");
    assert_eq!(node.addresses().v4.to_string(), "127.0.1.2");
    within(node.kill()).await;
    TcpStream::connect(node.control_addr()).unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_node_kills_and_reaps_it() {
    let (launcher, network) = loopback().await;
    let node = launcher
        .spawn(shell("sleep 1000"), &network.slots()[0])
        .await
        .unwrap();
    let pid = node.pid();
    assert!(is_alive(pid));
    drop(node);
    assert!(
        !Path::new(&format!("/proc/{pid}")).exists(),
        "not even a zombie is left"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_outlives_the_launcher_that_started_it() {
    let (launcher, network) = loopback().await;
    let node = launcher
        .spawn(shell("read line; sleep 0.3; exit 5"), &network.slots()[0])
        .await
        .unwrap();
    drop(launcher);
    assert_eq!(within(node.exited()).await.status.unwrap().code(), Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_is_named() {
    let (launcher, network) = loopback().await;
    let command = NodeCommand::new("server-0", "/nonexistent/perfrun-node");
    let error = launcher.spawn(command, &network.slots()[0]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to start server-0 (/nonexistent/perfrun-node)"
    );
}

// --- Perfrun, as far as these tests need it ---

fn scenario(name: &str) {
    match name {
        "scenario_probe" => drop(acquire()),
        "scenario_refused" => refused(),
        "scenario_write" => {
            print!("{:?}", acquire());
            fs::write(argument(), "a result").unwrap();
        }
        _ => {
            acquire();
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let launcher = Launcher::start().unwrap();
                match name {
                    "scenario_reach" => reach(&launcher).await,
                    "scenario_links" => links().await,
                    "scenario_settings" => settings(&launcher).await,
                    "scenario_replace" => replace(&launcher).await,
                    "scenario_fast" => fast().await,
                    "scenario_drop" => drop_all(&launcher).await,
                    "scenario_hold" => hold(&launcher).await,
                    "scenario_churn" => churn(&launcher).await,
                    unknown => panic!("no scenario {unknown}"),
                }
            });
        }
    }
}

async fn reach(launcher: &Launcher) {
    let network = namespaces(2).await;
    let other = namespaces(2).await;
    let [listening, dialling] = network.slots() else {
        panic!("two slots")
    };
    let Addresses { v4, v6 } = listening.addresses();
    assert_eq!(v4.to_string(), "10.99.0.1");
    let hosts = [Some(IpAddr::from(v4)), v6.map(IpAddr::from)]
        .into_iter()
        .flatten();
    assert_eq!(
        v6.is_some(),
        Path::new("/proc/sys/net/ipv6").exists() && v6.is_some()
    );
    for (host, port) in hosts.zip(4001..) {
        let target = SocketAddr::new(host, port);
        let (records, mut lines) = mpsc::channel(8);
        let command = NodeCommand {
            records: Some(records),
            ..node("node_echo", &target.to_string())
        };
        let server = launcher.spawn(command, listening).await.unwrap();
        assert_eq!(within(lines.recv()).await.as_deref(), Some("listening"));

        let client = launcher
            .spawn(node("node_dial", &target.to_string()), dialling)
            .await
            .unwrap();
        let exit = within(client.exited()).await;
        assert_eq!(exit.status.unwrap().code(), Some(0), "{exit}");

        let stranger = launcher
            .spawn(node("node_dial", &target.to_string()), &other.slots()[1])
            .await
            .unwrap();
        let refused = within(stranger.exited()).await.last_lines.join("\n");
        assert!(
            refused.contains("Connection refused"),
            "another run's network has the same addresses: {refused}"
        );
        within(server.stop(PATIENCE)).await;
    }

    let server = launcher.spawn(node("node_control", ""), listening).await.unwrap();
    let told = ask_control(&server);
    assert_eq!(told["token"], server.token().as_str());
    assert_eq!(told["namespace"], format!("net:[{}]", id(listening)));
    assert_eq!(told["links"], "eth0 lo");
    assert_eq!(told["files"], "5", "the standard ones, socket and token");
}

async fn links() {
    let before = own_links();
    let network = namespaces(3).await;
    assert_eq!(own_links(), before);
    drop(network);
    assert_eq!(own_links(), before);
}

async fn settings(launcher: &Launcher) {
    let path = "/proc/sys/net/ipv4/ip_local_port_range";
    let before = fs::read_to_string(path).unwrap();
    let network = namespaces(1).await;
    let unset: Vec<_> = network.unset().iter().map(ToString::to_string).collect();
    let slot = &network.slots()[0];
    let node = launcher.spawn(node("node_control", ""), slot).await.unwrap();
    let told = ask_control(&node);
    if unset.is_empty() {
        assert_eq!(
            (told["ports"].as_str(), told["reuse"].as_str()),
            ("1024\t65535", "1")
        );
    } else {
        eprintln!("not permitted here: {unset:?}"); // a container with a read-only /proc/sys
    }
    assert_eq!(fs::read_to_string(path).unwrap(), before);
}

async fn replace(launcher: &Launcher) {
    let network = namespaces(1).await;
    let slot = &network.slots()[0];
    let first = launcher.spawn(node("node_control", ""), slot).await.unwrap();
    ask_control(&first);
    rustix::process::kill_process(pid(&first), rustix::process::Signal::KILL).unwrap();
    let exit = within(first.exited()).await;
    assert_eq!((exit.status.unwrap().signal(), exit.killed), (Some(9), false));
    let second = launcher.spawn(node("node_control", ""), slot).await.unwrap();
    assert_eq!(ask_control(&second)["links"], "eth0 lo");
}

async fn fast() {
    // The best of three: others use this machine as well.
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        let network = namespaces(2).await;
        best = best.min(begun.elapsed());
        drop(network);
    }
    eprintln!("two nodes have their network after {best:?}");
    // Milliseconds on an idle machine; the bound only says that nothing waits for a timer.
    assert!(best < Duration::from_secs(2), "{best:?}");
}

async fn drop_all(launcher: &Launcher) {
    let network = namespaces(2).await;
    let mut nodes = Vec::new();
    for slot in network.slots() {
        nodes.push(launcher.spawn(node("node_control", ""), slot).await.unwrap());
    }
    let held = Held::of(&network, &nodes);
    drop(network);
    assert_eq!(held.present(), held.namespaces, "nodes keep theirs");
    drop(nodes);
    eventually("nothing is left", || {
        held.alive().is_empty() && held.present().is_empty()
    });
}

async fn hold(launcher: &Launcher) {
    let network = namespaces(2).await;
    let mut nodes = Vec::new();
    for slot in network.slots() {
        nodes.push(launcher.spawn(node("node_control", ""), slot).await.unwrap());
        ask_control(nodes.last().unwrap());
    }
    Held::of(&network, &nodes).write();
    within(std::future::pending::<()>()).await;
}

/// Starts and stops nodes until it is killed. They carry its process id, by which the test finds them.
async fn churn(launcher: &Launcher) {
    println!("ready");
    let mut running = Vec::new();
    loop {
        let network = namespaces(2).await;
        let mut nodes = Vec::new();
        for slot in network.slots() {
            let mut command = shell("exec sleep 1000");
            command
                .env
                .push((CHURNED_BY.into(), process::id().to_string().into()));
            nodes.push(launcher.spawn(command, slot).await.unwrap());
        }
        drop(std::mem::replace(&mut running, nodes));
    }
}

const CHURNED_BY: &str = "PERFRUN_TEST_CHURNED_BY";

/// In a user namespace that may hold no further namespaces.
fn refused() {
    acquire();
    // SAFETY: this process has one thread; its descriptor table stays as it is.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }.unwrap();
    for limit in ["max_user_namespaces", "max_net_namespaces"] {
        fs::write(format!("/proc/sys/user/{limit}"), "0").unwrap();
    }
    let before = fs::read_link("/proc/self/ns/user").unwrap();
    let error = privilege::acquire().unwrap_err();
    assert_eq!(
        error.to_string(),
        "unable to make network namespaces: the limit of user namespaces is used up \
         (sysctl user.max_user_namespaces is 0)"
    );
    assert_eq!(fs::read_link("/proc/self/ns/user").unwrap(), before);
}

fn acquire() -> Privilege {
    privilege::acquire().unwrap_or_else(|error| {
        let source = std::error::Error::source(&error)
            .map(ToString::to_string)
            .unwrap_or_default();
        eprintln!("{error}: {source}");
        process::exit(SKIPPED);
    })
}

async fn namespaces(nodes: usize) -> Network {
    let network = Network::create(Isolation::Namespaces, nodes).await.unwrap();
    assert_eq!(
        (network.isolation(), network.slots().len()),
        (Isolation::Namespaces, nodes)
    );
    network
}

async fn loopback() -> (Launcher, Network) {
    (
        Launcher::start().unwrap(),
        Network::create(Isolation::Loopback, 2).await.unwrap(),
    )
}

// --- A node, as far as these tests need it ---

const FLOOD_LINES: u32 = 200_000;

fn play_node(name: &str) {
    match name {
        "node_echo" => {
            let listener = TcpListener::bind(argument()).unwrap();
            println!("listening");
            for stream in listener.incoming() {
                let (mut reader, mut writer) = (stream.as_ref().unwrap(), stream.as_ref().unwrap());
                io::copy(&mut reader, &mut writer).unwrap();
            }
        }
        "node_dial" => {
            let mut stream = TcpStream::connect(argument()).unwrap();
            let sent = [7; 100_000];
            let mut writer = stream.try_clone().unwrap();
            let writing = thread::spawn(move || writer.write_all(&sent));
            let mut received = [0; 100_000];
            stream.read_exact(&mut received).unwrap();
            writing.join().unwrap().unwrap();
            assert_eq!(received, sent);
        }
        "node_control" => answer_control(),
        "node_flood" => {
            let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
            for number in 0..FLOOD_LINES {
                writeln!(err, "line {number} of a log that nobody asked for").unwrap();
                writeln!(out, "{{\"record\": {number}}}").unwrap();
            }
            err.write_all(&vec![b'x'; 10_000_000]).unwrap();
            writeln!(err, "\nthe end").unwrap();
        }
        unknown => panic!("no node {unknown}"),
    }
}

/// Tells each caller what this process has and where it is, as lines `key value`.
fn answer_control() {
    let files = fs::read_dir("/proc/self/fd").unwrap().count() - 1; // without the one that lists them
    let token = fs::read_to_string(env::var("PERFRUN_TOKEN_FILE").unwrap()).unwrap();
    let number: RawFd = env::args().skip_while(|arg| arg != "--control").nth(1).unwrap()["fd:".len()..]
        .parse()
        .unwrap();
    // SAFETY: the number was given to this process, which uses it for this listener only.
    let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(number) });
    listener.set_nonblocking(false).unwrap();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let answer = [
        ("token", token),
        ("files", files.to_string()),
        ("group", rustix::process::getpgrp().as_raw_nonzero().to_string()),
        (
            "namespace",
            fs::read_link("/proc/self/ns/net").unwrap().display().to_string(),
        ),
        (
            "links",
            own_links()
                .into_iter()
                .filter(|link| link == "eth0" || link == "lo")
                .collect::<Vec<_>>()
                .join(" "),
        ),
        ("ports", read("/proc/sys/net/ipv4/ip_local_port_range")),
        ("reuse", read("/proc/sys/net/ipv4/tcp_tw_reuse")),
    ];
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        for (key, value) in &answer {
            writeln!(stream, "{key} {value}").unwrap();
        }
    }
}

/// Asks a `node_control`, from outside of its namespace.
fn ask_control(node: &NodeProcess) -> BTreeMap<String, String> {
    let stream = TcpStream::connect_timeout(&node.control_addr(), PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let told: BTreeMap<_, _> = io::read_to_string(stream)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    assert!(!told.is_empty(), "{:?}", node.log_tail());
    told
}

fn node(role: &str, argument: &str) -> NodeCommand {
    let mut command = NodeCommand::new(role, MYSELF);
    command.env = vec![(ROLE.into(), role.into()), (ARGUMENT.into(), argument.into())];
    command
}

fn shell(script: &str) -> NodeCommand {
    let mut command = NodeCommand::new("shell", "/bin/sh");
    command.args = vec!["-c".into(), script.into()];
    command
}

fn argument() -> String {
    env::var(ARGUMENT).unwrap()
}

// --- Roles and users ---

/// The loader calls this before `main`, that is before the test harness starts threads: [`privilege::acquire`] is for
/// processes with one thread, and a harness always runs tests on another one.
#[used]
// SAFETY: the section is an array of functions without arguments that matter, and this is one.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn act_if_asked() {
        let Ok(role) = env::var(ROLE) else { return };
        let play = || {
            if role.starts_with("scenario") {
                scenario(&role);
            } else {
                play_node(&role);
            }
        };
        process::exit(panic::catch_unwind(play).map_or(101, |()| 0));
    }
    act_if_asked
};

/// Whose rights a scenario has.
#[derive(Clone, Copy, Debug)]
enum User {
    Caller,
    Nobody,
}

impl User {
    fn available() -> impl Iterator<Item = Self> {
        let root = rustix::process::geteuid().is_root();
        if !root {
            skip("as another user", "only root can become nobody");
        }
        [Self::Caller].into_iter().chain(root.then_some(Self::Nobody))
    }

    fn uid(self) -> u32 {
        match self {
            Self::Caller => rustix::process::geteuid().as_raw(),
            Self::Nobody => NOBODY,
        }
    }

    fn command(self, scenario: &str, argument: &str) -> Command {
        let mut command = Command::new(MYSELF);
        command
            .env(ROLE, scenario)
            .env(ARGUMENT, argument)
            .stdin(Stdio::null());
        if let Self::Nobody = self {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Runs a scenario to its end, which must be a good one.
    fn run(self, scenario: &str) {
        self.output_of(scenario, "");
    }

    fn output_of(self, scenario: &str, argument: &str) -> Option<Output> {
        let output = self.command(scenario, argument).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(SKIPPED) {
            skip(&format!("{self:?}"), errors.trim());
            return None;
        }
        assert!(
            output.status.success(),
            "{scenario} as {self:?}: {}\n{errors}",
            output.status
        );
        Some(output)
    }

    /// Otherwise the test is a skipped one.
    fn can_have_namespaces(self) -> bool {
        self.output_of("scenario_probe", "").is_some()
    }

    /// Starts a scenario that is to be killed.
    fn start(self, scenario: &str) -> process::Child {
        self.command(scenario, "").stdout(Stdio::piped()).spawn().unwrap()
    }
}

// --- What is left ---

/// Processes and namespaces that must go.
struct Held {
    pids: BTreeSet<u32>,
    namespaces: BTreeSet<u64>,
}

impl Held {
    fn of(network: &Network, nodes: &[NodeProcess]) -> Self {
        Self {
            pids: nodes.iter().map(NodeProcess::pid).collect(),
            namespaces: network.slots().iter().map(id).collect(),
        }
    }

    fn write(&self) {
        let numbers = self.pids.iter().map(|pid| format!("pid {pid}"));
        let numbers = numbers.chain(self.namespaces.iter().map(|id| format!("namespace {id}")));
        print!("{}\n\n", numbers.collect::<Vec<_>>().join("\n"));
        io::stdout().flush().unwrap();
    }

    fn read(from: &mut impl Read) -> Self {
        let mut held = Self {
            pids: BTreeSet::new(),
            namespaces: BTreeSet::new(),
        };
        for line in BufReader::new(from).lines() {
            match line.unwrap().split_once(' ') {
                Some(("pid", pid)) => drop(held.pids.insert(pid.parse().unwrap())),
                Some(("namespace", id)) => drop(held.namespaces.insert(id.parse().unwrap())),
                _ => break,
            }
        }
        held
    }

    fn alive(&self) -> BTreeSet<u32> {
        self.pids.iter().copied().filter(|&pid| is_alive(pid)).collect()
    }

    /// Those that any process is in, or holds open.
    fn present(&self) -> BTreeSet<u64> {
        remains::present(&self.namespaces)
    }
}

/// Nodes of a `scenario_churn`, by the environment it gave them.
fn started_by(perfrun: u32) -> Vec<u32> {
    let mark = format!("{CHURNED_BY}={perfrun}");
    let marked = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .any(|variable| variable == mark.as_bytes())
    };
    processes().filter(marked).filter(|&pid| is_alive(pid)).collect()
}

fn own_links() -> BTreeSet<String> {
    let devices = fs::read_to_string("/proc/self/net/dev").unwrap();
    devices
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect()
}

fn id(slot: &Slot) -> u64 {
    slot.namespace().unwrap().id().unwrap()
}

fn pid(node: &NodeProcess) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(node.pid().try_into().unwrap()).unwrap()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it takes no longer than PATIENCE")
}

async fn log_says(node: &NodeProcess, line: &str) {
    while first_log_line(node).await != line {}
}

async fn first_log_line(node: &NodeProcess) -> String {
    within(async {
        loop {
            if let Some(line) = node.log_tail().into_iter().next() {
                return line;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}
