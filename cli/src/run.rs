//! `perfrun run`: the nodes of a plan as local processes, and a conductor over them.

pub mod nodes;

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use jiff::Timestamp;
use perfrun_api::{
    plan::{Plan, plan},
    results::{Isolation, Results, RunState},
    spec::PerfRun,
};
use perfrun_conductor::{Conductor, Options};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::nodes::LocalNodes;
use crate::{args, local, read_documents, store::Store, ui::Ui};

/// Exit status of a run with a failed trial, or that did not run to its end.
const INCOMPLETE: u8 = 1;
/// Exit status after Ctrl-C, as shells count it: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// Runs what the arguments ask for; returns the exit status.
pub async fn run(args: args::Run) -> anyhow::Result<u8> {
    let isolation = if args.loopback {
        local::Isolation::Loopback
    } else {
        local::Isolation::Namespaces
    };
    let cancel = CancellationToken::new();
    tokio::spawn(cancel_on_signal(cancel.clone()));
    if let Some(folder) = &args.resume {
        return one(&args, Store::resume(folder)?, isolation, &cancel).await;
    }
    let file = args.file.as_deref().context("name a file to run")?;
    // All documents are planned before the first is run: a mistake in the last should not cost an hour.
    let planned = read_documents(file)?
        .into_iter()
        .map(accepted)
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut status = 0;
    for (run, plan) in planned {
        let name = run.metadata.name.as_deref().unwrap_or_default();
        let store = Store::create(&args.results, name, run.spec.clone(), plan, isolation.into())?;
        status = status.max(one(&args, store, isolation, &cancel).await?);
        if cancel.is_cancelled() {
            break;
        }
    }
    Ok(status)
}

/// A document that may be run, with its plan.
fn accepted(run: PerfRun) -> anyhow::Result<(PerfRun, Plan)> {
    let name = run.metadata.name.as_deref().unwrap_or_default();
    ensure!(
        !run.spec.suspend,
        "perfrun/{name} is suspended: set spec.suspend to false to run it"
    );
    ensure!(
        !run.spec.cancel,
        "perfrun/{name} is cancelled: set spec.cancel to false to run it"
    );
    let plan = plan(&run.spec).with_context(|| format!("perfrun/{name}"))?;
    Ok((run, plan))
}

/// Runs one document to its end, whatever that is, and shows what came out.
async fn one(
    args: &args::Run,
    mut store: Store,
    isolation: local::Isolation,
    cancel: &CancellationToken,
) -> anyhow::Result<u8> {
    let Results {
        name,
        spec,
        plan,
        trials,
        started,
        ..
    } = store.results().clone();
    let ui = Ui::new(args.quiet, &plan);
    ui.mention(&format!(
        "perfrun/{name}: {} trials of {} cells on {} nodes, {isolation}; results in {}",
        plan.trials.len(),
        plan.cells.len(),
        plan.nodes.len(),
        store.folder().display(),
    ));
    for skipped in &plan.skipped {
        ui.mention(&format!("skipped {}: {}", skipped.id, skipped.reason));
    }
    let nodes = LocalNodes::start(&plan, &spec, &name, &args.node, isolation, &store.logs_folder()).await?;
    let elapsed = Timestamp::now()
        .duration_since(started)
        .try_into()
        .unwrap_or(Duration::ZERO);
    // What failed before the interruption is given another chance.
    let already = trials
        .into_iter()
        .filter(|record| record.failure.is_none())
        .collect();
    let resumed = if args.resume.is_some() {
        elapsed
    } else {
        Duration::ZERO
    };
    let clients = nodes.clients().await?;
    let conductor = Conductor {
        plan: &plan,
        options: Options {
            already,
            elapsed: resumed,
            ..Options::new(spec.timeouts.clone())
        },
        sink: &mut store,
        spares: &nodes,
        progress: &ui,
        cancel: cancel.clone(),
    };
    let end = conductor.run(clients).await;
    nodes.stop().await;
    store.finish(end.state, end.reason, end.nodes)?;
    drop(ui);
    show(args, &store)?;
    let failed = store
        .results()
        .trials
        .iter()
        .any(|record| record.failure.is_some() && !was_retried(record, store.results()));
    Ok(match end.state {
        RunState::Complete if !failed => 0,
        RunState::Complete | RunState::Failed => INCOMPLETE,
        RunState::Interrupted => INTERRUPTED,
    })
}

/// Whether a later attempt at the same trial succeeded.
fn was_retried(failed: &perfrun_api::results::TrialRecord, results: &Results) -> bool {
    results
        .trials
        .iter()
        .any(|record| record.trial.id == failed.trial.id && record.failure.is_none())
}

fn show(args: &args::Run, store: &Store) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        let json = serde_json::to_string(store.results()).context("failed to encode the results")?;
        writeln!(out, "{json}").context("failed to print the results")
    } else {
        let tables = perfrun_report::terminal(store.results(), crate::terminal_width());
        writeln!(out, "{tables}\nResults are in {}", store.folder().display())
            .context("failed to print the results")
    }
}

/// Cancels the run at the first SIGINT or SIGTERM; a second one does not wait for it.
async fn cancel_on_signal(cancel: CancellationToken) -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if cancel.is_cancelled() {
            // Nodes die with this process, and every file is complete at any moment.
            std::process::exit(INTERRUPTED.into());
        }
        cancel.cancel();
    }
}

impl From<local::Isolation> for Isolation {
    fn from(isolation: local::Isolation) -> Self {
        match isolation {
            local::Isolation::Namespaces => Self::Namespaces,
            local::Isolation::Loopback => Self::Loopback,
        }
    }
}

/// The program of a node: for its variant, or for all, or the one beside this program.
fn program(programs: &[args::NodeProgram], variant: Option<&str>) -> anyhow::Result<std::path::PathBuf> {
    let given = |name: Option<&str>| programs.iter().find(|program| program.variant.as_deref() == name);
    if let Some(program) = given(variant).or_else(|| given(None)) {
        return Ok(program.path.clone());
    }
    let beside = std::env::current_exe()
        .context("failed to find this program")?
        .with_file_name("perfrun-node");
    if !beside.is_file() {
        bail!(
            "there is no {}: build it by `cargo build --release -p perfrun-node`, or name one with --node",
            beside.display()
        );
    }
    Ok(beside)
}
