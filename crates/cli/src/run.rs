//! `perfrun run`: conducts the runs of a file on this machine, one after the other.
//!
//! | module | subject |
//! |---|---|
//! | `local_run` | one run, from its first node to its report |
//! | `programs` | which program each node executes |
//! | `load_check` | whether the machine is quiet enough |
//! | `profiler` | the extra trials of --profile |
//! | `watchers` | metrics and the web page |
//! | `exporter` | the metrics for Prometheus |

mod exporter;
mod load_check;
mod local_run;
mod profiler;
mod programs;
mod watchers;

use std::path::Path;

use anyhow::{Context, bail, ensure};
use perfrun_api::{
    exit_status::INTERRUPTED,
    results::Results,
    spec::{PerfRun, PerfRunSpec},
};
use perfrun_contract::{
    plan::Plan,
    run::{self, NodeProgram},
};
use perfrun_local::{LocalIsolation, nodes::Programs};
use tokio_util::sync::CancellationToken;

use self::{load_check::LoadCheck, local_run::LocalRun, watchers::Watchers};
use crate::{
    args,
    documents::{self, label, runnable},
    exit_status,
    output::write_line_to_stderr,
    printing, profile,
    results_folder::{self, ResultsFolder},
    signals::cancel_on_signal,
};

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
    match results_folder::isolation(folder)? {
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
    let load_check = LoadCheck::begin();
    // Before anything is measured, which may take hours.
    if let Some(call_graph) = args.profile {
        profile::check(call_graph).await?;
    }
    let cancel = cancel_on_signal();
    let watchers = Watchers::serve(&args).await?;
    let context = CommandContext {
        args: &args,
        isolation,
        watchers: &watchers,
        cancel: &cancel,
    };
    let status = match &args.resume {
        Some(folder) => context.resume(folder, load_check).await,
        None => context.run_documents(load_check).await,
    }?;
    watchers.last_scrape(args.output.quiet, &cancel).await;
    Ok(status)
}

/// What the runs of one command have in common.
struct CommandContext<'a> {
    args: &'a args::Run,
    isolation: LocalIsolation,
    watchers: &'a Watchers,
    cancel: &'a CancellationToken,
}

impl CommandContext<'_> {
    async fn run_documents(&self, load_check: LoadCheck) -> anyhow::Result<u8> {
        let file = self.args.file.as_deref().context("name a file to run")?;
        let given = [&self.args.node[..], &self.args.comparison.programs()].concat();
        let named = programs::resolve(&given)?;
        // All documents are checked before the first is run: a mistake in the last should not cost an hour.
        let documents = documents::read(file, &self.args.comparison)?
            .into_iter()
            .map(|run| PlannedRun::of(self.seeded(run), self.isolation, &named))
            .collect::<anyhow::Result<Vec<_>>>()
            .with_context(|| label(file))?;
        programs::check_variants(&given, documents.iter().map(|document| &document.spec))?;
        for PlannedRun { name, spec, plan, .. } in &documents {
            let lines = programs::named_elsewhere(name, plan, spec, &given, &[]);
            lines.into_iter().for_each(write_line_to_stderr);
        }
        if !self.check_load(load_check).await? {
            return Ok(INTERRUPTED);
        }
        let mut status = 0;
        let names: Vec<String> = documents.iter().map(|document| document.name.clone()).collect();
        for (index, document) in documents.into_iter().enumerate() {
            if self.cancel.is_cancelled() {
                self.say_unless_quiet(&not_begun(&names[index..]));
                return Ok(INTERRUPTED);
            }
            let PlannedRun {
                name,
                spec,
                plan,
                programs,
            } = document;
            let is_last = index + 1 == names.len();
            let results = &self.args.output.results;
            let isolation = recorded(self.isolation);
            let results_folder = ResultsFolder::create(results, &name, spec, plan, isolation, named.clone())?;
            status = exit_status::worse(status, self.run(results_folder, programs, is_last).await?);
        }
        Ok(status)
    }

    /// The document with a seed.
    fn seeded(&self, mut run: PerfRun) -> PerfRun {
        let seed = self.args.seed.or(run.spec.seed);
        run.spec.seed = Some(seed.unwrap_or_else(rand::random));
        run
    }

    /// Runs the trials that are left of a run.
    async fn resume(&self, folder: &Path, load_check: LoadCheck) -> anyhow::Result<u8> {
        let mut results_folder = ResultsFolder::resume(folder)?;
        programs::check_variants(&self.args.node, [&results_folder.results().spec])?;
        let Results { plan, .. } = results_folder.results();
        let has_profile = |cell| profile::exists(results_folder.path(), cell);
        let is_profiled = self.args.profile.is_none() || plan.cells.iter().all(has_profile);
        if results_folder.is_done() && is_profiled {
            results_folder.complete_files()?;
            write_line_to_stderr("all trials are complete: nothing left to run");
            let results = results_folder.results();
            let status = exit_status::of_run(results.conclusion().phase, results.verdict());
            printing::show(&results_folder, &self.args.output, status)?;
            return Ok(status);
        }
        let Results {
            name,
            plan,
            spec,
            environment,
            ..
        } = results_folder.results();
        let lines = programs::named_elsewhere(name, plan, spec, &self.args.node, &environment.programs);
        lines.into_iter().for_each(write_line_to_stderr);
        if !self.check_load(load_check).await? {
            return Ok(INTERRUPTED);
        }
        let named = programs::named_now_or_before(&self.args.node, &environment.programs);
        let named = programs::resolve(&named)?;
        let programs = programs::of_plan(plan, spec, self.isolation, &named)?;
        programs::check_unchanged(&programs, results_folder.results())
            .await
            .with_context(|| format!("unable to resume {}", results_folder.path().display()))?;
        results_folder.begin(named)?;
        self.run(results_folder, programs, true).await
    }

    /// Warns if the machine is busy, or waits until it is quiet. `false` if the user stopped the command.
    async fn check_load(&self, load_check: LoadCheck) -> anyhow::Result<bool> {
        let checked = self
            .cancel
            .run_until_cancelled(load_check.end(self.args.wait_quiet, self.args.output.quiet))
            .await;
        if checked.is_none() {
            self.say_unless_quiet("stopped before the run began: nothing was run");
        }
        checked.transpose().map(|checked| checked.is_some())
    }

    fn say_unless_quiet(&self, line: &str) {
        if !self.args.output.quiet {
            write_line_to_stderr(line);
        }
    }

    async fn run(
        &self,
        results_folder: ResultsFolder,
        programs: Programs,
        is_last: bool,
    ) -> anyhow::Result<u8> {
        let run = LocalRun {
            results_folder,
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
struct PlannedRun {
    name: String,
    spec: PerfRunSpec,
    plan: Plan,
    programs: Programs,
}

impl PlannedRun {
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

/// What to know of the runs that a stopped command has not begun.
fn not_begun(names: &[String]) -> String {
    let runs: Vec<String> = names.iter().map(|name| format!("perfrun/{name}")).collect();
    let rest = match names {
        [_] => "was not begun: copy its document to a file of its own",
        _ => "were not begun: copy their documents to a file of their own",
    };
    let command = format!("{} run FILE", args::typed());
    format!(
        "{} {rest}, and run it with the same options: {command}",
        runs.join(", ")
    )
}

/// The isolation, as results record it.
fn recorded(isolation: LocalIsolation) -> run::Isolation {
    match isolation {
        LocalIsolation::Namespaces => run::Isolation::Namespaces,
        LocalIsolation::Loopback => run::Isolation::Loopback,
    }
}
