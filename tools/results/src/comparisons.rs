//! Documents that were measured many times: how often perfrun finds a difference where there is one, and
//! where there is none.
//!
//! The results of all these runs would be 60 MB. So the folder keeps what their comparisons found, and of
//! each trial the values that were compared. [`tables`] are made of both.

mod tables;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use perfrun_api::results::Results;
use perfrun_cli::results_folder;
use perfrun_contract::{
    compare::{Finding, NoFinding},
    metric::Metric,
    node::Reason,
    record::Flag,
    run::RunState,
};
use serde::{Deserialize, Serialize};

use crate::{folder::FOLDER, report::Report};

/// The folder in [`FOLDER`], and the name of its tables in documents.
const NAME: &str = "comparisons";
/// A line for each comparison of each run.
const COMPARISONS: &str = "comparisons.csv";
/// A line for each trial of each run.
const TRIALS: &str = "trials.csv.gz";

/// Runs, by their document and the moment of their start.
type Runs = BTreeMap<(String, String), Run>;

#[derive(Debug, Default, PartialEq)]
struct Run {
    comparisons: Vec<Line>,
    trials: Vec<Trial>,
}

/// What is kept of a comparison.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
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
    finding: Finding,
    reason: Option<NoFinding>,
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
    /// Why it failed.
    failure: Option<Reason>,
    /// In the direction of the cell, in bit/s.
    goodput: Option<f64>,
    #[serde(rename = "cpuSecondsPerGiB")]
    cpu_seconds_per_gib: Option<f64>,
}

fn folder() -> PathBuf {
    Path::new(FOLDER).join(NAME)
}

/// The tables of kept runs, with their name in documents. `None` if no runs are kept.
pub(crate) fn report() -> Result<Option<(String, Report)>> {
    let runs = read(&folder())?;
    let sources = format!("[Comparisons]({NAME}/{COMPARISONS}), [trials]({NAME}/{TRIALS})");
    let report = Report::with(sources, tables::all(&runs), &tables::environment(&runs));
    Ok((!runs.is_empty()).then(|| (NAME.to_owned(), report)))
}

/// Keeps the runs in these folders, and no others of the same documents.
pub(crate) fn keep(results: &[PathBuf]) -> Result<()> {
    let mut new = Runs::new();
    for run in results {
        let results = results_folder::read(run)?;
        if results.state != RunState::Complete {
            println!("left out {}, which is {}", run.display(), results.state);
            continue;
        }
        let key = (results.name.clone(), results.started.to_string());
        let kept = Run::of(&results).with_context(|| format!("unable to keep {}", run.display()))?;
        new.insert(key, kept);
    }
    let folder = folder();
    let runs = replaced(read(&folder)?, new);
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
        let line: Line = line?;
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

impl Run {
    fn of(results: &Results) -> Result<Self> {
        let judged = results.judged.as_ref().context("it compares nothing")?;
        let (document, run) = (&results.name, results.started.to_string());
        let build = perfrun_report::builds(&results.reported_run()).unwrap_or_default();
        let cells = &results.plan.cells;
        let comparisons = judged.comparisons.iter().map(|compared| {
            let cell = results.plan.cell(&compared.baseline);
            Ok(Line {
                document: document.clone(),
                run: run.clone(),
                build: build.clone(),
                stack: cell
                    .context("its plan lacks a baseline")?
                    .client_stack
                    .to_string(),
                baseline: compared.baseline.clone(),
                candidate: compared.candidate.clone(),
                metric: compared.metric,
                pairs: compared.pairs,
                excluded_pairs: compared.excluded_pairs,
                baseline_median: compared.medians.map(|[baseline, _]| baseline),
                ratio: compared.ratio.map(|ratio| ratio.value),
                low: compared.ratio.and_then(|ratio| ratio.low),
                high: compared.ratio.and_then(|ratio| ratio.high),
                finding: compared.finding,
                reason: compared.reason,
            })
        });
        let trials = results.trials.iter().map(|record| {
            let cell = cells.get(record.trial.cell);
            let flags: Vec<&str> = record.flags.iter().map(Flag::as_ref).collect();
            let value = |metric| record.metrics.get(&metric).copied();
            Ok(Trial {
                document: document.clone(),
                run: run.clone(),
                cell: cell.context("its plan lacks the cell of a trial")?.id.clone(),
                iteration: record.trial.iteration,
                warmup: record.trial.warmup,
                attempt: record.attempt,
                at_seconds: record.at_seconds,
                flags: flags.join(" "),
                failure: record.failure.as_ref().map(|failure| failure.reason),
                goodput: value(Metric::UploadGoodput).or_else(|| value(Metric::DownloadGoodput)),
                cpu_seconds_per_gib: value(Metric::CpuSecondsPerGiB),
            })
        });
        Ok(Self {
            comparisons: comparisons.collect::<Result<_>>()?,
            trials: trials.collect::<Result<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{
        compare::{Finding, NoFinding},
        metric::Metric,
        node::Reason,
        record::Flag,
    };
    use perfrun_test_kit::results::{ResultsBuilder, run};

    use super::{Results, Run, Runs, decode, encode, replaced};

    const SPEC: &str = "
  workload:
    bandwidth: {sizes: [64Mi], directions: [upload]}
  stacks: [{name: main, stack: litep2p}, {name: pr, stack: litep2p}]
  matrix: {clients: [main], servers: [main], transports: [tcp], rawReference: false}
  compare: [{baseline: main, candidate: pr}]
  iterations: 12
";

    fn made() -> ResultsBuilder {
        run(SPEC)
            .flagged("pr.", Flag::LateStart)
            .flagged("pr.", Flag::Throttled)
            .failing("i3", Reason::NodeLost, "gone, with a comma")
    }

    fn runs(document: &str, starts: &[&str]) -> Runs {
        let run = |started: &&str| {
            let started = started.parse().unwrap();
            let results = Results {
                started,
                ..made().name(document).results()
            };
            (
                (document.to_owned(), started.to_string()),
                Run::of(&results).unwrap(),
            )
        };
        starts.iter().map(run).collect()
    }

    #[test]
    fn a_kept_run_has_its_findings_and_the_values_of_its_trials() {
        let results = made().results();
        let found = &results.judged.as_ref().unwrap().comparisons[0];
        let Run { comparisons, trials } = Run::of(&results).unwrap();
        let line = &comparisons[0];
        assert_eq!(
            (&*line.run, &*line.build, &*line.stack),
            ("2026-11-20T14:00:00Z", "sha256 0123456789ab", "litep2p")
        );
        let ratio = found.ratio.unwrap();
        assert_eq!(
            (line.finding, line.pairs, line.ratio, line.low, line.high),
            (found.finding, 11, Some(ratio.value), ratio.low, ratio.high)
        );
        assert_eq!(trials.len(), results.trials.len());
        let of_candidate = |trial: &&super::Trial| trial.cell.starts_with("pr.");
        let trial = trials
            .iter()
            .filter(of_candidate)
            .find(|trial| trial.iteration == 4)
            .unwrap();
        assert_eq!((&*trial.flags, trial.failure), ("LateStart Throttled", None));
        assert!(trial.goodput > Some(0.0) && trial.cpu_seconds_per_gib > Some(0.0));
        let failed = trials.iter().find(|trial| trial.iteration == 3).unwrap();
        assert_eq!((failed.failure, failed.goodput), (Some(Reason::NodeLost), None));
        assert!(trials[0].warmup);
    }

    #[test]
    fn kept_runs_are_read_as_they_were_written() {
        let mut written = runs("aa", &["2026-11-26T08:17:03Z", "2026-11-26T08:18:59Z"]);
        written.extend(runs("busy", &["2026-11-26T08:36:11Z"]));
        let line = &mut written.values_mut().next().unwrap().comparisons[0];
        (line.metric, line.baseline_median, line.ratio) = (Metric::CpuSecondsPerGiB, Some(2.5), None);
        (line.finding, line.reason) = (Finding::NotComparable, Some(NoFinding::TooFewPairs));
        (line.low, line.high) = (None, None);
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
                "aa,2026-11-26T08:17:03Z,sha256 0123456789ab,litep2p,main.main.tcp.upload-64Mi,\
                 pr.pr.tcp.upload-64Mi,cpuSecondsPerGiB,11,1,2.5,,,,NotComparable,TooFewPairs",
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
