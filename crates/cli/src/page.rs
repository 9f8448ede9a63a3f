//! `perfrun run --ui`: the run as a page on this machine, while it goes on, and its report when it has ended.
//!
//! What the page shows is in `view`; a browser gets all of it whenever it changed, as server-sent events.

mod view;

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
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
use perfrun_api::results::Results;
use perfrun_conductor::{Event, Progress};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::timeout};
use tokio_stream::{StreamExt as _, wrappers::WatchStream};

use self::view::View;

const PAGE: &str = include_str!("page/page.html");
const SCRIPT: &str = include_str!("page/page.js");

/// Between two views that a browser is sent: it draws on the cores that are measured.
const PAUSE: Duration = Duration::from_millis(500);
/// For browsers to get the report.
const FAREWELL: Duration = Duration::from_secs(5);

/// The page, until it is dropped.
pub struct Page {
    shared: Arc<Shared>,
    begun: Instant,
    address: SocketAddr,
    server: JoinHandle<()>,
}

struct Shared {
    view: watch::Sender<View>,
    report: Mutex<String>,
    /// How many have got the report.
    read: watch::Sender<usize>,
}

impl Page {
    /// Serves the page at this address, which must be one that only this machine reaches.
    pub async fn serve(address: SocketAddr) -> anyhow::Result<Self> {
        ensure!(
            address.ip().is_loopback(),
            "--ui {address}: the page is for this machine only, and asks for no password: name a loopback address, and \
             reach it from elsewhere by `ssh -L`"
        );
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("failed to listen at {address} for --ui"))?;
        let address = listener
            .local_addr()
            .context("failed to learn the page's address")?;
        let shared = Arc::new(Shared {
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
            .with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the page is not served any more"
                );
            }
        });
        Ok(Self {
            shared,
            begun: Instant::now(),
            address,
            server,
        })
    }

    /// Where a browser finds it.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Shows another run from now on.
    pub fn begin(&self, results: &Results, is_last: bool) {
        self.shared
            .view
            .send_replace(View::new(&results.name, &results.plan, &results.trials, is_last));
    }

    /// After the last run, has browsers open its report, and waits until those that watch have it.
    pub async fn end(&self, results: &Results) {
        if !self.shared.view.borrow().is_last() {
            return;
        }
        *lock(&self.shared.report) = perfrun_report::html(&results.account());
        let mut read = self.shared.read.subscribe();
        // Who watches listens for views.
        let watching = self.shared.view.receiver_count();
        self.shared.view.send_modify(|view| view.end(results.verdict()));
        let all = read.wait_for(|read| *read >= watching);
        // A browser that was closed is counted until it is written to.
        let _ = timeout(FAREWELL, all).await;
    }
}

impl Progress for Page {
    fn on(&self, event: Event<'_>) {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.shared.view.send_modify(|view| view.on(event, seconds));
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn events(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    // The view as it is, and then whenever it changed.
    let views = WatchStream::new(shared.view.subscribe()).throttle(PAUSE);
    let sent = views.map(|view| Sent::default().json_data(view));
    Sse::new(sent).keep_alive(KeepAlive::default())
}

async fn report(State(shared): State<Arc<Shared>>) -> Response {
    let report = lock(&shared.report).clone();
    if report.is_empty() {
        return (
            StatusCode::NOT_FOUND,
            "the run has not ended: its report is not there yet",
        )
            .into_response();
    }
    // Counted when it is on its way, not when it is made.
    let count = Arc::clone(&shared);
    let counted = stream::once(async move {
        count.read.send_modify(|read| *read += 1);
        Ok(String::new())
    });
    let body = stream::iter([Ok::<_, Infallible>(report)]).chain(counted);
    Html(axum::body::Body::from_stream(body)).into_response()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
