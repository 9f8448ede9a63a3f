//! The goodput of pods: raw TCP against iperf3 in pods beside them, and the stacks against themselves without
//! a cluster.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};
use perfrun_contract::metric::Metric;
use perfrun_e2e::Scene;

use super::{iperf::IperfPods, results};
use crate::testbed::{Testbed, Unit, pair, print_ratio};

const TARGET: f64 = 0.95;

pub(super) async fn run(scene: &Scene, rounds: u32, seconds: f64) -> Result<()> {
    let nodes: Api<Node> = Api::all(scene.client());
    let nodes = nodes.list(&ListParams::default()).await?.items;
    let names: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
    ensure!(names.len() > 1, "the cluster has one node; two are needed");
    for (place, hosts) in [
        ("on one Kubernetes node", [&*names[0], &*names[0]]),
        ("across two Kubernetes nodes", [&*names[0], &*names[1]]),
    ] {
        against_iperf3(scene, rounds, seconds, place, hosts).await?;
        for stack in ["raw", "libp2p", "litep2p"] {
            against_local(scene, rounds, seconds, stack, place, hosts).await?;
        }
    }
    Ok(())
}

async fn against_iperf3(
    scene: &Scene,
    rounds: u32,
    seconds: f64,
    place: &str,
    hosts: [&str; 2],
) -> Result<()> {
    let iperf3 = IperfPods::start(scene, hosts).await?;
    let mut pairs = vec![];
    for round in 0..rounds {
        let name = format!("iperf3-{}-{round}", hosts[1]);
        let ours = in_pods(scene, &name, "raw", seconds, hosts);
        pairs.push(pair(round, ours, iperf3.measure(scene, seconds)).await?);
    }
    let what = format!("raw TCP in pods {place}, against iperf3 in pods {place}");
    print_ratio(&what, &pairs, Unit::Bits, Some(TARGET));
    Ok(())
}

/// The loss from the longer path: each packet of a pod passes the bridge and the firewall of its Kubernetes
/// node.
async fn against_local(
    scene: &Scene,
    rounds: u32,
    seconds: f64,
    stack: &str,
    place: &str,
    hosts: [&str; 2],
) -> Result<()> {
    let local = Testbed::of(stack, "tcp", &workload(seconds)).await?;
    let cell = format!("{stack}.{stack}.tcp.upload-{seconds}s");
    let mut pairs = vec![];
    for round in 0..rounds {
        let name = format!("{stack}-{}-{round}", hosts[1]);
        let ours = in_pods(scene, &name, stack, seconds, hosts);
        pairs.push(pair(round, ours, local.measure(&cell, Metric::UploadGoodput)).await?);
    }
    local.nodes.stop().await;
    print_ratio(
        &format!("{stack} over TCP in pods {place}, against {stack} in local namespaces"),
        &pairs,
        Unit::Bits,
        None,
    );
    Ok(())
}

/// One upload, in bit/s, by pods on these Kubernetes nodes.
async fn in_pods(scene: &Scene, name: &str, stack: &str, seconds: f64, hosts: [&str; 2]) -> Result<f64> {
    let [server, client] = hosts;
    let spec = format!(
        "workload: {{{}}}\n\
         matrix: {{clients: [{stack}], servers: [{stack}], rawReference: false}}\n\
         iterations: 1\nwarmup: 0\n\
         topology: {{placement: Any}}\n\
         template:\n\
         \x20 server: {{nodeSelector: {{kubernetes.io/hostname: {server}}}}}\n\
         \x20 client: {{nodeSelector: {{kubernetes.io/hostname: {client}}}}}\n",
        workload(seconds)
    );
    let results = results(scene, name, &spec).await?;
    let record = results.trials.first().context("there is one trial")?;
    let goodput = record.metrics.get(&Metric::UploadGoodput);
    goodput.copied().context("the trial has a goodput")
}

fn workload(seconds: f64) -> String {
    format!("bandwidth: {{duration: {seconds}s, directions: [upload]}}")
}
