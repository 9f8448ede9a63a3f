//! `perfrun history`.

use perfrun_report::{history_header, history_lines};

use crate::{args, output::write_to_stdout, results_folder};

/// Prints the medians of all runs in a folder. They are read one after the other, since a folder may have
/// more runs than memory has room for.
pub fn history(args: &args::History) -> anyhow::Result<()> {
    let mut runs = vec![];
    for run in results_folder::runs_in(&args.folder)? {
        let results = results_folder::read_within(&run, &args.size.memory())?;
        runs.push((results.started, history_lines(&results.reported_run())));
    }
    runs.sort_by_key(|(started, _)| *started);
    let lines: String = runs.into_iter().map(|(_, lines)| lines).collect();
    write_to_stdout(&(history_header() + &lines))
}
