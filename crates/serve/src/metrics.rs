//! The route of a metrics page.

use std::sync::Arc;

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use perfrun_metrics::Scrapes;

/// Serves a page at `/metrics`, to anyone. `make` makes the page; see [`Scrapes::read`] for how often.
pub fn metrics_router<F>(
    scrapes: Arc<Scrapes>,
    make: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> Router
where
    F: Future<Output = String> + Send + 'static,
{
    let page = move || async move {
        let page = scrapes.read(make).await;
        ([(CONTENT_TYPE, perfrun_metrics::CONTENT_TYPE)], page.to_string())
    };
    Router::new().route("/metrics", get(page))
}
