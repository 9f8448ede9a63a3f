//! `perfrun-soak`: runs of random documents, while random parts of the cluster fail. `cargo xtask soak`
//! starts it on a lab of its own.
//!
//! A round creates one to three runs in a namespace of its own, lets faults happen at random moments, and
//! waits until all runs have ended. Then it checks what must hold whatever happened:
//!
//! - every run has ended, with a reason and a sentence;
//! - no trial is lost, and none was measured twice;
//! - the status counts what the results have;
//! - a deleted run leaves no object;
//! - no operator takes more than 128 MiB of memory, or ends because it lacks memory, or by a panic.
//!
//! Meanwhile a hostile tenant sends documents at the bounds of the schema and above, ConfigMaps that look
//! like parts of journals, and nodes that answer as much, as slowly and as wrongly as they can.
//!
//! Documents, faults and pauses come from the seed and the number of the round. The moment at which a fault
//! hits depends on the machine, so a repeated round is similar, and not the same.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod counts;
mod document;
mod fault;
mod hostile;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use futures::future::try_join_all;
use perfrun_api::{cluster::condition::Type, spec::PerfRun};
use perfrun_e2e::{
    Cluster, Scene,
    lab::Lab,
    results::check_no_trial_twice,
    run::{describe, message, phase, reason, trials_ended},
    seconds,
};
use rand::{RngExt as _, SeedableRng, rngs::Xoshiro256PlusPlus};
use tokio::time::sleep;

use self::{counts::SoakCounts, fault::Fault};

/// More than the timeouts of a document allow a run to take.
const RUN_MAX: Duration = seconds(600);

/// Runs random documents while random parts of the cluster fail.
#[derive(Parser)]
#[command(name = "cargo xtask soak", bin_name = "cargo xtask soak")]
struct Args {
    /// Begin no round after this time
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Repeat the documents, faults and pauses of this seed (default: a new one)
    #[arg(long)]
    seed: Option<u32>,
    /// Run this round only
    #[arg(long)]
    round: Option<u32>,
    /// Append the counts to this file, relative to the repository, and print the sum of all soaks in it
    #[arg(long, value_name = "FILE.jsonl")]
    keep: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    // A soak takes long: it does not begin if its counts could not be kept.
    let earlier = args.keep.as_deref().map(SoakCounts::read).transpose()?;
    let kubeconfig = Cluster::find_kubeconfig().map_err(anyhow::Error::msg)?;
    let cluster = Cluster::open(kubeconfig).await?;
    let lab = Lab::find().map_err(anyhow::Error::msg)?;
    let seed = args.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    let (begun, limit) = (Instant::now(), Duration::from_secs(60 * args.minutes));
    let mut counts = SoakCounts::of(seed);
    let rounds = match args.round {
        Some(round) => round..round + 1,
        None => 0..u32::MAX,
    };
    // The counts up to an error are kept, too.
    let mut ended = async {
        for round in rounds {
            if begun.elapsed() >= limit {
                break;
            }
            let start = Instant::now();
            let scene = Scene::open(&cluster, "soak").await?;
            let random = Xoshiro256PlusPlus::seed_from_u64(u64::from(seed) << 32 | u64::from(round));
            let tenant = scene.another(&[]).await?;
            let held = play_round(&scene, &tenant, &lab, random, &mut counts).await;
            let violation = held.as_ref().err().map(|error| format!("{error:#}"));
            println!(
                "round {round}, {:.0?}: {}",
                start.elapsed(),
                violation.as_deref().unwrap_or("ok")
            );
            if violation.is_some() {
                scene.explain().await;
                println!("repeat it with `cargo xtask soak --seed {seed} --round {round}`");
            }
            counts.count_round(violation.is_some());
            tenant.remove().await?;
            scene.remove().await?;
        }
        anyhow::Ok(())
    }
    .await;
    counts.note_duration(begun.elapsed());
    print!("{}", counts.table());
    if let Some((file, earlier)) = args.keep.as_deref().zip(earlier) {
        ended = ended.and(counts.append_to(file));
        print!(
            "\nall soaks in {}\n{}",
            file.display(),
            earlier.plus(&counts).table()
        );
    }
    ended?;
    Ok(if counts.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// One round. The error says what does not hold.
async fn play_round(
    scene: &Scene,
    tenant: &Scene,
    lab: &Lab,
    mut random: Xoshiro256PlusPlus,
    counts: &mut SoakCounts,
) -> Result<()> {
    // The scheduler ends itself when its cache and the API server contradict each other after a fault of an
    // earlier round.
    lab.start("scheduler").await?;
    scene.operators().await_ready().await?;
    // Its choices change none of those below, which earlier soaks have made.
    hostile::send(tenant, &mut random.clone(), counts).await?;
    let names: Vec<_> = (0..random.random_range(1..=3))
        .map(|index| format!("run-{index}"))
        .collect();
    for name in &names {
        scene.create(name, &document::random(&mut random)).await?;
    }
    for _ in 0..random.random_range(1..=3) {
        sleep(Duration::from_millis(random.random_range(500..10_000))).await;
        let fault = Fault::random(&mut random);
        let hit = fault.inject(scene, lab, &names, &mut random).await;
        let hit = hit.with_context(|| format!("{fault} failed to happen"))?;
        println!("  {}: {}", fault, hit.as_deref().unwrap_or("nothing to hit"));
        if hit.is_some() {
            counts.count_fault(fault);
        }
    }
    let ended = names.iter().map(|name| scene.ended(name, RUN_MAX));
    for run in try_join_all(ended).await? {
        println!("  {}", describe(&run));
        counts.count_run(&run);
        check_run(scene, &run)
            .await
            .with_context(|| format!("PerfRun {}", describe(&run)))?;
    }
    for name in &names {
        scene.delete(name).await?;
    }
    hostile::check_operators(tenant, counts).await
}

/// Checks a run that has ended.
async fn check_run(scene: &Scene, run: &PerfRun) -> Result<()> {
    ensure!(
        phase(run).is_some()
            && !reason(run, Type::Complete).is_empty()
            && !message(run, Type::Complete).is_empty(),
        "it does not say how it ended"
    );
    let status = run.status.as_ref().context("it has no status")?;
    if status.results.is_empty() {
        ensure!(trials_ended(run) == 0, "it has no results of its trials");
        return Ok(());
    }
    let results = scene.results(run).await?;
    let ended = check_no_trial_twice(&results)?;
    ensure!(
        trials_ended(run) as usize == ended,
        "its status counts {} trials, and its results have {ended}",
        trials_ended(run)
    );
    Ok(())
}
