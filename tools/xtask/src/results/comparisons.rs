//! Documents that were measured many times: how often perfrun finds a difference where there is one, and
//! where there is none.
//!
//! The results of all these runs would be 60 MB. So the folder keeps what their comparisons found, and of
//! each trial the values that were compared. [`tables`] are made of both.

mod tables;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde::{Deserialize, Serialize};

use super::report::Report;

/// The folder in [`super::FOLDER`], and the name of its tables in documents.
pub(super) const NAME: &str = "comparisons";
/// A line for each comparison of each run.
const COMPARISONS: &str = "comparisons.csv";
/// A line for each trial of each run.
const TRIALS: &str = "trials.csv.gz";

/// Runs, by their document and the moment of their start.
type Runs = BTreeMap<(String, String), Run>;

#[derive(Debug, Default, PartialEq)]
struct Run {
    comparisons: Vec<Comparison>,
    trials: Vec<Trial>,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Comparison {
    document: String,
    /// When the run started.
    run: String,
    /// The programs of its nodes.
    build: String,
    /// The stack of the baseline's client.
    stack: String,
    /// The cell of the baseline.
    baseline: String,
    candidate: String,
    metric: Metric,
    pairs: u32,
    excluded_pairs: u32,
    /// The baseline's median, in bit/s or CPU seconds for each GiB.
    baseline_median: Option<f64>,
    /// The candidate's value as a share of the baseline's, and the interval of that.
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    finding: Outcome,
    reason: Option<String>,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Trial {
    document: String,
    run: String,
    cell: String,
    iteration: u32,
    warmup: bool,
    attempt: u32,
    /// When it began, in seconds since the start of the run.
    at_seconds: f64,
    /// Separated by spaces.
    flags: String,
    /// The reason, if it failed.
    failure: Option<String>,
    /// In the direction of the cell, in bit/s.
    goodput: Option<f64>,
    #[serde(rename = "cpuSecondsPerGiB")]
    cpu_seconds_per_gib: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
enum Metric {
    UploadGoodput,
    DownloadGoodput,
    #[serde(rename = "cpuSecondsPerGiB")]
    CpuSecondsPerGib,
}

/// What a comparison found.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
enum Outcome {
    Better,
    Worse,
    Same,
    Undecided,
    NotComparable,
}

/// The tables of kept runs. `None` if none are kept.
pub(super) fn report(folder: &Path) -> Result<Option<Report>> {
    let runs = read(folder)?;
    let sources =
        format!("[Documents]({NAME}/), [comparisons]({NAME}/{COMPARISONS}), [trials]({NAME}/{TRIALS})");
    Ok((!runs.is_empty()).then(|| Report::of_tables(tables::markdown(&runs), sources)))
}

/// Keeps the runs in these folders, and no others of the same documents.
pub(super) fn keep(folder: &Path, results: &[PathBuf]) -> Result<()> {
    let mut new = Runs::new();
    for run in results {
        let file = run.join("results.json");
        let context = || format!("failed to read {}", file.display());
        let bytes = fs::read(&file).with_context(context)?;
        let results: Results = serde_json::from_slice(&bytes).with_context(context)?;
        if results.state != "complete" {
            println!("left out {}, which is {}", run.display(), results.state);
            continue;
        }
        let key = (results.name.clone(), results.started.clone());
        new.insert(key, results.run().with_context(context)?);
    }
    let runs = replaced(read(folder)?, new);
    let create = |name: &str| File::create(folder.join(name));
    let write = || encode(&runs, create(COMPARISONS)?, create(TRIALS)?);
    write().with_context(|| format!("failed to write to {}", folder.display()))
}

fn replaced(mut kept: Runs, new: Runs) -> Runs {
    let documents: BTreeSet<_> = new.keys().map(|(document, _)| document).collect();
    kept.retain(|(document, _), _| !documents.contains(document));
    kept.extend(new);
    kept
}

fn read(folder: &Path) -> Result<Runs> {
    if !folder.join(TRIALS).is_file() {
        return Ok(Runs::new());
    }
    let open = |name: &str| File::open(folder.join(name));
    let read = || decode(open(COMPARISONS)?, open(TRIALS)?);
    read().with_context(|| {
        let folder = folder.display();
        format!("failed to read the runs that {folder} keeps: restore both of its files from Git")
    })
}

fn encode(runs: &Runs, comparisons: impl Write, trials: impl Write) -> csv::Result<()> {
    write_lines(comparisons, runs.values().flat_map(|run| &run.comparisons))?;
    let mut compressed = GzEncoder::new(trials, Compression::best());
    write_lines(&mut compressed, runs.values().flat_map(|run| &run.trials))?;
    compressed.finish()?;
    Ok(())
}

fn write_lines<T: Serialize>(to: impl Write, lines: impl Iterator<Item = T>) -> csv::Result<()> {
    let mut writer = csv::Writer::from_writer(to);
    for line in lines {
        writer.serialize(line)?;
    }
    Ok(writer.flush()?)
}

fn decode(comparisons: impl Read, trials: impl Read) -> csv::Result<Runs> {
    let mut runs = Runs::new();
    for line in csv::Reader::from_reader(comparisons).into_deserialize() {
        let line: Comparison = line?;
        let run = runs.entry((line.document.clone(), line.run.clone()));
        run.or_default().comparisons.push(line);
    }
    for line in csv::Reader::from_reader(GzDecoder::new(trials)).into_deserialize() {
        let line: Trial = line?;
        let run = runs.entry((line.document.clone(), line.run.clone()));
        run.or_default().trials.push(line);
    }
    Ok(runs)
}

/// What results.json has.
#[derive(Deserialize)]
struct Results {
    name: String,
    started: String,
    state: String,
    environment: Environment,
    plan: Plan,
    trials: Vec<Record>,
    judged: Option<Judged>,
}

#[derive(Deserialize)]
struct Environment {
    nodes: BTreeMap<String, Node>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    commit: Option<String>,
    program_sha256: Option<String>,
}

#[derive(Deserialize)]
struct Plan {
    cells: Vec<Cell>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cell {
    id: String,
    client_stack: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    trial: Planned,
    attempt: u32,
    at_seconds: f64,
    #[serde(default)]
    flags: Vec<String>,
    failure: Option<Failure>,
    #[serde(default)]
    metrics: Metrics,
}

#[derive(Deserialize)]
struct Planned {
    cell: usize,
    iteration: u32,
    #[serde(default)]
    warmup: bool,
}

#[derive(Deserialize)]
struct Failure {
    reason: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metrics {
    upload_goodput: Option<f64>,
    download_goodput: Option<f64>,
    #[serde(rename = "cpuSecondsPerGiB")]
    cpu_seconds_per_gib: Option<f64>,
}

#[derive(Deserialize)]
struct Judged {
    comparisons: Vec<Compared>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Compared {
    baseline: String,
    candidate: String,
    metric: Metric,
    pairs: u32,
    excluded_pairs: u32,
    medians: Option<[f64; 2]>,
    ratio: Option<Ratio>,
    finding: Outcome,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Ratio {
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
}

impl Results {
    fn run(self) -> Result<Run> {
        let judged = self.judged.context("it compares nothing")?;
        let build = self.environment.build();
        let comparisons = judged.comparisons.into_iter().map(|compared| {
            let cell = self.plan.cells.iter().find(|cell| cell.id == compared.baseline);
            Ok(Comparison {
                document: self.name.clone(),
                run: self.started.clone(),
                build: build.clone(),
                stack: cell.context("its plan lacks a baseline")?.client_stack.clone(),
                baseline: compared.baseline,
                candidate: compared.candidate,
                metric: compared.metric,
                pairs: compared.pairs,
                excluded_pairs: compared.excluded_pairs,
                baseline_median: compared.medians.map(|[baseline, _]| baseline),
                ratio: compared.ratio.as_ref().map(|ratio| ratio.value),
                low: compared.ratio.as_ref().and_then(|ratio| ratio.low),
                high: compared.ratio.as_ref().and_then(|ratio| ratio.high),
                finding: compared.finding,
                reason: compared.reason,
            })
        });
        let comparisons = comparisons.collect::<Result<_>>()?;
        let trials = self.trials.into_iter().map(|record| {
            let cell = self.plan.cells.get(record.trial.cell);
            Ok(Trial {
                document: self.name.clone(),
                run: self.started.clone(),
                cell: cell.context("its plan lacks the cell of a trial")?.id.clone(),
                iteration: record.trial.iteration,
                warmup: record.trial.warmup,
                attempt: record.attempt,
                at_seconds: record.at_seconds,
                flags: record.flags.join(" "),
                failure: record.failure.map(|failure| failure.reason),
                goodput: record.metrics.upload_goodput.or(record.metrics.download_goodput),
                cpu_seconds_per_gib: record.metrics.cpu_seconds_per_gib,
            })
        });
        let trials = trials.collect::<Result<_>>()?;
        Ok(Run { comparisons, trials })
    }
}

impl Environment {
    /// As the report has it: the commit, and twelve digits of the digest.
    fn build(&self) -> String {
        let builds = self.nodes.values().map(|node| {
            let commit = node.commit.as_ref().map(|commit| format!("commit {commit}"));
            let digest = node
                .program_sha256
                .as_ref()
                .map(|digest| format!("sha256 {digest:.12}"));
            let parts: Vec<_> = [commit, digest].into_iter().flatten().collect();
            parts.join(", ")
        });
        let builds: BTreeSet<_> = builds.collect();
        builds.into_iter().collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::{Comparison, Metric, Outcome, Results, Run, Runs, Trial, decode, encode, replaced};

    fn runs(document: &str, starts: &[&str]) -> Runs {
        let run = |started: &str| {
            let node = json!({"commit": "89abcde", "programSha256": "0123456789abcdef"});
            let results = json!({
                "name": document,
                "started": started,
                "state": "complete",
                "environment": {"nodes": {"client-0-a": node, "server-0-a": node}},
                "plan": {"cells": [
                    {"id": "a.a.tcp.upload-0.2s", "clientStack": "alpha"},
                    {"id": "b.b.tcp.upload-0.2s", "clientStack": "alpha"},
                ]},
                "trials": [
                    {
                        "trial": {"id": "c1.i3", "cell": 1, "iteration": 3}, "attempt": 1, "atSeconds": 7.5,
                        "metrics": {"uploadGoodput": 4.5e9, "cpuSecondsPerGiB": 2.125, "connectSeconds": 1.0},
                        "flags": ["LateStart", "Disturbed"],
                    },
                    {
                        "trial": {"id": "c0.w0", "cell": 0, "iteration": 0, "warmup": true}, "attempt": 0,
                        "atSeconds": 9.0, "failure": {"reason": "NodeLost", "message": "gone, with a comma"},
                    },
                ],
                "judged": {"comparisons": [
                    {
                        "baseline": "a.a.tcp.upload-0.2s", "candidate": "b.b.tcp.upload-0.2s",
                        "metric": "uploadGoodput", "pairs": 10, "excludedPairs": 1, "medians": [4.0e9, 4.5e9],
                        "ratio": {"value": 1.125, "low": 1.0625, "high": 1.25}, "finding": "Better",
                    },
                    {
                        "baseline": "a.a.tcp.upload-0.2s", "candidate": "b.b.tcp.upload-0.2s",
                        "metric": "cpuSecondsPerGiB", "pairs": 0, "excludedPairs": 0, "finding": "NotComparable",
                        "reason": "TooFewPairs",
                    },
                ]},
            });
            let results: Results = from_value(results).unwrap();
            ((document.to_owned(), started.to_owned()), results.run().unwrap())
        };
        starts.iter().map(|started| run(started)).collect()
    }

    #[test]
    fn a_run_has_what_its_comparisons_found_and_the_values_of_its_trials() {
        let [document, run] = ["aa", "2026-11-26T08:17:03Z"].map(str::to_owned);
        let runs = runs(&document, &[&run]);
        let Run { comparisons, trials } = &runs[&(document.clone(), run.clone())];
        let compared = Comparison {
            document: document.clone(),
            run: run.clone(),
            build: "commit 89abcde, sha256 0123456789ab".to_owned(),
            stack: "alpha".to_owned(),
            baseline: "a.a.tcp.upload-0.2s".to_owned(),
            candidate: "b.b.tcp.upload-0.2s".to_owned(),
            metric: Metric::UploadGoodput,
            pairs: 10,
            excluded_pairs: 1,
            baseline_median: Some(4.0e9),
            ratio: Some(1.125),
            low: Some(1.0625),
            high: Some(1.25),
            finding: Outcome::Better,
            reason: None,
        };
        assert_eq!(comparisons[0], compared);
        assert_eq!(comparisons[1].reason.as_deref(), Some("TooFewPairs"));
        let trial = Trial {
            document,
            run,
            cell: "b.b.tcp.upload-0.2s".to_owned(),
            iteration: 3,
            warmup: false,
            attempt: 1,
            at_seconds: 7.5,
            flags: "LateStart Disturbed".to_owned(),
            failure: None,
            goodput: Some(4.5e9),
            cpu_seconds_per_gib: Some(2.125),
        };
        assert_eq!(trials[0], trial);
        assert_eq!(trials[1].failure.as_deref(), Some("NodeLost"));
        assert!(trials[1].warmup);
    }

    #[test]
    fn kept_runs_are_read_as_they_were_written() {
        let mut written = runs("aa", &["2026-11-26T08:17:03Z", "2026-11-26T08:18:59Z"]);
        written.extend(runs("busy", &["2026-11-26T08:36:11Z"]));
        let [mut comparisons, mut trials]: [Vec<u8>; 2] = [vec![], vec![]];
        encode(&written, &mut comparisons, &mut trials).unwrap();
        assert_eq!(decode(&comparisons[..], &trials[..]).unwrap(), written);

        let text = String::from_utf8(comparisons).unwrap();
        let first: Vec<_> = text.lines().take(2).collect();
        assert_eq!(
            first,
            [
                "document,run,build,stack,baseline,candidate,metric,pairs,excludedPairs,baselineMedian,ratio,low,\
                 high,finding,reason",
                "aa,2026-11-26T08:17:03Z,\"commit 89abcde, sha256 0123456789ab\",alpha,a.a.tcp.upload-0.2s,\
                 b.b.tcp.upload-0.2s,uploadGoodput,10,1,4000000000.0,1.125,1.0625,1.25,Better,",
            ]
        );
    }

    #[test]
    fn new_runs_replace_those_of_the_same_document() {
        let mut kept = runs("aa", &["2026-11-26T08:17:03Z", "2026-11-26T08:18:59Z"]);
        kept.extend(runs("busy", &["2026-11-26T08:36:11Z"]));
        let new = runs("aa", &["2026-11-26T08:18:59Z", "2026-11-27T08:00:00Z"]);
        let replaced = replaced(kept, new);
        let starts: Vec<_> = replaced.keys().map(|(_, started)| &started[..13]).collect();
        assert_eq!(starts, ["2026-11-26T08", "2026-11-27T08", "2026-11-26T08"]);
    }
}
