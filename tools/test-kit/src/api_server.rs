//! What an API server for tests keeps, and how it answers. It checks versions and UIDs, and nothing else of
//! what clients send. A test that serves it has the transport, and plays the other parts of a cluster.

use std::{collections::BTreeMap, sync::Arc};

use http::{Method, header::ACCEPT, request::Parts};
use jiff::Timestamp;
use perfrun_api::cluster::MANAGER;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A request that the server has received.
#[derive(Clone, Debug)]
pub struct Call {
    /// What the client does.
    pub method: Method,
    /// The path of an object or a collection.
    pub path: String,
    /// The parameters, encoded.
    pub query: String,
    /// Whether the client accepts nothing but the metadata of an object.
    pub wants_metadata: bool,
    /// `null` without one.
    pub body: Value,
}

impl Call {
    /// Reads a request.
    pub fn new(head: Parts, body: &[u8]) -> Self {
        let accepted = head.headers.get(ACCEPT).and_then(|types| types.to_str().ok());
        Self {
            wants_metadata: accepted.is_some_and(|types| types.contains("as=PartialObjectMetadata;")),
            method: head.method,
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(body).unwrap_or_default(),
        }
    }

    /// Whether [`Objects::watch`] answers it.
    pub fn is_watch(&self) -> bool {
        self.parameter("watch").as_deref() == Some("true")
    }

    fn parameter(&self, name: &str) -> Option<String> {
        // Clients of tests encode no other characters.
        let query = self.query.replace("%2F", "/").replace("%3D", "=");
        let mut parameters = query.split('&');
        let value = parameters.find_map(|parameter| parameter.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.to_owned())
    }
}

/// The objects of an API server, by their paths, and who watches them.
#[derive(Default)]
pub struct Objects {
    all: BTreeMap<String, Value>,
    /// The paths of watched collections.
    watches: Vec<(String, UnboundedSender<String>)>,
    version: u64,
    /// `None` if all objects are created at the same time.
    clock: Option<Clock>,
}

impl Objects {
    /// Objects are created at the time of this clock from now on.
    pub fn set_clock(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }

    /// The object with this path.
    pub fn get(&self, path: &str) -> Option<&Value> {
        self.all.get(path)
    }

    /// Objects of all collections whose paths end like this, for example with `/pods`.
    pub fn of(&self, collection: &str) -> impl Iterator<Item = &Value> {
        let objects = self.all.iter();
        let objects = objects.filter(move |(path, _)| collection_of(path).ends_with(collection));
        objects.map(|(_, object)| object)
    }

    /// Stores an object, as a client would, and returns what is stored.
    pub fn store(&mut self, path: &str, mut object: Value) -> Value {
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
        let before = self.all.insert(path.to_owned(), object.clone());
        let change = before.map_or("ADDED", |_| "MODIFIED");
        self.emit(path, change, &object);
        object
    }

    /// Removes an object, if there is one with this path.
    pub fn remove(&mut self, path: &str) {
        if let Some(object) = self.all.remove(path) {
            self.version += 1;
            self.emit(path, "DELETED", &object);
        }
    }

    fn emit(&self, path: &str, change: &str, object: &Value) {
        for (collection, watch) in &self.watches {
            if is_in(collection, path) {
                let _ = watch.send(line(change, object));
            }
        }
    }

    /// Ends all watches, as a server does after some time.
    pub fn end_watches(&mut self) {
        self.watches.clear();
    }

    /// Ends all watches with the error that the client has fallen behind.
    pub fn expire_watches(&mut self) {
        let (_, gone) = failure(410, "Expired", "too old resource version");
        for (_, watch) in self.watches.drain(..) {
            let _ = watch.send(line("ERROR", &gone));
        }
    }

    /// The lines of a watch: what has changed since the version that the client has, and what changes from
    /// now on.
    pub fn watch(&mut self, call: &Call) -> UnboundedReceiver<String> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let since = call.parameter("resourceVersion");
        let since: u64 = since.and_then(|version| version.parse().ok()).unwrap_or(0);
        for (_, object) in self.all.iter().filter(|(path, _)| is_in(&call.path, path)) {
            let version = object["metadata"]["resourceVersion"].as_str();
            let version = version.and_then(|version| version.parse::<u64>().ok());
            if version.is_some_and(|version| version > since) {
                let _ = sender.send(line("MODIFIED", object));
            }
        }
        self.watches.push((call.path.clone(), sender));
        receiver
    }

    /// The status and the body of the answer to any request but a watch.
    pub fn serve(&mut self, call: &Call) -> (u16, Value) {
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
        let is_object = self.all.contains_key(path);
        match call.method {
            Method::GET if path == "/version" => (200, version()),
            Method::GET if is_object => (200, self.all[path].clone()),
            Method::GET if is_collection(path) => (200, self.list(call)),
            Method::POST => self.create(call),
            Method::PUT if is_object => {
                let expected = &call.body["metadata"]["resourceVersion"];
                if *expected == self.all[path]["metadata"]["resourceVersion"] {
                    (200, self.store(path, call.body.clone()))
                } else {
                    failure(409, "Conflict", "the object has been modified")
                }
            }
            Method::PATCH => self.patch_status(call),
            Method::DELETE if is_object => self.delete(call),
            _ => failure(404, "NotFound", &format!("{path} not found")),
        }
    }

    fn create(&mut self, call: &Call) -> (u16, Value) {
        let name = call.body["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{}/{name}", call.path);
        match self.all.contains_key(&path) {
            true => failure(409, "AlreadyExists", &format!("{name} already exists")),
            false => (201, self.store(&path, call.body.clone())),
        }
    }

    /// Deletes an object, unless another one has its name. A pod has some time to end.
    fn delete(&mut self, call: &Call) -> (u16, Value) {
        let path = call.path.as_str();
        let uid = &call.body["preconditions"]["uid"];
        let mut object = self.all[path].clone();
        if !uid.is_null() && *uid != object["metadata"]["uid"] {
            return failure(409, "Conflict", "the UID in the precondition is another");
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
        let Some(mut object) = self.all.get(path).cloned() else {
            return failure(404, "NotFound", "not found");
        };
        let version = &call.body["metadata"]["resourceVersion"];
        if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
            return failure(409, "Conflict", "the object has been modified");
        }
        let applied = call.body["status"].clone();
        if call.parameter("fieldManager").as_deref() == Some(MANAGER) {
            object["status"] = applied;
        } else {
            let conditions = |status: &Value| status["conditions"].as_array().cloned().unwrap_or_default();
            let applied = conditions(&applied);
            let mut all = conditions(&object["status"]);
            all.retain(|old| applied.iter().all(|new| new["type"] != old["type"]));
            all.extend(applied);
            object["status"]["conditions"] = all.into();
        }
        (200, self.store(path, object))
    }

    /// A page of a list. All pages have the version of the first: a watch shows what has changed since.
    fn list(&self, call: &Call) -> Value {
        let token = call.parameter("continue");
        let page_before = token.as_deref().and_then(|token| token.split_once('-'));
        let (version, last) = match page_before {
            Some((version, last)) => (version.to_owned(), last),
            None => (self.version.to_string(), ""),
        };
        let selector = call.parameter("labelSelector");
        let label = selector.as_deref().and_then(|selector| selector.split_once('='));
        let name = call.parameter("fieldSelector=metadata.name");
        let is_selected = |path: &str, object: &Value| {
            path > last
                && is_in(&call.path, path)
                && label.is_none_or(|(key, value)| object["metadata"]["labels"][key] == value)
                && name
                    .as_deref()
                    .is_none_or(|name| object["metadata"]["name"] == name)
        };
        let objects = self.all.iter();
        let rest: Vec<_> = objects
            .filter(|(path, object)| is_selected(path, object))
            .collect();
        let limit = call.parameter("limit");
        let limit: usize = limit.and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
        let page = &rest[..limit.min(rest.len())];
        let more = page.last().filter(|_| page.len() < rest.len());
        let token = more.map(|(last, _)| format!("{version}-{last}"));
        let items: Vec<_> = page.iter().map(|(_, object)| object).collect();
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version, "continue": token},
            "items": items})
    }
}

fn version() -> Value {
    json!({"major": "1", "minor": "33", "gitVersion": "", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": ""})
}

/// The status and the body of an answer that refuses a request.
pub fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "code": code, "message": message});
    (code, status)
}

/// An event of a watch, in the order of a real API server: a client that gets the object first keeps all of
/// it until it knows the type.
fn line(change: &str, object: &Value) -> String {
    format!("{{\"type\":\"{change}\",\"object\":{object}}}\n")
}

fn is_collection(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    matches!(
        name,
        "configmaps" | "networkpolicies" | "perfruns" | "perfschedules" | "pods"
    )
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
