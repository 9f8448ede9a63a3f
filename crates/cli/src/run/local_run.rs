//! One document that is run on this machine.

use perfrun_api::results::Results;
use perfrun_conductor::{Conductor, Event, RunEnd, RunOptions};
use perfrun_contract::{run::RunState, tally::EndReason};
use perfrun_local::{
    LocalIsolation, LocalNodes,
    nodes::{self, NodeEvent, NodeSettings, Programs},
};
use tokio_util::sync::CancellationToken;

use super::{profiler::Profiler, watchers::Watchers};
use crate::{
    args, exit_status,
    output::write_line_to_stderr,
    printing,
    profile::CallGraph,
    results_folder::ResultsFolder,
    ui::Ui,
    words::{counted, least_time, skipped, too_few_iterations, trials},
};

/// A run and everything that it needs.
pub(super) struct LocalRun<'a> {
    pub results_folder: ResultsFolder,
    pub programs: Programs,
    pub isolation: LocalIsolation,
    pub watchers: &'a Watchers,
    pub output: &'a args::Output,
    /// How to profile each cell at the end. `None` if no profile was requested.
    pub profile: Option<CallGraph>,
    /// Whether no other run follows.
    pub is_last: bool,
    pub cancel: &'a CancellationToken,
}

impl LocalRun<'_> {
    /// Runs the trials that are left, then saves and shows the results. Returns the exit status.
    pub(super) async fn run(mut self) -> anyhow::Result<u8> {
        let ui = self.announce();
        let cancel = self.cancel;
        let end = {
            let conducted = self.conduct(&ui);
            tokio::pin!(conducted);
            tokio::select! {
                biased;
                end = &mut conducted => end,
                () = cancel.cancelled() => {
                    ui.print_unless_quiet("stopping and saving the results; press Ctrl-C again to exit now");
                    conducted.await
                }
            }
        };
        self.save_and_show(end, ui).await
    }

    /// Tells the user, and those who watch, which run begins.
    fn announce(&self) -> Ui {
        self.watchers.begin(self.results_folder.results(), self.is_last);
        let Results {
            name,
            plan,
            trials: records,
            ..
        } = self.results_folder.results();
        let ui = Ui::new(self.output.quiet, plan);
        ui.print_unless_quiet(&format!(
            "perfrun/{name}: {} of {} on {}, {}; results in {}",
            trials(plan),
            counted(plan.cells.len(), "cell"),
            counted(plan.nodes.len(), "node"),
            match self.isolation {
                LocalIsolation::Namespaces => "each in a network namespace",
                LocalIsolation::Loopback => "all on one loopback interface",
            },
            self.results_folder.path().display(),
        ));
        let is_new = records.is_empty();
        let least = least_time(plan).filter(|_| is_new);
        let resumed = (!is_new).then(|| {
            let counts = self.results_folder.results().tally().counts();
            format!(
                "resumed: {} of {} trials are complete",
                counts.completed,
                counts.needed()
            )
        });
        for line in resumed
            .into_iter()
            .chain(least)
            .chain(too_few_iterations(plan))
            .chain(skipped(plan, false))
        {
            ui.print_unless_quiet(&line);
        }
        ui
    }

    /// Starts the nodes, runs the trials that are left, stops the nodes.
    async fn conduct(&mut self, ui: &Ui) -> RunEnd {
        let settings = NodeSettings {
            run: self.results_folder.results().name.clone(),
            programs: self.programs.clone(),
            isolation: self.isolation,
            cpus: self.results_folder.results().spec.topology.cpus,
            provision_timeout: self.results_folder.results().spec.timeouts.provision.into(),
            logs: self.results_folder.logs_folder(),
        };
        let watchers = self.watchers;
        let watch = |event: NodeEvent<'_>| match event {
            NodeEvent::Started { name, handle } => watchers.node_started(name, handle),
            NodeEvent::Lost { name, reason } => ui.print_line(&format!("{name} was lost: {reason}")),
        };
        let nodes = match LocalNodes::start(settings, watch).await {
            Ok(nodes) => nodes,
            Err(error) => return failed(EndReason::Internal, error),
        };
        let ready = self.cancel.run_until_cancelled(nodes.wait_until_ready()).await;
        let end = match ready {
            None => RunEnd::without_nodes(RunState::Interrupted),
            Some(Err(error)) => failed(EndReason::NodeNotReady, error),
            Some(Ok(handles)) => {
                let Results { spec, plan, .. } = self.results_folder.results();
                let (plan, timeouts) = (plan.clone(), spec.timeouts.durations());
                let conductor = Conductor {
                    plan: &plan,
                    options: RunOptions::new(timeouts),
                    sink: &mut self.results_folder,
                    provider: &nodes,
                    on_event: &|event: Event<'_>| {
                        watchers.on(event);
                        ui.on(event);
                    },
                    cancel: self.cancel.clone(),
                };
                conductor.run(handles).await
            }
        };
        if let (RunState::Complete, Some(call_graph)) = (end.state, self.profile) {
            let profiler = Profiler {
                call_graph,
                results_folder: &self.results_folder,
                nodes: &nodes,
                ui,
                cancel: self.cancel,
            };
            profiler.profile_all().await;
        }
        watchers.keep_last_pages().await;
        nodes.stop().await;
        end
    }

    /// Saves and shows the results. Returns the exit status.
    async fn save_and_show(mut self, end: RunEnd, ui: Ui) -> anyhow::Result<u8> {
        let (state, message) = (end.state, end.message.clone());
        let saved = self.results_folder.finish(end);
        let results = self.results_folder.results();
        self.watchers.end(results);
        drop(ui);
        if let (RunState::Failed, Some(message)) = (state, &message) {
            write_line_to_stderr(format_args!(
                "perfrun: perfrun/{} failed: {message}",
                results.name
            ));
        }
        let status = exit_status::of_run(results.conclusion().phase, results.verdict());
        // Even if they could not be saved: it may have taken hours to measure them.
        printing::show(&self.results_folder, self.output, status)?;
        self.watchers.show_report(results).await;
        saved?;
        Ok(status)
    }
}

fn failed(reason: EndReason, error: nodes::Error) -> RunEnd {
    RunEnd::failed(reason, format!("{:#}", anyhow::Error::from(error)))
}
