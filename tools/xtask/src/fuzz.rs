//! `cargo xtask fuzz`: libFuzzer on the targets of tools/fuzz, for as long as one likes.
//!
//! The crates of the workspace are compiled so that they tell which of their code an input runs. Dependencies
//! are those of every other build, without that: a fuzzer sees the code of their generic functions only, such
//! as what serde does for our types.

use std::{
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{
    compiler::{self, Compiler},
    install,
    shell::{self, Workspace},
};

/// Committed inputs, in a folder for each target.
const CORPORA: &str = "tools/fuzz/corpus";

/// The test target that is the fuzzer's program.
const PROGRAM: &str = "libfuzzer";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Targets, which are the folders of tools/fuzz/corpus (default: all)
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Minutes for each target
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    minutes: f64,
    /// Only read this file, once, as the one target that is named
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

/// Options of rustc for code that counts its branches and reports its comparisons to libFuzzer:
/// SanitizerCoverage as cargo-fuzz sets it. Stable compilers have it, too.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Copt-level=2",
    "-Ccodegen-units=1",
];

/// Compiles for the fuzzer. Build scripts run on their own, without it.
pub(crate) fn compile(arguments: &[OsString]) -> Result<ExitCode> {
    let (rustc, arguments) = arguments.split_first().context("cargo names rustc first")?;
    let mut rustc = Command::new(rustc);
    rustc.args(arguments);
    let is = |name: &str| arguments.iter().any(|argument| argument == name);
    if !is("build_script_build") {
        rustc.args(COVERAGE);
    }
    Ok(match shell::status(&mut rustc)?.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

pub(crate) fn run(workspace: &mut Workspace, args: &Args) -> Result<ExitCode> {
    let targets = selected(&workspace.root, &args.targets)?;
    let minutes = Duration::try_from_secs_f64(args.minutes * 60.0).context("--minutes must be a time")?;
    install::packages(workspace, install::BUILD)?;
    let compiler = compiler::install(workspace, Compiler::Fuzzing)?;
    workspace.compile_with(compiler);
    let program = build(workspace)?;
    if let Some(input) = &args.input {
        let [target] = &targets[..] else {
            bail!("name the one target that reads the file: cargo xtask fuzz TARGET --input FILE");
        };
        let input = fs::canonicalize(input).with_context(|| format!("failed to find {}", input.display()))?;
        return Err(shell::become_program(
            fuzzer(workspace, &program, target).arg(input),
        ));
    }
    let mut all = vec![];
    for target in &targets {
        println!("==> {target}, {} s", minutes.as_secs());
        all.push(search(workspace, &program, target, minutes)?);
    }
    println!("\n{}", table(&all));
    let found: Vec<String> = all.iter().flat_map(Search::commands).collect();
    if found.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("Correct what was found, and keep the inputs in {CORPORA}. These commands repeat it:");
    found.iter().for_each(|command| println!("  {command}"));
    Ok(ExitCode::FAILURE)
}

/// The named targets, or all.
fn selected(root: &Path, names: &[String]) -> Result<Vec<String>> {
    let folder = root.join(CORPORA);
    let entries = fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))?;
    let mut known: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    known.sort();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        bail!("unknown target {unknown}: use {}", known.join(", "));
    }
    Ok(match names {
        [] => known,
        names => names.to_vec(),
    })
}

/// Builds the fuzzer, and returns its path, which cargo chooses.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    let mut cargo = workspace.cargo(["test", "--no-run", "--workspace", "--test", PROGRAM]);
    cargo.args(["--features", "perfrun-fuzz/libfuzzer"]);
    let messages = shell::output(cargo.arg("--message-format=json-render-diagnostics"))?;
    let program = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == PROGRAM).then_some(())?;
        message["executable"].as_str().map(PathBuf::from)
    });
    program.context("cargo built the fuzzer, but did not tell where it is")
}

fn fuzzer(workspace: &Workspace, program: &Path, target: &str) -> Command {
    let mut fuzzer = workspace.command(program);
    fuzzer.env("PERFRUN_FUZZ_TARGET", target);
    // An input that takes longer, or more memory, is a fault.
    fuzzer.args(["-timeout=20", "-rss_limit_mb=2048"]);
    fuzzer
}

/// The result of a search.
#[derive(Debug, Default, Eq, PartialEq)]
struct Search {
    target: String,
    executions: u64,
    per_second: u64,
    /// Edges of the control flow that inputs took.
    edges: u64,
    /// Inputs that each took another way.
    inputs: u64,
    /// Inputs that fail.
    found: Vec<PathBuf>,
}

fn search(workspace: &Workspace, program: &Path, target: &str, time: Duration) -> Result<Search> {
    let folder = workspace.artifacts().join("fuzz").join(target);
    let (kept, found) = (folder.join("corpus"), folder.join("found"));
    for folder in [&kept, &found] {
        fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    }
    let before = files(&found)?;
    let log = folder.join("log");
    let mut fuzzer = fuzzer(workspace, program, target);
    let output = File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
    fuzzer
        .args(["-print_final_stats=1", "-max_len=65536"])
        .arg(format!("-max_total_time={}", time.as_secs()))
        .arg(format!("-artifact_prefix={}/", found.display()))
        // New inputs go to the first folder.
        .args([&kept, &workspace.root.join(CORPORA).join(target)])
        .stdout(output.try_clone()?)
        .stderr(output);
    let status = shell::status(&mut fuzzer)?;
    let said = fs::read(&log).with_context(|| format!("failed to read {}", log.display()))?;
    let mut found = files(&found)?;
    found.retain(|file| !before.contains(file));
    ensure!(
        status.success() || !found.is_empty(),
        "the fuzzer ended with {status} and kept no input; see {}",
        log.display()
    );
    Ok(Search {
        target: target.to_owned(),
        found,
        ..stats(&String::from_utf8_lossy(&said))
    })
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
}

/// The numbers that libFuzzer prints: at the end, and on the last line with a coverage.
fn stats(log: &str) -> Search {
    let after = |line: &str, word: &str| -> Option<u64> {
        let rest = line.split_once(word)?.1.trim_start();
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    let last = |word: &str| log.lines().rev().find_map(|line| after(line, word)).unwrap_or(0);
    Search {
        executions: last("stat::number_of_executed_units:"),
        per_second: last("stat::average_exec_per_sec:"),
        edges: last(" cov:"),
        inputs: last(" corp:"),
        ..Search::default()
    }
}

impl Search {
    fn commands(&self) -> impl Iterator<Item = String> {
        let command = |file: &PathBuf| format!("cargo xtask fuzz {} --input {}", self.target, file.display());
        self.found.iter().map(command)
    }
}

fn table(all: &[Search]) -> String {
    let row = |[target, executions, per_second, edges, inputs, found]: [String; 6]| {
        format!("{target:<14}{executions:>14}{per_second:>12}{edges:>8}{inputs:>8}{found:>7}\n")
    };
    let head = ["target", "executions", "per second", "edges", "inputs", "found"];
    let mut table = row(head.map(str::to_owned));
    for search in all {
        table += &row([
            search.target.clone(),
            search.executions.to_string(),
            search.per_second.to_string(),
            search.edges.to_string(),
            search.inputs.to_string(),
            search.found.len().to_string(),
        ]);
    }
    let executions: u64 = all.iter().map(|search| search.executions).sum();
    let found: usize = all.iter().map(|search| search.found.len()).sum();
    let [executions, found] = [executions.to_string(), found.to_string()];
    let sums = ["all", &executions, "", "", "", &found];
    table + &row(sums.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "#2\tINITED cov: 12 ft: 13 corp: 2/5b exec/s: 0 rss: 40Mb\n\
        #131072\tpulse  cov: 90 ft: 200 corp: 31/2046b lim: 1300 exec/s: 65536 rss: 50Mb\n\
        Done 200000 runs in 2 second(s)\n\
        stat::number_of_executed_units: 200000\n\
        stat::average_exec_per_sec:     100000\n\
        stat::peak_rss_mb:              52\n";

    #[test]
    fn the_table_has_what_libfuzzer_counted() {
        let search = Search {
            target: "ping".to_owned(),
            found: vec!["crash-1".into()],
            ..stats(LOG)
        };
        let expected = "\
target            executions  per second   edges  inputs  found
ping                  200000      100000      90      31      1
all                   200000                                  1
";
        assert_eq!(table(&[search]), expected);
    }

    #[test]
    fn a_failing_input_comes_with_its_command() {
        let search = Search {
            target: "ping".to_owned(),
            found: vec!["/t/crash-1".into()],
            ..Search::default()
        };
        let commands: Vec<String> = search.commands().collect();
        assert_eq!(commands, ["cargo xtask fuzz ping --input /t/crash-1"]);
    }

    #[test]
    fn targets_are_the_folders_of_the_corpus() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert!(selected(&root, &[]).unwrap().contains(&"status".to_owned()));
        assert_eq!(selected(&root, &["ping".to_owned()]).unwrap(), ["ping"]);
        let refused = selected(&root, &["pong".to_owned()]).unwrap_err().to_string();
        assert!(
            refused.starts_with("unknown target pong: use address, "),
            "{refused}"
        );
    }
}
