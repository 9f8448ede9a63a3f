//! `perfrun report`: shows saved results again.

use std::{
    fs,
    io::{Write, stderr},
    path::Path,
};

use anyhow::{Context, ensure};

use perfrun_api::results::Results;
use perfrun_contract::{account::Account, plan::Cell, profile::Profile};
use perfrun_report::{Basis, Form};

use crate::{
    args::{self, Format, Shown, Where, typed},
    ci, print,
    store::{self, Store},
    terminal_width,
};

/// Prints results, and writes plots and samples if requested.
pub fn report(args: &args::Report) -> anyhow::Result<()> {
    let mut results = store::read(&args.results)?;
    if !args.cells.is_empty() {
        ensure!(
            !matches!(args.shown.output, Format::Junit | Format::Github),
            "findings are of the whole run: leave out --where, or choose another --output"
        );
        keep(&mut results, &args.cells)?;
    }
    let profiles = store::read_profiles(&args.results, &results.plan);
    let all = report_all(&args.results);
    print(&rendered(&results, &profiles, args.shown, all)?)?;
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

/// Restricts results to some cells.
fn keep(results: &mut Results, cells: &[Where]) -> anyhow::Result<()> {
    let is_wanted = |cell: &Cell| cells.iter().any(|wanted| wanted.selects(cell));
    let all = &results.plan.cells;
    for wanted in cells {
        ensure!(
            all.iter().any(|cell| wanted.selects(cell)),
            "{} has no cell that --where {wanted} selects: the first of its {} cells is {}",
            results.name,
            all.len(),
            all.first().map(Where::naming).unwrap_or_default()
        );
    }
    perfrun_report::keep_cells(
        &mut results.plan,
        &mut results.trials,
        &mut results.summary,
        is_wanted,
    );
    results.judged = None;
    Ok(())
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

/// The command that prints all tables of a results folder, as somebody can type it.
pub fn report_all(results: &Path) -> String {
    format!("{} report {} --all", typed(), results.display())
}

/// Results, and profiles if there are any, in a format for printing. `all` is the command that prints all
/// tables. Findings for GitHub go to standard error.
pub fn rendered(
    results: &Results,
    profiles: &[Profile],
    shown: Shown,
    all: String,
) -> anyhow::Result<String> {
    let account = Account {
        profiles,
        ..results.account()
    };
    Ok(match shown.output {
        Format::Table => {
            let form = Form {
                width: terminal_width(),
                is_all: shown.all,
                all,
                ending: vec![],
            };
            perfrun_report::terminal(&account, &form)
        }
        Format::Md => perfrun_report::markdown(&account),
        Format::Json => serde_json::to_string_pretty(results).context("failed to encode the results")? + "\n",
        Format::Csv => perfrun_report::samples_csv(&account),
        Format::Html => perfrun_report::html(&account),
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
            let findings =
                judged.flat_map(|judged| perfrun_report::findings(&results.plan, judged, Basis::Trials));
            ci::annotate(&results.name, findings, shown.inconclusive);
            perfrun_report::markdown(&account)
        }
    })
}

/// Prints the results of a run that has just ended with this status: tables, or one line of JSON.
pub fn show(store: &Store, output: &args::Output, status: u8) -> anyhow::Result<()> {
    if output.json {
        let json = serde_json::to_string(store.results()).context("failed to encode the results")?;
        return print(&format!("{json}\n"));
    }
    let page = store.folder().join(store::PAGE);
    let ending = [page.display().to_string(), format!("exit {status}")];
    let form = Form {
        width: terminal_width(),
        is_all: output.all,
        all: report_all(store.folder()),
        // Without the page, the results could not be saved, and the error is the last line.
        ending: if page.is_file() { ending.into() } else { vec![] },
    };
    print(&perfrun_report::terminal(&store.account(), &form))
}
