//! The time and memory to judge a run of ten thousand trials, and to report it. Each is done in its own
//! process, so that it cannot reuse memory of an earlier one.

use std::{fs, path::Path, time::Instant};

use anyhow::{Context, Result};
use perfrun_cli::results_folder;
use perfrun_test_kit::results;

use crate::{memory::mebibytes, part::in_own_process, testbed::median};

/// The columns of a terminal.
const WIDTH: usize = 120;

/// Ninety cells with 112 trials each, with two distributions in each trial.
const SPEC: &str = "
  workload:
    substreams:
      counts: [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256]
  stacks: [{name: main, stack: litep2p}, {name: pr, stack: litep2p}]
  matrix: {clients: [main], servers: [main], transports: [tcp, quic-v1], rawReference: false}
  compare: [{baseline: main, candidate: pr}]
  expect: [{metric: openP50, maxRegression: 10%}]
  iterations: 112
  warmup: 0
";

const TARGET_JUDGING_SECONDS: f64 = 0.5;
const TARGET_REPORT_SECONDS: f64 = 2.0;
const TARGET_REPORT_MEBIBYTES: f64 = 300.0;

pub(crate) fn run(rounds: u32) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("results.json");
    let results = results::run(SPEC).results();
    fs::write(&file, serde_json::to_vec(&results)?)?;
    let trials = results.trials.len();
    let megabytes = fs::metadata(&file)?.len() as f64 / 1e6;
    println!("results of {trials} trials: {megabytes:.0} MB");
    let judging = measure("judge", &file, rounds)?;
    println!(
        "judging {trials} trials: median {:.3} s (target ≤ {TARGET_JUDGING_SECONDS} s), {:.0} MiB at most with the \
         results",
        judging.seconds, judging.mebibytes
    );
    for (what, name) in [
        ("table", "perfrun report"),
        ("html", "perfrun report --output html"),
    ] {
        let cost = measure(what, &file, rounds)?;
        println!(
            "{name}, {:.2} MB of text: median {:.3} s, {:.0} MiB at most (target ≤ {TARGET_REPORT_SECONDS} s, ≤ \
             {TARGET_REPORT_MEBIBYTES} MiB)",
            cost.bytes / 1e6,
            cost.seconds,
            cost.mebibytes
        );
    }
    Ok(())
}

/// The medians of several processes.
struct Cost {
    seconds: f64,
    mebibytes: f64,
    bytes: f64,
}

fn measure(what: &str, file: &Path, rounds: u32) -> Result<Cost> {
    let part = format!("results {what} {}", file.display());
    let all: Vec<Vec<f64>> = (0..rounds)
        .map(|_| in_own_process(&part))
        .collect::<Result<_>>()?;
    let of = |place: usize| {
        let values: Option<Vec<f64>> = all.iter().map(|numbers| numbers.get(place).copied()).collect();
        values
            .map(|values| median(&values))
            .context("the process printed too few numbers")
    };
    Ok(Cost {
        seconds: of(0)?,
        mebibytes: of(1)?,
        bytes: of(2)?,
    })
}

/// Judges or reports once, and prints seconds, the most memory of this process in MiB, and bytes of text.
pub(crate) fn once(what: &str, file: &Path) -> Result<()> {
    let mut begun = Instant::now();
    let results = results_folder::read(file)?;
    let text = match what {
        "judge" => {
            begun = Instant::now();
            let judged = perfrun_judge::judged(&results.plan, &results.trials, &results.environment.nodes);
            serde_json::to_string(&judged)?
        }
        "html" => perfrun_report::html(&results.reported_run()),
        _ => {
            let form = perfrun_report::TerminalOptions {
                width: WIDTH,
                shows_all: true,
                ..Default::default()
            };
            perfrun_report::terminal(&results.reported_run(), &form)
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    println!("{seconds} {} {}", mebibytes("self", "VmHWM:")?, text.len());
    Ok(())
}
