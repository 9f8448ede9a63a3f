//! The operator as it is installed: with few rights, beside others, and beside what others left.

use std::fs;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps},
};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use perfrun_api::{cluster::condition::ACCEPTED, spec::PerfRun};
use perfrun_e2e::{
    Scene, e2e, repository,
    results::check_every_trial_once,
    run::{TINY, is},
    seconds, until,
};
use serde_json::{Value, json};

#[test]
fn a_run_meets_the_restricted_pod_security_standard() {
    e2e(async |scene| {
        let restricted = scene
            .another(&[("pod-security.kubernetes.io/enforce", "restricted")])
            .await?;
        let ran = async {
            restricted.create("restricted", TINY).await?;
            let run = restricted.succeeded("restricted", seconds(60)).await?;
            check_every_trial_once(&run, &restricted.results(&run).await?)
        }
        .await;
        if ran.is_err() {
            restricted.explain().await;
        }
        restricted.remove().await?;
        ran
    });
}

#[test]
fn operators_of_different_namespaces_need_no_right_beyond_them() {
    e2e(async |scene| {
        let other = scene.another(&[]).await?;
        let replicas = scene.operators().deployment().await?.spec.replicas;
        scene.operators().scale(0).await?;
        let ran = async {
            for place in [scene, &other] {
                install_for_one_namespace(place).await?;
                place.create("own", TINY).await?;
            }
            for place in [scene, &other] {
                let run = place.succeeded("own", seconds(120)).await?;
                check_every_trial_once(&run, &place.results(&run).await?)?;
                let lease = place.api::<Lease>().get("perfrun-operator").await?;
                let holder = lease
                    .spec
                    .and_then(|spec| spec.holder_identity)
                    .unwrap_or_default();
                let pods = place.api::<Pod>().list(&Default::default()).await?;
                ensure!(
                    pods.iter().any(|pod| holder.starts_with(&pod.name_any())),
                    "{holder} is no operator of {}",
                    place.namespace
                );
            }
            Ok(())
        }
        .await;
        if ran.is_err() {
            other.explain().await;
        }
        let removed = other.remove().await;
        scene.operators().scale(replicas.unwrap_or(2)).await?;
        ran.and(removed)
    });
}

#[test]
fn a_perfrun_that_cannot_be_read_does_not_stop_others() {
    e2e(async |scene| {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let valid = set_schema(scene, serde_json::from_value(open)?).await?;
        let created = until("a malformed PerfRun is taken", seconds(30), async || {
            let resource = ApiResource::erase::<PerfRun>(&());
            let malformed = DynamicObject::new("malformed", &resource)
                .data(json!({"spec": {"workload": 42, "iterations": "many"}}));
            let all: Api<DynamicObject> = Api::namespaced_with(scene.client(), &scene.namespace, &resource);
            Ok(Some(all.create(&PostParams::default(), &malformed).await?))
        })
        .await;
        set_schema(scene, valid).await?;
        created?;

        scene.create("good", TINY).await?;
        let run = scene.succeeded("good", seconds(60)).await?;
        check_every_trial_once(&run, &scene.results(&run).await?)?;
        ensure!(is(&run, ACCEPTED, "True"), "it was accepted");
        // Whoever stored it can see that it is not run, and remove it.
        let said = [
            "get",
            "perfrun",
            "malformed",
            "--output=jsonpath={.status.conditions[*].reason}",
        ];
        let said = scene.kubectl(&said).await?;
        ensure!(said.contains("Malformed"), "its conditions say {said:?}");
        scene
            .kubectl(&["delete", "perfrun", "malformed", "--timeout=30s"])
            .await?;
        Ok(())
    });
}

/// Changes what the API server takes for a PerfRun; returns what it was.
///
/// As `kubectl apply --server-side` would, which is to work afterwards.
async fn set_schema(scene: &Scene, schema: JSONSchemaProps) -> Result<JSONSchemaProps> {
    let crds: Api<CustomResourceDefinition> = Api::all(scene.client());
    let name = "perfruns.perfrun.io";
    let found = crds.get(name).await.context("failed to get the CRD")?;
    let mut crd = CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: found.spec,
        status: None,
    };
    let version = crd.spec.versions.first_mut().context("the CRD has a version")?;
    let place = &mut version.schema.get_or_insert_default().open_api_v3_schema;
    let before = place.replace(schema).context("the CRD has a schema")?;
    let params = PatchParams::apply("kubectl").force();
    crds.patch(name, &params, &Patch::Apply(&crd))
        .await
        .context("failed to change the CRD")?;
    Ok(before)
}

/// What operator/deploy/one-namespace installs, but in the test's namespace, with the images of the one that is there.
async fn install_for_one_namespace(scene: &Scene) -> Result<()> {
    let deployment = scene.operators().deployment().await?;
    let pod = deployment.spec.template.spec;
    let container = pod
        .and_then(|pod| pod.containers.into_iter().next())
        .context("the operator has a container")?;
    let image = container.image.context("the operator has an image")?;
    let node_image = container
        .env
        .into_iter()
        .flatten()
        .find(|env| env.name == "PERFRUN_NODE_IMAGE");
    let node_image = node_image
        .and_then(|env| env.value)
        .context("the operator has a node image")?;
    let folder = repository().join("operator/deploy");
    let mut text = String::new();
    for file in [
        "base/service-account.yaml",
        "base/own-namespace.yaml",
        "one-namespace/role.yaml",
        "base/deployment.yaml",
    ] {
        let file = folder.join(file);
        text += &fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
        text += "---\n";
    }
    let own = &scene.namespace;
    let text = text
        .replace("perfrun-system", own)
        .replace("namespace: benchmarks", &format!("namespace: {own}"))
        .replace(
            "          imagePullPolicy:",
            &format!("          args: [--watch-namespace={own}]\n          imagePullPolicy:"),
        );
    let documents = serde_saphyr::from_multiple::<Value>(&text)?;
    let mut list = vec![];
    for mut document in documents.into_iter().filter(|document| !document.is_null()) {
        if document["kind"] == "Deployment" {
            let container = &mut document["spec"]["template"]["spec"]["containers"][0];
            container["image"] = json!(image);
            for env in container["env"].as_array_mut().into_iter().flatten() {
                if env["name"] == "PERFRUN_NODE_IMAGE" {
                    env["value"] = json!(node_image);
                }
            }
            document["spec"]["replicas"] = json!(1);
        }
        list.push(document);
    }
    let file = std::env::temp_dir().join(format!("perfrun-e2e-{own}.json"));
    fs::write(
        &file,
        json!({"apiVersion": "v1", "kind": "List", "items": list}).to_string(),
    )?;
    let path = file.to_str().context("the path is text")?;
    let applied = scene.kubectl(&["apply", "--filename", path]).await;
    fs::remove_file(&file)?;
    applied.map(drop)
}
