//! `perfrun new`.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    path::Path,
};

use anyhow::{Context, bail};

use crate::{
    args::{self, program, typed},
    first_documents,
    output::{write_line_to_stderr, write_to_stdout},
};

/// What stands for the file of a document that is printed.
const FILE: &str = "FILE";

/// Prints the first document for a workload, or writes it to a new file.
pub fn write_document(args: &args::New) -> anyhow::Result<()> {
    let Some(file) = &args.output else {
        return write_to_stdout(&document(&args.workload, FILE, program()));
    };
    let name = file.display().to_string();
    write_new(file, &document(&args.workload, &name, program()))?;
    write_line_to_stderr(format_args!("wrote {name}; next: {} plan {name}", typed()));
    Ok(())
}

/// The document for a workload in this file. It ends with what to do next with this program.
fn document(workload: &str, file: &str, program: &str) -> String {
    // A line feed in the name of a file would end the comment.
    let file = if file.contains(char::is_control) {
        FILE
    } else {
        file
    };
    format!(
        "{}\n# Next: `{program} plan {file}`, then `{program} run {file}`, on a cluster with `--cluster`.\n",
        first_documents::of(workload).trim_end()
    )
}

/// Writes text to a file that does not exist yet.
fn write_new(file: &Path, text: &str) -> anyhow::Result<()> {
    let name = file.display();
    let mut created = match File::create_new(file) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
            "{name} exists already, and perfrun does not overwrite it: name another file with --output, or remove this one"
        ),
        created => created.with_context(|| format!("failed to create {name}"))?,
    };
    let written = created.write_all(text.as_bytes());
    if written.is_err() {
        // The next attempt would be refused because of half a document.
        let _ = fs::remove_file(file);
    }
    written.with_context(|| format!("failed to write {name}"))
}

#[cfg(test)]
mod tests {
    use perfrun_api::{document::parse, planning::plan};
    use perfrun_contract::parameters::Parameters;
    use strum::VariantNames;

    use super::*;

    #[test]
    fn every_workload_has_a_short_document_that_can_be_run() {
        for workload in Parameters::VARIANTS {
            let text = document(workload, "my.yaml", "perfrun");
            let runs = parse(&text).unwrap_or_else(|error| panic!("{workload}: {error}"));
            assert_eq!(runs.len(), 1, "{workload}");
            assert_eq!(runs[0].spec.workload.name(), *workload);
            let plan = plan(&runs[0].spec).unwrap_or_else(|error| panic!("{workload}: {error}"));
            assert!(plan.skipped.is_empty(), "{workload}: {:?}", plan.skipped);
            assert!(text.lines().count() <= 40, "{workload}: {text}");
            let long = text.lines().find(|line| line.chars().count() > 110);
            assert_eq!(long, None, "{workload}");
        }
    }

    #[test]
    fn a_document_begins_with_its_question_and_has_a_comment_before_each_field() {
        for workload in Parameters::VARIANTS {
            assert!(first_documents::question(workload).ends_with('?'), "{workload}");
            let lines: Vec<&str> = first_documents::of(workload).lines().map(str::trim).collect();
            for (i, line) in lines.iter().enumerate() {
                // Lines that every document has, and those that only hold others.
                let is_frame = ["apiVersion: ", "kind: "]
                    .iter()
                    .any(|start| line.starts_with(start));
                let is_field = !is_frame && !line.starts_with('#') && !line.ends_with(':');
                assert!(!is_field || lines[i - 1].starts_with('#'), "{workload}: {line}");
            }
        }
    }

    #[test]
    fn a_document_ends_with_the_commands_for_its_file() {
        let last = |file: &str, program: &str| {
            let text = document(Parameters::VARIANTS[0], file, program);
            text.lines().last().unwrap_or_default().to_owned()
        };
        assert_eq!(
            last("my.yaml", "kubectl perfrun"),
            "# Next: `kubectl perfrun plan my.yaml`, then `kubectl perfrun run my.yaml`, on a cluster with `--cluster`."
        );
        assert_eq!(last("a\nb: c", "perfrun"), last(FILE, "perfrun"));
    }
}
