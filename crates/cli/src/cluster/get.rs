//! `perfrun get results`.

use anyhow::{Context, bail, ensure};
use perfrun_api::exit_status::INTERRUPTED;
use perfrun_report::TerminalOptions;

use super::{access::Cluster, end::failure_message, fetch::fetch, find::find, status::StatusSummary};
use crate::{
    args,
    output::{write_line_to_stderr, write_to_stdout},
    printing::{PrintedResults, rendered},
    signals::cancel_on_signal,
    ui::Screen,
};

/// Prints the results of a run that has ended. Returns the exit status.
pub async fn get_results(args: &args::GetResults) -> anyhow::Result<u8> {
    let cluster = Cluster::find(&args.target).await?;
    let name = &args.name;
    let run = find(&cluster, name).await?;
    let status = StatusSummary::of(&run);
    ensure!(
        status.has_ended,
        "perfrun/{name} has not ended yet ({}, {} trials), so its results are not available; follow it with: {}",
        status.line(),
        status.progress(),
        cluster.command(&format!("watch {name}"))
    );
    let stop = cancel_on_signal();
    let memory = args.output_options.size.memory();
    let fetched = fetch(&cluster, &run, &memory, &Screen::new(true, 0), &stop).await;
    if stop.is_cancelled() {
        return Ok(INTERRUPTED);
    }
    let Some(results) = fetched.with_context(|| format!("perfrun/{name}"))? else {
        let failure_message =
            failure_message(name, &run).unwrap_or_else(|| format!("perfrun/{name} has ended"));
        bail!("{failure_message}; it has no results");
    };
    let options = TerminalOptions {
        show_all_command: cluster.command(&format!("get results {name} --all")),
        ..TerminalOptions::default()
    };
    let printed = PrintedResults {
        results: &results,
        profiles: &[],
        verdict_of_whole_run: None,
    };
    write_to_stdout(&rendered(printed, args.output_options, options)?)?;
    if let Some(failure_message) = failure_message(name, &run) {
        write_line_to_stderr(format_args!("perfrun: {failure_message}"));
    }
    // The command has done its work. The exit status of `perfrun watch` reports how the run ended.
    Ok(0)
}
