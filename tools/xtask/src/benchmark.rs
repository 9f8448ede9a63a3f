//! What `cargo xtask bench NAME --keep` and `cargo xtask fuzz --keep` keep: what was printed, unchanged, and
//! where that comes from. [`crate::results`] shows it in documents.

use std::{ffi::OsString, fs, io, path::Path, thread};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::{
    files,
    shell::{self, Workspace},
};

const FOLDER: &str = "docs/results/benchmarks";

/// A benchmark that has begun, as `perfrun-results` reads where its output comes from.
#[derive(Serialize)]
pub(crate) struct Benchmark {
    /// The name in documents. A measured document may have that of a benchmark, so most begin with `bench-`.
    name: String,
    /// The arguments of `cargo xtask`.
    arguments: Vec<String>,
    /// Ends in `-dirty` if the source had changes besides documents.
    commit: String,
    started: String,
    kernel: String,
    /// The model of the CPU.
    cpu: String,
    cpus: usize,
}

impl Benchmark {
    /// The benchmark that these arguments of `cargo xtask bench` name, which starts now.
    pub(crate) fn now(workspace: &Workspace, arguments: &[OsString]) -> Result<Self> {
        let (name, arguments) = named(arguments)?;
        let arguments = ["bench".to_owned()].into_iter().chain(arguments).collect();
        Self::begin(workspace, format!("bench-{name}"), arguments)
    }

    /// The search for input that breaks a parser, which starts now.
    pub(crate) fn fuzz(workspace: &Workspace, minutes: f64) -> Result<Self> {
        let arguments = ["fuzz", "--minutes", &minutes.to_string()].map(str::to_owned);
        Self::begin(workspace, "fuzz".to_owned(), arguments.into())
    }

    fn begin(workspace: &Workspace, name: String, arguments: Vec<String>) -> Result<Self> {
        let commit = workspace.commit().context(
            "--keep needs the commit of the build: run it in a clone that git can read, or set PERFRUN_COMMIT",
        )?;
        Ok(Self {
            name,
            arguments,
            commit,
            started: shell::output(workspace.command("date").args(["--utc", "+%FT%TZ"]))?,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpu: cpu_model(&files::read(Path::new("/proc/cpuinfo"))?).to_owned(),
            cpus: thread::available_parallelism().map_or(1, usize::from),
        })
    }

    /// Keeps what the benchmark printed, in place of what was kept before.
    pub(crate) fn keep(&self, workspace: &Workspace, printed: &str) -> Result<()> {
        let folder = workspace.root.join(FOLDER);
        self.write(&folder, printed)
            .with_context(|| format!("failed to write to {}", folder.display()))?;
        println!(
            "kept in {FOLDER}/{}.txt; `cargo xtask results` writes the documents that show it",
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
    use std::{ffi::OsString, fs};

    use super::{Benchmark, cpu_model, named};

    fn name(arguments: &[&str]) -> Result<String, String> {
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        let named = named(&arguments).map_err(|error| error.to_string())?;
        Ok(named.0)
    }

    #[test]
    fn a_benchmark_replaces_the_kept_one() {
        let folder = tempfile::tempdir().unwrap();
        for printed in ["\nfirst, 1 µs \n", "second"] {
            let benchmark = Benchmark {
                name: "bench-scale".to_owned(),
                arguments: ["bench", "scale", "--runs", "10,100"].map(str::to_owned).into(),
                commit: "89abcde-dirty".to_owned(),
                started: "2026-11-26T08:42:42Z".to_owned(),
                kernel: "6.18".to_owned(),
                cpu: "Some CPU".to_owned(),
                cpus: 2,
            };
            benchmark.write(folder.path(), printed).unwrap();
            let read = |file: &str| fs::read_to_string(folder.path().join(file)).unwrap();
            assert_eq!(read("bench-scale.txt"), printed);
            assert_eq!(read("bench-scale.json"), include_str!("benchmark.json"));
        }
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
