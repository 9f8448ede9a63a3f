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

/// Binds the port: two operators on one address are better found out at once.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("failed to bind {address}: name another address with --admin"))
}

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>) -> std::io::Result<()> {
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

/// An operator is ready when it has spoken with the API server: as the leader, or waiting to be.
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
