//! perfrun on a Kubernetes cluster. `cargo xtask bench cluster` creates a lab, installs the operator in it
//! and starts this.

mod first_byte;
mod goodput;
mod iperf;
pub(crate) mod operator;
mod skew;

use std::io::Write;

use anyhow::{Context, Result, anyhow};
use perfrun_api::results::Results;
use perfrun_e2e::{Cluster, Scene, run::in_yaml, seconds};

pub(crate) async fn run(rounds: u32, seconds: f64) -> Result<()> {
    let kubeconfig = Cluster::find_kubeconfig()
        .map_err(|reason| anyhow!("{reason}; `cargo xtask bench cluster` creates a cluster and sets it"))?;
    let cluster = Cluster::open(kubeconfig).await?;
    let scene = Scene::open(&cluster, "bench").await?;
    let measured = measure(&scene, rounds, seconds).await;
    if measured.is_err() {
        scene.explain().await;
    }
    measured.and(scene.remove().await)
}

async fn measure(scene: &Scene, rounds: u32, seconds: f64) -> Result<()> {
    scene.operators().await_ready().await?;
    first_byte::run(scene, rounds).await?;
    skew::run(scene).await?;
    goodput::run(scene, rounds, seconds).await?;
    operator::run(scene).await
}

/// Runs a document in the cluster, given by its spec in YAML, and returns what it measured; a failed trial is
/// an error.
async fn results(scene: &Scene, name: &str, spec: &str) -> Result<Results> {
    scene.create(name, spec).await?;
    ended(scene, name).await
}

/// The results of a run in progress, when it has ended.
async fn ended(scene: &Scene, name: &str) -> Result<Results> {
    let run = scene.succeeded(name, seconds(300)).await?;
    scene.results(&run).await
}

/// `kubectl apply` of a document, given by its spec in YAML that begins in the first column.
async fn apply(scene: &Scene, name: &str, spec: &str) -> Result<()> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(in_yaml(name, spec).as_bytes())?;
    let path = file.path().to_str().context("the path is text")?;
    scene.kubectl(&["apply", "--filename", path]).await.map(drop)
}
