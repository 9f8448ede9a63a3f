//! Following a run until it ends, even if the API server is unavailable for a while.

use std::{future::Future, time::Duration};

use anyhow::bail;
use backon::{ExponentialBuilder, Retryable};
use futures::StreamExt;
use kube::{ResourceExt, runtime::watcher::watch_object};
use perfrun_api::{planning::draft, spec::PerfRun};
use perfrun_contract::run::Phase;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    access::{Cluster, MaybeRun},
    error::Error,
    find::{self, readable},
    status::{StatusSummary, changes, progress},
};
use crate::ui::Screen;

/// An operator that runs has set the status of a new run by then.
const UNSEEN_TIMEOUT: Duration = Duration::from_secs(15);

/// For a while, an API server that starts refuses valid credentials and does not know CRDs.
const STARTING_TIMEOUT: Duration = Duration::from_secs(60);

/// Pauses between two calls to a server that does not answer.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How following ended.
pub(super) enum Followed {
    Ended(Box<PerfRun>),
    Deleted,
    /// The user has stopped following.
    Stopped,
}

/// A display for the progress of a run.
pub(super) fn screen(run: &PerfRun, quiet: bool) -> Screen {
    // A run without a plan has no trials, and ends soon.
    let trials = draft(&run.spec).map_or(0, |plan| plan.trials.len());
    Screen::new(quiet, trials as u64)
}

/// Shows the progress of a run until it ends.
pub(super) async fn follow(
    cluster: &Cluster,
    run: &PerfRun,
    screen: &Screen,
    stop: &CancellationToken,
) -> anyhow::Result<Followed> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(Followed::Stopped),
        followed = to_the_end(cluster, run, screen) => followed,
    }
}

async fn to_the_end(cluster: &Cluster, run: &PerfRun, screen: &Screen) -> anyhow::Result<Followed> {
    let name = run.name_any();
    let mut display = Display {
        screen,
        status: StatusSummary::default(),
    };
    screen.start(u64::from(StatusSummary::of(run).ended_trials()));
    let unseen_until = Instant::now() + UNSEEN_TIMEOUT;
    let mut is_waiting = true;
    let watch = || watch_object(cluster.maybe_runs(), &name).boxed();
    let mut events = watch();
    loop {
        let event = if is_waiting {
            match timeout_at(unseen_until, events.next()).await {
                Ok(event) => event,
                Err(_) => {
                    is_waiting = false;
                    if display.status.phase.is_none() {
                        screen.print_line(&unseen(cluster, &name));
                    }
                    continue;
                }
            }
        } else {
            events.next().await
        };
        let observed = match event {
            Some(Ok(observed)) => observed,
            // A watch ends for many reasons; what matters is whether the run can be read. Where watching is
            // not allowed, this amounts to polling.
            Some(Err(error)) => {
                tracing::debug!(%error, "the watch ended");
                sleep(FIRST_PAUSE).await;
                let observed = retry_until_answered(Some(screen), || find::get(cluster, &name)).await?;
                // The old watch would continue with events from before.
                events = watch();
                observed
            }
            None => bail!("failed to watch perfrun/{name}: the client stopped; try again"),
        };
        let Some(now) = if_same_run(run, observed) else {
            return Ok(Followed::Deleted);
        };
        let now = readable(now)?;
        if display.update(&now) {
            return Ok(Followed::Ended(Box::new(now)));
        }
    }
}

/// What was observed, if it is of this run. A run of the same name that was created later is another run.
fn if_same_run(run: &PerfRun, observed: Option<MaybeRun>) -> Option<MaybeRun> {
    observed.filter(|observed| run.uid().is_none() || observed.uid() == run.uid())
}

fn unseen(cluster: &Cluster, name: &str) -> String {
    format!(
        "no operator has reconciled perfrun/{name} yet: check that one is running and watches namespace {}",
        cluster.namespace()
    )
}

/// What the user has been shown of a run.
struct Display<'a> {
    screen: &'a Screen,
    status: StatusSummary,
}

impl Display<'_> {
    /// Shows what is new. Returns whether the run has ended.
    fn update(&mut self, run: &PerfRun) -> bool {
        let now = StatusSummary::of(run);
        let lines = changes(&self.status, &now);
        lines.iter().for_each(|line| self.screen.print_unless_quiet(line));
        if self.screen.is_lines()
            && let Some(line) = progress(&self.status, &now)
            && lines.is_empty()
        {
            self.screen.print_unless_quiet(&line);
        }
        let ended = now.ended_trials().into();
        if now.phase == Some(Phase::Running) && self.status.phase != now.phase {
            // The time spent waiting must not count in the estimate for its trials.
            self.screen.start(ended);
        }
        if now.trials.not_needed > 0 {
            self.screen.expect(now.needed_trials().into());
        }
        self.screen.advance(ended);
        self.screen.show(now.line());
        self.status = now;
        self.status.has_ended
    }
}

/// Repeats a call until it is answered. Tells the listener when a first attempt fails, and when the cluster
/// answers again.
pub(super) async fn retry_until_answered<T, A>(
    listener: Option<&Screen>,
    call: impl FnMut() -> A,
) -> anyhow::Result<T>
where
    A: Future<Output = Result<T, Error>>,
{
    let backoff = ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(PAUSE_MAX)
        .without_max_times();
    let mut last_outage: Option<Instant> = None;
    let mut is_announced = false;
    let answer = call
        .retry(backoff)
        .when(|error: &Error| {
            if error.is_temporary() {
                last_outage = Some(Instant::now());
                return true;
            }
            last_outage.is_some_and(|outage| outage.elapsed() < STARTING_TIMEOUT)
        })
        .notify(|error, _| {
            if let (Some(screen), false) = (listener, is_announced) {
                screen.print_line(&format!("{}; trying again until it answers", error.brief()));
            }
            is_announced = true;
        })
        .await?;
    if let (Some(screen), true) = (listener, is_announced) {
        screen.print_line("the cluster answers again");
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn unreachable() -> Error {
        Error::Unreachable {
            url: "https://lab:6443/".into(),
            cause: "Connection refused".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_an_hour_is_waited_for() {
        let begun = Instant::now();
        let answer = retry_until_answered(None, || async {
            match begun.elapsed() {
                elapsed if elapsed < Duration::from_secs(3600) => Err(unreachable()),
                _ => Ok(7),
            }
        });
        assert_eq!(answer.await.unwrap(), 7);
        assert!(begun.elapsed() < Duration::from_secs(3620));
    }

    #[tokio::test(start_paused = true)]
    async fn a_permanent_error_is_not_retried() {
        let calls = Cell::new(0);
        let answer = retry_until_answered(None, || async {
            calls.set(calls.get() + 1);
            Err::<(), _>(Error::CrdMissing)
        });
        assert!(answer.await.is_err());
        assert_eq!(calls.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_starting_server_may_refuse_only_for_a_while() {
        let calls = Cell::new(0);
        let call = |refusals: u32| {
            let calls = &calls;
            move || async move {
                calls.set(calls.get() + 1);
                match calls.get() {
                    ..500 => Err(unreachable()),
                    count if count < 500 + refusals => Err(Error::CrdMissing),
                    _ => Ok(()),
                }
            }
        };
        assert!(retry_until_answered(None, call(4)).await.is_ok());
        calls.set(0);
        assert!(retry_until_answered(None, call(1000)).await.is_err());
    }
}
