//! The operator with a thousand runs: a real API server with the real scheduler and a thousand Kubernetes
//! nodes, the operator as a program of its own, and [`kubelet`] in place of kubelets.
//!
//! KWOK is not used. Its versions 0.7 and 0.8 read lists as streams, which the etcd of Debian 12 (3.4.23)
//! does not have, so that they learn of a pod some seconds late. And their pods have no node to conduct.

mod kubelet;
mod process;
mod run_times;

use std::time::Duration;

use anyhow::{Result, anyhow};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    flowcontrol::v1::FlowSchema,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use perfrun_api::spec::PerfRun;
use perfrun_e2e::{Cluster, Scene, lab::Lab, seconds, until};
use tokio::time::sleep;

use self::{kubelet::Kubelet, process::Operator, run_times::RunTimes};
use crate::{
    cluster::operator::{flow, requests},
    testbed::{median, p99},
};

/// Kubernetes nodes.
const NODES: usize = 1000;
/// Runs that may be active together.
const ACTIVE: usize = 5;
/// Client pods of a run. It also has a server.
const CLIENTS: usize = 4;
/// Requests of this program to the API server at a time.
const AT_ONCE: usize = 16;
/// How long no run may end before the benchmark gives up.
const NO_PROGRESS_TIMEOUT: Duration = seconds(180);
/// What may grow faster than linearly by chance, as a factor.
const CHANCE: f64 = 1.1;
/// Growth from fewer runs is not judged: many of them need not wait, so that the operator does less for each.
const MANY: usize = 20 * ACTIVE;

/// Columns of the names of rows.
const WIDTH: usize = 50;

/// What was measured with a number of runs.
struct Figures {
    runs: usize,
    memory: f64,
    requests: f64,
    next: Vec<f64>,
    status: Vec<f64>,
}

/// A line of the table.
struct Row {
    what: &'static str,
    value: fn(&Figures) -> f64,
    goal: Option<f64>,
    /// Whether the value is of one run, so that it must not grow at all.
    is_of_one: bool,
}

const ROWS: [Row; 5] = [
    Row {
        what: "most resident memory of the operator, MiB",
        value: |figures| figures.memory,
        goal: Some(64.0),
        is_of_one: false,
    },
    Row {
        what: "requests to the API server per run",
        value: |figures| figures.requests / figures.runs as f64,
        goal: None,
        is_of_one: true,
    },
    Row {
        what: "from the end of a run to the next start, p50, ms",
        value: |figures| median(&figures.next),
        goal: None,
        is_of_one: false,
    },
    Row {
        what: "from the end of a run to the next start, p99, ms",
        value: |figures| p99(&figures.next),
        goal: Some(5000.0),
        is_of_one: false,
    },
    Row {
        what: "from the last pod's change to .status, p99, ms",
        value: |figures| p99(&figures.status),
        goal: Some(1000.0),
        is_of_one: false,
    },
];

/// Measures with these numbers of runs. Returns whether all goals were met.
pub(crate) async fn run(sizes: &[usize]) -> Result<bool> {
    let kubeconfig = Cluster::find_kubeconfig()
        .map_err(|reason| anyhow!("{reason}; `cargo xtask bench scale` creates a cluster and sets it"))?;
    let lab = Lab::find().map_err(|reason| anyhow!(reason))?;
    let scene = Scene::open(&Cluster::open(kubeconfig).await?, "scale").await?;
    // The lab's own Kubernetes node would get pods. The controllers would take all others for lost, because
    // nobody renews a thousand leases; that would cost more than what is measured.
    lab.stop("node-1").await?;
    lab.stop("controller-manager").await?;
    let nodes: Api<Node> = Api::all(scene.client());
    nodes.delete("node-1", &DeleteParams::default()).await?;
    kubelet::create_nodes(&nodes, NODES).await?;
    let flows: Api<FlowSchema> = Api::all(scene.client());
    flows.create(&PostParams::default(), &flow()?).await?;
    // A new schema takes some time to be in force.
    sleep(seconds(10)).await;

    let mut all = vec![];
    for &runs in sizes {
        let figures = with_runs(&scene, runs).await?;
        println!(
            "{runs} runs, {} pods, {NODES} Kubernetes nodes: measured",
            runs * (CLIENTS + 1)
        );
        all.push(figures);
    }
    Ok(print_table(&all))
}

/// Lets an operator carry out a number of runs, which exist when it starts.
async fn with_runs(scene: &Scene, runs: usize) -> Result<Figures> {
    let name = |number: usize| format!("run-{number:04}");
    stream::iter((0..runs).map(name))
        .map(async |name| scene.create(&name, &spec()).await)
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |_| Ok(()))
        .await?;
    let run_times = RunTimes::of(scene.api());
    let kubelet = Kubelet::start(scene.api(), scene.api(), run_times.clone())?;
    let before = requests(scene).await?;
    let operator = Operator::start(scene, ACTIVE).await?;
    let mut ended = 0;
    while ended < runs {
        let before = ended;
        ended = until("another run has ended", NO_PROGRESS_TIMEOUT, async || {
            let now = run_times.ended();
            Ok((now > before || run_times.check().is_err()).then_some(now))
        })
        .await?;
        run_times.check()?;
    }
    let pods: Api<Pod> = scene.api();
    until("no pod is left", seconds(60), async || {
        let left = pods.list_metadata(&ListParams::default()).await?.items;
        Ok(left.is_empty().then_some(()))
    })
    .await?;
    let figures = Figures {
        runs,
        memory: operator.most_memory()?,
        requests: requests(scene).await? - before,
        next: run_times.delays_of_starts(ACTIVE),
        status: run_times.status_latencies(),
    };
    operator.stop().await?;
    kubelet.stop();
    let all: Api<PerfRun> = scene.api();
    all.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    Ok(figures)
}

fn spec() -> String {
    format!(
        "workload: {{ping: {{count: 1}}}}\n\
         matrix: {{clients: [raw], servers: [raw]}}\n\
         topology: {{clients: {CLIENTS}, placement: Any, exclusive: false}}\n\
         iterations: 1\nwarmup: 0\n"
    )
}

/// Prints the table, and the goals that were missed. Returns whether there are none.
fn print_table(all: &[Figures]) -> bool {
    print!("\n{:<WIDTH$}", "runs");
    all.iter().for_each(|figures| print!("{:>10}", figures.runs));
    println!("  growth relative to linear");
    let mut missed = vec![];
    for row in ROWS {
        let values: Vec<f64> = all.iter().map(row.value).collect();
        print!("{:<WIDTH$}", row.what);
        values.iter().for_each(|value| print!("{value:>10.1}"));
        for (figures, values) in all.windows(2).zip(values.windows(2)) {
            let runs = figures[1].runs as f64 / figures[0].runs as f64;
            let growth = values[1] / values[0] / if row.is_of_one { 1.0 } else { runs };
            print!("  {growth:.2}");
            if growth > CHANCE && figures[0].runs >= MANY {
                missed.push(format!("linear growth of {}", row.what));
            }
        }
        let goal = row
            .goal
            .map_or_else(String::new, |goal| format!("  (goal ≤ {goal})"));
        println!("{goal}");
        if row
            .goal
            .is_some_and(|goal| values.iter().any(|value| *value > goal))
        {
            missed.push(format!("goal of {}", row.what));
        }
    }
    for what in &missed {
        println!("missed: {what}");
    }
    missed.is_empty()
}
