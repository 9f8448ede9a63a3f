//! `perfrun run --ui`: a web page on this machine that shows the run in progress, and its report at the end.
//!
//! `view` is what the page shows. After each change a browser gets the whole view as a server-sent event.

mod view;

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{
        Html, IntoResponse, Response, Sse,
        sse::{Event as Sent, KeepAlive},
    },
    routing::get,
};
use futures::stream;
use parking_lot::Mutex;
use perfrun_api::results::Results;
use perfrun_conductor::Event;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::timeout};
use tokio_stream::{StreamExt as _, wrappers::WatchStream};

use self::view::View;

const PAGE: &str = include_str!("page/page.html");
const SCRIPT: &str = include_str!("page/page.js");

/// The least time between two views that a browser gets: it draws on the cores that are measured.
const PAUSE: Duration = Duration::from_millis(500);
/// How long to wait until browsers have the report.
const FAREWELL: Duration = Duration::from_secs(5);

/// A web page that is served until it is dropped.
pub struct Page {
    content: Arc<Content>,
    begun: Instant,
    address: SocketAddr,
    server: JoinHandle<()>,
}

struct Content {
    view: watch::Sender<View>,
    report: Mutex<String>,
    /// The number of browsers that have the report.
    read: watch::Sender<usize>,
}

impl Page {
    /// Serves the page at this address, which must be a loopback address.
    pub async fn serve(address: SocketAddr) -> anyhow::Result<Self> {
        ensure!(
            address.ip().is_loopback(),
            "--ui {address}: the page has no password and is only for this machine: use a loopback address, and \
             `ssh -L` to reach it from elsewhere"
        );
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("failed to listen at {address} for --ui"))?;
        let address = listener
            .local_addr()
            .context("failed to learn the page's address")?;
        let content = Arc::new(Content {
            view: watch::Sender::default(),
            report: Mutex::default(),
            read: watch::Sender::default(),
        });
        let routes = Router::new()
            .route("/", get(Html(PAGE)))
            .route(
                "/page.js",
                get(([(header::CONTENT_TYPE, "text/javascript")], SCRIPT)),
            )
            .route("/events", get(events))
            .route("/report", get(report))
            .with_state(Arc::clone(&content));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the page is no longer served"
                );
            }
        });
        Ok(Self {
            content,
            begun: Instant::now(),
            address,
            server,
        })
    }

    /// The URL for a browser.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Shows another run from now on.
    pub fn begin(&self, results: &Results, is_last: bool) {
        self.content
            .view
            .send_replace(View::new(&results.name, &results.plan, &results.trials, is_last));
    }

    /// After the last run, lets browsers open its report, and waits until those that watch have it.
    pub async fn end(&self, results: &Results) {
        if !self.content.view.borrow().is_last() {
            return;
        }
        *self.content.report.lock() = perfrun_report::html(&results.account());
        let mut read = self.content.read.subscribe();
        // Every browser that watches receives views.
        let watching = self.content.view.receiver_count();
        self.content.view.send_modify(|view| view.end(results.verdict()));
        let all = read.wait_for(|read| *read >= watching);
        // A browser that was closed still counts until something is written to it.
        let _ = timeout(FAREWELL, all).await;
    }

    /// Shows what happened.
    pub fn on(&self, event: Event<'_>) {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.content.view.send_modify(|view| view.on(event, seconds));
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn events(State(content): State<Arc<Content>>) -> impl IntoResponse {
    // The current view, and then each change.
    let views = WatchStream::new(content.view.subscribe()).throttle(PAUSE);
    let sent = views.map(|view| Sent::default().json_data(view));
    Sse::new(sent).keep_alive(KeepAlive::default())
}

async fn report(State(content): State<Arc<Content>>) -> Response {
    let report = content.report.lock().clone();
    if report.is_empty() {
        return (
            StatusCode::NOT_FOUND,
            "the run has not ended: its report is not available yet",
        )
            .into_response();
    }
    // Counted when the report has been sent, not when it is made.
    let count = Arc::clone(&content);
    let counted = stream::once(async move {
        count.read.send_modify(|read| *read += 1);
        Ok(String::new())
    });
    let body = stream::iter([Ok::<_, Infallible>(report)]).chain(counted);
    Html(axum::body::Body::from_stream(body)).into_response()
}
