//! `perfrun run --cluster` and `perfrun watch`.

use anyhow::{Context, ensure};
use kube::ResourceExt;
use perfrun_api::{
    exit_status::{INCOMPLETE, INTERRUPTED},
    planning::draft,
    spec::PerfRun,
};
use perfrun_contract::plan::Plan;
use tokio_util::sync::CancellationToken;

use super::{
    access::Cluster,
    apply::{Intent, apply, intent},
    end::{exit_status, failure_message},
    fetch::fetch,
    find::{self, find, readable},
    follow::{Followed, follow, screen},
    status::StatusSummary,
};
use crate::{
    args::{self, InvalidCommandLine, Output},
    documents::{self, label, runnable},
    exit_status::worse,
    output::write_line_to_stderr,
    printing,
    results_folder::{self, ResultsFolder},
    signals::cancel_on_signal,
    words::{counted, least_time, skipped, too_few_iterations, trials},
};

/// Runs every document of a file on a cluster. Returns the exit status.
pub async fn run(args: &args::Run) -> anyhow::Result<u8> {
    if args.profile.is_some() {
        let problem = "unable to profile on a cluster: the pods of nodes have no right to use perf; run the document on \
                       one Linux machine, without --cluster";
        return Err(InvalidCommandLine(problem.to_owned()).into());
    }
    let stop = cancel_on_signal();
    let file = args.file.as_deref().context("name a file to run")?;
    let documents = documents::read(file, &args.comparison)?;
    for document in &documents {
        runnable(document).with_context(|| label(file))?;
    }
    results_folder::check_writable(&args.output.results)?;
    let default = Cluster::find(&args.target).await?;
    let (mut wanted, mut applied) = (vec![], vec![]);
    // All documents are checked before the first is applied: it is hard to clean up after half of a file.
    for document in documents {
        let cluster = namespace_of(&default, &document)?;
        let existing = find::get(&cluster, &document.name_any()).await?;
        let existing = existing.map(readable).transpose()?;
        let intent = intent(&document, existing.as_ref())?;
        wanted.push((cluster, document, intent));
    }
    for (cluster, document, intent) in wanted {
        let is_new = intent == Intent::Create;
        let run = apply(&cluster, document, intent).await?;
        applied.push((cluster, run, is_new));
    }
    let mut status = 0;
    for (index, (cluster, run, is_new)) in applied.iter().enumerate() {
        introduce(cluster, run, *is_new, &args.output)?;
        status = worse(status, to_the_end(cluster, run, &args.output, &stop).await?);
        if stop.is_cancelled() {
            // The runs after this one have not been followed yet.
            applied[index..]
                .iter()
                .for_each(|(cluster, run, _)| explain_return(cluster, run));
            return Ok(INTERRUPTED);
        }
    }
    Ok(status)
}

/// Follows a run until it ends. Returns the exit status.
pub async fn watch(args: &args::Watch) -> anyhow::Result<u8> {
    let stop = cancel_on_signal();
    results_folder::check_writable(&args.output.results)?;
    let cluster = Cluster::find(&args.target).await?;
    let run = find(&cluster, &args.name).await?;
    let status = to_the_end(&cluster, &run, &args.output, &stop).await?;
    if stop.is_cancelled() {
        explain_return(&cluster, &run);
    }
    Ok(status)
}

/// The namespace that a document names, or the default one.
fn namespace_of(cluster: &Cluster, document: &PerfRun) -> anyhow::Result<Cluster> {
    let Some(namespace) = document.metadata.namespace.as_deref() else {
        return Ok(cluster.clone());
    };
    ensure!(
        !cluster.is_namespace_named() || namespace == cluster.namespace(),
        "perfrun/{} is for namespace {namespace}: run it without -n, or remove metadata.namespace",
        document.name_any()
    );
    Ok(cluster.in_namespace(namespace))
}

/// Prints what will be run, like a local run.
fn introduce(cluster: &Cluster, run: &PerfRun, is_new: bool, output: &Output) -> anyhow::Result<()> {
    if output.quiet {
        return Ok(());
    }
    let plan = draft(&run.spec)?;
    let Plan { cells, nodes, .. } = &plan;
    let joined = if is_new { "" } else { ", already exists" };
    write_line_to_stderr(format_args!(
        "perfrun/{}: {} of {} on {}, each in a pod; namespace {}{joined}",
        run.name_any(),
        trials(&plan),
        counted(cells.len(), "cell"),
        counted(nodes.len(), "node"),
        cluster.namespace(),
    ));
    let advance = least_time(&plan).into_iter().chain(too_few_iterations(&plan));
    advance
        .chain(skipped(&plan, false))
        .for_each(write_line_to_stderr);
    Ok(())
}

/// Follows a run until it ends, then saves and shows its results.
async fn to_the_end(
    cluster: &Cluster,
    run: &PerfRun,
    output: &Output,
    stop: &CancellationToken,
) -> anyhow::Result<u8> {
    let name = run.name_any();
    let screen = screen(run, output.quiet);
    let ended = match follow(cluster, run, &screen, stop).await? {
        Followed::Ended(ended) => ended,
        Followed::Deleted => {
            drop(screen);
            write_line_to_stderr(format_args!("perfrun: perfrun/{name} was deleted"));
            return Ok(INCOMPLETE);
        }
        Followed::Stopped => return Ok(INTERRUPTED),
    };
    let status = StatusSummary::of(&ended);
    if let Some(failure_message) = failure_message(&name, &ended) {
        screen.print_line(&format!("perfrun: {failure_message}"));
    }
    let fetched = fetch(cluster, &ended, &output.size.memory(), &screen, stop).await;
    drop(screen);
    if stop.is_cancelled() {
        return Ok(INTERRUPTED);
    }
    let phase = status.phase();
    let fetched = fetched
        .with_context(|| format!("perfrun/{name} has ended ({phase}), but its results could not be fetched"));
    let Some(results) = fetched? else {
        write_line_to_stderr(format_args!("perfrun: perfrun/{name} has no results"));
        return Ok(INCOMPLETE);
    };
    let advice = || {
        format!(
            "they are still in the cluster: {}",
            cluster.command(&format!("get results {name}"))
        )
    };
    let results_folder = ResultsFolder::save(&output.results, results).with_context(advice)?;
    let status = exit_status(status.phase, results_folder.results().verdict());
    printing::show(&results_folder, output, status)?;
    Ok(status)
}

/// Prints how to follow or cancel a run that continues.
fn explain_return(cluster: &Cluster, run: &PerfRun) {
    let name = run.name_any();
    write_line_to_stderr(format_args!(
        "perfrun/{name} continues on the cluster\n  follow it with: {}\n  cancel it with: {}",
        cluster.command(&format!("watch {name}")),
        cluster.command(&format!("cancel {name}")),
    ));
}
