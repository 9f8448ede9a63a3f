//! Real nodes in namespaces, single trials on them, and other programs in their place.

use std::{
    collections::BTreeMap, ffi::OsStr, os::unix::process::CommandExt, path::Path, process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use perfrun_api::{document, planning::plan, spec::PerfRunSpec};
use perfrun_conductor::{Conductor, Durability, Event, RecordSink, RunOptions};
use perfrun_contract::{metric::Metric, plan::Plan, record::TrialRecord};
use perfrun_local::{
    LocalIsolation, LocalNodes, Slot,
    nodes::{self, NodeSettings, Program, Programs},
};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// The nodes of one document.
pub(crate) struct Testbed {
    spec: PerfRunSpec,
    plan: Plan,
    pub nodes: LocalNodes<'static>,
    _logs: tempfile::TempDir,
}

impl Testbed {
    /// Starts the nodes for one trial of each cell of a stack with itself.
    pub(crate) async fn of(stack: &str, transport: &str, workload: &str) -> Result<Self> {
        Self::start(&format!(
            "  workload: {{{workload}}}\n\
             \x20 matrix: {{clients: [{stack}], servers: [{stack}], transports: [{transport}], rawReference: false}}\n\
             \x20 iterations: 1\n  warmup: 0\n"
        ))
        .await
    }

    /// Starts the nodes of a document, given by its spec in YAML.
    pub(crate) async fn start(spec: &str) -> Result<Self> {
        let text = format!(
            "apiVersion: perfrun.io/v1alpha1\nkind: PerfRun\nmetadata: {{name: bench}}\nspec:\n{spec}"
        );
        let spec = document::parse(&text)?
            .pop()
            .context("there is one document")?
            .spec;
        let plan = plan(&spec)?;
        let logs = tempfile::tempdir()?;
        let settings = NodeSettings {
            run: "bench".to_owned(),
            programs: Programs::of(&plan, |_| {
                Ok::<_, nodes::Error>(Program {
                    path: Program::beside_this_one("--node")?,
                    args: vec![],
                    env: BTreeMap::new(),
                })
            })?,
            isolation: LocalIsolation::Namespaces,
            cpus: spec.topology.cpus,
            provision_timeout: spec.timeouts.provision.into(),
            logs: logs.path().to_owned(),
        };
        let nodes = LocalNodes::start(settings, |_| {}).await?;
        Ok(Self {
            spec,
            plan,
            nodes,
            _logs: logs,
        })
    }

    /// The places of the server and of the client.
    pub(crate) fn ends(&self) -> Result<(&Slot, &Slot)> {
        let ends = self.nodes.slot(0).zip(self.nodes.slot(1));
        ends.context("the plan has two nodes")
    }

    /// Runs the trials of one cell, or of all cells. A failed trial is an error.
    pub(crate) async fn run(&self, cell: Option<&str>) -> Result<Vec<TrialRecord>> {
        let mut plan = self.plan.clone();
        if let Some(cell) = cell {
            let index = plan.cells.iter().position(|c| c.id == cell);
            let index = index.with_context(|| format!("the plan has no cell {cell}"))?;
            plan.trials.retain(|trial| trial.cell == index);
        }
        let mut records = Records::default();
        let conductor = Conductor {
            plan: &plan,
            options: RunOptions::new(self.spec.timeouts.durations()),
            sink: &mut records,
            provider: &self.nodes,
            on_event: &|_: Event<'_>| {},
            cancel: CancellationToken::new(),
        };
        let end = conductor.run(self.nodes.wait_until_ready().await?).await;
        if let Some(message) = end.message {
            return Err(anyhow!("the run ended early: {message}"));
        }
        match records.0.iter().find_map(|record| record.failure.as_ref()) {
            Some(failure) => Err(anyhow!(
                "a trial failed: {} ({})",
                failure.message,
                failure.reason
            )),
            None => Ok(records.0),
        }
    }

    /// One metric of one measured trial of a cell.
    pub(crate) async fn measure(&self, cell: &str, metric: Metric) -> Result<f64> {
        let records = self.run(Some(cell)).await?;
        let measured = records.iter().find(|record| !record.trial.warmup);
        measured
            .and_then(|record| record.metrics.get(&metric).copied())
            .with_context(|| format!("{cell} has no {metric}"))
    }
}

#[derive(Default)]
struct Records(Vec<TrialRecord>);

#[async_trait]
impl RecordSink for Records {
    async fn record(&mut self, record: &TrialRecord) -> std::io::Result<Durability> {
        self.0.push(record.clone());
        Ok(Durability::InMemory)
    }

    fn records(&self) -> &[TrialRecord] {
        &self.0
    }
}

/// Starts a server in the namespace of a node, and gives it time to listen: published ones do not print when
/// they do.
pub(crate) async fn listen(slot: &Slot, program: &Path, args: &[String]) -> Result<Child> {
    let server = inside(slot, program)?
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("failed to start {}", program.display()))?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    Ok(server)
}

/// A command that runs in the namespace of a node.
pub(crate) fn inside(slot: &Slot, program: impl AsRef<OsStr>) -> Result<Command> {
    let namespace = slot
        .namespace()
        .context("the node has a namespace")?
        .try_clone()?;
    let mut command = std::process::Command::new(program);
    // SAFETY: joining a namespace is one system call on a descriptor that the closure owns.
    unsafe {
        command.pre_exec(move || namespace.enter());
    }
    Ok(command.into())
}

/// Two measurements, one right after the other. Who goes first alternates from round to round, so that
/// neither always finds the machine as the other left it.
pub(crate) async fn pair(
    round: u32,
    ours: impl Future<Output = Result<f64>>,
    theirs: impl Future<Output = Result<f64>>,
) -> Result<(f64, f64)> {
    if round.is_multiple_of(2) {
        let ours = ours.await?;
        return Ok((ours, theirs.await?));
    }
    let theirs = theirs.await?;
    Ok((ours.await?, theirs))
}

/// The median of some values.
pub(crate) fn median(values: &[f64]) -> f64 {
    perfrun_judge::Statistics::of(values.iter().copied()).map_or(f64::NAN, |statistics| statistics.median)
}

/// One in a hundred may be larger. NaN if there are none.
pub(crate) fn p99(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = sorted.len().checked_sub(1 + sorted.len() / 100);
    at.map_or(f64::NAN, |at| sorted[at])
}

/// What a pair of measurements counts.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Bits,
    Messages,
}

/// Prints both medians, the median of the ratios, and the ratio of every pair.
pub(crate) fn print_ratio(what: &str, pairs: &[(f64, f64)], unit: Unit, target: Option<f64>) {
    let (scale, unit) = match unit {
        Unit::Bits => (1e9, "Gbit/s"),
        Unit::Messages => (1e3, "thousand messages/s"),
    };
    let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let ratios: Vec<f64> = pairs.iter().map(|(ours, theirs)| ours / theirs).collect();
    let each: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    let target = target.map_or_else(String::new, |target| format!(" (target ≥ {target})"));
    println!(
        "{what}:\n  medians {:.2} against {:.2} {unit}, ratio {:.3}{target}\n  ratios of pairs: {}",
        median(&ours) / scale,
        median(&theirs) / scale,
        median(&ratios),
        each.join(" ")
    );
}
