//! `perfrun run --ui`: a web page on this machine that shows the run in progress, and its report at the end.
//!
//! `view` is what the page shows. After each change a browser gets the whole view as a server-sent event.

mod view;

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header, uri::Authority},
    middleware::{self, Next},
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
use perfrun_serve::{Limits, serve};
use tokio::{net::TcpListener, sync::watch, time::timeout};
use tokio_stream::{StreamExt as _, wrappers::WatchStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::view::View;

const PAGE: &str = include_str!("page/page.html");
const SCRIPT: &str = include_str!("page/page.js");

/// The pages run only the script that perfrun serves, connect only to perfrun, and are in no frame of
/// another. Styles are part of the pages, and of the plots in the report.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);
/// A browser has two connections for each of its windows.
const LIMITS: Limits = Limits::new(64, Duration::from_secs(60));

/// The least time between two views that a browser gets: it draws on the cores that are measured.
const PAUSE: Duration = Duration::from_millis(500);
/// How long to wait until browsers have the report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// A web page that is served until it is dropped.
pub struct Page {
    content: Arc<Content>,
    begun: Instant,
    address: SocketAddr,
    _stop: DropGuard,
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
            .layer(middleware::from_fn(guard))
            .with_state(Arc::clone(&content));
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, routes, LIMITS, stop.clone()));
        Ok(Self {
            content,
            begun: Instant::now(),
            address,
            _stop: stop.drop_guard(),
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
        *self.content.report.lock() = perfrun_report::html(&results.reported_run());
        let mut read = self.content.read.subscribe();
        // Every browser that watches receives views.
        let watching = self.content.view.receiver_count();
        self.content
            .view
            .send_modify(|view| view.end(results.conclusion()));
        let all = read.wait_for(|read| *read >= watching);
        // A browser that was closed still counts until something is written to it.
        let _ = timeout(REPORT_TIMEOUT, all).await;
    }

    /// Shows what happened.
    pub fn on(&self, event: Event<'_>) {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.content.view.send_modify(|view| view.on(event, seconds));
    }
}

/// Refuses requests of pages of other sites, and tells browsers what the page may do.
async fn guard(request: Request, next: Next) -> Response {
    let mut response = if names_this_machine(request.uri(), request.headers()) {
        next.run(request).await
    } else {
        let message = "perfrun answers only if the URL has an IP address or localhost: open the one that perfrun run \
                       printed";
        (StatusCode::MISDIRECTED_REQUEST, message).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// Whether a request names its server by an IP address or as localhost. The owner of any other name may let
/// it point to this machine (DNS rebinding), whereupon browsers take this page for a page of that owner.
fn names_this_machine(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut named = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        return false;
    };
    let host = host.to_str().ok().and_then(|host| host.parse().ok());
    let is_local = |named: &Authority| {
        let host = named.host();
        let ip = host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost") || ip.parse::<IpAddr>().is_ok()
    };
    host.is_some_and(|host| is_local(&host)) && uri.authority().is_none_or(is_local)
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

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;

    #[test]
    fn a_request_that_names_another_server_is_refused() {
        let is_answered = |uri: &str, hosts: &[&'static str]| {
            let host = |host: &&'static str| (header::HOST, HeaderValue::from_static(host));
            names_this_machine(&uri.parse().unwrap(), &hosts.iter().map(host).collect())
        };
        for host in [
            "127.0.0.1:4000",
            "127.0.0.1",
            "[::1]:4000",
            "localhost:80",
            "LocalHost",
        ] {
            assert!(is_answered("/", &[host]), "{host}");
        }
        for host in [
            "",
            "example.com",
            "example.com:4000",
            "localhost.example.com",
            "127.0.0.1.example.com",
            "localhost@example.com",
            "127.0.0.1, example.com",
        ] {
            assert!(!is_answered("/", &[host]), "{host}");
        }
        assert!(!is_answered("/", &[]));
        assert!(!is_answered("/", &["localhost", "example.com"]));
        assert!(!is_answered("http://example.com/", &["localhost"]));
        assert!(is_answered("http://localhost/", &["localhost"]));
    }

    async fn answer(page: &Page, path: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(page.address).await.unwrap();
        let call = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(call.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn requests_of_other_sites_are_refused() {
        let page = Page::serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
        for path in ["/", "/page.js", "/events", "/report", "/nothing"] {
            let refused = answer(&page, path, "rebound.example:80").await;
            assert!(refused.starts_with("HTTP/1.1 421 "), "{refused}");
            assert!(
                refused.ends_with("open the one that perfrun run printed"),
                "{refused}"
            );
        }
        let shown = answer(&page, "/", &page.address.to_string()).await;
        assert!(
            shown.starts_with("HTTP/1.1 200 ") && shown.ends_with("</html>\n"),
            "{shown}"
        );
        assert!(
            shown.contains("content-security-policy: default-src 'none'; "),
            "{shown}"
        );
    }
}
