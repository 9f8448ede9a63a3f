//! The time until a run begins to measure.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use futures::{AsyncBufReadExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{ListParams, LogParams, WatchEvent, WatchParams},
};
use perfrun_api::cluster::{ROLE_LABEL, RUN_LABEL};
use perfrun_e2e::Scene;

use super::{apply, ended};
use crate::testbed::median;

const SPEC: &str = "
workload: {bandwidth: {sizes: [1Mi], directions: [upload]}}
matrix: {clients: [raw], servers: [raw]}
iterations: 1
warmup: 0
";
const PODS: usize = 2;

pub(super) async fn run(scene: &Scene, rounds: u32) -> Result<()> {
    let (mut from_ready, mut from_apply) = (vec![], vec![]);
    for round in 0..rounds {
        let [applied, ready, measured] = moments(scene, &format!("first-byte-{round}")).await?;
        from_ready.push(milliseconds(measured.duration_since(ready)));
        from_apply.push(milliseconds(measured.duration_since(applied)));
    }
    for (from, times, target) in [
        ("the last pod being ready", from_ready, 500),
        ("kubectl apply of two pods, images present,", from_apply, 6000),
    ] {
        let worst = times.iter().copied().fold(0.0, f64::max);
        println!(
            "from {from} to the end of the first trial of 1 MiB:\n  \
             median {:.0} ms, worst {worst:.0} ms of {} runs (target, for its first byte: ≤ {target} ms)",
            median(&times),
            times.len()
        );
    }
    Ok(())
}

/// When kubectl was started, when the API server reported that the last pod was ready, and when the client
/// wrote its first trial, which is later than that trial's first byte. Pods of a lab have the clock of this
/// computer.
async fn moments(scene: &Scene, name: &str) -> Result<[Timestamp; 3]> {
    let applied = Timestamp::now();
    let (measured, ()) = tokio::try_join!(measured(scene, name), apply(scene, name, SPEC))?;
    ended(scene, name).await?;
    let (ready, measured) = measured;
    Ok([applied, ready, measured])
}

async fn measured(scene: &Scene, name: &str) -> Result<(Timestamp, Timestamp)> {
    let pods = scene.api::<Pod>();
    // From now on: no pod of the run exists yet.
    let now = pods
        .list(&ListParams::default().limit(1))
        .await?
        .metadata
        .resource_version;
    let of_run = WatchParams::default().labels(&format!("{RUN_LABEL}={name}"));
    let watch = pods.watch(&of_run, now.as_deref().unwrap_or_default());
    let mut events = Box::pin(watch.await?);
    let (mut ready, mut client) = (BTreeSet::new(), String::new());
    while ready.len() < PODS {
        let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) =
            events.try_next().await?.context("the watch of pods ended")?
        else {
            bail!("a pod of {name} was deleted before all were ready");
        };
        if is_ready(&pod) {
            if pod.labels().get(ROLE_LABEL).is_some_and(|role| role == "client") {
                client = pod.name_any();
            }
            ready.insert(pod.name_any());
        }
    }
    let all_ready = Timestamp::now();
    let params = LogParams {
        follow: true,
        timestamps: true,
        ..LogParams::default()
    };
    let mut lines = pods.log_stream(&client, &params).await?.lines();
    while let Some(line) = lines.try_next().await? {
        let (at, text) = line.split_once(' ').context("a line of a log has a time")?;
        if text.starts_with(r#"{"type":"trial""#) {
            return Ok((all_ready, at.parse()?));
        }
    }
    bail!("the client has written no trial");
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    conditions
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn milliseconds(time: SignedDuration) -> f64 {
    time.as_secs_f64() * 1e3
}
