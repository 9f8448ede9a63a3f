//! A whole run: every trial of the plan in order, resuming, limits.

mod next;
mod nodes;
mod suitability;

use std::{collections::BTreeMap, mem, time::Duration};

use perfrun_contract::{
    network::NetworkImpairments,
    node::{Info, Reason},
    plan::{Iteration, Plan, Renew, Trial},
    record::{LinkCheck, TrialFailure, TrialRecord},
    run::{RunState, RunTimeouts},
    tally::EndReason,
};
use perfrun_judge::{Needs, needs};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::next::ATTEMPTS;
use self::next::{NextAttempt, Progress};
use crate::{
    attempt::{Attempt, Node, RunId},
    clock::LocalClock,
    links::{CountingAgents, Links, LinksNotReady},
    progress::{Event, OnEvent},
    record::add_disturbance,
    traits::{Durability, NodeHandle, NodeProvider, RecordSink, ReplaceReason},
    trial::{self, AttemptEnd, Leftover},
};

/// How often links are prepared when an agent restarted in the meantime.
const PREPARE_ATTEMPTS: u32 = 2;

/// How long nodes may take, at the end, to forget the last trial.
const FORGET_TIMEOUT: Duration = Duration::from_secs(2);

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The run's name at its nodes.
    pub run_id: RunId,
    /// How long things may take.
    pub timeouts: RunTimeouts,
    /// How long ago the run started.
    pub elapsed: Duration,
    /// How often progress of a trial is reported.
    pub progress_interval: Duration,
}

impl RunOptions {
    /// A run that starts now.
    pub fn new(timeouts: RunTimeouts) -> Self {
        Self {
            run_id: RunId::random(),
            timeouts,
            elapsed: Duration::ZERO,
            progress_interval: Duration::from_secs(1),
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEnd {
    /// Whether every trial was run.
    pub state: RunState,
    /// Why not, for programs. `None` if the run was stopped on request.
    pub reason: Option<EndReason>,
    /// Why not, for people.
    pub message: Option<String>,
    /// What each node reported about itself.
    pub nodes: BTreeMap<String, Info>,
}

impl RunEnd {
    /// The end of a run before any of its nodes was ready.
    pub fn without_nodes(state: RunState) -> Self {
        Self {
            state,
            reason: None,
            message: None,
            nodes: BTreeMap::new(),
        }
    }

    /// The end of a run that failed without its nodes.
    pub fn failed(reason: EndReason, message: String) -> Self {
        Self {
            reason: Some(reason),
            message: Some(message),
            ..Self::without_nodes(RunState::Failed)
        }
    }
}

/// Everything that a run needs besides its nodes.
pub struct Conductor<'a> {
    /// What to run.
    pub plan: &'a Plan,
    /// Settings.
    pub options: RunOptions,
    /// Keeps records.
    pub sink: &'a mut dyn RecordSink,
    /// Replaces lost nodes, and all nodes where the plan requests new ones in each iteration.
    pub provider: &'a dyn NodeProvider,
    /// Watches.
    pub on_event: &'a OnEvent<'a>,
    /// Stops the run: the trial in progress is cancelled, and not recorded.
    pub cancel: CancellationToken,
}

/// Why a run ends early.
enum Stop {
    Interrupted,
    Failed(EndReason, String),
}

impl Conductor<'_> {
    /// Runs the plan over nodes that are ready, given by the names that the plan has for them.
    pub async fn run(self, nodes: BTreeMap<String, NodeHandle>) -> RunEnd {
        let limit = self.options.timeouts.run;
        let earlier = self.sink.records().iter().map(|record| record.session);
        let mut session = Session {
            number: earlier.max().map_or(0, |last| last + 1),
            began: Instant::now(),
            clock: LocalClock::new(),
            nodes: BTreeMap::new(),
            links: Links::new(self.plan),
            takes_over: true,
            stop: self.cancel.child_token(),
            leftovers: vec![],
            forgetting: TaskTracker::new(),
            conductor: self,
        };
        let stop = session.stop.clone();
        let deadline = session.began + limit.saturating_sub(session.conductor.options.elapsed);
        let ended = {
            let work = session.run_plan(nodes);
            tokio::pin!(work);
            tokio::select! {
                ended = &mut work => ended,
                () = sleep_until(deadline) => {
                    stop.cancel();
                    work.await
                }
            }
        };
        session.forgetting.close();
        if timeout(FORGET_TIMEOUT, session.forgetting.wait()).await.is_err() {
            tracing::debug!("nodes keep the last trial");
        }
        let (state, failure) = match ended {
            Ok(()) => (RunState::Complete, None),
            Err(Stop::Interrupted) if session.conductor.cancel.is_cancelled() => {
                (RunState::Interrupted, None)
            }
            Err(Stop::Interrupted) => (
                RunState::Failed,
                Some((
                    EndReason::RunTimeout,
                    format!("not done within timeouts.run, {limit:?}"),
                )),
            ),
            Err(Stop::Failed(reason, message)) => (RunState::Failed, Some((reason, message))),
        };
        let (reason, message) = failure.unzip();
        let nodes = session
            .nodes
            .into_iter()
            .map(|(name, node)| (name, node.info))
            .collect();
        RunEnd {
            state,
            reason,
            message,
            nodes,
        }
    }
}

/// A run in progress.
struct Session<'a> {
    conductor: Conductor<'a>,
    /// How many sessions of this run were before.
    number: u32,
    began: Instant,
    clock: LocalClock,
    nodes: BTreeMap<String, Node>,
    links: Links<'a>,
    /// Whether nodes may still have trials that an earlier session of this run began. True until the first
    /// trial that no earlier session began.
    takes_over: bool,
    /// Set on request, and when the run takes too long.
    stop: CancellationToken,
    /// What nodes have of trials whose records are not crash-safe yet.
    leftovers: Vec<Leftover>,
    /// Requests to forget that are in progress; nothing waits for them until the end.
    forgetting: TaskTracker,
}

impl Session<'_> {
    async fn run_plan(&mut self, nodes: BTreeMap<String, NodeHandle>) -> Result<(), Stop> {
        let plan = self.conductor.plan;
        self.connect_nodes(nodes).await?;
        let mut progress = Progress::of(plan);
        let already = self.conductor.sink.records();
        already.iter().for_each(|record| progress.add_earlier(record));
        (self.conductor.on_event)(Event::RunStarted {
            trials: plan.trials.len(),
            ended: progress.ended(),
        });
        let mut iteration = None;
        for block in progress.blocks() {
            if progress.begin_check_if_due(block) {
                self.run_interim_check(&mut progress);
            }
            while let Some(next) = progress.next(block) {
                self.begin_iteration(&mut iteration, next.trial).await?;
                self.attempt(next, &mut progress).await?;
            }
        }
        Ok(())
    }

    /// Leaves out what the records so far show not to be needed, and sends an event if that has changed.
    fn run_interim_check(&mut self, progress: &mut Progress<'_>) {
        let Conductor {
            plan, sink, on_event, ..
        } = &mut self.conductor;
        let Needs {
            iterations,
            not_needed,
        } = needs(plan, sink.records());
        let is_new = progress.limit(iterations);
        if let (Some(not_needed), true) = (not_needed, is_new) {
            sink.leave_out(not_needed);
            on_event(Event::NotNeeded { not_needed });
        }
    }

    /// Starts all nodes again if a trial begins another iteration than the last one, and the plan requests
    /// that. The first iteration of a session finds nodes that are new.
    async fn begin_iteration(&mut self, last: &mut Option<Iteration>, trial: &Trial) -> Result<(), Stop> {
        let iteration = Iteration::of(trial);
        let is_another = last.replace(iteration).is_some_and(|last| last != iteration);
        if is_another && self.conductor.plan.renew == Renew::Iteration {
            let all = self.nodes.keys().cloned().collect();
            self.replace(&all, ReplaceReason::Renewed).await?;
        }
        Ok(())
    }

    /// Runs a trial once, and adds it to the progress of the run.
    async fn attempt(&mut self, next: NextAttempt<'_>, progress: &mut Progress<'_>) -> Result<(), Stop> {
        let Conductor { plan, options, .. } = &self.conductor;
        let NextAttempt {
            trial,
            attempt,
            after_loss,
        } = next;
        let cell = plan.cells.get(trial.cell).ok_or_else(|| {
            Stop::Failed(
                EndReason::Internal,
                format!("the plan has no cell {} for trial {}", trial.cell, trial.id),
            )
        })?;
        let network = plan.network(&cell.network);
        let attempt = Attempt {
            run_id: options.run_id.clone(),
            trial,
            cell,
            number: attempt,
            after_loss,
            session: self.number,
            timeout: options.timeouts.trial + cell.parameters.duration(),
            round_trip: network.map_or(Duration::ZERO, NetworkImpairments::round_trip),
            rate: network.and_then(NetworkImpairments::rate),
            at: options.elapsed + self.began.elapsed(),
            progress_interval: options.progress_interval,
        };
        if self.stop.is_cancelled() {
            return Err(Stop::Interrupted);
        }
        let AttemptEnd::Recorded {
            mut record,
            lost,
            leftover,
            permits: _permits,
        } = self.measure(attempt).await
        else {
            return Err(Stop::Interrupted);
        };
        explain(&mut record, self.conductor.provider).await;
        let durability = self.conductor.sink.record(&record).await.map_err(|error| {
            Stop::Failed(
                EndReason::RecordNotKept,
                format!("failed to keep the record of trial {}: {error}", trial.id),
            )
        })?;
        self.leftovers.push(leftover);
        if durability == Durability::CrashSafe {
            // One after the other: there may be hundreds, and a node has a limited number of connections.
            let leftovers = mem::take(&mut self.leftovers);
            self.forgetting.spawn(async move {
                for leftover in leftovers {
                    leftover.forget().await;
                }
            });
        }
        (self.conductor.on_event)(Event::TrialEnded { record: &record });
        self.replace(&lost, ReplaceReason::Lost).await?;
        let is_lost = |failure: &TrialFailure| failure.reason == Reason::NodeLost;
        let was_lost = !lost.is_empty() || record.failure.as_ref().is_some_and(is_lost);
        progress.add(&record, was_lost);
        Ok(())
    }

    /// Runs a trial over links that are as it needs them.
    async fn measure(&mut self, attempt: Attempt<'_>) -> AttemptEnd {
        let Attempt {
            trial, cell, number, ..
        } = attempt;
        let stop = self.stop.clone();
        let prepared = tokio::select! {
            prepared = self.prepare_links(&attempt) => prepared,
            () = stop.cancelled() => return AttemptEnd::Interrupted,
        };
        let (check, counting) = match prepared {
            Ok(prepared) => prepared,
            Err(not_ready) => return trial::not_run(&attempt, not_ready),
        };
        let on_event = self.conductor.on_event;
        on_event(Event::TrialStarted {
            trial,
            cell,
            attempt: number,
        });
        let mut ended = trial::run(attempt, &mut self.nodes, self.clock, on_event, &stop).await;
        if let AttemptEnd::Recorded { record, lost, .. } = &mut ended {
            record.links = check;
            lost.append(&mut self.links.add_packet_counts(record, &counting).await);
            let infos = self.nodes.iter().map(|(name, node)| (name.as_str(), &node.info));
            add_disturbance(record, &infos.collect());
        }
        ended
    }

    /// Sets and measures links, unless they are as the trial needs them, and begins to count what happens to
    /// its packets.
    async fn prepare_links(
        &mut self,
        attempt: &Attempt<'_>,
    ) -> Result<(Option<LinkCheck>, CountingAgents), LinksNotReady> {
        let Attempt { trial, cell, .. } = attempt;
        let names: Vec<&String> = cell.nodes().collect();
        if self.conductor.plan.networks.is_empty() {
            return Ok((None, CountingAgents::default()));
        }
        if self.takes_over {
            if let Some(counting) = self.take_over(attempt, &names).await {
                return Ok((None, counting));
            }
            self.takes_over = false;
            self.links.invalidate();
        }
        let on_event = self.conductor.on_event;
        for _ in 0..PREPARE_ATTEMPTS {
            let prepared = self.links.prepare(trial, &cell.network, on_event).await?;
            if let Some(counting) = self.links.count(trial, &names).await? {
                return Ok((prepared, counting));
            }
        }
        Err(LinksNotReady::unstable())
    }

    /// Takes over a trial that an earlier session of this run began, over links that the session had
    /// measured. Links are not changed before the last of those trials has ended. `None` if this trial has
    /// not begun.
    async fn take_over(&mut self, attempt: &Attempt<'_>, names: &[&String]) -> Option<CountingAgents> {
        match trial::known_state(attempt, &self.nodes).await {
            trial::KnownState::Nothing => None,
            // If its links count packets now, they are those of a later trial.
            trial::KnownState::Ended => Some(CountingAgents::default()),
            trial::KnownState::Begun => {
                if self.links.take_over(attempt.trial, &attempt.cell.network).await {
                    return Some(CountingAgents::taken_over(names));
                }
                trial::forget(attempt, &self.nodes).await;
                None
            }
        }
    }
}

/// Adds to a failure how the lost node has ended: all that the conductor saw is a broken connection.
async fn explain(record: &mut TrialRecord, provider: &dyn NodeProvider) {
    if let Some(failure) = &mut record.failure
        && failure.reason == Reason::NodeLost
        && let Some(node) = &failure.node
        && let Some(end) = provider.describe_end(node).await
    {
        failure.message += &format!("; {end}");
    }
}
