//! `perfrun validate`.

use std::path::Path;

use anyhow::Context;
use kube::ResourceExt;
use perfrun_api::{document::Document, planning::plan, schedule::Timetable};

use crate::{
    args,
    documents::{self, label},
    output::{write_line_to_stderr, write_to_stdout},
    words::{counted, least_time_if_known, too_few_iterations},
};

/// Checks all files, and those of all folders, and prints the problems of each. Returns the exit status.
pub fn validate(args: &args::Validate) -> anyhow::Result<u8> {
    let mut status = 0;
    let mut refuse = |problem: anyhow::Error| {
        write_line_to_stderr(format_args!("perfrun: {problem:#}"));
        status = 1;
    };
    for path in &args.files {
        let files = documents::files_of(path).unwrap_or_else(|problem| {
            refuse(problem);
            vec![]
        });
        for file in &files {
            match valid(file) {
                Ok(documents) => {
                    let mut lines = vec![format!(
                        "{}: {}",
                        label(file),
                        counted(documents.len(), "valid document")
                    )];
                    lines.extend(documents.into_iter().flatten());
                    write_to_stdout(&(lines.join("\n") + "\n"))?;
                }
                Err(problem) => refuse(problem),
            }
        }
    }
    Ok(status)
}

/// What is known in advance of each document in a file, in lines, if all of them can be run, or be run when
/// they are due.
fn valid(file: &Path) -> anyhow::Result<Vec<Vec<String>>> {
    let known = |document: &Document| {
        let (name, spec, schedule) = match document {
            Document::Run(run) => (format!("perfrun/{}", run.name_any()), &run.spec, None),
            Document::Schedule(schedule) => (
                format!("perfschedule/{}", schedule.name_any()),
                &schedule.spec.run_template.spec,
                Some(&schedule.spec),
            ),
        };
        let context = || format!("{}: {name}", label(file));
        if let Some(schedule) = schedule {
            Timetable::new(schedule).with_context(context)?;
        }
        let plan = plan(spec).with_context(context)?;
        let facts = [least_time_if_known(&plan)]
            .into_iter()
            .chain(too_few_iterations(&plan));
        Ok(facts.map(|fact| format!("  {name} {fact}")).collect())
    };
    documents::read_any(file)?.iter().map(known).collect()
}
