//! `/livez`, `/readyz` and `/metrics`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use axum::{Router, http::StatusCode, routing::get};
use perfrun_serve::{Limits, metrics_router, serve};
use tokio::{net::TcpListener, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

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
pub(crate) async fn serve_all(listener: TcpListener, metrics: Arc<Metrics>) {
    serve(listener, router(metrics), LIMITS, CancellationToken::new()).await;
}

fn router(metrics: Arc<Metrics>) -> Router {
    let ready = metrics.clone();
    let page = move || {
        // A page of a thousand runs takes time, in which this thread may have to renew the Lease.
        let metrics = metrics.clone();
        async { spawn_blocking(move || metrics.encode()).await.unwrap_or_default() }
    };
    Router::new()
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(move || std::future::ready(readiness(&ready))))
        .merge(metrics_router(Arc::default(), page))
}

/// An operator is ready when the API server has answered it, whether it leads or waits to lead.
fn readiness(metrics: &Metrics) -> (StatusCode, &'static str) {
    if metrics.is_ready() {
        (StatusCode::OK, "ok")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the API server has not answered yet",
        )
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
        let router = router(metrics.clone());
        tokio::time::advance(Duration::from_secs(1)).await;
        let leader = async || {
            let (status, page) = get(&router, "/metrics").await;
            assert_eq!(status, StatusCode::OK);
            page.contains("perfrun_operator_leader 1")
        };
        assert!(!leader().await);
        metrics.lead(true);
        assert!(!leader().await);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(leader().await);
    }

    #[tokio::test]
    async fn an_operator_that_has_reached_the_api_server_is_ready() {
        let metrics = Arc::new(Metrics::new());
        let router = router(metrics.clone());
        assert_eq!(get(&router, "/livez").await.0, StatusCode::OK);
        assert_eq!(get(&router, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
        metrics.set_ready();
        assert_eq!(get(&router, "/readyz").await.0, StatusCode::OK);
    }
}
