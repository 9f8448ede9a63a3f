//! The installed operator: in a restricted namespace, and with objects that it cannot read.

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use perfrun_api::{cluster::condition::Type, spec::PerfRun};
use perfrun_e2e::{
    Scene, e2e,
    run::{TINY, has_condition},
    seconds, shared, until,
};
use serde_json::json;

#[test]
fn a_run_meets_the_restricted_pod_security_standard() {
    shared(async |scene| {
        let restricted = scene
            .another(&[("pod-security.kubernetes.io/enforce", "restricted")])
            .await?;
        let ran = async {
            restricted.create("restricted", TINY).await?;
            let run = restricted.succeeded("restricted", seconds(60)).await?;
            restricted.checked_results(&run).await.map(drop)
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
fn a_perfrun_that_cannot_be_read_does_not_stop_others() {
    e2e(async |scene| {
        let valid = set_schema(scene, any_schema()?).await?;
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
        scene.checked_results(&run).await?;
        ensure!(has_condition(&run, Type::Accepted, "True"), "it was accepted");
        // Its author can see that it is not run, and delete it.
        until("its conditions say Malformed", seconds(30), async || {
            let reasons = "--output=jsonpath={.status.conditions[*].reason}";
            let said = scene.kubectl(&["get", "perfrun", "malformed", reasons]).await?;
            Ok(said.contains("Malformed").then_some(()))
        })
        .await?;
        scene
            .kubectl(&["delete", "perfrun", "malformed", "--timeout=30s"])
            .await?;
        Ok(())
    });
}

/// A schema that permits everything.
fn any_schema() -> Result<JSONSchemaProps> {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    Ok(serde_json::from_value(any)?)
}

/// Changes the schema of PerfRuns, and returns the previous one.
///
/// Does so as helm does, under helm's field manager, so that helm works afterwards.
async fn set_schema(scene: &Scene, schema: JSONSchemaProps) -> Result<JSONSchemaProps> {
    let crds: Api<CustomResourceDefinition> = Api::all(scene.client());
    let name = "perfruns.perfrun.io";
    let found = crds.get(name).await.context("failed to get the CRD")?;
    let mut crd = CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: found.metadata.annotations,
            labels: found.metadata.labels,
            ..ObjectMeta::default()
        },
        spec: found.spec,
        status: None,
    };
    let version = crd.spec.versions.first_mut().context("the CRD has a version")?;
    let place = &mut version.schema.get_or_insert_default().open_api_v3_schema;
    let before = place.replace(schema).context("the CRD has a schema")?;
    let params = PatchParams::apply("helm").force();
    crds.patch(name, &params, &Patch::Apply(&crd))
        .await
        .context("failed to change the CRD")?;
    Ok(before)
}
