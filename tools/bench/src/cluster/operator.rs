//! What the operator costs: requests to the API server, and memory.

use anyhow::{Context, Result};
use http::Request;
use k8s_openapi::api::{core::v1::Pod, flowcontrol::v1::FlowSchema};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use perfrun_e2e::{
    Scene,
    operators::{NAME, NAMESPACE, processes},
    seconds,
};
use serde_json::json;
use tokio::time::sleep;

use super::results;

/// A flow schema for the operator's requests, so that the API server counts them separately.
const FLOW: &str = "perfrun-bench";
const COUNTER: &str = "apiserver_flowcontrol_dispatched_requests_total";
/// The number of runs from which the requests of one are computed.
const RUNS: u32 = 5;
/// How long the operator is idle while its requests are counted.
const IDLE_SECONDS: u64 = 30;
/// The number of runs in the cluster when memory is measured.
const MANY: u32 = 100;

pub(super) async fn run(scene: &Scene) -> Result<()> {
    let flows: Api<FlowSchema> = Api::all(scene.client());
    flows.create(&PostParams::default(), &flow()?).await?;
    let measured = measure(scene).await;
    flows.delete(FLOW, &DeleteParams::default()).await?;
    measured
}

async fn measure(scene: &Scene) -> Result<()> {
    // A new schema takes some time to be in force.
    sleep(seconds(10)).await;
    for clients in [1, 5] {
        let before = requests(scene).await?;
        for number in 0..RUNS {
            let name = format!("requests-{clients}-{number}");
            results(scene, &name, &spec(clients, true)).await?;
        }
        // Pods are still being removed.
        sleep(seconds(10)).await;
        let each = (requests(scene).await? - before) / f64::from(RUNS);
        println!(
            "requests of the operator to the API server for a run of {} pods and 20 trials: {each:.1}",
            clients + 1
        );
    }
    let before = requests(scene).await?;
    sleep(seconds(IDLE_SECONDS)).await;
    println!(
        "requests of the operator in {IDLE_SECONDS} s with {} finished runs: {} (target 0; without those for its lease)",
        2 * RUNS,
        requests(scene).await? - before
    );

    for number in 0..MANY {
        scene.create(&format!("many-{number}"), &spec(1, false)).await?;
    }
    for number in 0..MANY {
        scene.succeeded(&format!("many-{number}"), seconds(600)).await?;
    }
    let leader = scene.operators().leader().await?;
    println!(
        "memory of the leading operator with {MANY} more finished PerfRuns: {:.1} MiB, peak {:.1} MiB \
         (target ≤ 40 MiB)",
        memory(&leader, "VmRSS:")?,
        memory(&leader, "VmHWM:")?
    );
    Ok(())
}

fn spec(clients: u32, exclusive: bool) -> String {
    format!(
        "workload: {{bandwidth: {{sizes: [1Mi], directions: [upload]}}}}\n\
         matrix: {{clients: [raw], servers: [raw]}}\n\
         topology: {{clients: {clients}, placement: Any, exclusive: {exclusive}}}\n\
         iterations: 20\nwarmup: 0\n"
    )
}

/// All requests of the operator except those for its lease.
pub(crate) fn flow() -> Result<FlowSchema> {
    let flow = json!({
        "metadata": { "name": FLOW },
        "spec": {
            "matchingPrecedence": 500,
            "priorityLevelConfiguration": { "name": "workload-high" },
            "distinguisherMethod": { "type": "ByUser" },
            "rules": [{
                "subjects": [{
                    "kind": "ServiceAccount",
                    "serviceAccount": { "namespace": NAMESPACE, "name": NAME }
                }],
                "resourceRules": [{
                    "verbs": ["*"],
                    "apiGroups": ["", "perfrun.io", "networking.k8s.io", "events.k8s.io"],
                    "resources": ["*"],
                    "clusterScope": true,
                    "namespaces": ["*"]
                }]
            }]
        }
    });
    serde_json::from_value(flow).context("the flow schema is well-formed")
}

/// Requests that the API server has counted so far.
pub(crate) async fn requests(scene: &Scene) -> Result<f64> {
    let request = Request::get("/metrics").body(vec![])?;
    let metrics = scene.client().request_text(request).await?;
    let of_flow = format!("flow_schema=\"{FLOW}\"");
    let mut total = 0.0;
    for line in metrics
        .lines()
        .filter(|line| line.starts_with(COUNTER) && line.contains(&of_flow))
    {
        let (_, value) = line.rsplit_once(' ').context("a metric has a value")?;
        total += value.parse::<f64>()?;
    }
    Ok(total)
}

/// A line of /proc/PID/status of a pod's process, in MiB.
fn memory(pod: &Pod, field: &str) -> Result<f64> {
    let processes = processes(pod, NAME)?;
    let process = processes
        .first()
        .with_context(|| format!("{} has no process on this computer", pod.name_any()))?;
    crate::memory::mebibytes(process, field)
}
