//! Watching a run to its end, through outages of the API server.

use std::{future::Future, time::Duration};

use anyhow::{anyhow, bail};
use futures::StreamExt;
use kube::{ResourceExt, runtime::watcher::watch_object};
use perfrun_api::spec::PerfRun;
use perfrun_contract::run::Phase;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    access::{Cluster, MaybeRun},
    error::Error,
    find::{look, readable},
    stage::{Stage, count, news},
};
use crate::ui::Screen;

/// An operator that is there has looked at a run by then.
const UNSEEN_LIMIT: Duration = Duration::from_secs(15);

/// An API server that starts refuses those who are allowed, and knows no CRDs, for a while.
const STARTING_LIMIT: Duration = Duration::from_secs(60);

/// Pauses between two calls of a server that does not answer.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How following ended.
pub enum Followed {
    /// The run ended.
    Ended(Box<PerfRun>),
    /// The run is no more.
    Deleted,
    /// We were told to stop.
    Left,
}

/// Tells what a run does until it ends.
pub async fn follow(
    cluster: &Cluster,
    run: &PerfRun,
    screen: &Screen,
    stop: &CancellationToken,
) -> anyhow::Result<Followed> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(Followed::Left),
        followed = to_the_end(cluster, run, screen) => followed,
    }
}

async fn to_the_end(cluster: &Cluster, run: &PerfRun, screen: &Screen) -> anyhow::Result<Followed> {
    let name = run.name_any();
    let mut told = Told {
        screen,
        stage: Stage::default(),
    };
    screen.start(u64::from(Stage::of(run).ended_trials()));
    let unseen_until = Instant::now() + UNSEEN_LIMIT;
    let mut is_waiting = true;
    let watch = || watch_object(cluster.maybe_runs(), &name).boxed();
    let mut events = watch();
    loop {
        let event = if is_waiting {
            match timeout_at(unseen_until, events.next()).await {
                Ok(event) => event,
                Err(_) => {
                    is_waiting = false;
                    if told.stage.phase.is_none() {
                        screen.say(&unseen(cluster, &name));
                    }
                    continue;
                }
            }
        } else {
            events.next().await
        };
        let seen = match event {
            Some(Ok(seen)) => seen,
            // A watch ends for many reasons; what matters is whether the run can be seen. Where watching is not
            // allowed, this amounts to asking now and then.
            Some(Err(error)) => {
                tracing::debug!(%error, "the watch ended");
                sleep(FIRST_PAUSE).await;
                let seen = patiently(Some(screen), || look(cluster, &name)).await?;
                // The old one would go on with what was before that.
                events = watch();
                seen
            }
            None => bail!("failed to watch perfrun/{name}: the client gave up; try again"),
        };
        let Some(now) = same(run, seen) else {
            return Ok(Followed::Deleted);
        };
        let now = readable(now)?;
        if told.tell(&now) {
            return Ok(Followed::Ended(Box::new(now)));
        }
    }
}

/// A run of the same name that was created later is another run.
fn same(run: &PerfRun, seen: Option<MaybeRun>) -> Option<MaybeRun> {
    seen.filter(|seen| run.uid().is_none() || seen.uid() == run.uid())
}

fn unseen(cluster: &Cluster, name: &str) -> String {
    format!(
        "no operator has looked at perfrun/{name} yet: is one running, and does it watch namespace {}?",
        cluster.namespace()
    )
}

struct Told<'a> {
    screen: &'a Screen,
    stage: Stage,
}

impl Told<'_> {
    /// Tells what is new; returns whether the run has ended.
    fn tell(&mut self, run: &PerfRun) -> bool {
        let now = Stage::of(run);
        let lines = news(&self.stage, &now);
        lines.iter().for_each(|line| self.screen.mention(line));
        if self.screen.is_lines()
            && let Some(line) = count(&self.stage, &now)
            && lines.is_empty()
        {
            self.screen.mention(&line);
        }
        let ended = now.ended_trials().into();
        if now.phase == Some(Phase::Running) && self.stage.phase != now.phase {
            // How long it waited says nothing about how long its trials take.
            self.screen.start(ended);
        }
        self.screen.advance(ended);
        self.screen.show(now.line());
        self.stage = now;
        self.stage.has_ended()
    }
}

/// Asks until there is an answer. Says so when this takes a second attempt, and when it is over, if anybody listens.
pub async fn patiently<T, A>(listener: Option<&Screen>, ask: impl Fn() -> A) -> anyhow::Result<T>
where
    A: Future<Output = Result<T, Error>>,
{
    let mut pause = FIRST_PAUSE;
    let mut away: Option<Instant> = None;
    loop {
        match ask().await {
            Ok(answer) => {
                if let (Some(screen), Some(_)) = (listener, away) {
                    screen.say("the cluster answers again");
                }
                return Ok(answer);
            }
            Err(error) if error.may_pass() => {
                if let (Some(screen), None) = (listener, away) {
                    screen.say(&format!("{}; trying again until it answers", error.brief()));
                }
                away = Some(Instant::now());
            }
            Err(_) if away.is_some_and(|away| away.elapsed() < STARTING_LIMIT) => {}
            Err(error) => return Err(anyhow!(error)),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn unreachable() -> Error {
        Error::Reach {
            url: "https://lab:6443/".into(),
            why: "Connection refused".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_an_hour_is_waited_for() {
        let begun = Instant::now();
        let answer = patiently(None, || async {
            match begun.elapsed() {
                elapsed if elapsed < Duration::from_secs(3600) => Err(unreachable()),
                _ => Ok(7),
            }
        });
        assert_eq!(answer.await.unwrap(), 7);
        assert!(begun.elapsed() < Duration::from_secs(3620));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_at_once_is_not_asked_again() {
        let asked = Cell::new(0);
        let answer = patiently(None, || async {
            asked.set(asked.get() + 1);
            Err::<(), _>(Error::Install)
        });
        assert!(answer.await.is_err());
        assert_eq!(asked.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_starts_may_refuse_for_a_while_only() {
        let asked = Cell::new(0);
        let ask = |refusals: u32| {
            let asked = &asked;
            move || async move {
                asked.set(asked.get() + 1);
                match asked.get() {
                    ..500 => Err(unreachable()),
                    count if count < 500 + refusals => Err(Error::Install),
                    _ => Ok(()),
                }
            }
        };
        assert!(patiently(None, ask(4)).await.is_ok());
        asked.set(0);
        assert!(patiently(None, ask(1000)).await.is_err());
    }
}
