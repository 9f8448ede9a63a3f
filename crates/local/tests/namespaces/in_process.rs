//! Without namespaces, in this process.

use std::{
    fs,
    net::TcpStream,
    os::unix::process::ExitStatusExt,
    path::Path,
    pin::pin,
    time::{Duration, Instant},
};

use perfrun_local::{Launcher, LocalIsolation, LocalNetwork, NodeCommand};
use perfrun_test_kit::remains::is_alive;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::{
    node::{FLOOD_LINES, ask_control, first_log_line, log_says, node, shell},
    support::{TEST_TIMEOUT, eventually, within},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_exits_early_leaves_the_end_of_its_log() {
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
async fn a_node_may_stop_on_its_own_within_the_grace_period() {
    let (launcher, network) = loopback().await;
    let command = shell("trap 'echo stopping >&2; exit 0' TERM; echo up >&2; while :; do sleep 0.05; done");
    let node = launcher.spawn(command, &network.slots()[0]).await.unwrap();
    log_says(&node, "up").await;
    let exit = within(node.stop(TEST_TIMEOUT)).await;
    assert_eq!((exit.status.unwrap().code(), exit.killed), (Some(0), false));
    assert!(exit.last_lines.contains(&"stopping".to_owned()), "{exit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_ignores_sigterm_is_killed_after_the_grace_period_with_its_children() {
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
async fn a_stop_continues_after_its_caller_is_dropped() {
    let (launcher, network) = loopback().await;
    let node = launcher
        .spawn(shell("echo up >&2; sleep 1000"), &network.slots()[0])
        .await
        .unwrap();
    log_says(&node, "up").await;
    {
        let mut stop = pin!(node.stop(TEST_TIMEOUT));
        tokio::select! {
            biased;
            _ = &mut stop => {}
            () = std::future::ready(()) => {} // polled once, then dropped
        }
    }
    assert_eq!(within(node.exited()).await.status.unwrap().signal(), Some(15));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_floods_its_outputs_is_not_held_up() {
    let (launcher, network) = loopback().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.log");
    let mut command = node("node_flood", "");
    command.log = Some(fs::File::create(&path).unwrap());
    let node = launcher.spawn(command, &network.slots()[0]).await.unwrap();
    let exit = within(node.exited()).await;
    assert_eq!(exit.status.unwrap().code(), Some(0), "{exit}");
    assert_eq!(exit.last_lines.last().unwrap(), "the end");
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
    let answer = ask_control(&node);
    assert_eq!(answer["token"], node.token().as_str());
    assert_eq!(answer["files"], "5", "the standard ones, socket and token");
    assert_eq!(answer["group"], node.pid().to_string(), "its own process group");
    assert_eq!(node.addresses().v4.to_string(), "127.0.1.2");
    within(node.kill()).await;
    TcpStream::connect(node.control_addr()).unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_has_the_cpus_that_it_was_given() {
    let (launcher, network) = loopback().await;
    let usable = sched_getaffinity(None).unwrap();
    let last = (0..CpuSet::MAX_CPU).rfind(|cpu| usable.is_set(*cpu)).unwrap();
    let mut cpus = CpuSet::new();
    cpus.set(last);
    let command = NodeCommand {
        cpus: Some(cpus),
        ..node("node_control", "")
    };
    let node = launcher.spawn(command, &network.slots()[0]).await.unwrap();
    assert_eq!(ask_control(&node)["cpus"], last.to_string());
    within(node.kill()).await;
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

async fn loopback() -> (Launcher, LocalNetwork) {
    (
        Launcher::start().unwrap(),
        LocalNetwork::create(LocalIsolation::Loopback, 2, None)
            .await
            .unwrap(),
    )
}
