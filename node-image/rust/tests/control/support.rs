//! Nodes as processes, controlled over HTTP as a conductor does, and trials between them.

use std::{
    net::TcpListener,
    os::fd::AsRawFd,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use perfrun_contract::{
    matrix::{Stack, Transport},
    node::{Measured, Outcome, Reason, Start, TrialRequest, TrialState, TrialStatus},
    parameters::Parameters,
    support::why_pair_unsupported,
};
pub(crate) use perfrun_test_kit::records::STACKS_WITH_THEMSELVES;
use perfrun_test_kit::{Need, skip};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit},
};
use serde::de::DeserializeOwned;

pub(crate) use crate::requests::*;

const PROGRAM: &str = env!("CARGO_BIN_EXE_perfrun-node");

pub(crate) const TOKEN: &str = "a token of this test";

/// Client, server and transport of all pairs that support all workloads.
pub(crate) const PAIRS: [(Stack, Stack, Transport); 16] = [
    (Stack::Libp2p, Stack::Libp2p, Transport::Tcp),
    (Stack::Libp2p, Stack::Litep2p, Transport::Tcp),
    (Stack::Litep2p, Stack::Libp2p, Transport::Tcp),
    (Stack::Litep2p, Stack::Litep2p, Transport::Tcp),
    (Stack::Libp2p, Stack::Libp2p, Transport::QuicV1),
    (Stack::Libp2p, Stack::Litep2p, Transport::QuicV1),
    (Stack::Litep2p, Stack::Libp2p, Transport::QuicV1),
    (Stack::Litep2p, Stack::Litep2p, Transport::QuicV1),
    (Stack::Libp2p, Stack::Libp2p, Transport::TcpTls),
    (Stack::Libp2p, Stack::Libp2p, Transport::Ws),
    (Stack::Libp2p, Stack::Litep2p, Transport::Ws),
    (Stack::Litep2p, Stack::Libp2p, Transport::Ws),
    (Stack::Litep2p, Stack::Litep2p, Transport::Ws),
    (Stack::Libp2p, Stack::Libp2p, Transport::Memory),
    (Stack::Raw, Stack::Raw, Transport::Tcp),
    (Stack::Raw, Stack::Raw, Transport::QuicV1),
];

/// [`PAIRS`], and the pairs on WebRTC, which do not support all workloads.
pub(crate) fn all_pairs() -> impl Iterator<Item = (Stack, Stack, Transport)> {
    let listeners = [Stack::Libp2p, Stack::Litep2p];
    let webrtc = listeners.map(|server| (Stack::Libp2p, server, Transport::WebrtcDirect));
    PAIRS.into_iter().chain(webrtc).chain(commonware())
}

/// The pair that supports few workloads.
pub(crate) fn commonware() -> Option<(Stack, Stack, Transport)> {
    let pair = (Stack::Commonware, Stack::Commonware, Transport::Tcp);
    cfg!(feature = "commonware").then_some(pair)
}

/// Whether a plan would not skip a pair.
pub(crate) fn can((client, server, transport): (Stack, Stack, Transport), parameters: &Parameters) -> bool {
    why_pair_unsupported(client, server, transport, parameters).is_none()
}

/// A node process, which is killed when dropped.
pub(crate) struct Node {
    child: Mutex<Child>,
    url: String,
    http: reqwest::Client,
    _folder: tempfile::TempDir,
}

impl Node {
    /// A node with an inherited control socket, which listens for trials on loopback.
    pub(crate) fn start() -> Self {
        Self::start_as("server", Stdio::null())
    }

    pub(crate) fn start_as(role: &str, stdout: Stdio) -> Self {
        Self::start_program(Path::new(PROGRAM), role, stdout)
    }

    fn start_program(program: &Path, role: &str, stdout: Stdio) -> Self {
        /// One start at a time, so that only one child inherits a socket.
        static HANDING_OVER: Mutex<()> = Mutex::new(());
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let _guard = HANDING_OVER.lock().unwrap();
        let control = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", control.local_addr().unwrap());
        fcntl_setfd(&control, FdFlags::empty()).unwrap();
        let child = Command::new(program)
            .args([
                "control",
                "--listen-ip",
                "127.0.0.1",
                "--role",
                role,
                "--run",
                "a-run",
                "--token-file",
            ])
            .arg(&token)
            .args(["--control", &format!("fd:{}", control.as_raw_fd())])
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(if std::env::var_os("PERFRUN_TEST_LOG").is_some() {
                Stdio::inherit()
            } else {
                Stdio::null()
            })
            .spawn()
            .unwrap();
        drop(control);
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(100))
            .build()
            .unwrap();
        Self {
            child: Mutex::new(child),
            url,
            http,
            _folder: folder,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid() as i32).unwrap(), signal).unwrap();
    }

    /// Waits until the process ends, and returns its exit status.
    pub(crate) async fn exit(&self) -> Option<i32> {
        loop {
            if let Some(status) = self.child.lock().unwrap().try_wait().unwrap() {
                return status.code();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The standard output of a child that has ended, if it is a pipe.
    pub(crate) fn output(&self) -> String {
        let mut text = String::new();
        let mut stdout = self.child.lock().unwrap().stdout.take().unwrap();
        std::io::Read::read_to_string(&mut stdout, &mut text).unwrap();
        text
    }

    /// A call without a token.
    pub(crate) fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    pub(crate) fn call(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(TOKEN)
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        let response = answer(self.call(Method::GET, path)).await;
        assert_eq!(response.status(), StatusCode::OK);
        response.json().await.unwrap()
    }

    pub(crate) async fn put(&self, id: &str, request: &TrialRequest) -> StatusCode {
        let call = self.call(Method::PUT, &format!("/v1/trials/{id}")).json(request);
        answer(call).await.status()
    }

    pub(crate) async fn begin(&self, id: &str) -> StatusCode {
        let call = self.call(Method::PUT, &format!("/v1/trials/{id}/start"));
        answer(call.json(&Start { at_nanoseconds: 0 })).await.status()
    }

    pub(crate) async fn finish(&self, id: &str) -> StatusCode {
        let call = self.call(Method::PUT, &format!("/v1/trials/{id}/finish"));
        answer(call).await.status()
    }

    pub(crate) async fn delete(&self, id: &str) -> StatusCode {
        let call = self.call(Method::DELETE, &format!("/v1/trials/{id}"));
        answer(call).await.status()
    }

    pub(crate) async fn status(&self, id: &str) -> TrialStatus {
        self.poll(id, "").await
    }

    pub(crate) async fn poll(&self, id: &str, query: &str) -> TrialStatus {
        self.get(&format!("/v1/trials/{id}?{query}")).await
    }

    /// Waits until the trial is later than `after`.
    pub(crate) async fn later_than(&self, id: &str, after: TrialState) -> TrialStatus {
        loop {
            let status = self.poll(id, &format!("wait=60&after={after}")).await;
            if status.state > after {
                return status;
            }
        }
    }

    pub(crate) async fn outcome(&self, id: &str) -> Outcome {
        self.later_than(id, TrialState::Running).await.outcome.unwrap()
    }

    /// Puts a server trial, waits until it listens, and returns its addresses.
    pub(crate) async fn serve(
        &self,
        id: &str,
        stack: Stack,
        transport: Transport,
        parameters: &Parameters,
    ) -> Vec<String> {
        self.serve_request(id, &server(stack, transport, parameters.clone()))
            .await
    }

    /// Puts a server trial and returns its addresses.
    pub(crate) async fn serve_request(&self, id: &str, request: &TrialRequest) -> Vec<String> {
        assert_eq!(self.put(id, request).await, StatusCode::CREATED);
        let status = self.later_than(id, TrialState::Preparing).await;
        assert!(!status.addresses.is_empty(), "{request:?}: {status:?}");
        status.addresses
    }

    /// Puts a client trial and starts it.
    pub(crate) async fn run(&self, id: &str, request: &TrialRequest) {
        assert_eq!(self.put(id, request).await, StatusCode::CREATED);
        assert_eq!(self.begin(id).await, StatusCode::NO_CONTENT);
    }

    /// Waits until payload has moved.
    pub(crate) async fn moved(&self, id: &str) {
        loop {
            let status = self.status(id).await;
            if status.bytes_sent + status.bytes_received > 0 {
                return;
            }
            assert!(status.outcome.is_none(), "{status:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn metrics(&self) -> String {
        let response = answer(self.bare(Method::GET, "/metrics")).await;
        response.text().await.unwrap()
    }

    /// Limits the number of the node's open files.
    pub(crate) fn limit_descriptors(&self, most: u64) {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        prlimit(
            Some(Pid::from_raw(self.pid() as i32).unwrap()),
            Resource::Nofile,
            limit,
        )
        .unwrap();
    }

    /// Open files.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }

    /// A number of `/proc/PID/status`.
    pub(crate) fn proc_status(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':')
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A client node and a server node.
pub(crate) struct Pair {
    pub client: Node,
    pub server: Node,
}

/// What both ends of a trial measured.
pub(crate) struct Ends {
    pub transport: Transport,
    pub client: Outcome,
    pub server: Outcome,
}

impl Ends {
    /// Both ends of a trial that completed without failures, except for libp2p's dials on WebRTC (webrtc-rs
    /// issue 821).
    pub(crate) fn completed(self, what: &str) -> (Measured, Measured) {
        assert!(self.client.failure.is_none(), "{what}: {:?}", self.client.failure);
        assert!(self.server.failure.is_none(), "{what}: {:?}", self.server.failure);
        if self.transport != Transport::WebrtcDirect {
            assert_eq!(self.client.measured.failures, 0, "{what}");
        }
        (self.client.measured, self.server.measured)
    }
}

impl Pair {
    pub(crate) fn start() -> Self {
        Self {
            client: Node::start_as("client", Stdio::null()),
            server: Node::start(),
        }
    }

    /// Two nodes of go-libp2p. `None` if their program was not built, which skips a part of the test.
    pub(crate) fn start_go() -> Option<Self> {
        let program = Path::new(PROGRAM).with_file_name("perfrun-node-go");
        if !program.is_file() {
            skip(
                Need::Go,
                "go-libp2p",
                "perfrun-node-go was not built: run `cargo xtask go`",
            );
            return None;
        }
        let start = |role| Node::start_program(&program, role, Stdio::null());
        Some(Self {
            client: start("client"),
            server: start("server"),
        })
    }

    /// Runs a whole trial, from the start of the listener until both records are deleted.
    pub(crate) async fn trial(
        &self,
        (client, server, transport): (Stack, Stack, Transport),
        parameters: &Parameters,
        peers: u32,
    ) -> Ends {
        let id = "trial";
        if parameters.is_in_process_on(transport) {
            return self.trial_in_process(client, transport, parameters, peers).await;
        }
        let addresses = self.server.serve(id, server, transport, parameters).await;
        self.client
            .run(
                id,
                &dialler(client, transport, parameters.clone(), addresses, peers),
            )
            .await;
        let ran = self.client.outcome(id).await;
        assert_eq!(self.server.finish(id).await, StatusCode::NO_CONTENT);
        let served = self.server.outcome(id).await;
        assert_eq!(self.client.delete(id).await, StatusCode::NO_CONTENT);
        assert_eq!(self.server.delete(id).await, StatusCode::NO_CONTENT);
        Ends {
            transport,
            client: ran,
            server: served,
        }
    }
}

impl Pair {
    /// Runs a trial with both sides at the client.
    async fn trial_in_process(
        &self,
        stack: Stack,
        transport: Transport,
        parameters: &Parameters,
        peers: u32,
    ) -> Ends {
        let id = "trial";
        self.client
            .run(id, &both(stack, transport, parameters.clone(), peers))
            .await;
        let ran = self.client.outcome(id).await;
        assert_eq!(self.client.delete(id).await, StatusCode::NO_CONTENT);
        let served = Outcome {
            failure: None,
            measured: ran.served.clone().unwrap(),
            served: None,
        };
        Ends {
            transport,
            client: ran,
            server: served,
        }
    }
}

/// The answer to a call, which is made again if its connection breaks, as conductors do: a node ends a
/// connection whose first request takes longer than 5 s to arrive, even if the machine is too busy for it.
async fn answer(call: RequestBuilder) -> Response {
    let begun = Instant::now();
    loop {
        match call.try_clone().unwrap().send().await {
            Ok(response) => return response,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn reason(outcome: &Outcome) -> Option<Reason> {
    outcome.failure.as_ref().map(|failure| failure.reason)
}

/// Waits until `holds` returns true, as long as a loaded machine may need.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{what} did not become true"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
