//! The calls of the node contract (`perfrun_contract::node`).

mod answer_budget;
mod epoch;
mod http;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use error_reporter::Report;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use perfrun_contract::{
    newer,
    node::{
        Clock, Info, LinkRequest, LinkStatus, ProbeRequest, Problem, Start, TrialRequest, TrialState,
        TrialStatus,
    },
    text,
};
use perfrun_link::probe::Measurement;
use serde::{
    Serialize,
    de::{DeserializeOwned, Error as _},
};
use strum::IntoStaticStr;
use thiserror::Error;
use tokio::time::{Instant, sleep};

pub(crate) use self::answer_budget::OutcomePermit;
pub use self::{answer_budget::AnswerBudget, epoch::Epoch};
use self::{answer_budget::FailedAfterWait, http::Http};

/// How long a call may take, not counting the wait that the request contains.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a page of metrics may take. A scraper does not wait much longer, and scrapes again soon.
const METRICS_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a call is retried while the node cannot be reached. All calls of the contract are idempotent.
const RETRY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a call to a link agent is retried. An agent that was killed restarts, and resumes what it did.
const RETRY_AGENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before another request to an agent that measures for another caller, or to a node that starts
/// again.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// The pause before a call is retried; it doubles each time.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// How often a call is repeated whose answer has waited for those of other nodes, and could not be read then.
const WAITS_MAX: u32 = 10;

/// Carries requests to one program: the one thing that differs between a node next door and one behind a
/// proxy.
#[async_trait]
pub trait Requester: Send + Sync {
    /// Sends one request and reads the whole answer with [`AnswerBudget::read_answer`], whatever its status.
    /// Adds authorization.
    async fn request(&self, request: Request<'_>) -> Result<Response, BoxError>;
}

/// Requests to a program that speaks HTTP/1.1 at `base`, with this token.
///
/// # Errors
///
/// If `base` is not a URL, or the token cannot be in a header.
pub fn direct(base: &str, token: &str) -> Result<Arc<dyn Requester>, BoxError> {
    Ok(Arc::new(Http::new(base, token)?))
}

/// Why a requester brought no answer.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a [`Requester`] sends.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// Path and query, beginning with `/v1/`, or `/metrics`.
    pub path: &'a str,
    /// JSON, or a part of stored results.
    pub body: Option<Vec<u8>>,
    /// The value of [`perfrun_contract::node::EPOCH_HEADER`].
    pub epoch: u64,
    /// No answer within this time is an error.
    pub timeout: Duration,
    /// Most bytes of the answer's body. The author of the run chooses the program of the node.
    pub most_bytes: usize,
    /// Bounds the room for the body.
    pub answer_budget: AnswerBudget,
}

/// Reads a body. One that is longer than `most` bytes is an error, and is not read to its end.
///
/// # Errors
///
/// If the body is too long or cannot be read.
pub async fn read_within<B>(body: B, most: usize) -> Result<Vec<u8>, BoxError>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    Ok(Limited::new(body, most).collect().await?.to_bytes().into())
}

/// Methods of the contract.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::AsRefStr)]
#[strum(serialize_all = "UPPERCASE")]
pub enum Method {
    /// Read.
    Get,
    /// Set a state; a repetition changes nothing.
    Put,
    /// Cancel or forget.
    Delete,
}

/// What a [`Requester`] brings back. It takes room of an [`AnswerBudget`] until it is dropped.
#[derive(Debug)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// JSON, mostly; metrics are text.
    pub body: Vec<u8>,
    permit: Option<answer_budget::AnswerPermit>,
}

impl Response {
    /// An answer that takes no room.
    pub fn new(status: u16, body: Vec<u8>) -> Self {
        Self {
            status,
            body,
            permit: None,
        }
    }
}

/// Why a call failed.
#[derive(Debug, Error, IntoStaticStr)]
pub enum Error {
    /// No answer, in spite of retries; or a gateway says that it got none.
    #[error("failed to reach the node")]
    Unreachable(#[source] BoxError),
    /// 401: the node has another token, so perhaps it is one of another run.
    #[error("the node does not accept the token")]
    Unauthorized,
    /// 404.
    #[error("the node knows no such trial")]
    NotFound,
    /// 409.
    #[error("the node already has this trial with another request: {0}")]
    Conflict(String),
    /// 423: another trial runs.
    #[error("the node is busy with trial {0}")]
    Busy(String),
    /// Any other status that is not a success.
    #[error("the node refused the call with status {status}: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The node's explanation.
        message: String,
    },
    /// An answer that is longer than any that the contract describes.
    #[error("unable to read the node's answer: it is longer than {0} bytes")]
    TooLong(usize),
    /// What the node has measured does not fit into the memory that all runs share.
    #[error("the node has measured more than there is room for")]
    NoRoom,
    /// An answer that is not what the contract says.
    #[error("unable to understand the node's answer")]
    Malformed(#[source] serde_json::Error),
}

impl Error {
    /// Bounded value for metric labels, e.g. `Unreachable`.
    pub fn category(&self) -> &'static str {
        self.into()
    }

    /// The error with its causes, for people.
    pub fn describe(&self) -> String {
        Report::new(self).to_string()
    }
}

/// What a node did with a request to prepare a trial.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Prepared {
    /// It began to prepare.
    New,
    /// It knew the trial, with the same request.
    Known,
}

/// One node, as the conductor calls it. Clones share connections.
#[derive(Clone, Debug)]
pub struct NodeClient(pub(crate) Caller);

/// The link agent of a node. Clones share connections.
#[derive(Clone, Debug)]
pub struct AgentClient(pub(crate) Caller);

/// Calls to one process.
#[derive(Clone)]
pub(crate) struct Caller {
    requester: Arc<dyn Requester>,
    retry_for: Duration,
    pub(crate) epoch: Option<Epoch>,
    pub(crate) answer_budget: AnswerBudget,
}

impl AgentClient {
    /// An agent reached over the given requester.
    pub fn over(requester: Arc<dyn Requester>) -> Self {
        Self(Caller::over(requester, RETRY_AGENT_TIMEOUT))
    }

    /// What the agent can do, and what it does.
    pub async fn link(&self) -> Result<LinkStatus, Error> {
        self.0.get("/v1/link").await
    }

    /// Sets the links. A repetition with equal values resets the counters, starts the random decisions of its
    /// seed, and changes nothing else.
    pub async fn impair(&self, request: &LinkRequest) -> Result<(), Error> {
        self.0.put("/v1/link", Some(json(request))).await.map(drop)
    }

    /// Its metrics, as a scraper sees them. Not retried.
    pub async fn metrics(&self) -> Result<String, Error> {
        self.0.metrics().await
    }

    /// Measures the link to another agent, after any measurement of an earlier call has ended.
    pub async fn probe(&self, request: &ProbeRequest) -> Result<Measurement, Error> {
        let body = json(request);
        let takes = request.plan.longest_duration();
        let give_up = Instant::now() + takes;
        loop {
            let path = "/v1/link/probe";
            let answer = self.0.call(Method::Put, path, Some(body.clone()), takes).await;
            match answer {
                Err(Error::Refused { status: 423, .. }) if Instant::now() < give_up => {
                    sleep(BUSY_PAUSE).await;
                }
                answer => {
                    let measured: Measurement = read(&answer?)?;
                    return match measured.is_of(&request.plan) {
                        true => Ok(measured),
                        false => Err(malformed("it counts more datagrams than the plan has")),
                    };
                }
            }
        }
    }
}

impl NodeClient {
    /// A node reached directly, at a base like `http://10.0.0.7:9090`.
    pub fn new(base: &str, token: &str) -> Result<Self, BoxError> {
        direct(base, token).map(Self::over)
    }

    /// A node reached over the given requester.
    pub fn over(requester: Arc<dyn Requester>) -> Self {
        Self(Caller::over(requester, RETRY_TIMEOUT))
    }

    pub(crate) fn answer_budget(&self) -> &AnswerBudget {
        &self.0.answer_budget
    }

    /// What the node is.
    pub async fn info(&self) -> Result<Info, Error> {
        let info: Info = self.0.get("/v1/info").await?;
        info.checked().map_err(malformed)
    }

    /// Starts the node's program again, in its process, and waits until it answers. Returns `false` if the
    /// node cannot do that.
    pub async fn renew(&self, within: Duration) -> Result<bool, Error> {
        let deadline = Instant::now() + within;
        let before = self.info().await?.instance;
        if before.is_none() {
            return Ok(false);
        }
        match self.0.put("/v1/renew", None).await {
            Err(Error::NotFound) => return Ok(false),
            answer => answer?,
        };
        loop {
            match self.info().await {
                Ok(info) if info.instance != before => return Ok(true),
                // Until it ends, the old program answers.
                Ok(_) | Err(Error::Unreachable(_)) if Instant::now() < deadline => {
                    sleep(BUSY_PAUSE).await;
                }
                Ok(_) => return Err(Error::Unreachable("the program did not start again".into())),
                Err(error) => return Err(error),
            }
        }
    }

    /// Its metrics, as a scraper sees them. Not retried.
    pub async fn metrics(&self) -> Result<String, Error> {
        self.0.metrics().await
    }

    /// The node's clock. Not retried: the answer is worth nothing without its round-trip time.
    pub async fn clock(&self) -> Result<Clock, Error> {
        let answer = self.0.send(Method::Get, "/v1/clock", None, CALL_TIMEOUT).await;
        read(&answer?)
    }

    /// Prepares a trial.
    pub async fn prepare(&self, id: &str, request: &TrialRequest) -> Result<Prepared, Error> {
        let path = format!("/v1/trials/{id}");
        match self.0.put(&path, Some(json(request))).await?.status {
            201 => Ok(Prepared::New),
            _ => Ok(Prepared::Known),
        }
    }

    /// Sends a client the time to begin.
    pub async fn start(&self, id: &str, start: Start) -> Result<(), Error> {
        let path = format!("/v1/trials/{id}/start");
        self.0.put(&path, Some(json(&start))).await.map(drop)
    }

    /// Requests a server to finish, because nothing more will come.
    pub async fn finish(&self, id: &str) -> Result<(), Error> {
        let path = format!("/v1/trials/{id}/finish");
        self.0.put(&path, None).await.map(drop)
    }

    /// The status of a trial, without waiting.
    pub async fn status(&self, id: &str) -> Result<TrialStatus, Error> {
        self.0.status(&format!("/v1/trials/{id}"), Duration::ZERO).await
    }

    /// What is known of a trial as soon as it is past a state, or after `wait` if it is not by then.
    pub async fn status_after(
        &self,
        id: &str,
        after: TrialState,
        wait: Duration,
    ) -> Result<TrialStatus, Error> {
        let path = format!("/v1/trials/{id}?wait={}&after={after}", wait.as_secs_f64());
        self.0.status(&path, wait).await
    }

    /// Cancels a trial in progress, and forgets one that has ended.
    pub async fn delete(&self, id: &str) -> Result<(), Error> {
        let (method, path) = (Method::Delete, format!("/v1/trials/{id}"));
        self.0.call(method, &path, None, Duration::ZERO).await.map(drop)
    }
}

impl Caller {
    fn over(requester: Arc<dyn Requester>, retry_for: Duration) -> Self {
        Self {
            requester,
            retry_for,
            epoch: None,
            answer_budget: AnswerBudget::default(),
        }
    }

    async fn metrics(&self) -> Result<String, Error> {
        let answer = self.send(Method::Get, "/metrics", None, METRICS_TIMEOUT).await?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// One call, not retried.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Response, Error> {
        let request = Request {
            method,
            path,
            body,
            epoch: self.epoch.as_ref().map_or(0, Epoch::number),
            timeout,
            most_bytes: most_bytes(path),
            answer_budget: self.answer_budget.clone(),
        };
        let most = request.most_bytes;
        let answer = self.requester.request(request).await;
        let answer = answer.map_err(|error| match error.is::<LengthLimitError>() {
            true => Error::TooLong(most),
            false => Error::Unreachable(error),
        })?;
        let status = answer.status;
        // Without the answer, which takes room.
        let answer = check_status(answer);
        if let (412, Some(epoch)) = (status, &self.epoch) {
            epoch.mark_superseded();
            // Waits until this conductor has been stopped: it must not act on an answer that is not about the
            // trial.
            sleep(CALL_TIMEOUT).await;
        }
        answer
    }

    /// The status of a trial, within its bounds.
    async fn status(&self, path: &str, wait: Duration) -> Result<TrialStatus, Error> {
        status_of(&self.call(Method::Get, path, None, wait).await?.body)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        read(&self.call(Method::Get, path, None, Duration::ZERO).await?)
    }

    async fn put(&self, path: &str, body: Option<Vec<u8>>) -> Result<Response, Error> {
        self.call(Method::Put, path, body, Duration::ZERO).await
    }

    /// One call, retried for [`Caller::retry_for`] while the node cannot be reached.
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        wait: Duration,
    ) -> Result<Response, Error> {
        let timeout = CALL_TIMEOUT + wait;
        let mut pause = RETRY_PAUSE;
        let (mut give_up, mut waits) = (None, 0);
        loop {
            let sent = Instant::now();
            let answer = self.send(method, path, body.clone(), timeout).await;
            let Err(Error::Unreachable(error)) = answer else {
                return answer;
            };
            if error.is::<FailedAfterWait>() && waits < WAITS_MAX {
                waits += 1;
                continue;
            }
            let give_up = *give_up.get_or_insert_with(|| Instant::now() + self.retry_for);
            // A node that let the whole timeout pass has had enough time.
            if sent.elapsed() >= timeout || Instant::now() + pause >= give_up {
                return Err(Error::Unreachable(error));
            }
            tracing::debug!(method = method.as_ref(), path, %error, "the call is retried");
            sleep(pause).await;
            pause *= 2;
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

/// Most bytes of the answer to a call. The status of a trial has samples and distributions, and that of a
/// link counts for each peer. What a node says of itself is kept for the whole run, and is a few KiB.
fn most_bytes(path: &str) -> usize {
    match path {
        path if path.starts_with("/v1/trials/") => 8 << 20,
        "/metrics" => 4 << 20,
        path if path.starts_with("/v1/link") => 1 << 20,
        _ => 16 << 10,
    }
}

/// Returns a successful answer; the status of any other one says which error it is.
fn check_status(response: Response) -> Result<Response, Error> {
    let problem = || {
        serde_json::from_slice::<Problem>(&response.body).unwrap_or_else(|_| Problem {
            message: String::from_utf8_lossy(&response.body)
                .chars()
                .take(200)
                .collect(),
            trial: None,
        })
    };
    let message = || text::message(&problem().message);
    match response.status {
        200..=299 => Ok(response),
        401 => Err(Error::Unauthorized),
        404 => Err(Error::NotFound),
        409 => Err(Error::Conflict(message())),
        status @ 423 => Err(match problem().trial {
            Some(trial) => Error::Busy(text::message(&trial)),
            None => Error::Refused {
                status,
                message: message(),
            },
        }),
        // What a proxy says when it did not reach the node; the node itself never does.
        status @ 502..=504 => Err(Error::Unreachable(
            format!("status {status}: {}", message()).into(),
        )),
        status => Err(Error::Refused {
            status,
            message: message(),
        }),
    }
}

/// The status in an answer, which any program may have written.
///
/// # Errors
///
/// If it is not JSON of a status, or exceeds a bound of [`perfrun_contract::node::bounds`].
pub fn status_of(answer: &[u8]) -> Result<TrialStatus, Error> {
    let status = newer::of_nodes(|| serde_json::from_slice::<TrialStatus>(answer));
    let status = status.map_err(Error::Malformed)?;
    status.checked().map_err(malformed)
}

fn malformed(why: impl fmt::Display) -> Error {
    Error::Malformed(serde_json::Error::custom(why))
}

fn read<T: DeserializeOwned>(response: &Response) -> Result<T, Error> {
    serde_json::from_slice(&response.body).map_err(Error::Malformed)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("requests have text keys only, so that they are always JSON")
}
