//! Benchmarks of perfrun itself: what documents show of what `cargo xtask bench NAME --keep` and `cargo xtask
//! fuzz --keep` keep.
//!
//! The folder has two files for each benchmark: what it printed, and where that comes from.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{
    folder::{FOLDER, entries, name, read},
    report::{BUILD, Report, STARTED},
};

/// The folder in [`FOLDER`].
pub(crate) const NAME: &str = "benchmarks";

/// Where the output of a benchmark comes from.
#[derive(Deserialize)]
struct Origin {
    /// The arguments of `cargo xtask`.
    arguments: Vec<String>,
    commit: String,
    started: String,
    kernel: String,
    /// The model of the CPU.
    cpu: String,
    cpus: usize,
}

/// The reports of all kept benchmarks, by their names in documents.
pub(crate) fn reports() -> Result<BTreeMap<String, Report>> {
    let kept = files("json")?.into_iter();
    kept.map(|(name, file)| {
        let origin: Origin = serde_json::from_str(&read(&file)?)
            .with_context(|| format!("failed to read {}: keep the benchmark again", file.display()))?;
        let report = origin.report(&name, &read(&file.with_extension("txt"))?);
        Ok((name, report))
    })
    .collect()
}

/// The kept files with this extension, by their names in documents.
pub(crate) fn files(extension: &str) -> Result<BTreeMap<String, PathBuf>> {
    let files = entries(&Path::new(FOLDER).join(NAME))?.into_iter();
    let files = files.filter(|file| file.extension().is_some_and(|of_file| of_file == extension));
    Ok(files.map(|file| (name(&file), file)).collect())
}

/// The arguments of `cargo xtask` that keep the benchmark with this name in documents. `None` if it is not
/// the name of a benchmark.
pub(crate) fn command(name: &str) -> Option<String> {
    match name.strip_prefix("bench-") {
        Some(benchmark) => Some(format!("bench {benchmark} --keep")),
        None => (name == "fuzz").then(|| "fuzz --keep".to_owned()),
    }
}

impl Origin {
    fn report(self, name: &str, printed: &str) -> Report {
        let command = format!("`cargo xtask {}`", self.arguments.join(" "));
        let cpu = format!("{} × {}", self.cpus, self.cpu);
        let output = format!(
            "{command} on {cpu}, Linux {}:\n\n```text\n{}\n```",
            self.kernel,
            printed.trim_matches('\n')
        );
        let environment = [
            ("Command", command),
            (BUILD, format!("commit {}", self.commit)),
            ("Kernel", self.kernel),
            ("CPU", cpu),
            (STARTED, self.started),
        ];
        let sources = format!("[Output]({NAME}/{name}.txt), [its origin]({NAME}/{name}.json)");
        Report::with(sources, vec![("Output".to_owned(), output)], &environment)
    }
}

#[cfg(test)]
mod tests {
    use super::Origin;

    #[test]
    fn a_document_shows_the_output_machine_day_and_build_of_a_benchmark() {
        // What `cargo xtask bench --keep` writes in a test of its own.
        let origin: Origin = serde_json::from_str(include_str!("../../xtask/src/benchmark.json")).unwrap();
        let report = origin.report("bench-scale", "\nruns   10  100\n  ms  1.0  2.0\n");
        let shown = "`cargo xtask bench scale --runs 10,100` on 2 × Some CPU, Linux 6.18:

```text
runs   10  100
  ms  1.0  2.0
```";
        assert_eq!(report.text("Output").as_deref(), Some(shown));
        assert_eq!(
            (&*report.day, &*report.build),
            ("2026-11-26", "commit 89abcde-dirty")
        );
        let environment = report.text("Environment").unwrap();
        assert!(
            environment.contains("\n| CPU | 2 × Some CPU |\n"),
            "{environment}"
        );
        assert_eq!(
            report.sources,
            "[Output](benchmarks/bench-scale.txt), [its origin](benchmarks/bench-scale.json)"
        );
    }
}
