//! `/livez`, `/readyz` and `/metrics`.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context;
use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use tokio::net::TcpListener;

use crate::metrics::Metrics;

/// Binds the port. Two operators with one address fail early.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("failed to bind {address}: choose another address with --admin"))
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) -> std::io::Result<()> {
    let ready = metrics.clone();
    let router = Router::new()
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(move || std::future::ready(readiness(&ready))))
        .route(
            "/metrics",
            get(move || {
                std::future::ready(([(CONTENT_TYPE, perfrun_metrics::CONTENT_TYPE)], metrics.encode()))
            }),
        );
    axum::serve(listener, router).await
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
