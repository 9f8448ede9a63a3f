//! Results on standard output.

use std::path::Path;

use anyhow::Context;
use perfrun_api::results::Results;
use perfrun_contract::{
    profile::Profile,
    reported_run::ReportedRun,
    run::{Isolation, Phase},
    tally::{Conclusion, EndReason},
};
use perfrun_judge::runs::Basis;
use perfrun_local::nodes::PROVISION_LIMIT;
use perfrun_report::{ShownResults, TerminalOptions};

use crate::{
    args::{self, Format, typed},
    ci,
    output::{terminal_width, write_line_to_stderr, write_to_stdout},
    results_folder::{self, ResultsFolder},
};

/// The command that prints all tables of a results folder, as a user can type it.
pub(crate) fn show_all_command(results: &Path) -> String {
    format!("{} report {} --all", typed(), results.display())
}

/// The command that measures what a run on this machine has not, as a user can type it. `None` if nothing
/// is missing, of a run that is in progress, and if trials or the start of a node took too long: a resumed
/// run keeps these limits.
pub(crate) fn resume_command(folder: &Path, results: &Results) -> Option<String> {
    let Conclusion {
        phase,
        reason,
        message,
    } = results.conclusion();
    let is_open = match reason {
        EndReason::TrialTimeout | EndReason::WorkloadTimeout => false,
        EndReason::NodeNotReady if message.contains(PROVISION_LIMIT) => false,
        _ => matches!(phase, Phase::Failed | Phase::Cancelled),
    };
    let is_here = folder.is_dir() && results.environment.isolation != Isolation::Pods;
    let other = match reason {
        EndReason::NodeNotReady => other_program(results, &message).unwrap_or_default(),
        _ => String::new(),
    };
    (is_open && is_here).then(|| format!("{} run --resume {}{other}", typed(), folder.display()))
}

/// The option that names another program for the node that did not become ready, which the message begins
/// with. `None` if the run named no program for it, or if completed trials have bound the run to it.
fn other_program(results: &Results, message: &str) -> Option<String> {
    if results.tally().counts().completed > 0 {
        return None;
    }
    let name = message.split(' ').next()?;
    let node = results.plan.nodes.iter().find(|node| node.name == name)?;
    let named = |variant: &Option<String>| {
        let mut programs = results.environment.programs.iter();
        programs.find(|program| program.variant == *variant)
    };
    let program = named(&node.variant).or_else(|| named(&None))?;
    Some(match &program.variant {
        Some(variant) => format!(" --node {variant}=PATH"),
        None => " --node PATH".to_owned(),
    })
}

/// Results to print.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrintedResults<'a> {
    pub results: &'a Results,
    /// Empty if there are none.
    pub profiles: &'a [Profile],
    /// The verdict of the whole run, in words, if the results are of some cells.
    pub verdict_of_whole_run: Option<&'a str>,
}

/// Results in a format for printing. `options` has what tables for this terminal have besides them. Findings
/// for GitHub go to standard error.
pub(crate) fn rendered(
    printed: PrintedResults<'_>,
    output_options: args::OutputOptions,
    options: TerminalOptions,
) -> anyhow::Result<String> {
    let results = printed.results;
    let reported_run = ReportedRun {
        profiles: printed.profiles,
        ..results.reported_run()
    };
    let shown = ShownResults {
        results: &reported_run,
        verdict_of_whole_run: printed.verdict_of_whole_run,
    };
    Ok(match output_options.output {
        Format::Table => {
            let options = TerminalOptions {
                width: terminal_width(),
                shows_all: output_options.all,
                ..options
            };
            perfrun_report::terminal(shown, &options)
        }
        Format::Md => perfrun_report::markdown(shown),
        Format::Json => serde_json::to_string_pretty(results).context("failed to encode the results")? + "\n",
        Format::Csv => {
            let mut nodes = results.trials.iter().flat_map(|record| record.nodes.values());
            if nodes.all(|node| node.measured.samples.is_empty()) {
                write_line_to_stderr(format_args!(
                    "note: {} has no samples, so there is only a header: use -o json for what was measured",
                    results.name
                ));
            }
            perfrun_report::samples_csv(&reported_run)
        }
        Format::Html => perfrun_report::html(shown),
        Format::Junit => {
            let judged = results.judged.as_ref().with_context(|| {
                format!(
                    "{} compares nothing and expects nothing, so there is nothing to report: add `compare` or `expect` to \
                     the document and run it again, or choose another --output",
                    results.name
                )
            })?;
            let checks = perfrun_report::checks(&results.plan, judged, Basis::Trials);
            ci::junit(&results.name, &checks, output_options.inconclusive)?
        }
        Format::Github => {
            let judged = results.judged.iter();
            let sentences =
                judged.flat_map(|judged| perfrun_judge::sentences(&results.plan, judged, Basis::Trials));
            ci::annotate(&results.name, sentences, output_options.inconclusive);
            perfrun_report::markdown(shown)
        }
    })
}

/// Prints the results of a run that has just ended with this status: tables, or one line of JSON.
pub(crate) fn show(results_folder: &ResultsFolder, output: &args::Output, status: u8) -> anyhow::Result<()> {
    let resume_command = resume_command(results_folder.path(), results_folder.results());
    if output.json {
        let json = serde_json::to_string(results_folder.results()).context("failed to encode the results")?;
        write_to_stdout(&format!("{json}\n"))?;
        if let Some(command) = resume_command.filter(|_| !output.quiet) {
            write_line_to_stderr(format_args!("perfrun: run what is missing with: {command}"));
        }
        return Ok(());
    }
    let page = results_folder.path().join(results_folder::PAGE);
    let ending = [page.display().to_string(), format!("exit {status}")];
    let options = TerminalOptions {
        width: terminal_width(),
        shows_all: output.all,
        show_all_command: show_all_command(results_folder.path()),
        resume_command,
        // Without the page, the results could not be saved, and the error is the last line.
        ending: if page.is_file() { ending.into() } else { vec![] },
    };
    write_to_stdout(&perfrun_report::terminal(
        &results_folder.reported_run(),
        &options,
    ))
}
