//! An API server over HTTP. A pod is ready when it is created, and gone when it is deleted.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    response::Response,
};
use futures::StreamExt;
use http::Method;
use jiff::Timestamp;
use parking_lot::Mutex;
use perfrun_serve::{Limits, serve};
use perfrun_test_kit::api_server::{Call, Objects};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::nodes::{Hostile, Nodes, Pod, response};

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
    objects: Mutex<Objects>,
}

impl ApiServer {
    /// A server with these nodes. `bulk` is the JSON that [`BULK`] stands for.
    pub(crate) fn new(bulk: String, hostile: Hostile) -> Self {
        let mut objects = Objects::default();
        objects.set_clock(Arc::new(|| {
            Timestamp::from_second(Timestamp::now().as_second()).unwrap()
        }));
        Self(Arc::new(Shared {
            bulk,
            nodes: Nodes::new(hostile),
            objects: Mutex::new(objects),
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
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let (_, place) = path.split_once("/namespaces/").unwrap();
        let mut place = place.split('/');
        object["metadata"]["namespace"] = place.next().into();
        object["metadata"]["name"] = place.next_back().into();
        self.0.objects.lock().store(path, object);
    }

    /// Whether all runs of a namespace have a condition with this status.
    pub(crate) fn runs_have(&self, namespace: &str, condition: &str, status: &str) -> bool {
        let has = |run: &Value| {
            let conditions = run["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|found| found["type"] == condition && found["status"] == status)
        };
        let collection = format!("/namespaces/{namespace}/perfruns");
        self.0.objects.lock().of(&collection).all(has)
    }

    async fn answer(self, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        let mut call = Call::new(head, &body);
        if let Some((pod, path)) = Pod::read(&call.path) {
            return self.0.nodes.answer(pod, &call.method, path, &call.body);
        }
        if call.is_watch() {
            return self.watch(&call);
        }
        match call.method {
            Method::POST if call.path.ends_with("/pods") => call.body["status"] = running(),
            Method::DELETE => call.body["gracePeriodSeconds"] = 0.into(),
            _ => {}
        }
        let (code, body) = self.0.objects.lock().serve(&call);
        response(code, self.with_bulk(&body.to_string()))
    }

    fn watch(&self, call: &Call) -> Response {
        let lines = UnboundedReceiverStream::new(self.0.objects.lock().watch(call));
        let server = self.clone();
        let lines = lines.map(move |line| Ok::<_, Infallible>(server.with_bulk(&line)));
        Response::new(Body::from_stream(lines))
    }

    fn with_bulk(&self, text: &str) -> String {
        text.replace(&format!("\"{BULK}\""), &self.0.bulk)
    }
}

/// The status of a pod that is ready.
pub(crate) fn running() -> Value {
    json!({"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]})
}
