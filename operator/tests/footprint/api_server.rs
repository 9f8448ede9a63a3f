//! An API server over HTTP. It stores what it gets, without a check, and a pod is ready when it is created.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    response::Response,
};
use futures::StreamExt;
use http::{Method, header::ACCEPT};
use jiff::Timestamp;
use parking_lot::Mutex;
use perfrun_serve::{Limits, serve};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::{
    nodes::{Hostile, Nodes},
    place::{Place, response},
};

/// Text that stands for what is large in objects: the server keeps that only once.
pub(crate) const BULK: &str = "@bulk";

/// More connections than the operator opens, which may be idle for as long as a test takes.
const LIMITS: Limits = Limits::new(4096, Duration::from_secs(3600));

/// An API server. Clones share it.
#[derive(Clone)]
pub(crate) struct ApiServer(Arc<Shared>);

struct Shared {
    /// The JSON that [`BULK`] stands for.
    bulk: String,
    nodes: Nodes,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Place, Value>,
    watches: Vec<(Place, mpsc::UnboundedSender<Event>)>,
    version: u64,
}

/// What happened to an object.
type Event = (&'static str, Value);

impl ApiServer {
    /// A server with these nodes. `bulk` is the JSON that [`BULK`] stands for.
    pub(crate) fn new(bulk: String, hostile: Hostile) -> Self {
        Self(Arc::new(Shared {
            bulk,
            nodes: Nodes::new(hostile),
            state: Mutex::default(),
        }))
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.0.nodes
    }

    /// Begins to serve.
    pub(crate) async fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = self.clone();
        let router = Router::new().fallback(move |request: Request| server.clone().answer(request));
        tokio::spawn(serve(listener, router, LIMITS, CancellationToken::new()));
        address
    }

    /// Stores an object, as another client would.
    pub(crate) fn put(&self, place: Place, object: Value) {
        self.0.state.lock().store(place, object);
    }

    /// Whether all runs of a namespace have a condition with this status.
    pub(crate) fn runs_have(&self, namespace: &str, condition: &str, status: &str) -> bool {
        let state = self.0.state.lock();
        let runs = Place::new("perfruns", namespace, "");
        let has = |run: &Value| {
            let conditions = run["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|found| found["type"] == condition && found["status"] == status)
        };
        let mut objects = state.objects.iter();
        objects.all(|(place, run)| !runs.has(place) || has(run))
    }

    async fn answer(self, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        if path == "/version" {
            return response(200, version().to_string());
        }
        let (place, rest) = Place::read(path);
        if let Some(call) = rest.strip_prefix("proxy/v1/") {
            return self.0.nodes.answer(&place, &head.method, call, &body);
        }
        if parameter(query, "watch=") == Some("true") {
            return self.watch(place, query);
        }
        let (code, mut object) = self.0.state.lock().serve(&head.method, place, query, body);
        let accepted = head.headers.get(ACCEPT).and_then(|types| types.to_str().ok());
        if code < 300 && accepted.is_some_and(|types| types.contains("as=PartialObjectMetadata;")) {
            object = json!({"kind": "PartialObjectMetadata", "metadata": object["metadata"]});
        }
        response(code, self.text(&object))
    }

    /// What has changed since the version that the client has, and what changes from now on.
    fn watch(&self, place: Place, query: &str) -> Response {
        let since = parameter(query, "resourceVersion=").and_then(|version| version.parse().ok());
        let since: u64 = since.unwrap_or(0);
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.0.state.lock();
        for (_, object) in state.objects.iter().filter(|(found, _)| place.has(found)) {
            let version = object["metadata"]["resourceVersion"].as_str();
            if version.is_some_and(|version| version.parse::<u64>().unwrap() > since) {
                let _ = sender.send(("MODIFIED", object.clone()));
            }
        }
        state.watches.push((place, sender));
        drop(state);
        let server = self.clone();
        // In the order of a real API server: a client that gets the object first keeps all of it until it
        // knows the type.
        let line = move |(change, object): Event| {
            let object = server.text(&object);
            Ok::<_, Infallible>(format!("{{\"type\":\"{change}\",\"object\":{object}}}\n"))
        };
        let lines = UnboundedReceiverStream::new(receiver).map(line);
        Response::new(Body::from_stream(lines))
    }

    fn text(&self, object: &Value) -> String {
        object.to_string().replace(&format!("\"{BULK}\""), &self.0.bulk)
    }
}

impl State {
    fn serve(&mut self, method: &Method, place: Place, query: &str, body: Value) -> (u16, Value) {
        let is_list = *method == Method::GET && place.name.is_empty();
        let before = self.objects.get(&place);
        match (method.as_str(), before.cloned()) {
            ("GET", _) if is_list => (200, self.list(&place, query)),
            ("GET", Some(object)) => (200, object),
            ("POST", _) => {
                let name = body["metadata"]["name"].as_str();
                let name = name.map_or_else(|| format!("generated-{}", self.version), str::to_owned);
                let place = Place { name, ..place };
                match self.objects.contains_key(&place) {
                    true => (409, failure(409, "AlreadyExists")),
                    false => (201, self.store(place, body)),
                }
            }
            ("PUT", Some(_)) => (200, self.store(place, body)),
            // The operator changes nothing but statuses.
            ("PATCH", Some(mut object)) => {
                object["status"] = body["status"].clone();
                (200, self.store(place, object))
            }
            ("DELETE", Some(object)) => {
                self.objects.remove(&place);
                self.version += 1;
                self.emit(&place, "DELETED", &object);
                (200, json!({"kind": "Status", "status": "Success"}))
            }
            _ => (404, failure(404, "NotFound")),
        }
    }

    fn store(&mut self, place: Place, mut object: Value) -> Value {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["name"] = place.name.clone().into();
        metadata["namespace"] = place.namespace.clone().into();
        metadata["resourceVersion"] = self.version.to_string().into();
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("00000000-0000-4000-8000-{:012}", self.version).into();
            let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
            metadata["creationTimestamp"] = json!(now);
        }
        if place.resource == "pods" {
            object["status"] = json!({"phase": "Running", "podIP": "127.0.0.1",
                "conditions": [{"type": "Ready", "status": "True"}]});
        }
        let before = self.objects.insert(place.clone(), object.clone());
        let change = before.map_or("ADDED", |_| "MODIFIED");
        self.emit(&place, change, &object);
        object
    }

    fn emit(&self, place: &Place, change: &'static str, object: &Value) {
        for (collection, watch) in &self.watches {
            if collection.has(place) {
                let _ = watch.send((change, object.clone()));
            }
        }
    }

    /// A page of a list. All pages have the version of the first: a watch shows what has changed since.
    fn list(&self, place: &Place, query: &str) -> Value {
        let page_before = parameter(query, "continue=").and_then(|token| token.split_once('-'));
        let version = page_before.map_or_else(|| self.version.to_string(), |(version, _)| version.to_owned());
        let begin = page_before.map_or(0, |(_, begin)| begin.parse().unwrap());
        let limit = parameter(query, "limit=").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let all: Vec<_> = self
            .objects
            .iter()
            .filter(|(found, _)| place.has(found))
            .collect();
        let page: Vec<_> = all
            .iter()
            .skip(begin)
            .take(limit)
            .map(|(_, object)| object)
            .collect();
        let end = begin + page.len();
        let token = (end < all.len()).then(|| format!("{version}-{end}"));
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version, "continue": token},
            "items": page})
    }
}

fn version() -> Value {
    json!({"major": "1", "minor": "33", "gitVersion": "", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": ""})
}

fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "code": code,
        "message": reason})
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut parameters = query.split('&');
    parameters.find_map(|parameter| parameter.strip_prefix(name))
}
