//! Link agents as processes, each in its own network namespace: what happens to links when something breaks.
//!
//! All tests need root, and are skipped by name without it.

// Helpers outside of `#[test]` functions fail a test by panicking, as those do.
#![allow(clippy::unwrap_used)]

use std::{
    io::ErrorKind,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use perfrun_contract::node::{EPOCH_HEADER, LinkRequest, LinkStatus};
use perfrun_emulator::abilities::detect;
use perfrun_link::{Ability, Backend, Impairment, OutgoingLinks};
use perfrun_test_kit::{Need, skip};
use reqwest::StatusCode;
use rustix::thread::{UnshareFlags, unshare_unsafe};

const TOKEN: &str = "a token of this test";
const CONTROL: &str = "127.0.0.1:9091";
const PEER: &str = "10.79.0.2";
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn the_successor_of_a_killed_agent_impairs_before_it_is_called() {
    in_namespace(async |folder| {
        let asked = delay(25);
        let mut agent = Agent::start(folder).await;
        agent.put(&asked).await;
        let before = agent.get().await;
        assert_eq!(before.state.unwrap().link, asked.link);
        agent.kill();
        assert!(detour_is_set(), "what was sent to the peer would pass");
        let successor = Agent::start(folder).await;
        let after = successor.get().await;
        assert_eq!(after.state.unwrap().link, asked.link);
        assert_ne!(after.instance, before.instance);
        // After the end of a link, a restart does not restore it.
        successor.put(&LinkRequest::default()).await;
        assert!(!detour_is_set());
        drop(successor);
        assert_eq!(Agent::start(folder).await.get().await.state, None);
    });
}

#[test]
fn after_a_failure_of_the_emulator_the_instance_changes_and_links_can_be_set_again() {
    in_namespace(async |folder| {
        let agent = Agent::start(folder).await;
        agent.put(&delay(25)).await;
        let before = agent.get().await.instance;
        assert_eq!(agent.get().await.instance, before);
        ip("link delete perfrun0");
        let failed = agent.get().await;
        assert_eq!(failed.state, None);
        assert_ne!(failed.instance, before);
        assert!(detour_is_set(), "what was sent to the peer would pass");
        agent.put(&delay(25)).await;
        let again = agent.get().await;
        assert_eq!(again.state.unwrap().link, delay(25).link);
        assert_eq!(again.instance, failed.instance);

        // Also if the next request is to let packets pass.
        ip("link delete perfrun0");
        agent.put(&LinkRequest::default()).await;
        assert_ne!(agent.get().await.instance, again.instance);
        assert!(!detour_is_set());
    });
}

#[test]
fn an_interface_cleared_by_another_program_is_noticed() {
    in_namespace(async |folder| {
        let agent = Agent::start(folder).await;
        agent.put(&delay(25)).await;
        let before = agent.get().await.instance;
        output("tc", "qdisc delete dev eth0 clsact");
        let cleared = agent.get().await;
        assert_eq!(cleared.state, None);
        assert_ne!(cleared.instance, before);
        agent.put(&delay(25)).await;
        assert_eq!(agent.get().await.state.unwrap().link, delay(25).link);
        assert!(detour_is_set());
    });
}

#[test]
fn a_conductor_that_another_has_taken_over_from_changes_no_link() {
    in_namespace(async |folder| {
        let agent = Agent::start(folder).await;
        let put = async |epoch: u64, request: &LinkRequest| {
            let put = agent.http.put(url()).bearer_auth(TOKEN).json(request);
            put.header(EPOCH_HEADER, epoch).send().await.unwrap().status()
        };
        assert_eq!(put(7, &delay(25)).await, StatusCode::NO_CONTENT);
        let nothing = LinkRequest::default();
        assert_eq!(put(6, &nothing).await, StatusCode::PRECONDITION_FAILED);
        assert!(detour_is_set());
        assert_eq!(put(8, &nothing).await, StatusCode::NO_CONTENT);
        assert!(!detour_is_set());
    });
}

fn delay(milliseconds: u64) -> LinkRequest {
    let impairment = Impairment {
        delay: Duration::from_millis(milliseconds),
        ..Impairment::default()
    };
    LinkRequest {
        link: OutgoingLinks::to([PEER.parse().unwrap()], impairment).unwrap(),
        backend: Backend::Userspace,
        seed: None,
    }
}

/// Runs a test on a thread in a new network namespace with an interface eth0.
fn in_namespace(test: impl AsyncFnOnce(&Path) + Send) {
    let inside = || {
        // SAFETY: only the network namespace changes; the file descriptor table stays shared.
        match unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Some("needs root, to make network namespaces".to_owned());
            }
            made => made.unwrap(),
        }
        if let Ability::Unavailable { reason, detail } = detect("lo").userspace {
            return Some(format!("{reason} ({detail})"));
        }
        ip("link set lo up");
        ip("link add eth0 type veth peer name far");
        ip("link set eth0 up");
        let folder = tempfile::tempdir().unwrap();
        // On this thread only: other threads are in another namespace.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(test(folder.path()));
        None
    };
    let skipped = thread::scope(|scope| scope.spawn(inside).join());
    if let Some(reason) = skipped.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
        skip(Need::Links, "all of it", &reason);
    }
}

/// Whether packets to the peer do not leave eth0 directly, but go to an emulator or are dropped.
fn detour_is_set() -> bool {
    output("tc", "filter show dev eth0 egress").contains("mirred")
}

fn ip(arguments: &str) {
    output("ip", arguments);
}

fn output(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split(' ')).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// An agent; killed when dropped.
struct Agent {
    child: Child,
    http: reqwest::Client,
}

impl Agent {
    /// Starts an agent with its state file in `folder`, and waits until it answers.
    async fn start(folder: &Path) -> Self {
        let token = folder.join("token");
        std::fs::write(&token, TOKEN).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_perfrun-node"))
            .args(["link-agent", "--control", CONTROL, "--listen-ip", "127.0.0.1"])
            .arg("--token-file")
            .arg(token)
            .arg("--state-file")
            .arg(folder.join("link.json"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let agent = Self {
            child,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
        };
        let begun = Instant::now();
        while agent
            .http
            .get(format!("http://{CONTROL}/readyz"))
            .send()
            .await
            .is_err()
        {
            assert!(begun.elapsed() < TEST_TIMEOUT, "the agent does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        agent
    }

    async fn get(&self) -> LinkStatus {
        let answer = self.http.get(url()).bearer_auth(TOKEN).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        answer.json().await.unwrap()
    }

    async fn put(&self, request: &LinkRequest) {
        let put = self.http.put(url()).bearer_auth(TOKEN).json(request);
        let answer = put.send().await.unwrap();
        assert_eq!(
            answer.status(),
            StatusCode::NO_CONTENT,
            "{}",
            answer.text().await.unwrap()
        );
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill();
    }
}

fn url() -> String {
    format!("http://{CONTROL}/v1/link")
}
