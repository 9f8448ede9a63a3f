//! Examples as users run them, stacks in pods on their other transports, go-libp2p, and `kubectl explain`.

use std::{env, fs, process::Stdio};

use anyhow::{Context, Result, ensure};
use perfrun_api::{cluster::condition::Type, document, results::Results, spec::PerfRun};
use perfrun_contract::run::Phase;
use perfrun_e2e::{
    Scene, admission, e2e, find_perfrun, repository,
    results::{check_every_trial_once, failures, shape},
    run::{describe, has_condition, phase},
    seconds, shared,
};
use tokio::process::Command;

#[test]
fn the_quick_start_runs_as_it_is() {
    e2e(async |scene| runs_as_it_is(scene, "quickstart").await);
}

#[test]
fn the_substreams_of_litep2p_perf_run_as_they_are() {
    e2e(async |scene| runs_as_it_is(scene, "litep2p-perf-substreams").await);
}

const OTHER_TRANSPORTS: &str = "
workload: {ping: {count: 5}}
matrix:
  clients: [libp2p, litep2p]
  servers: [libp2p, litep2p]
  transports: [ws, webrtc-direct, memory]
  rawReference: false
iterations: 1
warmup: 0
topology: {placement: Any}
";

#[test]
fn stacks_in_pods_meet_on_their_other_transports() {
    shared(async |scene| {
        scene.create("others", OTHER_TRANSPORTS).await?;
        let run = scene.succeeded("others", seconds(120)).await?;
        let results = scene.checked_results(&run).await?;
        // {libp2p, litep2p}² on ws, libp2p with both on webrtc-direct, and with itself in memory.
        ensure!(results.trials.len() == 4 + 2 + 1, "{:?}", results.plan.cells);
        Ok(())
    });
}

const GO: &str = "
workload: {bandwidth: {sizes: [1Mi]}}
matrix:
  clients: [go-libp2p]
  servers: [libp2p, litep2p, go-libp2p]
  transports: [tcp, quic-v1, webtransport]
  exclude: [{server: libp2p, transport: webtransport}, {server: litep2p, transport: webtransport}]
  include: [{client: libp2p, server: go-libp2p, transport: tcp}, {client: litep2p, server: go-libp2p, transport: tcp}]
  rawReference: false
iterations: 1
warmup: 0
topology: {placement: Any}
";

const GO_RELAY: &str = "
workload: {relay: {sizes: [1M]}}
matrix: {clients: [libp2p, go-libp2p], servers: [libp2p, go-libp2p], rawReference: false}
iterations: 1
warmup: 0
topology: {placement: Any, relay: go-libp2p}
";

#[test]
fn go_libp2p_in_pods_meets_every_stack_and_relays_for_it() {
    shared(async |scene| {
        for (name, document, trials) in [("go", GO, 18), ("go-relay", GO_RELAY, 8)] {
            scene.create(name, document).await?;
            let run = scene.succeeded(name, seconds(120)).await?;
            let results = scene.checked_results(&run).await?;
            ensure!(results.trials.len() == trials, "{:?}", results.plan.cells);
        }
        Ok(())
    });
}

#[test]
fn kubectl_explains_every_field() {
    admission(async |scene| {
        let spec = scene.kubectl(&["explain", "perfrun.spec"]).await?;
        for field in ["workload", "matrix", "iterations", "cleanup"] {
            ensure!(spec.contains(field), "{field} is missing in {spec}");
        }
        ensure!(spec.contains("Measured iterations of each cell"), "{spec}");
        let short = scene.kubectl(&["explain", "pfr.spec.topology.exclusive"]).await?;
        ensure!(short.contains("<boolean>"), "{short}");
        Ok(())
    });
}

async fn runs_as_it_is(scene: &Scene, name: &str) -> Result<()> {
    let file = repository().join(format!("examples/{name}.yaml"));
    let path = file.to_str().context("the repository's path is text")?;
    scene.kubectl(&["apply", "--filename", path]).await?;
    let resource = format!("perfrun/{name}");
    scene
        .kubectl(&["wait", "--for=condition=Complete", "--timeout=10m", &resource])
        .await?;

    let run = scene.run(name).await?;
    ensure!(
        phase(&run) == Some(Phase::Succeeded),
        "it ended as {}",
        describe(&run)
    );
    for condition in [Type::Accepted, Type::Provisioned, Type::Complete] {
        ensure!(
            has_condition(&run, condition, "True"),
            "{condition} is not true: {}",
            describe(&run)
        );
    }
    ensure!(has_condition(&run, Type::Running, "False"), "{}", describe(&run));

    let table = scene.kubectl(&["get", "perfrun", name]).await?;
    let mut lines = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    ensure!(
        lines.next() == Some(vec!["NAME", "PHASE", "VERDICT", "REASON", "TRIALS", "AGE"]),
        "{table}"
    );
    let row = lines.next().context("a row for the run")?;
    let results = scene.results(&run).await?;
    let all = results.plan.trials.len();
    ensure!(
        row[..4] == [name, "Succeeded", "Succeeded", &format!("{all}/{all}")],
        "{table}"
    );

    check_every_trial_once(&run, &results)?;
    ensure!(
        failures(&results).is_empty(),
        "trials failed: {:?}",
        failures(&results)
    );
    let text = fs::read_to_string(&file)?;
    let written = document::parse(&text)?.remove(0);
    ensure!(written.spec == run.spec, "the API server changed the document");
    looks_like_a_local_run(&results, written).await
}

/// The tables of a short local run of the same document have the same rows and columns.
async fn looks_like_a_local_run(results: &Results, mut run: PerfRun) -> Result<()> {
    let Some(perfrun) = find_perfrun("the same tables as locally") else {
        return Ok(());
    };
    // Enough iterations for the columns with intervals, which need six.
    run.spec.iterations = run.spec.iterations.min(6);
    run.spec.warmup = 0;
    let folder = env::temp_dir().join(format!("perfrun-e2e-{}", rand::random::<u64>()));
    fs::create_dir_all(&folder)?;
    let file = folder.join("run.json");
    fs::write(&file, serde_json::to_vec(&run)?)?;
    let output = Command::new(perfrun)
        .arg("run")
        .arg(&file)
        .args(["--json", "--quiet", "--loopback", "--results"])
        .arg(folder.join("results"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .context("failed to start perfrun")?;
    fs::remove_dir_all(&folder)?;
    ensure!(output.status.success(), "perfrun failed: {}", output.status);
    let local: Results =
        serde_json::from_slice(&output.stdout).context("unable to read what perfrun printed")?;
    let (here, there) = (shape(&local), shape(results));
    ensure!(
        here == there,
        "the tables differ; locally:\n{}\nin the cluster:\n{}",
        here.join("\n"),
        there.join("\n")
    );
    Ok(())
}
