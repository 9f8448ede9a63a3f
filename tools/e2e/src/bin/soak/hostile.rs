//! A tenant that wants to stop the operator: what it creates in a namespace of its own during a round, and
//! what must hold for the operators in that time.

use std::{env, io::Write};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, write::GzEncoder};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, ResourceQuota},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
    core::{ApiResource, DynamicObject},
};
use perfrun_api::{
    cluster::{PartKind, RUN_LABEL, TRIALS_KEY},
    document::parse,
    spec::PerfRun,
};
use perfrun_e2e::{Scene, run::in_yaml};
use perfrun_test_kit::grammar::{RUN, SPEC_INPUT_MAX, overlay, value};
use rand::{Rng, RngExt as _, seq::IndexedRandom};
use serde_json::{Value, from_value, json};

use crate::{counts::SoakCounts, document};

/// The variable that names the image of perfrun-hostile-node.
const IMAGE: &str = "PERFRUN_E2E_HOSTILE_IMAGE";

/// Documents of a round.
const DOCUMENTS: u32 = 6;

/// Bytes that choose what a document has.
const CHOICES: usize = 4096;

/// Bytes of an annotation: all of them may have 256 KiB.
const ANNOTATION_BYTES: usize = 200 << 10;

/// Bytes that the part of a journal becomes.
const INFLATED_PART_BYTES: usize = 8 << 20;

/// Most memory that an operator may take, in MiB.
const MEMORY_MAX: u64 = 128;

/// Creates documents and parts of journals.
pub(crate) async fn send(scene: &Scene, random: &mut impl Rng, counts: &mut SoakCounts) -> Result<()> {
    let image = env::var(IMAGE).with_context(|| format!("{IMAGE} does not name an image"))?;
    // The cluster is small, and administrators bound what a tenant may use.
    let quota = json!({"metadata": {"name": "few-pods"}, "spec": {"hard": {"pods": "4"}}});
    let quotas: Api<ResourceQuota> = scene.api();
    let quota = quotas.create(&PostParams::default(), &from_value(quota)?).await;
    quota.context("failed to create a quota")?;
    for number in 0..DOCUMENTS {
        let name = format!("hostile-{number}");
        let document = from_value(document(&name, &image, random)?)?;
        let answer = runs(scene).create(&PostParams::default(), &document).await;
        let Some(run) = accepted(answer)? else {
            counts.count_hostile("refused");
            continue;
        };
        counts.count_hostile("accepted");
        let part = scene
            .api()
            .create(&PostParams::default(), &part(&run, random)?)
            .await;
        part.context("failed to create the part of a journal")?;
    }
    Ok(())
}

/// Deletes the runs of the tenant. Checks that nothing of them is left, and that operators neither took too
/// much memory nor ended because of them.
pub(crate) async fn check_operators(scene: &Scene, counts: &mut SoakCounts) -> Result<()> {
    let (all, background) = (ListParams::default(), DeleteParams::background());
    let created = runs(scene)
        .list(&all)
        .await
        .context("failed to list hostile runs")?;
    let deleted = runs(scene).delete_collection(&background, &all).await;
    deleted.context("failed to delete hostile runs")?;
    for run in created.items {
        scene.await_nothing_left(&run.name_any()).await?;
    }
    let operators = scene.operators();
    operators.check_ends().await?;
    let memory = operators.most_memory().await?;
    counts.note_memory(memory);
    ensure!(memory < MEMORY_MAX, "an operator took {memory} MiB of memory");
    Ok(())
}

/// Runs of any form.
fn runs(scene: &Scene) -> Api<DynamicObject> {
    Api::namespaced_with(scene.client(), &scene.namespace, &resource())
}

fn resource() -> ApiResource {
    ApiResource::erase::<PerfRun>(&())
}

/// The run that a document became. `None` if it is refused.
fn accepted(answer: Result<DynamicObject, kube::Error>) -> Result<Option<DynamicObject>> {
    match answer {
        Ok(run) => Ok(Some(run)),
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => Ok(None),
        Err(error) => Err(error).context("failed to create a hostile document"),
    }
}

/// A document with fields at their bounds and above. Half of them run the hostile node.
fn document(name: &str, image: &str, random: &mut impl Rng) -> Result<Value> {
    let honest = parse(&in_yaml(name, &document::random(random)))?.remove(0);
    let mut run = serde_json::to_value(honest)?;
    overlay(&mut run["spec"], value(&RUN, &choices(random), SPEC_INPUT_MAX));
    // Others would wait for its turn, and be right.
    run["spec"]["topology"]["exclusive"] = false.into();
    run["spec"]["timeouts"] = json!({"provision": "30s", "run": "2m", "trial": "10s"});
    if random.random_bool(0.5) {
        run["spec"]["stacks"] = json!([{"name": "hostile", "stack": "libp2p", "image": image}]);
        run["spec"]["matrix"] =
            json!({"clients": ["hostile"], "servers": ["hostile"], "rawReference": false});
    }
    run["metadata"]["annotations"] = json!({"padding": "x".repeat(ANNOTATION_BYTES)});
    Ok(run)
}

/// Zero changes nothing. Documents in which much is changed are refused, and those with little are not.
fn choices(random: &mut impl Rng) -> Vec<u8> {
    let share = *[0.5, 0.2, 0.1].choose(random).unwrap_or(&0.1);
    let mut choices = vec![0; CHOICES];
    for choice in &mut choices {
        if random.random_bool(share) {
            *choice = random.random();
        }
    }
    choices
}

/// What the operator takes for a part of a run's journal. It is small and becomes large, or stops being
/// gzip after its first bytes.
fn part(run: &DynamicObject, random: &mut impl Rng) -> Result<ConfigMap> {
    let mut encoder = GzEncoder::new(vec![], Compression::fast());
    encoder.write_all(&vec![b'['; INFLATED_PART_BYTES])?;
    let mut bytes = encoder.finish()?;
    if random.random_bool(0.5) {
        random.fill_bytes(&mut bytes[10..]);
    }
    let (name, uid) = (run.name_any(), run.uid().context("a run has a UID")?);
    Ok(ConfigMap {
        metadata: ObjectMeta {
            name: Some(PartKind::Trials.name(&name, &uid, 0)),
            labels: Some([(RUN_LABEL.to_owned(), name)].into()),
            owner_references: run.owner_ref(&resource()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        binary_data: Some([(TRIALS_KEY.to_owned(), ByteString(bytes))].into()),
        ..ConfigMap::default()
    })
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};

    use super::*;

    #[test]
    fn some_documents_are_right_and_others_are_not() {
        let documents = (0..50).map(|seed| {
            let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
            document("a", "image", random).unwrap().to_string()
        });
        let right: Vec<bool> = documents.map(|document| parse(&document).is_ok()).collect();
        assert!(right.contains(&true) && right.contains(&false), "{right:?}");
    }
}
