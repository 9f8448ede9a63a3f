//! A node that honours the contract, measures nothing, and misbehaves as its script says.

mod http;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    sync::{Arc, Mutex, atomic::AtomicU64, mpsc},
    time::{Duration, Instant},
};

use axum::http::StatusCode;
use perfrun_conductor::NodeClient;
use perfrun_contract::{
    machine::MachineTime,
    node::{Failure, Measured, Outcome, Reason, Side, TrialRequest, TrialState, TrialStatus},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) const TOKEN: &str = "correct horse";

/// What a node does.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// What its clock showed when it was started, and how much it is ahead after a million of any unit.
    pub clock: Duration,
    pub drift_ppm: u32,
    /// How long it prepares, and how long a client works: until this is cancelled, and then this long.
    pub prepares_for: Duration,
    pub works_until: Option<CancellationToken>,
    pub works_for: Duration,
    /// What a client has sent, and a server received.
    pub bytes: u64,
    pub profile: &'static str,
    /// Where trials listen, it says.
    pub ip: IpAddr,
    /// It fails on reaching a state.
    pub fails: Option<(TrialState, Reason)>,
    /// It disappears when it reaches a state.
    pub vanishes: Option<TrialState>,
    /// It answers this to a request to prepare.
    pub refuses: Option<StatusCode>,
    /// It does not end a trial when it receives the request to cancel.
    pub ignores_cancel: bool,
    /// It does not end a trial that takes too long.
    pub ignores_timeout: bool,
    /// What it makes of the status of a trial before it answers with it.
    pub distorts: fn(&mut TrialStatus),
    /// Attempts in which another process keeps its machine busy, e.g. `r-c0.i0.a0`.
    pub disturbed: &'static [&'static str],
}

impl Default for Script {
    fn default() -> Self {
        Self {
            clock: Duration::from_secs(5),
            drift_ppm: 0,
            prepares_for: Duration::ZERO,
            works_until: None,
            works_for: Duration::from_millis(1),
            bytes: 0,
            profile: "release",
            ip: Ipv4Addr::LOCALHOST.into(),
            fails: None,
            vanishes: None,
            refuses: None,
            ignores_cancel: false,
            ignores_timeout: false,
            distorts: |_| {},
            disturbed: &[],
        }
    }
}

/// A running node. It is gone when this is dropped.
pub(crate) struct ScriptedNode {
    pub address: String,
    pub ip: IpAddr,
    /// What its clients show.
    pub token: &'static str,
    pub remote: Remote,
    /// Ends when nothing is left of it.
    end: Option<std::thread::JoinHandle<()>>,
}

/// Reaches into a node from elsewhere.
#[derive(Clone)]
pub(crate) struct Remote(Arc<Shared>);

impl Remote {
    /// The node is gone, as when its process was killed. Nothing answers any more when this returns.
    pub(crate) fn vanish(&self) {
        let _ = self.0.vanish.send(());
        while TcpStream::connect(self.0.socket).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The state of a trial that the node knows.
    pub(crate) fn state(&self, id: &str) -> Option<TrialState> {
        let trials = self.0.trials.lock().unwrap();
        trials.get(id).map(|trial| trial.status.borrow().state)
    }

    /// The node forgets everything, as when its process was restarted at the same address.
    pub(crate) fn forget(&self) {
        self.0.trials.lock().unwrap().clear();
    }
}

struct Shared {
    script: Script,
    socket: SocketAddr,
    born: Instant,
    trials: Mutex<BTreeMap<String, Arc<Trial>>>,
    calls: Mutex<Vec<String>>,
    /// The largest one of its callers.
    epoch: AtomicU64,
    vanish: mpsc::Sender<()>,
}

struct Trial {
    id: String,
    request: TrialRequest,
    status: watch::Sender<TrialStatus>,
    start: watch::Sender<Option<u64>>,
    finish: CancellationToken,
    cancel: CancellationToken,
}

impl ScriptedNode {
    pub(crate) fn start(script: Script) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let socket = listener.local_addr().unwrap();
        let (vanish, vanishing) = mpsc::channel();
        let shared = Arc::new(Shared {
            script,
            socket,
            born: Instant::now(),
            trials: Mutex::default(),
            calls: Mutex::default(),
            epoch: AtomicU64::default(),
            vanish,
        });
        let ip = shared.script.ip;
        let app = http::router(shared.clone());
        // A runtime of its own: with it go the listener and all connections, as when a process is killed.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.spawn(async move {
            axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), app)
                .await
                .unwrap();
        });
        let end = std::thread::spawn(move || {
            let _ = vanishing.recv();
            runtime.shutdown_timeout(Duration::from_secs(5));
        });
        Self {
            address: format!("http://{socket}"),
            ip,
            token: TOKEN,
            remote: Remote(shared),
            end: Some(end),
        }
    }

    pub(crate) fn client(&self) -> NodeClient {
        NodeClient::new(&self.address, self.token).unwrap()
    }

    /// Calls until now that change something, e.g. `PUT /v1/trials/r-c0.i0.a0`.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = self.remote.0.calls.lock().unwrap();
        calls
            .iter()
            .filter(|call| !call.starts_with("GET"))
            .cloned()
            .collect()
    }

    /// Ids of the trials that it had to start, in order.
    pub(crate) fn started(&self) -> Vec<String> {
        let calls = self.calls();
        let starts = calls
            .iter()
            .filter_map(|call| call.strip_prefix("PUT /v1/trials/")?.strip_suffix("/start"));
        starts.map(str::to_owned).collect()
    }

    /// Ids of the trials that it remembers.
    pub(crate) fn trials(&self) -> Vec<String> {
        self.remote.0.trials.lock().unwrap().keys().cloned().collect()
    }
}

impl Drop for ScriptedNode {
    fn drop(&mut self) {
        self.remote.vanish();
        // Nothing of it answers afterwards.
        if let Some(end) = self.end.take() {
            let _ = end.join();
        }
    }
}

impl Shared {
    fn now(&self) -> u64 {
        let elapsed = self
            .born
            .elapsed()
            .mul_f64(1.0 + f64::from(self.script.drift_ppm) / 1e6);
        u64::try_from((self.script.clock + elapsed).as_nanos()).unwrap()
    }

    async fn run(&self, trial: &Trial) {
        let cut_short = trial.cancel.cancelled();
        let timeout = Duration::from_secs_f64(trial.request.timeout_seconds);
        let ended = tokio::select! {
            ended = self.work(trial) => ended,
            () = tokio::time::sleep(timeout), if !self.script.ignores_timeout => Err(Reason::Timeout),
            () = cut_short, if !self.script.ignores_cancel => Err(Reason::Cancelled),
        };
        let (failure, mut measured) = match ended {
            Ok(measured) => (None, measured),
            Err(reason) => (
                Some(Failure {
                    reason,
                    message: "as scripted".into(),
                }),
                Measured::default(),
            ),
        };
        let is_disturbed = self.script.disturbed.contains(&trial.id.as_str());
        measured.resources.machine = is_disturbed.then_some(MachineTime {
            cpus: 1,
            total_seconds: 1.0,
            busy_seconds: 0.5,
            ..MachineTime::default()
        });
        let mut served = None;
        match trial.request.side {
            Side::Server => measured.bytes_received = self.script.bytes,
            Side::Client { .. } => measured.bytes_sent = self.script.bytes,
            Side::Both { .. } => {
                measured.bytes_sent = self.script.bytes;
                served = Some(Measured {
                    bytes_received: self.script.bytes,
                    ..Measured::default()
                });
            }
            Side::Source { .. } | Side::Relay => {}
        }
        trial.status.send_modify(|status| {
            status.state = TrialState::Finished;
            status.outcome = Some(Outcome {
                failure,
                measured,
                served,
            });
        });
    }

    async fn work(&self, trial: &Trial) -> Result<Measured, Reason> {
        self.reach(trial, TrialState::Preparing).await?;
        tokio::time::sleep(self.script.prepares_for).await;
        self.reach(trial, TrialState::Ready).await?;
        if !matches!(trial.request.side, Side::Client { .. } | Side::Both { .. }) {
            trial.finish.cancelled().await;
            self.reach(trial, TrialState::Finished).await?;
            return Ok(Measured::default());
        }
        let start = trial
            .start
            .subscribe()
            .wait_for(Option::is_some)
            .await
            .unwrap()
            .unwrap();
        let ahead = Duration::from_nanos(start.saturating_sub(self.now()));
        tokio::time::sleep(ahead.div_f64(1.0 + f64::from(self.script.drift_ppm) / 1e6)).await;
        let began = Instant::now();
        let started_nanoseconds = Some(self.now());
        self.reach(trial, TrialState::Running).await?;
        if let Some(until) = &self.script.works_until {
            until.cancelled().await;
        }
        tokio::time::sleep(self.script.works_for).await;
        self.reach(trial, TrialState::Finished).await?;
        Ok(Measured {
            started_nanoseconds,
            seconds: began.elapsed().as_secs_f64(),
            ..Measured::default()
        })
    }

    /// Passes into a state, unless the script says otherwise. A trial is not reported as finished before it
    /// is.
    async fn reach(&self, trial: &Trial, state: TrialState) -> Result<(), Reason> {
        if self.script.vanishes == Some(state) {
            self.vanish.send(()).unwrap();
            std::future::pending::<()>().await;
        }
        if let Some((at, reason)) = self.script.fails
            && at == state
        {
            return Err(reason);
        }
        if state != TrialState::Finished {
            trial.status.send_modify(|status| status.state = state);
        }
        Ok(())
    }
}
