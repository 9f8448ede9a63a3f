//! `/metrics` on one port; `/livez` and `/readyz` on that one and on another.

use std::{future::ready, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use axum::{Router, http::StatusCode, routing::get};
use perfrun_serve::{Limits, metrics_router, serve};
use tokio::{join, net::TcpListener, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

use crate::process::{health::Health, metrics::Metrics};

/// The most connections of a port.
const CONNECTIONS: usize = 64;

/// Every pod of the cluster may reach the port of metrics. A scraper's connection may be idle for longer than
/// the usual time between two scrapes.
const LIMITS: Limits = Limits::new(CONNECTIONS, Duration::from_secs(150));

/// Binds a port. Two operators with one address fail early. `argument` chooses the address.
pub(crate) async fn bind(address: SocketAddr, argument: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("failed to bind {address}: choose another address with {argument}"))
}

/// Serves until the process ends. Probes have a port of their own: strangers who take all connections of the
/// other one must not make the kubelet kill the process.
pub(crate) async fn serve_all(
    admin: TcpListener,
    probes: TcpListener,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
) {
    let answers = probe_router(health);
    let pages = admin_router(metrics).merge(answers.clone());
    join!(
        serve(admin, pages, LIMITS, CancellationToken::new()),
        serve(probes, answers, LIMITS, CancellationToken::new()),
    );
}

fn admin_router(metrics: Arc<Metrics>) -> Router {
    let page = move || {
        // A page of a thousand runs takes time, in which this thread may have to renew the Lease.
        let metrics = metrics.clone();
        async { spawn_blocking(move || metrics.encode()).await.unwrap_or_default() }
    };
    metrics_router(Arc::default(), page)
}

fn probe_router(health: Arc<Health>) -> Router {
    let alive = health.clone();
    Router::new()
        .route("/livez", get(move || ready(answer(alive.check_alive()))))
        .route("/readyz", get(move || ready(answer(health.check_ready()))))
}

fn answer(state: Result<(), &'static str>) -> (StatusCode, &'static str) {
    match state {
        Ok(()) => (StatusCode::OK, "ok"),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

#[cfg(test)]
mod tests {
    use axum::{
        body::{Body, to_bytes},
        http::Request,
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };
    use tower::ServiceExt;

    use super::*;

    async fn get(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let (head, body) = router.clone().oneshot(request).await.unwrap().into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        (head.status, String::from_utf8(body.into()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn the_metrics_page_is_made_once_a_second_however_often_it_is_read() {
        let metrics = Arc::new(Metrics::new());
        let router = admin_router(metrics.clone());
        tokio::time::advance(Duration::from_secs(1)).await;
        let leader = async || {
            let (status, page) = get(&router, "/metrics").await;
            assert_eq!(status, StatusCode::OK);
            page.contains("perfrun_operator_leader 1")
        };
        assert!(!leader().await);
        metrics.set_leading(true);
        assert!(!leader().await);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(leader().await);
    }

    #[tokio::test(start_paused = true)]
    async fn liveness_needs_a_moving_lease_loop_and_readiness_a_list_of_runs() {
        let health = Arc::new(Health::default());
        let router = probe_router(health.clone());
        let states = async || {
            let mut states = vec![];
            for path in ["/livez", "/readyz"] {
                states.push(get(&router, path).await.0.as_u16());
            }
            states
        };
        let later = async |seconds| tokio::time::advance(Duration::from_secs(seconds)).await;
        assert_eq!(states().await, [200, 503]);
        later(100).await;
        health.note_answer();
        assert_eq!(states().await, [200, 200], "it waits to lead");
        health.note_lease_attempt();
        later(59).await;
        health.set_leading(true);
        assert_eq!(states().await, [200, 503]);
        later(1).await;
        health.note_listed();
        assert_eq!(states().await, [503, 200]);
        health.note_lease_attempt();
        assert_eq!(states().await, [200, 200]);
    }

    /// Whether a probe on this connection succeeds.
    async fn is_alive(stream: &mut TcpStream) -> bool {
        let call = b"GET /livez HTTP/1.1\r\nHost: operator\r\n\r\n";
        let mut answer: Vec<u8> = vec![];
        let mut is_open = stream.write_all(call).await.is_ok();
        while is_open && !answer.ends_with(b"ok") {
            is_open = stream.read_buf(&mut answer).await.is_ok_and(|bytes| bytes > 0);
        }
        answer.starts_with(b"HTTP/1.1 200 OK")
    }

    #[tokio::test]
    async fn strangers_on_the_metrics_port_do_not_keep_probes_away() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let admin = bind(any, "--admin").await.unwrap();
        let probes = bind(any, "--probes").await.unwrap();
        let (scraped, probed) = (admin.local_addr().unwrap(), probes.local_addr().unwrap());
        tokio::spawn(serve_all(admin, probes, Arc::new(Metrics::new()), Arc::default()));
        // The oldest connection, which would be the first to end on the port of strangers.
        let mut kubelet = TcpStream::connect(probed).await.unwrap();
        assert!(is_alive(&mut kubelet).await);
        let mut strangers = vec![];
        for _ in 0..=CONNECTIONS {
            strangers.push(TcpStream::connect(scraped).await.unwrap());
        }
        let ended = strangers[0].read(&mut [0]).await;
        assert!(!ended.is_ok_and(|bytes| bytes > 0), "the last one took its place");
        assert!(is_alive(&mut kubelet).await);
    }
}
