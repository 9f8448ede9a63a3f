//! The calls of the contract.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, Query, Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, put},
};
use perfrun_contract::node::{
    CONTRACT, Clock, EPOCH_HEADER, Info, Problem, Side, Start, TrialRequest, TrialState, TrialStatus,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Shared, TOKEN, Trial};

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route(
            "/v1/info",
            get(async |State(node): State<Arc<Shared>>| Json(info(&node.script))),
        )
        .route(
            "/v1/clock",
            get(async |State(node): State<Arc<Shared>>| {
                Json(Clock {
                    nanoseconds: node.now(),
                })
            }),
        )
        .route("/v1/trials/{id}", get(status).put(prepare).delete(delete))
        .route("/v1/trials/{id}/start", put(start))
        .route("/v1/trials/{id}/finish", put(finish))
        .layer(middleware::from_fn_with_state(shared.clone(), log_and_authorize))
        .with_state(shared)
}

type Node = State<Arc<Shared>>;
type Answer<T> = Result<T, Refused>;

/// A refused call.
struct Refused(StatusCode, &'static str, Option<String>);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (
            self.0,
            Json(Problem {
                message: self.1.into(),
                trial: self.2,
            }),
        )
            .into_response()
    }
}

async fn log_and_authorize(State(node): Node, request: Request, next: Next) -> Response {
    node.calls
        .lock()
        .unwrap()
        .push(format!("{} {}", request.method(), request.uri().path()));
    let given = request
        .headers()
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    if given != Some(&format!("Bearer {TOKEN}")) {
        return Refused(StatusCode::UNAUTHORIZED, "no", None).into_response();
    }
    let epoch = request.headers().get(EPOCH_HEADER);
    let epoch = epoch.map_or(0, |epoch| epoch.to_str().unwrap().parse().unwrap());
    if node.epoch.fetch_max(epoch, Ordering::Relaxed) > epoch {
        return Refused(StatusCode::PRECONDITION_FAILED, "another has taken over", None).into_response();
    }
    next.run(request).await
}

async fn prepare(
    State(node): Node,
    Path(id): Path<String>,
    Json(request): Json<TrialRequest>,
) -> Answer<StatusCode> {
    if let Some(status) = node.script.refuses {
        return Err(Refused(status, "as scripted", None));
    }
    let mut trials = node.trials.lock().unwrap();
    if let Some(known) = trials.get(&id) {
        let same = known.request == request;
        return if same {
            Ok(StatusCode::OK)
        } else {
            Err(Refused(StatusCode::CONFLICT, "other parameters", None))
        };
    }
    let going_on = |trial: &Arc<Trial>| trial.status.borrow().state != TrialState::Finished;
    if let Some((busy, _)) = trials.iter().find(|(_, trial)| going_on(trial)) {
        return Err(Refused(StatusCode::LOCKED, "busy", Some(busy.clone())));
    }
    let addresses = match request.side {
        Side::Server | Side::Source { .. } | Side::Relay => vec![format!("/scripted/{id}")],
        Side::Client { .. } | Side::Both { .. } => vec![],
    };
    let status = TrialStatus {
        state: TrialState::Preparing,
        addresses,
        bytes_sent: 0,
        bytes_received: 0,
        outcome: None,
    };
    let trial = Arc::new(Trial {
        id: id.clone(),
        request,
        status: watch::Sender::new(status),
        start: watch::Sender::new(None),
        finish: CancellationToken::new(),
        cancel: CancellationToken::new(),
    });
    trials.insert(id, trial.clone());
    drop(trials);
    tokio::spawn(async move { node.run(&trial).await });
    Ok(StatusCode::CREATED)
}

async fn start(State(node): Node, Path(id): Path<String>, Json(start): Json<Start>) -> Answer<StatusCode> {
    find(&node, &id)?.start.send_replace(Some(start.at_nanoseconds));
    Ok(StatusCode::NO_CONTENT)
}

async fn finish(State(node): Node, Path(id): Path<String>) -> Answer<StatusCode> {
    find(&node, &id)?.finish.cancel();
    Ok(StatusCode::NO_CONTENT)
}

async fn delete(State(node): Node, Path(id): Path<String>) -> Answer<StatusCode> {
    let trial = find(&node, &id)?;
    trial.cancel.cancel();
    if trial.status.borrow().state == TrialState::Finished {
        node.trials.lock().unwrap().remove(&id);
    }
    Ok(StatusCode::NO_CONTENT)
}

#[derive(serde::Deserialize)]
struct Wait {
    wait: Option<f64>,
    after: Option<TrialState>,
}

async fn status(
    State(node): Node,
    Path(id): Path<String>,
    Query(Wait { wait, after }): Query<Wait>,
) -> Answer<Json<TrialStatus>> {
    let mut status = find(&node, &id)?.status.subscribe();
    if let (Some(wait), Some(after)) = (wait, after) {
        let later = status.wait_for(|status| status.state > after);
        let _ = tokio::time::timeout(Duration::from_secs_f64(wait), later).await;
    }
    let mut status = status.borrow().clone();
    (node.script.distorts)(&mut status);
    Ok(Json(status))
}

fn find(node: &Shared, id: &str) -> Answer<Arc<Trial>> {
    let found = node.trials.lock().unwrap().get(id).cloned();
    found.ok_or(Refused(StatusCode::NOT_FOUND, "no such trial", None))
}

fn info(script: &super::Script) -> Info {
    Info {
        contract: CONTRACT,
        instance: None,
        version: "0.0.0-scripted".into(),
        stacks: BTreeMap::new(),
        capabilities: BTreeMap::new(),
        profile: script.profile.into(),
        program_sha256: None,
        commit: None,
        label: None,
        compiler: None,
        target_features: None,
        allocator: None,
        listen_ip: script.ip,
        clock: None,
        boot_id: None,
        host: "here".into(),
        kernel: "6.1".into(),
        cpu: "abacus".into(),
        cpus: 1,
        governor: None,
        hypervisor: None,
        smt: None,
        mitigations: None,
        mtu_bytes: None,
        congestion_control: None,
        cpu_limit: None,
        memory_limit_bytes: None,
        socket_buffer_limits_bytes: None,
        tcp_window_limits_bytes: None,
    }
}
