//! `perfrun run`: the nodes of a plan as local processes, and a conductor over them.

pub mod exporter;
mod programs;

use std::{
    collections::BTreeMap,
    io::{self, Write, stderr},
    path::Path,
};

use anyhow::{Context, bail, ensure};
use perfrun_api::{
    plan::{Plan, plan},
    results::{self, Results, RunState},
    spec::{PerfRun, PerfRunSpec},
};
use perfrun_conductor::{Conductor, Event, Options, Progress, RunEnd};
use perfrun_local::{
    Isolation, LocalNodes,
    nodes::{NodeEvent, Programs, Settings},
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::exporter::Exporter;
use crate::{
    args, label,
    page::Page,
    read_documents, report,
    store::{self, Store},
    ui::Ui,
};

/// Exit status of a run with a failed trial, or that did not run to its end.
pub const INCOMPLETE: u8 = 1;
/// Exit status after Ctrl-C, as shells count it: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// What is to separate the nodes: of a run that is gone on with, what did before, or its trials would not compare.
pub fn isolation(args: &args::Run) -> anyhow::Result<Isolation> {
    let asked = if args.loopback {
        Isolation::Loopback
    } else {
        Isolation::Namespaces
    };
    let Some(folder) = &args.resume else {
        return Ok(asked);
    };
    match store::read(folder)?.environment.isolation {
        results::Isolation::Loopback => Ok(Isolation::Loopback),
        results::Isolation::Namespaces => {
            ensure!(
                !args.loopback,
                "{} was begun in network namespaces: go on without --loopback, or the trials would not compare",
                folder.display()
            );
            Ok(asked)
        }
        results::Isolation::Pods => bail!("{} was run on a cluster, not on this machine", folder.display()),
    }
}

/// Runs what the arguments ask for; returns the exit status.
pub async fn run(args: args::Run, isolation: Isolation) -> anyhow::Result<u8> {
    let cancel = CancellationToken::new();
    tokio::spawn(cancel_on_signal(cancel.clone()));
    let audience = Audience::gather(&args).await?;
    let status = run_all(&args, isolation, &audience, &cancel).await?;
    audience.exporter.last_scrape(args.output.quiet, &cancel).await;
    Ok(status)
}

async fn run_all(
    args: &args::Run,
    isolation: Isolation,
    audience: &Audience,
    cancel: &CancellationToken,
) -> anyhow::Result<u8> {
    if let Some(folder) = &args.resume {
        return resume(args, folder, isolation, audience, cancel).await;
    }
    let file = args.file.as_deref().context("name a file to run")?;
    let named = programs::resolve(&args.node)?;
    // All documents are looked at before the first is run: a mistake in the last should not cost an hour.
    let jobs = read_documents(file)?
        .into_iter()
        .map(|run| Job::of(run, isolation, &named))
        .collect::<anyhow::Result<Vec<_>>>()
        .with_context(|| label(file))?;
    programs::check_variants(&args.node, jobs.iter().map(|job| &job.spec))?;
    let mut status = 0;
    let mut left = jobs.len();
    for Job {
        name,
        spec,
        plan,
        programs,
    } in jobs
    {
        left -= 1;
        if cancel.is_cancelled() {
            return Ok(INTERRUPTED);
        }
        let store = Store::create(
            &args.output.results,
            &name,
            spec,
            plan,
            recorded(isolation),
            named.clone(),
        )?;
        status = status.max(one(args, store, programs, isolation, audience, left == 0, cancel).await?);
    }
    Ok(status)
}

/// Runs what is left of a run.
async fn resume(
    args: &args::Run,
    folder: &Path,
    isolation: Isolation,
    audience: &Audience,
    cancel: &CancellationToken,
) -> anyhow::Result<u8> {
    let mut store = Store::resume(folder)?;
    programs::check_variants(&args.node, [&store.results().spec])?;
    if store.is_done() {
        // Written again, since perfrun may have been killed before it came to its last file.
        let reason = store.results().reason.clone();
        store.finish(RunState::Complete, reason, BTreeMap::new())?;
        let _ = writeln!(stderr(), "all trials are there: nothing is left to run");
        report::show(&store, args.output.json)?;
        return Ok(0);
    }
    let earlier = &store.results().environment.programs;
    store.keep_programs(programs::resolve(&programs::named_now_or_before(
        &args.node, earlier,
    ))?)?;
    let Results {
        plan,
        spec,
        environment,
        ..
    } = store.results();
    let programs = programs::of_plan(plan, spec, isolation, &environment.programs)?;
    one(args, store, programs, isolation, audience, true, cancel).await
}

/// Who watches runs besides the one who typed the command.
struct Audience {
    exporter: Exporter,
    page: Option<Page>,
}

impl Audience {
    /// Serves what the arguments ask for.
    async fn gather(args: &args::Run) -> anyhow::Result<Self> {
        let exporter = match args.metrics_listen {
            Some(address) => Exporter::serve(address).await?,
            None => Exporter::default(),
        };
        let page = match args.ui {
            Some(address) => Some(Page::serve(address).await?),
            None => None,
        };
        if let Some(page) = &page {
            let _ = writeln!(stderr(), "watch it at {}", page.url());
        }
        Ok(Self { exporter, page })
    }

    fn begin(&self, results: &Results, is_last: bool) {
        self.exporter.begin(results);
        if let Some(page) = &self.page {
            page.begin(results, is_last);
        }
    }

    fn on(&self, event: Event<'_>) {
        self.exporter.on(event);
        if let Some(page) = &self.page {
            page.on(event);
        }
    }
}

/// A document that may be run, with all that it takes.
struct Job {
    name: String,
    spec: PerfRunSpec,
    plan: Plan,
    programs: Programs,
}

impl Job {
    fn of(run: PerfRun, isolation: Isolation, given: &[results::NodeProgram]) -> anyhow::Result<Self> {
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

/// The plan of a document that can be run now.
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

/// Runs one document to its end, whatever that is, and shows what came out.
async fn one(
    args: &args::Run,
    mut store: Store,
    programs: Programs,
    isolation: Isolation,
    audience: &Audience,
    is_last: bool,
    cancel: &CancellationToken,
) -> anyhow::Result<u8> {
    audience.begin(store.results(), is_last);
    let Results { name, plan, .. } = store.results();
    let ui = Ui::new(args.output.quiet, plan);
    ui.mention(&format!(
        "perfrun/{name}: {} of {} on {}, {}; results in {}",
        counted(plan.trials.len(), "trial"),
        counted(plan.cells.len(), "cell"),
        counted(plan.nodes.len(), "node"),
        match isolation {
            Isolation::Namespaces => "each in a network namespace",
            Isolation::Loopback => "all on one loopback interface",
        },
        store.folder().display(),
    ));
    for skipped in &plan.skipped {
        ui.mention(&format!("skipped {}: {}", skipped.id, skipped.reason));
    }
    let end = {
        let measured = measure(&mut store, programs, isolation, audience, &ui, cancel);
        tokio::pin!(measured);
        tokio::select! {
            biased;
            end = &mut measured => end,
            () = cancel.cancelled() => {
                ui.mention("stopping: what was measured is being saved; Ctrl-C again to end at once");
                measured.await
            }
        }
    };
    let RunEnd {
        state,
        cause,
        reason,
        nodes,
    } = end;
    let saved = store.finish(state, reason.clone(), nodes);
    audience.exporter.end(store.results(), cause);
    drop(ui);
    if let (RunState::Failed, Some(reason)) = (state, &reason) {
        let _ = writeln!(
            stderr(),
            "perfrun: perfrun/{} failed: {reason}",
            store.results().name
        );
    }
    // Even if it could not be saved: it may have taken hours.
    report::show(&store, args.output.json)?;
    if let Some(page) = &audience.page {
        page.end(store.results()).await;
    }
    saved?;
    if state != RunState::Complete && !args.output.quiet {
        let folder = store.folder().display();
        let _ = writeln!(stderr(), "go on with it by: perfrun run --resume {folder}");
    }
    let failed = store
        .results()
        .trials
        .iter()
        .any(|record| record.failure.is_some() && !was_retried(record, store.results()));
    Ok(match state {
        RunState::Complete if !failed => 0,
        RunState::Complete | RunState::Failed => INCOMPLETE,
        RunState::Interrupted => INTERRUPTED,
    })
}

/// Starts the nodes, runs the trials that are left, ends the nodes.
async fn measure(
    store: &mut Store,
    programs: Programs,
    isolation: Isolation,
    audience: &Audience,
    ui: &Ui,
    cancel: &CancellationToken,
) -> RunEnd {
    let Results {
        name,
        spec,
        plan,
        trials,
        ..
    } = store.results().clone();
    let without_nodes = |state, reason| RunEnd {
        state,
        cause: None,
        reason,
        nodes: BTreeMap::new(),
    };
    let failed = |error: anyhow::Error| without_nodes(RunState::Failed, Some(format!("{error:#}")));
    let settings = Settings {
        run: name,
        programs,
        isolation,
        provision_timeout: spec.timeouts.provision.into(),
        logs: store.logs_folder(),
    };
    let exporter = &audience.exporter;
    let watch = |event: NodeEvent<'_>| match event {
        NodeEvent::Started { name, contact } => exporter.watch(name, contact),
        NodeEvent::Lost { name, reason } => ui.say(&format!("{name} was lost: {reason}")),
    };
    let nodes = match LocalNodes::start(settings, watch).await {
        Ok(nodes) => nodes,
        Err(error) => return failed(error.into()),
    };
    let ready = tokio::select! {
        ready = nodes.ready() => Some(ready),
        () = cancel.cancelled() => None,
    };
    let end = match ready {
        None => without_nodes(RunState::Interrupted, None),
        Some(Err(error)) => failed(error.into()),
        Some(Ok(clients)) => {
            let conductor = Conductor {
                plan: &plan,
                options: Options {
                    already: trials,
                    ..Options::new(spec.timeouts)
                },
                sink: store,
                spares: &nodes,
                progress: &|event: Event<'_>| {
                    audience.on(event);
                    ui.on(event);
                },
                cancel: cancel.clone(),
            };
            conductor.run(clients).await
        }
    };
    exporter.keep_last_pages().await;
    nodes.stop().await;
    end
}

/// Whether a later attempt at the same trial succeeded.
fn was_retried(failed: &results::TrialRecord, results: &Results) -> bool {
    results
        .trials
        .iter()
        .any(|record| record.trial.id == failed.trial.id && record.failure.is_none())
}

/// A number of things.
pub fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Cancels the run at the first SIGINT or SIGTERM; a second one does not wait for it.
pub async fn cancel_on_signal(cancel: CancellationToken) -> io::Result<()> {
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

/// What results call it.
fn recorded(isolation: Isolation) -> results::Isolation {
    match isolation {
        Isolation::Namespaces => results::Isolation::Namespaces,
        Isolation::Loopback => results::Isolation::Loopback,
    }
}
