//! `perfrun report`: shows saved results again.

use std::{
    fs,
    io::{Write, stderr},
    path::Path,
};

use anyhow::{Context, ensure};

use perfrun_api::results::Results;
use perfrun_contract::{
    account::Account,
    compare::Judged,
    plan::Cell,
    profile::Profile,
    run::{Isolation, Phase},
};
use perfrun_report::{Basis, Form, ShownResults};

use crate::{
    args::{self, Format, InvalidCommandLine, Where, typed},
    ci, print,
    results_folder::{self, ResultsFolder},
    tell, terminal_width,
};

/// Prints results, and writes plots and samples if requested.
pub fn report(args: &args::Report) -> anyhow::Result<()> {
    if !args.cells.is_empty() && matches!(args.shown.output, Format::Junit | Format::Github) {
        let problem = "findings are of the whole run: leave out --where, or choose another --output";
        return Err(InvalidCommandLine(problem.to_owned()).into());
    }
    let mut results = results_folder::read(&args.results)?;
    let verdict_of_whole_run = match args.cells.is_empty() {
        true => None,
        false => keep(&mut results, &args.cells)?,
    };
    let profiles = results_folder::read_profiles(&args.results, &results.plan);
    let printed = PrintedResults {
        results: &results,
        profiles: &profiles,
        verdict_of_whole_run: verdict_of_whole_run.as_deref(),
    };
    let form = Form {
        all: args
            .cells
            .iter()
            .fold(report_all(&args.results), |command, cells| {
                format!("{command} --where {cells}")
            }),
        resume: resume(&args.results, &results),
        ..Form::default()
    };
    print(&rendered(printed, args.shown, form)?)?;
    if let Some(folder) = &args.svg {
        let plots = perfrun_report::plots(&results.account());
        ensure!(!plots.is_empty(), "there is nothing to draw: no trial completed");
        write(folder, plots)?;
    }
    if let Some(folder) = &args.csv {
        ensure!(
            !results.summary.is_empty(),
            "there is nothing to write: no trial completed"
        );
        let account = results.account();
        let mut files = vec![("summary.csv".to_owned(), perfrun_report::summary_csv(&account))];
        files.extend(perfrun_report::echo_csv(&account));
        write(folder, files)?;
    }
    Ok(())
}

/// Restricts results to some cells. Returns the verdict of the whole run, in words. `None` if it expects
/// nothing.
fn keep(results: &mut Results, cells: &[Where]) -> anyhow::Result<Option<String>> {
    let is_wanted = |cell: &Cell| cells.iter().any(|wanted| wanted.selects(cell));
    let all = &results.plan.cells;
    for wanted in cells {
        if !all.iter().any(|cell| wanted.selects(cell)) {
            return Err(InvalidCommandLine(format!(
                "{} has no cell that --where {wanted} selects: the first of its {} cells is {}",
                results.name,
                all.len(),
                all.first().map(Where::naming).unwrap_or_default()
            ))
            .into());
        }
    }
    perfrun_report::select_cells(
        &mut results.plan,
        &mut results.trials,
        &mut results.summary,
        is_wanted,
    );
    let judged = results.judged.take();
    // Findings are of all cells together.
    results.judged = judged
        .as_ref()
        .and_then(|judged| judged.verdict)
        .map(|verdict| Judged {
            verdict: Some(verdict),
            ..Judged::default()
        });
    Ok(judged.as_ref().and_then(perfrun_report::verdict_of_whole_run))
}

/// Writes files to a folder, which is created if it does not exist.
fn write<N: AsRef<Path>>(folder: &Path, files: Vec<(N, String)>) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    for (name, text) in files {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("failed to write {}", file.display()))?;
        let _ = writeln!(stderr(), "wrote {}", file.display());
    }
    Ok(())
}

/// The command that prints all tables of a results folder, as a user can type it.
pub fn report_all(results: &Path) -> String {
    format!("{} report {} --all", typed(), results.display())
}

/// The command that measures what a run on this machine has not, as a user can type it. `None` if nothing
/// is missing, and of a run that is in progress.
pub fn resume(folder: &Path, results: &Results) -> Option<String> {
    let phase = results.conclusion().phase;
    let is_open = matches!(phase, Phase::Failed | Phase::Cancelled);
    let is_here = folder.is_dir() && results.environment.isolation != Isolation::Pods;
    (is_open && is_here).then(|| format!("{} run --resume {}", typed(), folder.display()))
}

/// Results to print.
#[derive(Clone, Copy, Debug)]
pub struct PrintedResults<'a> {
    pub results: &'a Results,
    /// Empty if there are none.
    pub profiles: &'a [Profile],
    /// The verdict of the whole run, in words, if the results are of some cells.
    pub verdict_of_whole_run: Option<&'a str>,
}

/// Results in a format for printing. `form` has what tables for this terminal have besides them. Findings for
/// GitHub go to standard error.
pub fn rendered(
    printed: PrintedResults<'_>,
    shown: args::OutputOptions,
    form: Form,
) -> anyhow::Result<String> {
    let results = printed.results;
    let account = Account {
        profiles: printed.profiles,
        ..results.account()
    };
    let drawn = ShownResults {
        results: &account,
        verdict_of_whole_run: printed.verdict_of_whole_run,
    };
    Ok(match shown.output {
        Format::Table => {
            let form = Form {
                width: terminal_width(),
                is_all: shown.all,
                ..form
            };
            perfrun_report::terminal(drawn, &form)
        }
        Format::Md => perfrun_report::markdown(drawn),
        Format::Json => serde_json::to_string_pretty(results).context("failed to encode the results")? + "\n",
        Format::Csv => {
            let mut nodes = results.trials.iter().flat_map(|record| record.nodes.values());
            if nodes.all(|node| node.measured.samples.is_empty()) {
                tell(format_args!(
                    "note: {} has no samples, of which each would be a line: -o json has what was measured",
                    results.name
                ));
            }
            perfrun_report::samples_csv(&account)
        }
        Format::Html => perfrun_report::html(drawn),
        Format::Junit => {
            let judged = results.judged.as_ref().with_context(|| {
                format!(
                    "{} compares nothing and expects nothing: there is nothing to report",
                    results.name
                )
            })?;
            let checks = perfrun_report::checks(&results.plan, judged, Basis::Trials);
            ci::junit(&results.name, &checks, shown.inconclusive)?
        }
        Format::Github => {
            let judged = results.judged.iter();
            let sentences =
                judged.flat_map(|judged| perfrun_report::sentences(&results.plan, judged, Basis::Trials));
            ci::annotate(&results.name, sentences, shown.inconclusive);
            perfrun_report::markdown(drawn)
        }
    })
}

/// Prints the results of a run that has just ended with this status: tables, or one line of JSON.
pub fn show(results_folder: &ResultsFolder, output: &args::Output, status: u8) -> anyhow::Result<()> {
    let resume = resume(results_folder.path(), results_folder.results());
    if output.json {
        let json = serde_json::to_string(results_folder.results()).context("failed to encode the results")?;
        print(&format!("{json}\n"))?;
        if let Some(resume) = resume.filter(|_| !output.quiet) {
            tell(format_args!("perfrun: run what is missing with: {resume}"));
        }
        return Ok(());
    }
    let page = results_folder.path().join(results_folder::PAGE);
    let ending = [page.display().to_string(), format!("exit {status}")];
    let form = Form {
        width: terminal_width(),
        is_all: output.all,
        all: report_all(results_folder.path()),
        resume,
        // Without the page, the results could not be saved, and the error is the last line.
        ending: if page.is_file() { ending.into() } else { vec![] },
    };
    print(&perfrun_report::terminal(&results_folder.account(), &form))
}
