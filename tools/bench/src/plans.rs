//! The time and memory to plan the largest documents, and to refuse a short one that asks for too much. Each
//! plan is made in its own process, so that it cannot reuse memory of an earlier plan.

use std::{fs, time::Instant};

use anyhow::{Context, Result, ensure};
use perfrun_api::{
    document,
    planning::{self, plan},
    spec::PerfRun,
};

use crate::{memory::mebibytes, part::in_own_process, testbed::median};

const LARGEST: &str = include_str!("../../../crates/api/tests/api/largest.yaml");
const TOO_LARGE: &str = include_str!("../../../crates/api/tests/api/too-large.yaml");

/// The largest plans are compared with one that has this number of times fewer cells.
const PARTS: usize = 16;

const TARGET_MILLISECONDS: f64 = 100.0;
const TARGET_MEGABYTES: f64 = 50.0;
/// By how much a trial of the largest plan may take longer to plan than one of the small plan.
const TARGET_RATIO: f64 = 2.0;

/// The measurements of one process.
#[derive(Clone, Copy)]
struct Cost {
    milliseconds: f64,
    megabytes: f64,
    trials: f64,
}

pub(crate) fn run(rounds: u32) -> Result<()> {
    let mut costs = [vec![], vec![], vec![], vec![]];
    for _ in 0..rounds {
        for (costs, which) in costs.iter_mut().zip(["part", "trials", "nodes", "refused"]) {
            costs.push(measure(which)?);
        }
    }
    let [part, trials, nodes, refused] = costs;
    let of = |costs: &[Cost], value: fn(&Cost) -> f64| median(&costs.iter().map(value).collect::<Vec<_>>());
    let time = |costs: &[Cost]| of(costs, |cost| cost.milliseconds);
    let memory = |costs: &[Cost]| of(costs, |cost| cost.megabytes);
    let each = |costs: &[Cost]| of(costs, |cost| cost.milliseconds / cost.trials);
    let text = |costs: &[Cost]| {
        format!(
            "median {:.2} ms, {:.1} MB (target ≤ {TARGET_MILLISECONDS} ms, ≤ {TARGET_MEGABYTES} MB)",
            time(costs),
            memory(costs)
        )
    };
    println!(
        "planning {} trials of {} cells: {}\n  \
         each trial takes {:.2} of what one of {} trials takes (target ≤ {TARGET_RATIO})",
        of(&trials, |cost| cost.trials),
        planning::CELLS_MAX,
        text(&trials),
        each(&trials) / each(&part),
        of(&part, |cost| cost.trials),
    );
    println!("planning {} nodes: {}", planning::NODES_MAX, text(&nodes));
    println!(
        "refusing a document that requests too much: {}\n  {:.3} of planning the largest (target ≤ 1)",
        text(&refused),
        time(&refused) / time(&trials)
    );
    Ok(())
}

fn measure(which: &str) -> Result<Cost> {
    let [milliseconds, megabytes, trials] = in_own_process(&format!("plans {which}"))?[..] else {
        anyhow::bail!("the process printed other numbers");
    };
    Ok(Cost {
        milliseconds,
        megabytes,
        trials,
    })
}

/// Plans once, and prints milliseconds, MB and trials.
pub(crate) fn once(which: &str) -> Result<()> {
    let run = document_of(which)?;
    // The peak so far is that of reading the document.
    fs::write("/proc/self/clear_refs", "5").context("failed to reset the peak of this process's memory")?;
    let memory = |field| mebibytes("self", field);
    let before = memory("VmRSS:")?;
    let begun = Instant::now();
    let planned = plan(&run.spec);
    let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
    let megabytes = (memory("VmHWM:")? - before) * f64::from(1 << 20) / 1e6;
    let trials = match planned {
        Err(_) if which == "refused" => 0,
        planned => planned?.trials.len(),
    };
    ensure!(
        (which == "refused") == (trials == 0),
        "the document has changed: {trials} trials"
    );
    println!("{milliseconds} {megabytes} {trials}");
    Ok(())
}

fn document_of(which: &str) -> Result<PerfRun> {
    let mut largest = document::parse(LARGEST)?;
    let mut run = match which {
        "refused" => document::parse(TOO_LARGE)?.remove(0),
        "nodes" => largest.remove(1),
        _ => largest.remove(0),
    };
    if which == "part" {
        let bandwidth = run
            .spec
            .workload
            .bandwidth
            .as_mut()
            .context("the workload is bandwidth")?;
        bandwidth.sizes.truncate(bandwidth.sizes.len() / PARTS);
    }
    Ok(run)
}
