//! The control port: the contract of [`perfrun_contract::node`] over HTTP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{
        DefaultBodyLimit, Path, Query, Request, State,
        rejection::{JsonRejection, QueryRejection},
    },
    http::{HeaderMap, StatusCode},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, put},
};
use perfrun_contract::node::{Clock, EPOCH_HEADER, Info, Problem, Start, TrialRequest, TrialState};
use perfrun_serve::require_token;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    info::Digest,
    metrics::Metrics,
    trial::RunningTrial,
    trials::{TrialRefusal, Trials},
};

/// The longest time that a call may wait, in seconds. After that, the client repeats the call.
const WAIT_MAX: f64 = 60.0;
/// The largest body of a call, in bytes: a request with thousands of addresses fits.
const BODY_BYTES_MAX: usize = 4 << 20;

/// The state that calls work on.
pub(crate) struct Node {
    /// Without the digest of the program.
    pub(crate) info: Info,
    pub(crate) program_digest: Digest,
    pub(crate) trials: Trials,
    pub(crate) metrics: Arc<Metrics>,
    /// The token that calls must carry.
    pub(crate) token: Arc<str>,
    /// The largest epoch of callers so far.
    pub(crate) epoch: Arc<AtomicU64>,
    /// Requests a restart of the program.
    pub(crate) renew: CancellationToken,
}

impl Node {
    async fn info(&self) -> Info {
        Info {
            program_sha256: self.program_digest.clone().await,
            ..self.info.clone()
        }
    }
}

/// All routes of the control port besides the page of metrics.
pub(crate) fn router(node: Arc<Node>) -> Router {
    let (token, epoch) = (node.token.clone(), node.epoch.clone());
    let guarded = Router::new()
        .route(
            "/v1/info",
            get(async |State(node): State<Arc<Node>>| Json(node.info().await)),
        )
        .route(
            "/v1/clock",
            get(async || {
                Json(Clock {
                    nanoseconds: clock::now(),
                })
            }),
        )
        .route(
            "/v1/trials/{id}",
            get(get_trial).put(put_trial).delete(delete_trial),
        )
        .route("/v1/trials/{id}/start", put(start_trial))
        .route("/v1/trials/{id}/finish", put(finish_trial))
        .route("/v1/renew", put(renew));
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .merge(guard(guarded, token, epoch))
        .with_state(node)
}

/// Lets only calls with the token pass, even to unknown routes, and only those of the latest conductor.
/// `latest` is the largest epoch of callers so far.
pub(crate) fn guard<S: Clone + Send + Sync + 'static>(
    routes: Router<S>,
    token: Arc<str>,
    latest: Arc<AtomicU64>,
) -> Router<S> {
    let routes = routes
        .fallback(async || RefusedCall::new(StatusCode::NOT_FOUND, "unknown call".into()))
        .method_not_allowed_fallback(async || {
            let message = "this call does not have this method";
            RefusedCall::new(StatusCode::METHOD_NOT_ALLOWED, message.into())
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(latest, fence));
    require_token(routes, token)
}

/// A refused call.
pub(crate) struct RefusedCall(StatusCode, Problem);

impl RefusedCall {
    pub(crate) fn new(status: StatusCode, message: String) -> Self {
        Self(status, Problem { message, trial: None })
    }
}

impl IntoResponse for RefusedCall {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

/// Refuses calls of a conductor that another has taken over from. `latest` is the largest epoch so far.
async fn fence(State(latest): State<Arc<AtomicU64>>, request: Request, next: Next) -> Response {
    let refused = match epoch(request.headers()) {
        Some(epoch) => {
            let latest = latest.fetch_max(epoch, Ordering::Relaxed);
            if epoch >= latest {
                return next.run(request).await;
            }
            let message = format!(
                "this call is of epoch {epoch}, and a conductor of epoch {latest} has taken over: end this conductor"
            );
            RefusedCall::new(StatusCode::PRECONDITION_FAILED, message)
        }
        None => {
            let message = "the header X-Perfrun-Epoch must be a number from 0 to 9223372036854775807";
            RefusedCall::new(StatusCode::BAD_REQUEST, message.into())
        }
    };
    refused.into_response()
}

/// The epoch of a call. `None` if the header is not an epoch.
fn epoch(headers: &HeaderMap) -> Option<u64> {
    let Some(epoch) = headers.get(EPOCH_HEADER) else {
        return Some(0);
    };
    let epoch: i64 = epoch.to_str().ok()?.parse().ok()?;
    epoch.try_into().ok()
}

/// A stopping node is not ready, because it accepts no trials.
async fn ready(State(node): State<Arc<Node>>) -> (StatusCode, &'static str) {
    if node.trials.is_stopping() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

async fn put_trial(
    State(node): State<Arc<Node>>,
    Path(id): Path<String>,
    request: Result<Json<TrialRequest>, JsonRejection>,
) -> Result<StatusCode, RefusedCall> {
    let Json(request) = request.map_err(unreadable)?;
    match node.trials.put(&id, request) {
        Ok(true) => Ok(StatusCode::CREATED),
        Ok(false) => Ok(StatusCode::OK),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Restarts this program in its process.
async fn renew(State(node): State<Arc<Node>>) -> Result<StatusCode, RefusedCall> {
    node.trials.close()?;
    node.renew.cancel();
    Ok(StatusCode::NO_CONTENT)
}

impl From<TrialRefusal> for RefusedCall {
    fn from(refusal: TrialRefusal) -> Self {
        let message = refusal.to_string();
        let (status, trial) = match refusal {
            TrialRefusal::Invalid(_) => (StatusCode::BAD_REQUEST, None),
            TrialRefusal::Different(_) | TrialRefusal::Uncollected(_) => (StatusCode::CONFLICT, None),
            TrialRefusal::Busy(trial) => (StatusCode::LOCKED, Some(trial)),
            TrialRefusal::Full => (StatusCode::INSUFFICIENT_STORAGE, None),
            TrialRefusal::Stopping => (StatusCode::SERVICE_UNAVAILABLE, None),
        };
        Self(status, Problem { message, trial })
    }
}

/// The time to wait, and the state to wait for.
#[derive(Deserialize)]
struct Wait {
    #[serde(default)]
    wait: f64,
    #[serde(default = "before_finished")]
    after: TrialState,
}

fn before_finished() -> TrialState {
    TrialState::Running
}

async fn get_trial(
    State(node): State<Arc<Node>>,
    Path(id): Path<String>,
    query: Result<Query<Wait>, QueryRejection>,
) -> Result<impl IntoResponse, RefusedCall> {
    let Query(Wait { wait, after }) =
        query.map_err(|rejection| RefusedCall::new(StatusCode::BAD_REQUEST, rejection.body_text()))?;
    let trial = find(&node, &id)?;
    let wait = Duration::from_secs_f64(if wait > 0.0 { wait.min(WAIT_MAX) } else { 0.0 });
    let status = trial.status(wait, after).await;
    if status.outcome.is_some() {
        trial.mark_collected();
    }
    Ok(Json(status))
}

async fn start_trial(
    State(node): State<Arc<Node>>,
    Path(id): Path<String>,
    start: Result<Json<Start>, JsonRejection>,
) -> Result<StatusCode, RefusedCall> {
    let Json(start) = start.map_err(unreadable)?;
    find(&node, &id)?.start(start.at_nanoseconds);
    Ok(StatusCode::NO_CONTENT)
}

async fn finish_trial(
    State(node): State<Arc<Node>>,
    Path(id): Path<String>,
) -> Result<StatusCode, RefusedCall> {
    find(&node, &id)?.finish();
    Ok(StatusCode::NO_CONTENT)
}

async fn delete_trial(
    State(node): State<Arc<Node>>,
    Path(id): Path<String>,
) -> Result<StatusCode, RefusedCall> {
    if node.trials.delete(&id) {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(unknown(&id))
    }
}

fn find(node: &Node, id: &str) -> Result<Arc<RunningTrial>, RefusedCall> {
    node.trials.get(id).ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> RefusedCall {
    RefusedCall::new(StatusCode::NOT_FOUND, format!("unknown trial {id:?}"))
}

pub(crate) fn unreadable(rejection: JsonRejection) -> RefusedCall {
    RefusedCall::new(StatusCode::BAD_REQUEST, rejection.body_text())
}
