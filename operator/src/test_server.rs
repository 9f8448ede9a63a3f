//! An API server in the process of a test. It may answer by script, and the operator has the rights that the
//! chart grants.

mod rights;

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use futures::{StreamExt, future};
use http::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::{
    Client,
    runtime::{
        events::{Recorder, Reporter},
        reflector,
    },
};
use parking_lot::Mutex;
use perfrun_api::cluster::MANAGER;
use perfrun_conductor::client::AnswerBudget;
use perfrun_test_kit::api_server::{Call, Objects, failure};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Instant, sleep},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tower::service_fn;

use self::rights::Rights;
use crate::{
    access::Access,
    build::PodDefaults,
    conduct::Wake,
    process::{
        clock::TimeSource, fence::Term, lease::Leadership, metrics::Metrics,
        shared_memory_budget::SharedMemoryBudget,
    },
    services::Services,
    token::{KEY_SECRET, TokenKey},
};

/// The namespace of the operator.
pub(crate) const SYSTEM: &str = "perfrun-system";
/// The name of operators' Lease there.
const LEASE: &str = "perfrun-operator";

/// An API server. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct TestServer(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: Objects,
    calls: Vec<Call>,
    script: Vec<Line>,
    /// Rights that the operator has used.
    used: BTreeSet<String>,
    /// Names of the pods that it has created.
    pods: Vec<String>,
    /// Most objects that an answer has had.
    largest_page: usize,
}

/// A scripted answer to some requests.
struct Line {
    method: Method,
    /// A part of the path.
    path: &'static str,
    answer: Answer,
    /// How many requests it still answers.
    times: usize,
}

/// What the server does instead of answering as an API server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// Refuses with this status and message.
    Refuse(u16, &'static str),
    /// Does as requested, and never answers.
    DoSilently,
    /// Does as requested, and answers after this number of seconds.
    DoLate(u64),
    /// Never answers.
    Silence,
}

impl TestServer {
    /// A server that has the operators' key.
    pub(crate) fn new() -> Self {
        let server = Self::default();
        let key = json!({"metadata": {"name": KEY_SECRET}, "data": {"key": ByteString(vec![7; 32])}});
        server.put(&format!("/api/v1/namespaces/{SYSTEM}/secrets/{KEY_SECRET}"), key);
        server
    }

    pub(crate) fn recorder(&self) -> Recorder {
        let reporter = Reporter {
            controller: MANAGER.to_owned(),
            instance: None,
        };
        Recorder::new(self.client(), reporter)
    }

    pub(crate) fn client(&self) -> Client {
        self.client_cut_off_by(&Arc::default())
    }

    /// A client whose requests get lost while the flag is set.
    pub(crate) fn client_cut_off_by(&self, cut_off: &Arc<AtomicBool>) -> Client {
        let (server, cut_off) = (self.clone(), cut_off.clone());
        let serve = move |request: Request<kube::client::Body>| {
            let server = server.clone();
            let is_lost = cut_off.load(Ordering::Relaxed);
            async move {
                if is_lost {
                    future::pending::<()>().await;
                }
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let call = Call::new(head, &body);
                let right = Rights::of_chart().right(&call);
                let right = right.unwrap_or_else(|| panic!("the chart does not grant {call:?}"));
                server.0.lock().used.insert(right);
                let (delay, response) = match server.respond(call) {
                    Some(response) => response,
                    None => future::pending().await,
                };
                sleep(delay).await;
                Ok::<_, Infallible>(response)
            }
        };
        Client::new(service_fn(serve), "default")
    }

    /// The services of an operator that reaches nodes directly. Its term does not end, and its watch shows no
    /// pods.
    pub(crate) fn services(&self) -> Services {
        Services {
            client: self.client(),
            term: Term::endless(),
            clock: paused_clock(),
            access: Access::Direct,
            answer_budget: AnswerBudget::of_process(),
            key: TokenKey::fixed(),
            pod_defaults: PodDefaults::fixed(),
            operator_namespace: SYSTEM.to_owned(),
            result_bytes: 64 << 20,
            recorder: self.recorder(),
            metrics: Arc::new(Metrics::new()),
            memory: SharedMemoryBudget::default(),
            pods: reflector::store().0,
        }
    }

    /// The leadership of an operator.
    pub(crate) fn leadership(&self, holder: &str) -> Leadership {
        Leadership::new(self.client(), SYSTEM, LEASE, holder.to_owned(), Arc::default())
    }

    pub(crate) async fn key(&self) -> TokenKey {
        TokenKey::get_or_create(self.client(), SYSTEM).await.unwrap()
    }

    /// Answers all matching requests by script.
    pub(crate) fn script(&self, method: Method, path: &'static str, answer: Answer) {
        self.script_times(usize::MAX, method, path, answer);
    }

    /// Answers this number of matching requests by script.
    pub(crate) fn script_times(&self, times: usize, method: Method, path: &'static str, answer: Answer) {
        self.0.lock().script.push(Line {
            method,
            path,
            answer,
            times,
        });
    }

    /// Answers as an API server from now on.
    pub(crate) fn end_script(&self) {
        self.0.lock().script.clear();
    }

    /// Stores an object, as another client would.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.0.lock().objects.store(path, object);
    }

    /// Changes an object, as another client would.
    pub(crate) fn change(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.object(path).unwrap();
        change(&mut object);
        self.put(path, object);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.0.lock().objects.remove(path);
    }

    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.0.lock().objects.get(path).cloned()
    }

    /// Objects of a collection, for example `/pods`, in all namespaces.
    pub(crate) fn objects(&self, collection: &str) -> Vec<Value> {
        self.0.lock().objects.of(collection).cloned().collect()
    }

    /// The requests that change something, except events, since the last time.
    pub(crate) fn take_changes(&self) -> Vec<Call> {
        let calls = std::mem::take(&mut self.0.lock().calls);
        calls
            .into_iter()
            .filter(|call| call.method != Method::GET && !call.path.ends_with("/events"))
            .collect()
    }

    /// The most objects that an answer has had.
    pub(crate) fn largest_page(&self) -> usize {
        self.0.lock().largest_page
    }

    /// Names of the pods that the operator has created since the last time.
    pub(crate) fn take_pods(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().pods)
    }

    /// Objects are created at the time of this clock from now on.
    pub(crate) fn set_clock(&self, clock: TimeSource) {
        self.0.lock().objects.set_clock(clock);
    }

    /// Rights that the chart grants and the operator has not used.
    pub(crate) fn unused_rights(&self) -> Vec<String> {
        let all = Rights::of_chart().all();
        all.difference(&self.0.lock().used).cloned().collect()
    }

    /// Reasons of all events.
    pub(crate) fn event_reasons(&self) -> Vec<String> {
        let events = self.objects("/events");
        let reasons = events
            .iter()
            .map(|event| event["reason"].as_str().unwrap().to_owned());
        reasons.collect()
    }

    /// See [`Objects::end_watches`].
    pub(crate) fn end_watches(&self) {
        self.0.lock().objects.end_watches();
    }

    /// See [`Objects::expire_watches`].
    pub(crate) fn expire_watches(&self) {
        self.0.lock().objects.expire_watches();
    }

    /// The answer, and how late it is. `None` if the server never answers.
    fn respond(&self, call: Call) -> Option<(Duration, Response<Body>)> {
        let mut state = self.0.lock();
        state.calls.push(call.clone());
        let line = state
            .script
            .iter_mut()
            .find(|line| line.times > 0 && line.method == call.method && call.path.contains(line.path));
        let answer = line.map(|line| {
            line.times -= 1;
            line.answer
        });
        let mut delay = Duration::ZERO;
        let (code, body) = match answer {
            Some(Answer::Silence) => return None,
            Some(Answer::DoSilently) => {
                state.serve(&call);
                return None;
            }
            Some(Answer::Refuse(code, message)) => failure(code, "", message),
            Some(Answer::DoLate(seconds)) => {
                delay = Duration::from_secs(seconds);
                state.serve(&call)
            }
            None if call.is_watch() => {
                let lines = UnboundedReceiverStream::new(state.objects.watch(&call));
                let body = Body::from_stream(lines.map(Ok::<_, Infallible>));
                return Some((delay, Response::new(body)));
            }
            None => state.serve(&call),
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        Some((delay, response))
    }
}

impl State {
    /// Answers as an API server, and counts.
    fn serve(&mut self, call: &Call) -> (u16, Value) {
        let (code, body) = self.objects.serve(call);
        if code == 201 && call.path.ends_with("/pods") {
            let name = body["metadata"]["name"].as_str();
            self.pods.extend(name.map(str::to_owned));
        }
        let items = body["items"].as_array().map_or(0, Vec::len);
        self.largest_page = self.largest_page.max(items);
        (code, body)
    }
}

/// What wakes a run, and a receiver that gets each time that it does.
pub(crate) fn wake() -> (Wake, UnboundedReceiver<()>) {
    let (woken, wakes) = unbounded_channel();
    let wake: Wake = Arc::new(move || {
        let _ = woken.send(());
    });
    (wake, wakes)
}

/// A clock that follows tokio's, which tests pause.
pub(crate) fn paused_clock() -> TimeSource {
    let start = Instant::now();
    let time: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    Arc::new(move || time + start.elapsed())
}
