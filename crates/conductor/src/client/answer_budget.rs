//! How much of the answers to its calls one process reads at the same time.
//!
//! The author of a run chooses the programs of its nodes, and may have hundreds of them. Each answer has a
//! bound of its own. Here is the bound of all that are read and parsed together.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use thiserror::Error;
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::{BoxError, Response};

/// What is read of any answer: more than a node says during a trial.
const SMALL_BYTES: usize = 2 << 10;

/// Room for the rest of longer answers, until they have been parsed: two of the longest.
const ROOM_BYTES: usize = 16 << 20;

/// Room for the outcomes of all runs until they are recorded.
const SHARED_OUTCOMES_MAX: usize = 24 << 20;
/// How much of that one run may have: half, so that as much is left to others.
const OUTCOMES_OF_RUN_BYTES: usize = 12 << 20;

/// How long the rest of an answer may take. It keeps others waiting.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// After this wait for room, a node may have ended the connection: perfrun's nodes do if nothing is read for
/// 30 seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Room for answers that are longer than what a node says during a trial. The default is without a bound.
/// Clones share the room.
#[derive(Clone, Debug, Default)]
pub struct AnswerBudget(Option<Room>);

#[derive(Clone, Debug)]
struct Room {
    /// Bytes of all runs.
    bytes: Arc<Semaphore>,
    /// The one long answer of the run: its other nodes must not fill the queue before those of other runs.
    of_run: Arc<Semaphore>,
    outcomes: Arc<Semaphore>,
    outcomes_of_run: Arc<Semaphore>,
}

/// An answer could not be read after it had waited for room. The node is not at fault, and answers again.
#[derive(Debug, Error)]
#[error("failed to read an answer that has waited for others")]
pub(super) struct FailedAfterWait(#[source] BoxError);

/// The room that an outcome takes until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct OutcomePermit {
    _room: Option<[OwnedSemaphorePermit; 2]>,
}

/// The room that an answer takes until it is dropped.
#[derive(Debug)]
pub(super) struct AnswerPermit {
    _of_run: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl AnswerBudget {
    /// The room of a process.
    pub fn of_process() -> Self {
        Self(Some(Room {
            bytes: Arc::new(Semaphore::new(ROOM_BYTES)),
            of_run: Arc::new(Semaphore::new(1)),
            outcomes: Arc::new(Semaphore::new(SHARED_OUTCOMES_MAX)),
            outcomes_of_run: Arc::new(Semaphore::new(OUTCOMES_OF_RUN_BYTES)),
        }))
    }

    /// The same room, for the calls of one run. It reads one long answer at a time.
    #[must_use]
    pub fn of_run(&self) -> Self {
        let room = self.0.as_ref();
        Self(room.map(|room| Room {
            bytes: room.bytes.clone(),
            of_run: Arc::new(Semaphore::new(1)),
            outcomes: room.outcomes.clone(),
            outcomes_of_run: Arc::new(Semaphore::new(OUTCOMES_OF_RUN_BYTES)),
        }))
    }

    /// Room for an outcome. `None` if there is too little now. Nobody waits for it: trials last for hours.
    pub(crate) fn reserve_outcome(&self, bytes: usize) -> Option<OutcomePermit> {
        let Some(room) = &self.0 else {
            return Some(OutcomePermit::default());
        };
        let bytes = u32::try_from(bytes).ok()?;
        let take = |room: &Arc<Semaphore>| room.clone().try_acquire_many_owned(bytes).ok();
        Some(OutcomePermit {
            _room: Some([take(&room.outcomes_of_run)?, take(&room.outcomes)?]),
        })
    }

    /// Waits for the answer to a call, and reads its body. The time of the call does not pass while a long
    /// answer waits for room.
    ///
    /// # Errors
    ///
    /// If no answer arrives in time, or its body is longer than `most` bytes or cannot be read.
    pub async fn read_answer<B>(
        &self,
        within: Duration,
        most: usize,
        call: impl Future<Output = Result<http::Response<B>, BoxError>>,
    ) -> Result<Response, BoxError>
    where
        B: Body,
        B::Data: AsRef<[u8]>,
        B::Error: Into<BoxError>,
    {
        let deadline = Instant::now() + within;
        let (head, body) = timeout_at(deadline, call).await??.into_parts();
        let mut body = pin!(Limited::new(body, most));
        let mut answer = Response::new(head.status.as_u16(), vec![]);
        let at_once = self.0.as_ref().map_or(usize::MAX, |_| SMALL_BYTES);
        let begin = read(body.as_mut(), &mut answer.body, at_once);
        let has_ended = timeout_at(deadline, begin).await??;
        if !has_ended && let Some(room) = &self.0 {
            let rest = body
                .size_hint()
                .upper()
                .and_then(|bytes| usize::try_from(bytes).ok());
            let rest = rest.unwrap_or(most);
            let began = Instant::now();
            answer.permit = Some(room.reserve_answer(answer.body.len() + rest).await?);
            let has_waited = began.elapsed() >= PATIENCE;
            // A buffer that grows as needed would take up to twice that.
            answer.body.reserve_exact(rest);
            let end = timeout(READ_TIMEOUT, read(body, &mut answer.body, usize::MAX)).await?;
            end.map_err(|error| match has_waited && !error.is::<LengthLimitError>() {
                true => BoxError::from(FailedAfterWait(error)),
                false => error,
            })?;
        }
        Ok(answer)
    }
}

impl Room {
    async fn reserve_answer(&self, bytes: usize) -> Result<AnswerPermit, AcquireError> {
        // In this order: who waits for bytes is the only one of its run.
        let of_run = self.of_run.clone().acquire_owned().await?;
        let bytes = u32::try_from(bytes.min(ROOM_BYTES)).unwrap_or(u32::MAX);
        Ok(AnswerPermit {
            _of_run: of_run,
            _bytes: self.bytes.clone().acquire_many_owned(bytes).await?,
        })
    }
}

/// Reads on until there are more than `until` bytes. Returns whether the body has ended.
async fn read<B>(mut body: Pin<&mut B>, bytes: &mut Vec<u8>, until: usize) -> Result<bool, BoxError>
where
    B: Body<Error = BoxError>,
    B::Data: AsRef<[u8]>,
{
    while bytes.len() <= until {
        let Some(frame) = body.frame().await else {
            return Ok(true);
        };
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(data.as_ref());
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use futures::{
        StreamExt,
        future::{join, join_all},
        stream,
    };
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tokio::time::sleep;

    use super::*;
    use crate::{
        NodeHandle,
        client::{NodeClient, Request, Requester},
    };

    static CHUNK: [u8; 4096] = [b' '; 4096];

    /// Reads an answer of some chunks, of unknown length, which may not end. Counts the second chunk.
    async fn answered(
        answer_budget: &AnswerBudget,
        chunks: usize,
        ends: bool,
        begun: &AtomicUsize,
    ) -> Result<Response, BoxError> {
        let chunks = stream::iter(0..chunks).map(|i| {
            begun.fetch_add(usize::from(i == 1), Ordering::Relaxed);
            Ok::<_, BoxError>(Frame::data(&CHUNK[..]))
        });
        let rest = match ends {
            true => stream::empty().left_stream(),
            false => stream::pending().right_stream(),
        };
        let body = StreamBody::new(chunks.chain(rest));
        let call = async { Ok(http::Response::new(body)) };
        answer_budget
            .read_answer(Duration::from_secs(10), 8 << 20, call)
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn long_answers_of_all_runs_are_read_two_at_a_time() {
        let (process, begun) = (AnswerBudget::of_process(), AtomicUsize::new(0));
        let runs: Vec<AnswerBudget> = (0..200).map(|_| process.of_run()).collect();
        let all = join_all(runs.iter().map(|run| answered(run, 2, false, &begun)));
        assert!(timeout(READ_TIMEOUT / 2, all).await.is_err());
        assert_eq!(begun.load(Ordering::Relaxed), 2);
        // What nodes say during a trial waits for nobody.
        let small = answered(&runs[0], 0, true, &begun).await.expect("it ends");
        assert!(small.permit.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn large_answers_of_one_run_do_not_delay_those_of_another_for_long() {
        let (process, begun) = (AnswerBudget::of_process(), AtomicUsize::new(0));
        let (hostile, honest) = (process.of_run(), process.of_run());
        let began = Instant::now();
        let stalled = join_all((0..200).map(|_| answered(&hostile, 2, false, &begun)));
        tokio::select! {
            biased;
            _ = stalled => panic!("one is given up after the other"),
            answer = answered(&honest, 2000, true, &begun) => {
                assert_eq!(answer.expect("it ends").body.len(), 2000 * CHUNK.len());
            }
        }
        assert!(began.elapsed() <= READ_TIMEOUT, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_taken_until_an_answer_is_dropped() {
        let (run, begun) = (AnswerBudget::of_process(), AtomicUsize::new(0));
        let first = answered(&run, 2, true, &begun).await.expect("it ends");
        let hour = Duration::from_secs(3600);
        assert!(timeout(hour, answered(&run, 2, true, &begun)).await.is_err());
        drop(first);
        answered(&run, 2, true, &begun)
            .await
            .expect("there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_answer_that_stalls_is_given_up() {
        let (run, begun) = (AnswerBudget::of_process(), AtomicUsize::new(0));
        let began = Instant::now();
        answered(&run, 2, false, &begun).await.expect_err("it never ends");
        assert!(began.elapsed() < 2 * READ_TIMEOUT, "{:?}", began.elapsed());
    }

    /// Counts requests for a status, and ends an answer that is not read within 30 seconds.
    struct Impatient(Arc<AtomicUsize>);

    #[async_trait]
    impl Requester for Impatient {
        async fn request(&self, request: Request<'_>) -> Result<Response, BoxError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let asked = Instant::now();
            let begin = stream::iter([Ok::<_, BoxError>(Frame::data(&CHUNK[..]))]);
            let rest = stream::once(async move {
                match asked.elapsed() < Duration::from_secs(30) {
                    true => Ok(Frame::data(
                        &br#"{"bytesReceived":0,"bytesSent":0,"state":"ready"}"#[..],
                    )),
                    false => Err("the connection was reset".into()),
                }
            });
            let body = StreamBody::new(begin.chain(rest));
            let call = async { Ok(http::Response::new(body)) };
            let answer_budget = &request.answer_budget;
            answer_budget
                .read_answer(request.timeout, request.most_bytes, call)
                .await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_a_node_has_given_up_while_others_were_read_is_requested_again() {
        let (run, begun) = (AnswerBudget::of_process(), AtomicUsize::new(0));
        let requests = Arc::new(AtomicUsize::new(0));
        let node = NodeClient::over(Arc::new(Impatient(requests.clone())));
        let client = NodeHandle::from(node).with_answer_budget(&run).node;
        let other = answered(&run, 2, true, &begun).await.expect("it ends");
        let later = async {
            sleep(Duration::from_secs(60)).await;
            drop(other);
        };
        let (status, ()) = join(client.status("x"), later).await;
        status.expect("the node has answered again");
        assert_eq!(requests.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn without_a_bound_an_answer_has_that_of_its_call_only() {
        let (any, begun) = (AnswerBudget::default(), AtomicUsize::new(0));
        let answer = answered(&any, 2048, true, &begun).await.expect("it ends");
        assert_eq!(answer.body.len(), 8 << 20);
        let error = answered(&any, 2049, true, &begun)
            .await
            .expect_err("it is too long");
        assert!(error.is::<LengthLimitError>(), "{error}");
    }
}
