//! Which calls may pass: those with the token.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header::AUTHORIZATION},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use perfrun_contract::node::{Problem, TOKEN_HEADER};
use subtle::ConstantTimeEq;

use crate::caller::Caller;

/// Lets only calls with the token pass. Others learn nothing, not even whether a path exists.
pub fn require_token<S>(routes: Router<S>, token: Arc<str>) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    routes.layer(middleware::from_fn_with_state(token, authorize))
}

async fn authorize(State(token): State<Arc<str>>, request: Request, next: Next) -> Response {
    if !carries_token(request.headers(), &token) {
        let message = "this call needs the header Authorization: Bearer TOKEN, or X-Perfrun-Token: TOKEN, with the \
                       run's token";
        let problem = Problem {
            message: message.to_owned(),
            trial: None,
        };
        return (StatusCode::UNAUTHORIZED, Json(problem)).into_response();
    }
    if let Some(caller) = request.extensions().get::<Caller>() {
        caller.trust();
    }
    next.run(request).await
}

/// Either header suffices: a proxy may put its own token into the first.
fn carries_token(headers: &HeaderMap, token: &str) -> bool {
    let has = |given: Option<&HeaderValue>, expected: &str| {
        given.is_some_and(|given| given.as_bytes().ct_eq(expected.as_bytes()).into())
    };
    has(headers.get(AUTHORIZATION), &format!("Bearer {token}")) || has(headers.get(TOKEN_HEADER), token)
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http, routing::get};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    use super::*;

    #[tokio::test]
    async fn only_calls_with_the_token_pass_and_are_trusted() {
        let routes = Router::new().route("/", get(async || "passed"));
        let service = TowerToHyperService::new(require_token(routes, "secret".into()));
        for (path, headers, status) in [
            ("/", &[("authorization", "Bearer secret")][..], 200),
            ("/", &[(TOKEN_HEADER, "secret")], 200),
            (
                "/",
                &[("authorization", "Bearer other"), (TOKEN_HEADER, "secret")],
                200,
            ),
            ("/other", &[(TOKEN_HEADER, "secret")], 404),
            ("/", &[], 401),
            ("/other", &[], 401),
            ("/", &[("authorization", "secret")], 401),
            ("/", &[("authorization", "Bearer secre")], 401),
            ("/", &[("authorization", "Bearer secret2")], 401),
            ("/", &[(TOKEN_HEADER, "")], 401),
            ("/", &[(TOKEN_HEADER, "Bearer secret")], 401),
        ] {
            let caller = Caller::default();
            let mut request = http::Request::get(path).extension(caller.clone());
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let answer = service.call(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.status(), status, "{path} {headers:?}");
            assert_eq!(caller.is_trusted(), status != 401, "{path} {headers:?}");
        }
    }
}
