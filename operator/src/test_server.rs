//! An API server for tests: it stores objects, watches included, and answers by script. The operator has the
//! rights that the chart grants.

mod rights;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use futures::{StreamExt, future, stream};
use http::{Method, Request, Response, StatusCode, header::ACCEPT};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::{
    Client,
    runtime::events::{Recorder, Reporter},
};
use parking_lot::Mutex;
use perfrun_api::cluster::MANAGER;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tower::service_fn;

use self::rights::Rights;
use crate::{
    process::clock::TimeSource,
    token::{KEY_SECRET, TokenKey},
};

/// The namespace of the operator.
pub(crate) const SYSTEM: &str = "perfrun-system";
/// The name of operators' Lease there.
pub(crate) const LEASE: &str = "perfrun-operator";

/// An API server that stores objects by their paths.
#[derive(Clone, Default)]
pub(crate) struct TestServer(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    calls: Vec<Call>,
    script: Vec<Line>,
    watches: Vec<(String, mpsc::UnboundedSender<Value>)>,
    /// Rights that the operator has used.
    used: BTreeSet<String>,
    /// Names of the pods that it has created.
    pods: Vec<String>,
    version: u64,
    /// Most objects that an answer has had.
    largest_page: usize,
    /// `None` if all objects are created at the same time.
    clock: Option<TimeSource>,
}

/// A request that the server has received.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    query: String,
    /// Whether the client accepts nothing but the metadata of an object.
    pub(crate) wants_metadata: bool,
    pub(crate) body: Value,
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
                let accepted = head.headers.get(ACCEPT).map(|types| types.to_str().unwrap());
                let call = Call {
                    wants_metadata: accepted.is_some_and(|types| types.contains("as=PartialObjectMetadata;")),
                    method: head.method,
                    path: head.uri.path().to_owned(),
                    query: head.uri.query().unwrap_or_default().to_owned(),
                    body: serde_json::from_slice(&body).unwrap_or_default(),
                };
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
        self.0.lock().store(path, object);
    }

    /// Changes an object, as another client would.
    pub(crate) fn change(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.object(path).unwrap();
        change(&mut object);
        self.put(path, object);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.0.lock().remove(path);
    }

    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.0.lock().objects.get(path).cloned()
    }

    /// Objects of a collection, for example `/pods`, in all namespaces.
    pub(crate) fn objects(&self, collection: &str) -> Vec<Value> {
        let state = self.0.lock();
        let objects = state.objects.iter();
        objects
            .filter(|(path, _)| collection_of(path).ends_with(collection))
            .map(|(_, object)| object.clone())
            .collect()
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
        self.0.lock().clock = Some(clock);
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

    /// Ends all watches, as a server does after some time.
    pub(crate) fn end_watches(&self) {
        self.0.lock().watches.clear();
    }

    /// Ends all watches with the error that the client has fallen behind.
    pub(crate) fn expire_watches(&self) {
        for (_, watch) in self.0.lock().watches.drain(..) {
            let gone =
                json!({"type": "ERROR", "object": failure(410, "Expired", "too old resource version")});
            let _ = watch.send(gone);
        }
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
        let answer = match answer {
            Some(Answer::Silence) => return None,
            Some(Answer::DoSilently) => {
                state.serve(&call);
                return None;
            }
            Some(Answer::Refuse(code, message)) => response(code, &failure(code, "", message)),
            Some(Answer::DoLate(seconds)) => {
                delay = Duration::from_secs(seconds);
                let (code, body) = state.serve(&call);
                response(code, &body)
            }
            None if call.query.contains("watch=true") => state.watch(&call),
            None => {
                let (code, body) = state.serve(&call);
                response(code, &body)
            }
        };
        Some((delay, answer))
    }
}

impl State {
    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = self.version.to_string().into();
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("uid-{}", self.version).into();
        }
        if metadata["creationTimestamp"].is_null() {
            let time = self.clock.as_ref().map(|clock| json!(clock()));
            metadata["creationTimestamp"] = time.unwrap_or_else(|| "2026-01-01T00:00:00Z".into());
        }
        let before = self.objects.insert(path.to_owned(), object.clone());
        let type_ = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.emit(path, type_, &object);
        object
    }

    fn remove(&mut self, path: &str) -> Option<Value> {
        let object = self.objects.remove(path)?;
        self.version += 1;
        self.emit(path, "DELETED", &object);
        Some(object)
    }

    fn emit(&mut self, path: &str, type_: &str, object: &Value) {
        for (collection, watch) in &self.watches {
            if is_in(collection, path) {
                let _ = watch.send(json!({"type": type_, "object": object}));
            }
        }
    }

    fn watch(&mut self, call: &Call) -> Response<Body> {
        let (sender, receiver) = mpsc::unbounded_channel();
        // What has changed since the version that the client has.
        let mut parameters = call.query.split('&');
        let since = parameters.find_map(|parameter| parameter.strip_prefix("resourceVersion="));
        let since: u64 = since.and_then(|version| version.parse().ok()).unwrap_or(0);
        for (_, object) in self.objects.iter().filter(|(path, _)| is_in(&call.path, path)) {
            let version = object["metadata"]["resourceVersion"].as_str();
            if version.is_some_and(|version| version.parse::<u64>().unwrap() > since) {
                let _ = sender.send(json!({"type": "MODIFIED", "object": object}));
            }
        }
        self.watches.push((call.path.clone(), sender));
        let lines = stream::unfold(receiver, async |mut receiver: mpsc::UnboundedReceiver<Value>| {
            let event = receiver.recv().await?;
            Some((event.to_string() + "\n", receiver))
        });
        Response::new(Body::from_stream(lines.map(Ok::<_, Infallible>)))
    }

    fn serve(&mut self, call: &Call) -> (u16, Value) {
        match self.serve_whole(call) {
            (code @ ..300, object) if call.wants_metadata && object["kind"] != "Status" => (
                code,
                json!({"kind": "PartialObjectMetadata", "metadata": object["metadata"]}),
            ),
            whole => whole,
        }
    }

    fn serve_whole(&mut self, call: &Call) -> (u16, Value) {
        let path = call.path.as_str();
        let is_object = self.objects.contains_key(path);
        match call.method {
            Method::GET if is_object => (200, self.objects[path].clone()),
            Method::GET if is_collection(path) => (200, self.list(call)),
            Method::POST => self.create(call),
            Method::PUT if is_object => {
                let expected = &call.body["metadata"]["resourceVersion"];
                if *expected == self.objects[path]["metadata"]["resourceVersion"] {
                    (200, self.store(path, call.body.clone()))
                } else {
                    (409, failure(409, "Conflict", "the object has been modified"))
                }
            }
            Method::PATCH => self.patch_status(call),
            Method::DELETE if is_object => self.delete(call),
            _ => (404, failure(404, "NotFound", &format!("{path} not found"))),
        }
    }

    fn create(&mut self, call: &Call) -> (u16, Value) {
        let name = call.body["metadata"]["name"].as_str();
        let name = name.map_or_else(|| format!("generated-{}", self.version), str::to_owned);
        let path = format!("{}/{name}", call.path);
        if self.objects.contains_key(&path) {
            return (
                409,
                failure(409, "AlreadyExists", &format!("{name} already exists")),
            );
        }
        if path.contains("/pods/") {
            self.pods.push(name);
        }
        (201, self.store(&path, call.body.clone()))
    }

    /// Deletes an object, unless another one has its name. A pod has some time to end.
    fn delete(&mut self, call: &Call) -> (u16, Value) {
        let path = call.path.as_str();
        let uid = &call.body["preconditions"]["uid"];
        let mut object = self.objects[path].clone();
        if !uid.is_null() && *uid != object["metadata"]["uid"] {
            return (
                409,
                failure(409, "Conflict", "the UID in the precondition is another"),
            );
        }
        if collection_of(path).ends_with("/pods") && call.body["gracePeriodSeconds"] != 0 {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            self.store(path, object);
        } else {
            self.remove(path);
        }
        (200, json!({"kind": "Status", "status": "Success"}))
    }

    /// Server-side apply of a status: the operator owns all of it, another manager only the conditions that
    /// it names.
    fn patch_status(&mut self, call: &Call) -> (u16, Value) {
        let path = call.path.trim_end_matches("/status");
        let Some(mut object) = self.objects.get(path).cloned() else {
            return (404, failure(404, "NotFound", "not found"));
        };
        let version = &call.body["metadata"]["resourceVersion"];
        if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
            return (409, failure(409, "Conflict", "the object has been modified"));
        }
        let applied = call.body["status"].clone();
        if call.query.contains("fieldManager=perfrun-operator&") || call.query.ends_with("perfrun-operator") {
            object["status"] = applied;
        } else {
            let before = object["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let applied = applied["conditions"].as_array().cloned().unwrap_or_default();
            let others = before
                .into_iter()
                .filter(|old| applied.iter().all(|new| new["type"] != old["type"]));
            let conditions: Vec<_> = others.chain(applied.clone()).collect();
            object["status"]["conditions"] = conditions.into();
        }
        (200, self.store(path, object))
    }

    /// A page of a list. All pages have the version of the first: a watch shows what has changed since.
    fn list(&mut self, call: &Call) -> Value {
        let query = call.query.replace("%2F", "/");
        let parameter = |name: &str| {
            query
                .split('&')
                .find_map(|parameter| parameter.strip_prefix(name))
        };
        let page_before = parameter("continue=").and_then(|token| token.split_once('-'));
        let (version, last) = match page_before {
            Some((version, last)) => (version.to_owned(), last),
            None => (self.version.to_string(), ""),
        };
        let mut paths = self.selected(call);
        paths.retain(|path| path.as_str() > last);
        let limit = parameter("limit=").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let page = &paths[..limit.min(paths.len())];
        let more = page.last().filter(|_| page.len() < paths.len());
        let token = more.map(|last| format!("{version}-{last}"));
        self.largest_page = self.largest_page.max(page.len());
        let items: Vec<_> = page.iter().map(|path| self.objects[path].clone()).collect();
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version, "continue": token},
            "items": items})
    }

    /// Paths of the objects of a collection that the selectors of a request select.
    fn selected(&self, call: &Call) -> Vec<String> {
        let query = call.query.replace("%2F", "/").replace("%3D", "=");
        let mut parameters = query.split('&');
        let selector = parameters.find_map(|parameter| parameter.strip_prefix("labelSelector="));
        let label = selector.and_then(|selector| selector.split_once('='));
        let mut parameters = query.split('&');
        let name = parameters.find_map(|parameter| parameter.strip_prefix("fieldSelector=metadata.name="));
        let objects = self.objects.iter().filter(|(path, object)| {
            is_in(&call.path, path)
                && label.is_none_or(|(key, value)| object["metadata"]["labels"][key] == value)
                && name.is_none_or(|name| object["metadata"]["name"] == name)
        });
        objects.map(|(path, _)| path.clone()).collect()
    }
}

fn is_collection(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    [
        "pods",
        "configmaps",
        "perfruns",
        "perfschedules",
        "networkpolicies",
    ]
    .contains(&name)
}

fn collection_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(collection, _)| collection)
}

/// Whether a collection, of one namespace or of all, has the object.
fn is_in(collection: &str, path: &str) -> bool {
    let own = collection_of(path);
    let (group, resource) = collection.rsplit_once('/').unwrap_or_default();
    own == collection
        || !collection.contains("/namespaces/")
            && own.starts_with(&format!("{group}/namespaces/"))
            && own.ends_with(&format!("/{resource}"))
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "code": code,
        "message": message})
}

fn response(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// A clock that follows tokio's, which tests pause.
pub(crate) fn paused_clock() -> TimeSource {
    let start = Instant::now();
    let time: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    Arc::new(move || time + start.elapsed())
}
