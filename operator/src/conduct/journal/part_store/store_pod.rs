//! Parts behind the run's pod that keeps results, see [`crate::store`].

use std::time::Duration;

use async_trait::async_trait;
use http_body_util::LengthLimitError;
use kube::runtime::reflector::Store;
use perfrun_api::{
    cluster::Part,
    pod::{
        CONTROL_PORT,
        store::{PARTS, PARTS_MAX, STORE_NODE, STORED_PART_BYTES},
    },
};
use perfrun_conductor::client::{AnswerBudget, BoxError, Method, Request, Response};
use perfrun_contract::{node::Problem, text};

use super::{Error, PartStore};
use crate::{
    access::{Access, PodAddress},
    api::watched::WatchedPod,
    build::RunIdentity,
    conduct::Job,
    pods::{self, ready_pod},
    process::fence::Term,
};

/// How long a call may take. The pod itself repeats requests to the store.
const CALL_TIMEOUT: Duration = Duration::from_secs(90);
/// Most bytes of a list: [`PARTS_MAX`] names of 63 letters as JSON.
const LIST_BYTES: usize = 8 << 20;
/// Most bytes of a part that is read, which is less than a store keeps, because authors choose stores.
/// Samples are most of a part that the operator writes, and it has 5 MiB if gzip makes them four times
/// smaller.
const READ_BYTES: usize = 8 << 20;
/// Most bytes of what the program answers to a write.
const MESSAGE_BYTES: usize = 64 << 10;

pub(super) struct StorePod {
    run: RunIdentity,
    pods: Store<WatchedPod>,
    access: Access,
    /// The room for answers, which are as long as an author likes.
    answer_budget: AnswerBudget,
    token: String,
    term: Term,
}

impl StorePod {
    pub(super) fn of(job: &Job) -> Self {
        Self {
            run: job.run.clone(),
            pods: job.services.pods.clone(),
            access: job.services.access.clone(),
            answer_budget: job.services.answer_budget.of_run(),
            token: job.store_token(),
            term: job.services.term.clone(),
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        most_bytes: usize,
    ) -> Result<Response, Error> {
        let pods = pods::of_run(&self.run, &self.pods);
        let ready = ready_pod(&pods, STORE_NODE);
        let (pod, ip) = ready.ok_or_else(|| temporary("the pod that keeps results is not ready"))?;
        if method != Method::Get && !self.term.is_current() {
            return Err(temporary("another operator may lead"));
        }
        let failed = |error: BoxError| temporary(&format!("failed to reach pod {}: {error}", pod.name));
        let address = PodAddress {
            namespace: &self.run.namespace,
            name: &pod.name,
            ip,
        };
        let requester = self.access.requester(&address, CONTROL_PORT, &self.token);
        let request = Request {
            method,
            path,
            body,
            epoch: self.term.epoch,
            timeout: CALL_TIMEOUT,
            most_bytes,
            answer_budget: self.answer_budget.clone(),
        };
        let answer = requester.map_err(failed)?.request(request).await;
        answer.map_err(|error| match error.is::<LengthLimitError>() {
            true => Error::TooLong(most_bytes),
            false => failed(error),
        })
    }
}

#[async_trait]
impl PartStore for StorePod {
    /// A store has room for all that is compressed together.
    fn part_bytes(&self) -> usize {
        STORED_PART_BYTES
    }

    /// An author chooses the store.
    fn is_prompt(&self) -> bool {
        false
    }

    async fn put(&self, name: &str, (_, bytes): &Part, _: Option<&str>) -> Result<bool, Error> {
        let path = format!("{PARTS}/{name}");
        let answer = self.call(Method::Put, &path, Some(bytes.clone()), MESSAGE_BYTES);
        let answer = answer.await?;
        match answer.status {
            204 => Ok(true),
            409 => Ok(false),
            _ => Err(refused(&answer)),
        }
    }

    async fn list(&self) -> Result<Vec<(String, Option<String>)>, Error> {
        let answer = self.call(Method::Get, PARTS, None, LIST_BYTES).await?;
        if answer.status != 200 {
            return Err(refused(&answer));
        }
        // A name of few bytes takes tens of them in memory. No name has a comma.
        let commas = answer.body.iter().filter(|byte| **byte == b',').count();
        if commas >= PARTS_MAX {
            return Err(Error::Store {
                message: format!(
                    "the pod that keeps results lists more than {PARTS_MAX} parts, which perfrun does not write"
                ),
                is_final: true,
            });
        }
        let names: Vec<String> = serde_json::from_slice(&answer.body)
            .map_err(|error| temporary(&format!("the pod that keeps results lists no names: {error}")))?;
        Ok(names.into_iter().map(|name| (name, None)).collect())
    }

    async fn get(&self, name: &str, most: usize) -> Result<Result<Vec<u8>, String>, Error> {
        let path = format!("{PARTS}/{name}");
        match self.call(Method::Get, &path, None, most.min(READ_BYTES)).await {
            Ok(answer) if answer.status == 200 => Ok(Ok(answer.body)),
            Ok(answer) if [404, 413].contains(&answer.status) => Ok(Err(refused(&answer).to_string())),
            Ok(answer) => Err(refused(&answer)),
            // It would be as long the next time.
            Err(error @ Error::TooLong(_)) => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }
}

/// An error that may not occur again.
fn temporary(message: &str) -> Error {
    Error::Store {
        message: message.to_owned(),
        is_final: false,
    }
}

fn refused(answer: &Response) -> Error {
    let problem: Option<Problem> = serde_json::from_slice(&answer.body).ok();
    let message = problem.map_or_else(
        || format!("status {}", answer.status),
        |problem| text::message(&problem.message),
    );
    Error::Store {
        message: format!("the store of the results answered: {message}"),
        is_final: matches!(answer.status, 401 | 413 | 422),
    }
}
