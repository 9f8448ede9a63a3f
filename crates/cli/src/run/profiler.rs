//! The extra trials of a run with --profile. They enter no statistic, tally or record.

use std::{collections::BTreeMap, io};

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use perfrun_conductor::{Conductor, Durability, NodeHandle, RecordSink, RunOptions};
use perfrun_contract::{
    plan::{Cell, Plan, Trial},
    record::TrialRecord,
    role::Role,
};
use perfrun_local::LocalNodes;
use tokio_util::sync::CancellationToken;

use crate::{
    profile::{self, CallGraph, Recording},
    results_folder::ResultsFolder,
    ui::Ui,
};

/// Takes the profiles of a run, over nodes that are ready.
pub(super) struct Profiler<'a> {
    pub call_graph: CallGraph,
    pub results_folder: &'a ResultsFolder,
    pub nodes: &'a LocalNodes<'a>,
    pub ui: &'a Ui,
    pub cancel: &'a CancellationToken,
}

impl Profiler<'_> {
    /// Takes a profile of each cell that has none. A cell whose profile fails is mentioned, and the others
    /// are still profiled.
    pub(super) async fn profile_all(&self) {
        let plan = &self.results_folder.results().plan;
        for (index, cell) in plan.cells.iter().enumerate() {
            if profile::exists(self.results_folder.path(), cell) {
                continue;
            }
            self.ui.print_unless_quiet(&format!("profiling {}", cell.id));
            let profiled = self.profile(index, cell).await;
            if self.cancel.is_cancelled() {
                return;
            }
            if let Err(error) = profiled {
                self.ui
                    .print_line(&format!("no profile of {}: {error:#}", cell.id));
            }
        }
    }

    async fn profile(&self, index: usize, cell: &Cell) -> anyhow::Result<()> {
        let handles = self.nodes.wait_until_ready().await?;
        let of_roles = self.pids(cell).await?;
        let all: Vec<u32> = of_roles
            .iter()
            .flat_map(|(_, pids)| pids.iter().copied())
            .collect();
        let results = self.results_folder.path();
        let file =
            profile::recording_file(results, cell).context("failed to create a folder for profiles")?;

        let recording = Recording::start(self.call_graph, &all, file).await?;
        let trial = self.run_trial(index, handles).await;
        let recorded = recording.stop().await?;
        trial?;
        for (role, pids) in of_roles {
            let script = recorded.script(&pids).await?;
            profile::write(results, cell, role, &script).with_context(|| format!("{role} nodes"))?;
        }
        Ok(())
    }

    /// The processes of a cell's nodes, by role.
    async fn pids(&self, cell: &Cell) -> anyhow::Result<Vec<(Role, Vec<u32>)>> {
        let mut of_roles = vec![];
        for (role, names) in profile::nodes(cell) {
            let mut pids = vec![];
            for name in names.iter() {
                let pid = self.nodes.pid(name).await;
                pids.push(pid.with_context(|| format!("{name} does not run"))?);
            }
            of_roles.push((role, pids));
        }
        Ok(of_roles)
    }

    /// Runs the extra trial of a cell, which must complete with these nodes.
    async fn run_trial(&self, cell: usize, nodes: BTreeMap<String, NodeHandle>) -> anyhow::Result<()> {
        let plan = Plan {
            trials: vec![Trial {
                id: format!("c{cell}.profile"),
                cell,
                iteration: 0,
                warmup: true,
            }],
            ..self.results_folder.results().plan.clone()
        };
        let mut records = TrialRecords::default();
        let conductor = Conductor {
            plan: &plan,
            options: RunOptions::new(self.results_folder.results().spec.timeouts.durations()),
            sink: &mut records,
            provider: self.nodes,
            on_event: &|_| {},
            cancel: self.cancel.clone(),
        };
        let end = conductor.run(nodes).await;
        let message = end.message.unwrap_or_else(|| "it was stopped".to_owned());
        let record = records
            .0
            .pop()
            .with_context(|| format!("its trial did not run: {message}"))?;
        if let Some(failure) = record.failure {
            bail!("its trial failed: {} ({})", failure.message, failure.reason);
        }
        ensure!(record.attempt == 0, "a node was lost, and perf with it");
        Ok(())
    }
}

/// The records of the extra trial: one for each attempt.
#[derive(Default)]
struct TrialRecords(Vec<TrialRecord>);

#[async_trait]
impl RecordSink for TrialRecords {
    async fn record(&mut self, record: &TrialRecord) -> io::Result<Durability> {
        self.0.push(record.clone());
        Ok(Durability::CrashSafe)
    }

    fn records(&self) -> &[TrialRecord] {
        &self.0
    }
}
