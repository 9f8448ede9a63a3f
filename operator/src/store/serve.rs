//! The calls of the program: see [`super`].

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    response::{IntoResponse, Response},
    routing::get,
};
use error_reporter::Report;
use http::StatusCode;
use object_store::Error;
use perfrun_api::pod::store::{PARTS, STORED_PART_BYTES};
use perfrun_contract::node::Problem;
use perfrun_serve::require_token;

use super::{is_plain, parts::Parts};

/// A refused or failed call.
struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Self(status, message) = self;
        (status, Json(Problem { message, trial: None })).into_response()
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let status = match &error {
            // The same request would be refused again.
            Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotFound { .. }
            | Error::InvalidPath { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let message = Report::new(error).to_string();
        tracing::warn!(message, "the store failed");
        Self(status, message)
    }
}

/// The calls. All but one need the token, if there is one.
pub(super) fn router(parts: Parts, token: Option<&str>, read_only: bool) -> Router {
    let part = if read_only {
        get(read)
    } else {
        get(read).put(write)
    };
    let calls = Router::new()
        .route(PARTS, get(list))
        .route(&format!("{PARTS}/{{name}}"), part)
        .layer(DefaultBodyLimit::max(STORED_PART_BYTES))
        .with_state(parts);
    let calls = match token {
        Some(token) => require_token(calls, token.into()),
        None => calls,
    };
    calls.route("/readyz", get(async || StatusCode::OK))
}

async fn list(State(parts): State<Parts>) -> Result<Json<Vec<String>>, Refused> {
    let mut names = parts.list().await?;
    names.retain(|name| check_name(name).is_ok());
    Ok(Json(names))
}

async fn read(State(parts): State<Parts>, Path(name): Path<String>) -> Result<Bytes, Refused> {
    let found = parts.get(check_name(&name)?).await?;
    let found = found.ok_or_else(|| Refused(StatusCode::NOT_FOUND, format!("part {name} does not exist")))?;
    if found.meta.size > STORED_PART_BYTES as u64 {
        let message = format!("{name} has more than {STORED_PART_BYTES} bytes, which perfrun does not write");
        return Err(Refused(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    Ok(found.bytes().await?)
}

async fn write(
    State(parts): State<Parts>,
    Path(name): Path<String>,
    bytes: Bytes,
) -> Result<StatusCode, Refused> {
    if parts.put(check_name(&name)?, bytes).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Refused(
            StatusCode::CONFLICT,
            format!("{name} exists with other content"),
        ))
    }
}

/// Checks that a name stays in the folder of the run.
fn check_name(name: &str) -> Result<&str, Refused> {
    if name.len() <= 63 && is_plain(name) {
        return Ok(name);
    }
    let message = "names of parts have up to 63 lower-case letters, digits and '-'".to_owned();
    Err(Refused(StatusCode::BAD_REQUEST, message))
}
