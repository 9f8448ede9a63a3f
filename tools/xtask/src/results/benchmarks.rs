//! Benchmarks of perfrun itself: what `cargo xtask bench NAME --keep` and `cargo xtask fuzz --keep` keep, and
//! what documents show of it.
//!
//! The folder has two files for each benchmark: what it printed, unchanged, and where that comes from.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{FOLDER, report::Report};
use crate::{
    files,
    shell::{self, Workspace},
};

/// The folder in [`super::FOLDER`].
const NAME: &str = "benchmarks";
/// Begins the names of benchmarks, here and in documents: a measured document may have the name of one.
const PREFIX: &str = "bench-";
/// The name of the search for input that breaks a parser.
const FUZZ: &str = "fuzz";

/// Where the output of a benchmark comes from.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Benchmark {
    name: String,
    /// Those of `cargo xtask`.
    arguments: Vec<String>,
    /// Ends in `-dirty` if the source had changes besides documents.
    commit: String,
    /// In UTC, as RFC 3339 has it.
    started: String,
    kernel: String,
    /// The model.
    cpu: String,
    cpus: usize,
}

impl Benchmark {
    /// The benchmark that these arguments of `cargo xtask bench` name, which starts now.
    pub(crate) fn now(workspace: &Workspace, arguments: &[OsString]) -> Result<Self> {
        let (name, arguments) = named(arguments)?;
        let arguments = ["bench".to_owned()].into_iter().chain(arguments).collect();
        Self::begin(workspace, format!("{PREFIX}{name}"), arguments)
    }

    /// The search for input that breaks a parser, which starts now.
    pub(crate) fn fuzz(workspace: &Workspace, minutes: f64) -> Result<Self> {
        let arguments = vec![FUZZ.to_owned(), "--minutes".to_owned(), minutes.to_string()];
        Self::begin(workspace, FUZZ.to_owned(), arguments)
    }

    fn begin(workspace: &Workspace, name: String, arguments: Vec<String>) -> Result<Self> {
        Ok(Self {
            name,
            arguments,
            commit: workspace.commit().context(
                "--keep needs the commit of the build: run it in a clone that git can read, or set PERFRUN_COMMIT",
            )?,
            started: shell::output(workspace.command("date").args(["--utc", "+%FT%TZ"]))?,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpu: cpu_model(&files::read(Path::new("/proc/cpuinfo"))?).to_owned(),
            cpus: thread::available_parallelism().map_or(1, usize::from),
        })
    }

    /// Keeps what the benchmark printed, in place of what was kept before.
    pub(crate) fn keep(&self, workspace: &Workspace, printed: &str) -> Result<()> {
        let folder = folder(workspace);
        self.write(&folder, printed)
            .with_context(|| format!("failed to write to {}", folder.display()))?;
        println!(
            "kept in {FOLDER}/{NAME}/{}.txt; `cargo xtask results` writes the documents that show it",
            self.name
        );
        Ok(())
    }

    fn write(&self, folder: &Path, printed: &str) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let file = |extension: &str| folder.join(format!("{}.{extension}", self.name));
        fs::write(file("json"), serde_json::to_string_pretty(self)? + "\n")?;
        fs::write(file("txt"), printed)
    }

    /// What documents and the page about results show.
    fn report(&self, printed: &str) -> Report {
        let Self { name, cpu, cpus, .. } = self;
        let (command, kernel) = (self.arguments.join(" "), &self.kernel);
        let markdown = format!(
            "# {name}\n\n\
             ## Output\n\n\
             `cargo xtask {command}` on {cpus} × {cpu}, Linux {kernel}:\n\n\
             ```text\n{}\n```\n\n\
             ## Environment\n\n\
             |  |  |\n\
             | --- | --- |\n\
             | Command | `cargo xtask {command}` |\n\
             | Build | commit {} |\n\
             | Kernel | {kernel} |\n\
             | CPU | {cpus} × {cpu} |\n\
             | Started | {} |\n",
            printed.trim_matches('\n'),
            self.commit,
            self.started,
        );
        let sources = format!("[Output]({NAME}/{name}.txt), [its origin]({NAME}/{name}.json)");
        Report::of_tables(markdown, sources)
    }
}

/// The reports of all kept benchmarks, by their names in documents.
pub(super) fn reports(workspace: &Workspace) -> Result<BTreeMap<String, Report>> {
    let kept = read(&folder(workspace))?.into_iter();
    Ok(kept
        .map(|(benchmark, printed)| (benchmark.name.clone(), benchmark.report(&printed)))
        .collect())
}

/// The arguments of `cargo xtask` that keep the benchmark with this name in documents. `None` if it is not
/// the name of a benchmark.
pub(super) fn command(name: &str) -> Option<String> {
    match name.strip_prefix(PREFIX) {
        Some(benchmark) => Some(format!("bench {benchmark} --keep")),
        None => (name == FUZZ).then(|| format!("{FUZZ} --keep")),
    }
}

pub(super) fn folder(workspace: &Workspace) -> PathBuf {
    workspace.root.join(FOLDER).join(NAME)
}

/// All benchmarks in a folder, with what they printed.
fn read(folder: &Path) -> Result<Vec<(Benchmark, String)>> {
    if !folder.is_dir() {
        return Ok(vec![]);
    }
    let files = files::files_under(folder)?;
    let origins = files
        .iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "json"));
    let kept = origins.map(|file| {
        let file = folder.join(file);
        let origin: Benchmark = serde_json::from_str(&files::read(&file)?)
            .with_context(|| format!("failed to read {}: keep the benchmark again", file.display()))?;
        Ok((origin, files::read(&file.with_extension("txt"))?))
    });
    kept.collect()
}

/// The one benchmark that the arguments name, and the arguments as text.
fn named(arguments: &[OsString]) -> Result<(String, Vec<String>)> {
    let texts = arguments.iter().map(|argument| {
        let text = argument
            .to_str()
            .context("--keep publishes the arguments: they must be UTF-8")?;
        if text.split('=').any(|part| part.starts_with('/')) {
            bail!("--keep publishes {text:?}: give a relative path");
        }
        Ok(text.to_owned())
    });
    let arguments = texts.collect::<Result<Vec<_>>>()?;
    let mut names = vec![];
    let mut all = arguments.iter();
    while let Some(argument) = all.next() {
        if !argument.starts_with('-') {
            names.push(argument);
        } else if !argument.contains('=') {
            // Every option has a value.
            all.next();
        }
    }
    let [name] = names[..] else {
        bail!(
            "--keep keeps the output of exactly one benchmark, and {} are named: type `cargo xtask bench NAME --keep`",
            names.len()
        );
    };
    Ok((name.clone(), arguments))
}

/// The CPU model of `/proc/cpuinfo`.
fn cpu_model(cpuinfo: &str) -> &str {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let model = fields.find(|(key, _)| matches!(key.trim(), "model name" | "CPU part"));
    model.map_or("unknown", |(_, model)| model.trim())
}

#[cfg(test)]
mod tests {
    use std::{env, ffi::OsString, fs, process};

    use super::{Benchmark, cpu_model, named, read};

    fn benchmark(arguments: &[&str]) -> Benchmark {
        Benchmark {
            name: format!("bench-{}", arguments[1]),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            commit: "89abcde-dirty".to_owned(),
            started: "2026-11-26T08:42:42Z".to_owned(),
            kernel: "6.18".to_owned(),
            cpu: "Some CPU".to_owned(),
            cpus: 2,
        }
    }

    fn name(arguments: &[&str]) -> Result<String, String> {
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        let named = named(&arguments).map_err(|error| error.to_string())?;
        Ok(named.0)
    }

    #[test]
    fn documents_show_what_a_benchmark_printed_with_its_machine_day_and_build() {
        let report =
            benchmark(&["bench", "scale", "--runs", "10,100"]).report("\nruns   10  100\n  ms  1.0  2.0\n");
        let shown = "`cargo xtask bench scale --runs 10,100` on 2 × Some CPU, Linux 6.18:

```text
runs   10  100
  ms  1.0  2.0
```";
        assert_eq!(report.text("Output").as_deref(), Some(shown));
        assert_eq!(
            (report.day(), report.build()),
            ("2026-11-26", "commit 89abcde-dirty")
        );
        let environment = report.text("Environment").unwrap();
        assert!(
            environment.contains("\n| CPU | 2 × Some CPU |\n"),
            "{environment}"
        );
        assert_eq!(
            report.sources(),
            "[Output](benchmarks/bench-scale.txt), [its origin](benchmarks/bench-scale.json)"
        );
    }

    #[test]
    fn a_benchmark_is_read_as_it_was_last_kept() {
        let folder = env::temp_dir().join(format!("xtask-kept-benchmarks-{}", process::id()));
        assert!(read(&folder).unwrap().is_empty(), "no folder");
        for printed in ["\nfirst, 1 µs \n", "second"] {
            benchmark(&["bench", "plans", "--rounds=9"])
                .write(&folder, printed)
                .unwrap();
            benchmark(&["bench", "go"]).write(&folder, "of Go\n").unwrap();
            let kept = [
                (benchmark(&["bench", "go"]), "of Go\n".to_owned()),
                (benchmark(&["bench", "plans", "--rounds=9"]), printed.to_owned()),
            ];
            assert_eq!(read(&folder).unwrap(), kept);
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn one_benchmark_is_kept() {
        assert_eq!(name(&["scale", "--runs", "10,100"]).as_deref(), Ok("scale"));
        assert_eq!(
            name(&["--rounds=9", "--seconds", "5", "raw-tcp"]).as_deref(),
            Ok("raw-tcp")
        );
        assert_eq!(name(&["go", "-pairs", "200"]).as_deref(), Ok("go"));
        let refusal = |count| {
            format!(
                "--keep keeps the output of exactly one benchmark, and {count} are named: type `cargo xtask bench NAME \
                 --keep`"
            )
        };
        assert_eq!(name(&["--rounds", "9"]), Err(refusal(0)));
        assert_eq!(name(&["plans", "--rounds", "9", "results"]), Err(refusal(2)));
    }

    #[test]
    fn no_path_of_a_machine_is_kept() {
        let peer = |path| name(&["peers", "--peer", path]);
        assert_eq!(
            peer("litep2p-perf=/home/me/litep2p-perf").unwrap_err(),
            "--keep publishes \"litep2p-perf=/home/me/litep2p-perf\": give a relative path"
        );
        assert_eq!(peer("litep2p-perf=target/litep2p-perf").as_deref(), Ok("peers"));
    }

    #[test]
    fn the_cpu_has_its_model() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"),
            "Some CPU @ 2 GHz"
        );
        assert_eq!(cpu_model("processor\t: 0\nCPU part\t: 0xd0c\n"), "0xd0c");
        assert_eq!(cpu_model(""), "unknown");
    }
}
