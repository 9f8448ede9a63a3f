//! `perfrun run`: conducts the runs of a file on this machine, one after the other.
//!
//! | module | subject |
//! |---|---|
//! | `local_run` | one run, from its first node to its report |
//! | `programs` | which program each node executes |
//! | `profiler` | the extra trials of --profile |
//! | `watchers` | metrics and the web page |
//! | `exporter` | the metrics for Prometheus |

mod exporter;
mod local_run;
mod profiler;
pub(crate) mod programs;
mod watchers;

use std::{
    io::{self, Write, stderr},
    path::Path,
};

use anyhow::{Context, bail, ensure};
use perfrun_api::{
    planning::plan,
    results::Results,
    spec::{PerfRun, PerfRunSpec},
};
use perfrun_conductor::RunEnd;
use perfrun_contract::{
    plan::Plan,
    run::{self, NodeProgram, RunState},
};
use perfrun_local::{LocalIsolation, nodes::Programs};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::{local_run::LocalRun, watchers::Watchers};
use crate::{
    args, label, profile, read_documents, report,
    store::{self, Store},
};

/// Exit status of a run with a failed trial, or that did not run to its end.
pub const INCOMPLETE: u8 = 1;
/// Exit status after Ctrl-C, as shells report it: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// What separates the nodes of the run. A resumed run keeps its isolation, or its trials would not be
/// comparable.
pub fn isolation(args: &args::Run) -> anyhow::Result<LocalIsolation> {
    let requested = if args.loopback {
        LocalIsolation::Loopback
    } else {
        LocalIsolation::Namespaces
    };
    let Some(folder) = &args.resume else {
        return Ok(requested);
    };
    match store::read(folder)?.environment.isolation {
        run::Isolation::Loopback => Ok(LocalIsolation::Loopback),
        run::Isolation::Namespaces => {
            ensure!(
                !args.loopback,
                "{} was started in network namespaces: resume it without --loopback, or its trials are not comparable",
                folder.display()
            );
            Ok(requested)
        }
        run::Isolation::Pods => bail!("{} was run on a cluster, not on this machine", folder.display()),
    }
}

/// Runs the documents of the arguments, or resumes a run. Returns the exit status.
pub async fn run(args: args::Run, isolation: LocalIsolation) -> anyhow::Result<u8> {
    // Before anything is measured, which may take hours.
    if let Some(call_graph) = args.profile {
        profile::check(Some(call_graph)).await?;
    }
    let cancel = CancellationToken::new();
    tokio::spawn(cancel_on_signal(cancel.clone()));
    let watchers = Watchers::serve(&args).await?;
    let session = Session {
        args: &args,
        isolation,
        watchers: &watchers,
        cancel: &cancel,
    };
    let status = match &args.resume {
        Some(folder) => session.resume(folder).await,
        None => session.run_documents().await,
    }?;
    watchers.last_scrape(args.output.quiet, &cancel).await;
    Ok(status)
}

/// What the runs of one command have in common.
struct Session<'a> {
    args: &'a args::Run,
    isolation: LocalIsolation,
    watchers: &'a Watchers,
    cancel: &'a CancellationToken,
}

impl Session<'_> {
    async fn run_documents(&self) -> anyhow::Result<u8> {
        let file = self.args.file.as_deref().context("name a file to run")?;
        let named = programs::resolve(&self.args.node)?;
        // All documents are checked before the first is run: a mistake in the last should not cost an hour.
        let documents = read_documents(file)?
            .into_iter()
            .map(|run| Document::of(run, self.isolation, &named))
            .collect::<anyhow::Result<Vec<_>>>()
            .with_context(|| label(file))?;
        programs::check_variants(&self.args.node, documents.iter().map(|document| &document.spec))?;
        let mut status = 0;
        let mut left = documents.len();
        for Document {
            name,
            spec,
            plan,
            programs,
        } in documents
        {
            left -= 1;
            if self.cancel.is_cancelled() {
                return Ok(INTERRUPTED);
            }
            let results = &self.args.output.results;
            let isolation = recorded(self.isolation);
            let store = Store::create(results, &name, spec, plan, isolation, named.clone())?;
            status = status.max(self.run(store, programs, left == 0).await?);
        }
        Ok(status)
    }

    /// Runs the trials that are left of a run.
    async fn resume(&self, folder: &Path) -> anyhow::Result<u8> {
        let mut store = Store::resume(folder)?;
        programs::check_variants(&self.args.node, [&store.results().spec])?;
        let Results { plan, .. } = store.results();
        let has_profile = |cell| profile::exists(store.folder(), cell);
        let is_profiled = self.args.profile.is_none() || plan.cells.iter().all(has_profile);
        if store.is_done() && is_profiled {
            // Written again, since perfrun may have been killed before it wrote its last file.
            store.finish(RunEnd::without_nodes(RunState::Complete))?;
            let _ = writeln!(stderr(), "all trials are complete: nothing left to run");
            report::show(&store, self.args.output.json)?;
            return Ok(0);
        }
        let earlier = &store.results().environment.programs;
        let named = programs::named_now_or_before(&self.args.node, earlier);
        store.keep_programs(programs::resolve(&named)?)?;
        let Results {
            plan,
            spec,
            environment,
            ..
        } = store.results();
        let programs = programs::of_plan(plan, spec, self.isolation, &environment.programs)?;
        self.run(store, programs, true).await
    }

    async fn run(&self, store: Store, programs: Programs, is_last: bool) -> anyhow::Result<u8> {
        let run = LocalRun {
            store,
            programs,
            isolation: self.isolation,
            watchers: self.watchers,
            output: &self.args.output,
            profile: self.args.profile,
            is_last,
            cancel: self.cancel,
        };
        run.run().await
    }
}

/// A document that can be run, with its plan and programs.
struct Document {
    name: String,
    spec: PerfRunSpec,
    plan: Plan,
    programs: Programs,
}

impl Document {
    fn of(run: PerfRun, isolation: LocalIsolation, given: &[NodeProgram]) -> anyhow::Result<Self> {
        let plan = runnable(&run)?;
        let name = run.metadata.name.unwrap_or_default();
        let spec = run.spec;
        let programs =
            programs::of_plan(&plan, &spec, isolation, given).with_context(|| format!("perfrun/{name}"))?;
        Ok(Self {
            name,
            spec,
            plan,
            programs,
        })
    }
}

/// The plan of a document, if it can be run now.
pub fn runnable(run: &PerfRun) -> anyhow::Result<Plan> {
    let name = run.metadata.name.as_deref().unwrap_or_default();
    ensure!(
        !run.spec.suspend,
        "perfrun/{name} is suspended: set spec.suspend to false to run it"
    );
    ensure!(
        !run.spec.cancel,
        "perfrun/{name} is cancelled: set spec.cancel to false to run it"
    );
    plan(&run.spec).with_context(|| format!("perfrun/{name}"))
}

/// A number and a noun in singular or plural.
pub fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Cancels the run at the first SIGINT or SIGTERM. The second one exits immediately.
pub async fn cancel_on_signal(cancel: CancellationToken) -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if cancel.is_cancelled() {
            // Nodes die with this process, and every file is complete at all times.
            std::process::exit(INTERRUPTED.into());
        }
        cancel.cancel();
    }
}

/// The isolation, as results record it.
fn recorded(isolation: LocalIsolation) -> run::Isolation {
    match isolation {
        LocalIsolation::Namespaces => run::Isolation::Namespaces,
        LocalIsolation::Loopback => run::Isolation::Loopback,
    }
}
