//! Nodes and stores behind the pod proxy of the API server. They are honest, except in one namespace.

use std::{collections::BTreeMap, time::Instant};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use perfrun_api::cluster::PartKind;
use perfrun_contract::node::{CONTRACT, Clock, Measured, Outcome, TrialState, TrialStatus};
use serde::Serialize;
use serde_json::{Value, json};

/// The namespace of those who want to stop the operator.
pub(crate) const HOSTILE: &str = "hostile";

/// How many parts a store of that namespace lists.
const PARTS: usize = 4;

/// What the programs of the hostile namespace answer.
#[derive(Default)]
pub(crate) struct Hostile {
    /// What all nodes answer about a trial, as soon as a client takes part. Without it, they are honest.
    pub(crate) status: Option<Bytes>,
    /// What a store answers for each part.
    pub(crate) part: Bytes,
}

/// A pod, as a path of the proxy names it: its name ends with its port.
#[derive(Clone, Copy)]
pub(crate) struct Pod<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Pod<'a> {
    /// Reads the path of a call of a pod. Returns what follows `/v1/`, too.
    pub(crate) fn read(path: &'a str) -> Option<(Self, &'a str)> {
        let (pod, call) = path.split_once("/proxy/v1/")?;
        let (namespace, name) = pod.strip_prefix("/api/v1/namespaces/")?.split_once("/pods/")?;
        Some((Self { namespace, name }, call))
    }
}

/// All nodes and stores.
pub(crate) struct Nodes {
    hostile: Hostile,
    born: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By namespace, pod and id.
    trials: BTreeMap<[String; 3], Trial>,
    are_clients_hostile: bool,
    counts: Counts,
}

/// How often something has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Trials that clients of other namespaces have started.
    pub(crate) honest_starts: usize,
    /// Hostile answers.
    pub(crate) hostile_answers: usize,
}

/// What a node knows of a trial.
struct Trial {
    state: TrialState,
    is_client: bool,
    started: Option<u64>,
}

impl Nodes {
    pub(crate) fn new(hostile: Hostile) -> Self {
        Self {
            hostile,
            born: Instant::now(),
            state: Mutex::default(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// The answer to a call of a pod. `path` follows `/v1/`.
    pub(crate) fn answer(&self, pod: Pod<'_>, method: &Method, path: &str, body: &Value) -> Response {
        let nothing = || response(204, "");
        let segments: Vec<&str> = path.split('/').collect();
        match (method.as_str(), segments.as_slice()) {
            ("GET", ["info"]) => json_of(&json!({"contract": CONTRACT, "version": "0.0.0", "stacks": {},
                "profile": "release", "listenIp": "127.0.0.1", "host": "here", "kernel": "6.1", "cpu": "abacus",
                "cpus": 1})),
            ("GET", ["clock"]) => json_of(&Clock {
                nanoseconds: u64::try_from(self.born.elapsed().as_nanos()).unwrap(),
            }),
            ("GET", ["parts"]) => {
                let (run, _) = pod.name.split_once("-store-").unwrap();
                let names = (0..PARTS).map(|number| format!("{run}-{}", PartKind::Trials.suffix(number)));
                json_of(&names.collect::<Vec<_>>())
            }
            ("GET", ["parts", _]) => {
                self.state.lock().counts.hostile_answers += 1;
                response(200, self.hostile.part.clone())
            }
            ("PUT", ["parts", _]) => nothing(),
            ("PUT", ["trials", id]) => {
                self.prepare(pod, id, body);
                response(201, "")
            }
            ("GET", ["trials", id]) => self.status(pod, id),
            ("PUT", ["trials", id, "start"]) => {
                let is_honest = pod.namespace != HOSTILE;
                self.state.lock().counts.honest_starts += usize::from(is_honest);
                self.finish(pod, id, body["atNanoseconds"].as_u64());
                nothing()
            }
            ("PUT", ["trials", id, "finish"]) => {
                self.finish(pod, id, None);
                nothing()
            }
            ("DELETE", ["trials", id]) => {
                self.state.lock().trials.remove(&key(pod, id));
                nothing()
            }
            _ => response(404, ""),
        }
    }

    fn prepare(&self, pod: Pod<'_>, id: &str, request: &Value) {
        let mut state = self.state.lock();
        let is_client = request["side"]["client"].is_object();
        state.are_clients_hostile |= is_client && pod.namespace == HOSTILE;
        let trial = Trial {
            state: TrialState::Ready,
            is_client,
            started: None,
        };
        state.trials.insert(key(pod, id), trial);
    }

    /// The trial takes no time.
    fn finish(&self, pod: Pod<'_>, id: &str, started: Option<u64>) {
        if let Some(trial) = self.state.lock().trials.get_mut(&key(pod, id)) {
            (trial.state, trial.started) = (TrialState::Finished, started);
        }
    }

    fn status(&self, pod: Pod<'_>, id: &str) -> Response {
        let mut state = self.state.lock();
        if let Some(status) = &self.hostile.status
            && state.are_clients_hostile
            && pod.namespace == HOSTILE
        {
            state.counts.hostile_answers += 1;
            return response(200, status.clone());
        }
        let Some(trial) = state.trials.get(&key(pod, id)) else {
            return response(404, "");
        };
        let addresses = match trial.is_client {
            true => vec![],
            false => vec!["127.0.0.1:1".to_owned()],
        };
        let outcome = || Outcome {
            failure: None,
            measured: Measured {
                started_nanoseconds: trial.started,
                ..Measured::default()
            },
            served: None,
        };
        json_of(&TrialStatus {
            state: trial.state,
            addresses,
            bytes_sent: 0,
            bytes_received: 0,
            outcome: (trial.state == TrialState::Finished).then(outcome),
        })
    }
}

/// The key of a trial at a pod.
fn key(pod: Pod<'_>, id: &str) -> [String; 3] {
    [pod.namespace, pod.name, id].map(str::to_owned)
}

fn json_of(value: &impl Serialize) -> Response {
    response(200, serde_json::to_string(value).unwrap())
}

pub(crate) fn response(code: u16, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
