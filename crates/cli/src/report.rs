//! `perfrun report`: shows saved results again.

use std::{fs, path::Path};

use anyhow::{Context, ensure};
use perfrun_api::results::Results;
use perfrun_contract::{compare::Judged, plan::Cell};
use perfrun_report::TerminalOptions;

use crate::{
    args::{self, Format, InvalidCommandLine, Where},
    output::{write_line_to_stderr, write_to_stdout},
    printing::{PrintedResults, rendered, resume_command, show_all_command},
    results_folder,
};

/// Prints results, and writes plots and samples if requested.
pub fn report(args: &args::Report) -> anyhow::Result<()> {
    if !args.cells.is_empty() && matches!(args.output_options.output, Format::Junit | Format::Github) {
        let problem = "findings are of the whole run: leave out --where, or choose another --output";
        return Err(InvalidCommandLine(problem.to_owned()).into());
    }
    let mut results = results_folder::read_within(&args.results, &args.output_options.size.memory())?;
    let verdict_of_whole_run = match args.cells.is_empty() {
        true => None,
        false => restrict_to(&mut results, &args.cells)?,
    };
    let profiles = results_folder::read_profiles(&args.results, &results.plan);
    let printed = PrintedResults {
        results: &results,
        profiles: &profiles,
        verdict_of_whole_run: verdict_of_whole_run.as_deref(),
    };
    let options = TerminalOptions {
        show_all_command: args
            .cells
            .iter()
            .fold(show_all_command(&args.results), |command, cells| {
                format!("{command} --where {cells}")
            }),
        resume_command: resume_command(&args.results, &results),
        ..TerminalOptions::default()
    };
    let written = write_files(args, &results);
    // After the names of files, so that it ends with the verdict; also if they cannot be written.
    write_to_stdout(&rendered(printed, args.output_options, options)?)?;
    written
}

/// Writes the plots and samples that were requested.
fn write_files(args: &args::Report, results: &Results) -> anyhow::Result<()> {
    let reported_run = results.reported_run();
    if let Some(folder) = &args.svg {
        let plots = perfrun_report::plots(&reported_run);
        ensure!(!plots.is_empty(), "there is nothing to draw: no trial completed");
        write(folder, plots)?;
    }
    if let Some(folder) = &args.csv {
        ensure!(
            !results.summary.is_empty(),
            "there is nothing to write: no trial completed"
        );
        let mut files = vec![(
            "summary.csv".to_owned(),
            perfrun_report::summary_csv(&reported_run),
        )];
        files.extend(perfrun_report::echo_csv(&reported_run));
        write(folder, files)?;
    }
    Ok(())
}

/// Restricts results to some cells. Returns the verdict of the whole run, in words. `None` if it expects
/// nothing.
fn restrict_to(results: &mut Results, cells: &[Where]) -> anyhow::Result<Option<String>> {
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
    Ok(judged.as_ref().and_then(perfrun_judge::verdict_text_of_whole_run))
}

/// Writes files to a folder, which is created if it does not exist.
fn write<N: AsRef<Path>>(folder: &Path, files: Vec<(N, String)>) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    for (name, text) in files {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("failed to write {}", file.display()))?;
        write_line_to_stderr(format_args!("wrote {}", file.display()));
    }
    Ok(())
}
