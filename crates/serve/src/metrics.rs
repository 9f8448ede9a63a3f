//! The route of a metrics page.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    http::{HeaderMap, header::CONTENT_TYPE},
    routing::get,
};
use perfrun_metrics::Scrapes;

/// Prometheus tells with each scrape after how many seconds it gives up.
const TIMEOUT_HEADER: &str = "x-prometheus-scrape-timeout-seconds";

/// Serves a page at `/metrics`, to anyone. `make` makes the page; see [`Scrapes::read`] for how often.
pub fn metrics_router<F>(
    scrapes: Arc<Scrapes>,
    make: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> Router
where
    F: Future<Output = String> + Send + 'static,
{
    let page = move |headers: HeaderMap| async move {
        let page = scrapes.read(patience(&headers), make).await;
        ([(CONTENT_TYPE, perfrun_metrics::CONTENT_TYPE)], page.to_string())
    };
    Router::new().route("/metrics", get(page))
}

/// How long a scraper waits for the page, if it tells. It began to wait before its request arrived, and the
/// answer has its way to go: a quarter is left for both.
fn patience(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get(TIMEOUT_HEADER)?.to_str().ok()?.parse().ok()?;
    let patience = Duration::try_from_secs_f64(seconds * 0.75).ok()?;
    (!patience.is_zero()).then_some(patience)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_header_of_a_scraper_limits_the_wait() {
        let of = |value: &'static str| {
            let value = value.parse().unwrap();
            patience(&HeaderMap::from_iter([(TIMEOUT_HEADER.parse().unwrap(), value)]))
        };
        assert_eq!(of("10"), Some(Duration::from_millis(7500)));
        assert_eq!(of("0.8"), Some(Duration::from_millis(600)));
        for nonsense in ["", "soon", "0", "-1", "NaN", "inf"] {
            assert_eq!(of(nonsense), None, "{nonsense}");
        }
        assert_eq!(patience(&HeaderMap::new()), None);
    }
}
