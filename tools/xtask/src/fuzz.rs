//! `cargo xtask fuzz`: libFuzzer on the targets of tools/fuzz, and Go's fuzzer on those of the Go node, for
//! as long as one likes.
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
    benchmark::Benchmark,
    compiler,
    files::{create_folder, entries},
    go, install,
    shell::{self, Workspace},
    stand_in::{self, StandIn},
};

/// Committed inputs, in a folder for each target.
const CORPORA: &str = "tools/fuzz/corpus";

/// Targets of the Go node begin with this.
const IN_GO: &str = "go/";

/// The test target that is the fuzzer's program.
const PROGRAM: &str = "libfuzzer";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Targets: folders of tools/fuzz/corpus, and go/FuzzX for FuzzX of the Go node (default: all)
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Minutes for each target
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    minutes: f64,
    /// Only read this file, once, as the one target that is named, which is not of the Go node
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Keep the table of all targets in docs/results/benchmarks
    #[arg(long, conflicts_with_all = ["input", "targets"])]
    keep: bool,
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
    let is_build_script = arguments.iter().any(|argument| argument == "build_script_build");
    let options: &[&str] = if is_build_script { &[] } else { COVERAGE };
    compiler::rustc(arguments, options)
}

pub(crate) fn run(workspace: &mut Workspace, args: &Args) -> Result<ExitCode> {
    if let Some(input) = &args.input {
        return read(workspace, &args.targets, input);
    }
    let time = time(args.minutes)?;
    let go_targets = if needs_go(&args.targets) {
        go_targets(workspace)?
    } else {
        vec![]
    };
    let targets = selected(known(&workspace.root, &go_targets)?, &args.targets)?;
    let kept = args.keep.then(|| Benchmark::fuzz(workspace, args.minutes));
    let kept = kept.transpose()?;
    let (go_targets, targets) = (
        go_targets
            .into_iter()
            .filter(|target| targets.contains(&target.name)),
        targets
            .iter()
            .filter(|name| !name.starts_with(IN_GO))
            .collect::<Vec<_>>(),
    );
    let mut all = vec![];
    if !targets.is_empty() {
        let program = build(workspace)?;
        for target in targets {
            println!("==> {target}, {} s", time.as_secs());
            all.push(search(workspace, &program, target, time)?);
        }
    }
    for target in go_targets {
        println!("==> {}, {} s", target.name, time.as_secs());
        all.push(target.search(workspace, time)?);
    }
    let table = table(&all);
    println!("\n{table}");
    if let Some(benchmark) = kept {
        benchmark.keep(workspace, &table)?;
    }
    let found: Vec<String> = all.iter().flat_map(Search::commands).collect();
    if found.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "Correct what was found, and keep the inputs: in {CORPORA}, or where Go's fuzzer has put them. These \
         commands repeat it:"
    );
    found.iter().for_each(|command| println!("  {command}"));
    Ok(ExitCode::FAILURE)
}

/// Reads one file, once. Returns only if it cannot.
fn read(workspace: &mut Workspace, targets: &[String], input: &Path) -> Result<ExitCode> {
    let target = reader(targets)?;
    selected(known(&workspace.root, &[])?, targets)?;
    let input = fs::canonicalize(input).with_context(|| format!("failed to find {}", input.display()))?;
    let program = build(workspace)?;
    Err(shell::become_program(
        fuzzer(workspace, &program, target).arg(input),
    ))
}

/// The time for each target, in seconds: the fuzzers take no parts of one, and 0 means without a limit to
/// them.
fn time(minutes: f64) -> Result<Duration> {
    let time = Duration::try_from_secs_f64(minutes * 60.0).context("--minutes must be a time")?;
    ensure!(time.as_secs() > 0, "--minutes must be at least a second, 0.02");
    Ok(time)
}

/// Whether targets of the Go node may be among these. To list them takes a build.
fn needs_go(names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| name.starts_with(IN_GO))
}

/// The target that reads one file.
fn reader(names: &[String]) -> Result<&str> {
    match names {
        [name] if !name.starts_with(IN_GO) => Ok(name),
        _ => bail!(
            "name the one target of {CORPORA} that reads the file: cargo xtask fuzz TARGET --input FILE"
        ),
    }
}

/// The names of all targets.
fn known(root: &Path, go_targets: &[GoTarget]) -> Result<Vec<String>> {
    let mut known: Vec<String> = entries(&root.join(CORPORA))?
        .iter()
        .filter_map(|folder| folder.file_name()?.to_str().map(str::to_owned))
        .chain(go_targets.iter().map(|target| target.name.clone()))
        .collect();
    known.sort();
    Ok(known)
}

/// The named targets, or all.
fn selected(known: Vec<String>, names: &[String]) -> Result<Vec<String>> {
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        bail!("unknown target {unknown}: use {}", known.join(", "));
    }
    Ok(match names {
        [] => known,
        names => names.to_vec(),
    })
}

/// Installs what the fuzzer needs, builds it, and returns its path, which cargo chooses.
fn build(workspace: &mut Workspace) -> Result<PathBuf> {
    install::packages(workspace, install::BUILD)?;
    let compiler = stand_in::install(workspace, StandIn::Fuzzing)?;
    workspace.compile_with(compiler);
    let mut cargo = workspace.cargo(["test", "--no-run", "--workspace", "--test", PROGRAM]);
    cargo.args(["--features", "perfrun-fuzz/libfuzzer"]);
    let messages = shell::output(cargo.arg("--message-format=json-render-diagnostics"))?;
    let program = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == PROGRAM).then_some(())?;
        message["executable"].as_str().map(PathBuf::from)
    });
    program.context("cargo built the fuzzer, but did not say where it is")
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
        create_folder(folder)?;
    }
    let before = entries(&found)?;
    let mut fuzzer = fuzzer(workspace, program, target);
    fuzzer
        .args(["-print_final_stats=1", "-max_len=65536"])
        .arg(format!("-max_total_time={}", time.as_secs()))
        .arg(format!("-artifact_prefix={}/", found.display()))
        // New inputs go to the first folder.
        .args([&kept, &workspace.root.join(CORPORA).join(target)]);
    logged(&mut fuzzer, &folder, |said| {
        let mut found = entries(&found)?;
        found.retain(|file| !before.contains(file));
        Ok(Search {
            target: target.to_owned(),
            found,
            ..stats(said)
        })
    })
}

/// Runs a fuzzer whose output goes to a file in the folder, and reads the result from that.
fn logged(fuzzer: &mut Command, folder: &Path, read: impl FnOnce(&str) -> Result<Search>) -> Result<Search> {
    create_folder(folder)?;
    let log = folder.join("log");
    let output = File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
    let status = shell::status(fuzzer.stdout(output.try_clone()?).stderr(output))?;
    let said = fs::read(&log).with_context(|| format!("failed to read {}", log.display()))?;
    let search = read(&String::from_utf8_lossy(&said))?;
    ensure!(
        status.success() || !search.found.is_empty(),
        "the fuzzer ended with {status} and kept no input; see {}",
        log.display()
    );
    Ok(search)
}

/// A target of the Go node.
struct GoTarget {
    /// The name, as people type it.
    name: String,
    package: String,
    /// The name of the function.
    function: String,
}

/// The targets of the Go node. Empty where Go is not installed.
fn go_targets(workspace: &Workspace) -> Result<Vec<GoTarget>> {
    if let Some(obstacle) = go::obstacle() {
        println!("==> without the targets of the Go node: {obstacle}");
        return Ok(vec![]);
    }
    let target = |(package, function): (String, String)| GoTarget {
        name: format!("{IN_GO}{function}"),
        package,
        function,
    };
    Ok(go::fuzz_targets(workspace)?.into_iter().map(target).collect())
}

impl GoTarget {
    fn search(&self, workspace: &Workspace, time: Duration) -> Result<Search> {
        let folder = workspace.artifacts().join("fuzz").join(&self.name);
        let mut fuzzer = go::fuzz(workspace, &self.package, &self.function, time.as_secs());
        logged(&mut fuzzer, &folder, |said| {
            Ok(Search {
                target: self.name.clone(),
                ..stats_in_go(said, time)
            })
        })
    }
}

/// What Go's fuzzer prints: a line every three seconds, and the file of an input that fails.
fn stats_in_go(log: &str, time: Duration) -> Search {
    let found = log
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Failing input written to "));
    let executions = last(log, " execs: ");
    Search {
        executions,
        per_second: executions / time.as_secs().max(1),
        inputs: last(log, " (total: "),
        found: found.map(PathBuf::from).collect(),
        ..Search::default()
    }
}

/// The last number after a word.
fn last(log: &str, word: &str) -> u64 {
    let after = |line: &str| -> Option<u64> {
        let rest = line.split_once(word)?.1.trim_start();
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    log.lines().rev().find_map(after).unwrap_or(0)
}

/// The numbers that libFuzzer prints: at the end, and on the last line with a coverage.
fn stats(log: &str) -> Search {
    let last = |word| last(log, word);
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
        self.found
            .iter()
            .map(|file| match self.target.strip_prefix(IN_GO) {
                Some(function) => {
                    let input = file.file_name().unwrap_or_default().display();
                    format!("go test -C {} -run '^{function}$/^{input}$' ./...", go::MODULE)
                }
                None => format!("cargo xtask fuzz {} --input {}", self.target, file.display()),
            })
    }
}

fn table(all: &[Search]) -> String {
    let row = |[target, executions, per_second, edges, inputs, found]: [String; 6]| {
        format!("{target:<19}{executions:>14}{per_second:>12}{edges:>8}{inputs:>8}{found:>7}\n")
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
    fn the_table_has_the_counts_of_libfuzzer() {
        let search = Search {
            target: "ping".to_owned(),
            found: vec!["crash-1".into()],
            ..stats(LOG)
        };
        let expected = "\
target                 executions  per second   edges  inputs  found
ping                       200000      100000      90      31      1
all                        200000                                  1
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
    fn statistics_of_go_fuzzing_are_parsed() {
        let log = "fuzz: elapsed: 3s, execs: 6000 (2000/sec), new interesting: 3 (total: 12)\n\
            fuzz: elapsed: 4s, execs: 8100 (2100/sec), new interesting: 4 (total: 13)\n\
            --- FAIL: FuzzPing (4.02s)\n    \n    \
            Failing input written to testdata/fuzz/FuzzPing/0f12\n    To re-run:\n";
        let search = Search {
            target: "go/FuzzPing".to_owned(),
            ..stats_in_go(log, Duration::from_secs(4))
        };
        assert_eq!(
            (search.executions, search.per_second, search.inputs),
            (8100, 2025, 13)
        );
        let commands: Vec<String> = search.commands().collect();
        assert_eq!(
            commands,
            ["go test -C node-image/go-libp2p -run '^FuzzPing$/^0f12$' ./..."]
        );
    }

    #[test]
    fn targets_are_the_folders_of_the_corpus_and_those_of_go() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let go_target = GoTarget {
            name: "go/FuzzPing".to_owned(),
            package: "node/wire".to_owned(),
            function: "FuzzPing".to_owned(),
        };
        let known = known(&root, &[go_target]).unwrap();
        let selected = |names: &[String]| selected(known.clone(), names);
        let all = selected(&[]).unwrap();
        assert!(
            ["status", "go/FuzzPing"]
                .iter()
                .all(|name| all.contains(&(*name).to_owned()))
        );
        assert_eq!(selected(&["ping".to_owned()]).unwrap(), ["ping"]);
        let refused = selected(&["pong".to_owned()]).unwrap_err().to_string();
        assert!(
            refused.starts_with("unknown target pong: use address, "),
            "{refused}"
        );
    }

    #[test]
    fn a_search_takes_at_least_a_second() {
        assert_eq!(time(0.02).unwrap(), Duration::from_millis(1200));
        for (minutes, why) in [
            (0.0, "--minutes must be at least a second, 0.02"),
            (0.01, "--minutes must be at least a second, 0.02"),
            (-1.0, "--minutes must be a time"),
            (f64::NAN, "--minutes must be a time"),
        ] {
            assert_eq!(time(minutes).unwrap_err().to_string(), why, "{minutes}");
        }
    }

    #[test]
    fn one_target_of_the_corpora_reads_a_file_and_go_has_only_its_own() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (targets, in_go, is_reader) in [
            (names(&["ping"]), false, true),
            (names(&["go/FuzzPing"]), true, false),
            (names(&["ping", "echo"]), false, false),
            (names(&["ping", "go/FuzzPing"]), true, false),
            (names(&[]), true, false),
        ] {
            assert_eq!(needs_go(&targets), in_go, "{targets:?}");
            assert_eq!(reader(&targets).is_ok(), is_reader, "{targets:?}");
        }
    }
}
