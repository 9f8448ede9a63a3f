//! `/livez`, `/readyz` and `/metrics`.

use std::{future::ready, net::SocketAddr, sync::Arc};

use anyhow::Context;
use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use tokio::net::TcpListener;

use crate::{health::Health, metrics::Metrics};

/// Binds the port. Two operators with one address fail early.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("failed to bind {address}: choose another address with --admin"))
}

/// Serves until the process ends.
pub(crate) async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
) -> std::io::Result<()> {
    axum::serve(listener, router(metrics, health)).await
}

fn router(metrics: Arc<Metrics>, health: Arc<Health>) -> Router {
    let alive = health.clone();
    Router::new()
        .route("/livez", get(move || ready(answer(alive.alive()))))
        .route("/readyz", get(move || ready(answer(health.ready()))))
        .route(
            "/metrics",
            get(move || ready(([(CONTENT_TYPE, perfrun_metrics::CONTENT_TYPE)], metrics.encode()))),
        )
}

fn answer(state: Result<(), &'static str>) -> (StatusCode, &'static str) {
    match state {
        Ok(()) => (StatusCode::OK, "ok"),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::{body::Body, http::Request};
    use tower::ServiceExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_operator_whose_lease_loop_stands_still_is_not_alive_and_one_that_knows_no_runs_is_not_ready()
    {
        let health = Arc::new(Health::default());
        let router = router(Arc::new(Metrics::new()), health.clone());
        let states = async || {
            let mut states = vec![];
            for path in ["/livez", "/readyz"] {
                let request = Request::get(path).body(Body::empty()).unwrap();
                states.push(router.clone().oneshot(request).await.unwrap().status().as_u16());
            }
            states
        };
        let later = async |seconds| tokio::time::advance(Duration::from_secs(seconds)).await;
        assert_eq!(states().await, [200, 503]);
        later(100).await;
        health.answered();
        assert_eq!(states().await, [200, 200], "it waits to lead");
        health.turned();
        later(59).await;
        health.lead(true);
        assert_eq!(states().await, [200, 503]);
        later(1).await;
        health.listed();
        assert_eq!(states().await, [503, 200]);
        health.turned();
        assert_eq!(states().await, [200, 200]);
    }
}
