//! `/livez`, `/readyz` and `/metrics`.

use std::{future::ready, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use axum::{Router, http::StatusCode, routing::get};
use perfrun_serve::{Limits, metrics_router, serve};
use tokio::{net::TcpListener, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

use crate::process::{health::Health, metrics::Metrics};

/// Every pod of the cluster may reach the port. A kubelet and a scraper have a connection each, which is idle
/// for longer than the usual time between two scrapes.
const LIMITS: Limits = Limits::new(64, Duration::from_secs(150));

/// Binds the port. Two operators with one address fail early.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("failed to bind {address}: choose another address with --admin"))
}

/// Serves until the process ends.
pub(crate) async fn serve_all(listener: TcpListener, metrics: Arc<Metrics>, health: Arc<Health>) {
    let router = router(metrics, health);
    serve(listener, router, LIMITS, CancellationToken::new()).await;
}

fn router(metrics: Arc<Metrics>, health: Arc<Health>) -> Router {
    let alive = health.clone();
    let page = move || {
        // A page of a thousand runs takes time, in which this thread may have to renew the Lease.
        let metrics = metrics.clone();
        async { spawn_blocking(move || metrics.encode()).await.unwrap_or_default() }
    };
    Router::new()
        .route("/livez", get(move || ready(answer(alive.check_alive()))))
        .route("/readyz", get(move || ready(answer(health.check_ready()))))
        .merge(metrics_router(Arc::default(), page))
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
        let router = router(metrics.clone(), Arc::default());
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
        let router = router(Arc::new(Metrics::new()), health.clone());
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
}
