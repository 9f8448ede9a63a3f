//! What the operator may not do, whatever it is made to do. That it may do all it needs is what other tests
//! show.

use anyhow::{Context, Result, ensure};
use http::{Method, Request, header::CONTENT_TYPE};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::PostParams;
use perfrun_api::cluster::{MANAGED_BY_LABEL, MANAGER};
use perfrun_e2e::{
    Scene, admission,
    operators::{NAME, NAMESPACE},
};
use serde_json::{Value, json};

const NOT_OWNED: &str = "only writes objects that a PerfRun owns, and PerfRuns that a PerfSchedule owns";
const NOT_LABELLED: &str = "only writes objects with the label app.kubernetes.io/managed-by=perfrun-operator";
const PRIVILEGED: &str =
    "only creates pods with the service account `default`, without privileged containers";
const NO_RIGHT: &str = "cannot";

#[test]
fn the_operator_writes_only_objects_that_a_run_owns() {
    admission(async |scene| {
        let own = scene.namespace.as_str();
        let create = async |collection: &str, object: Value| {
            as_operator(scene, Method::POST, collection, object).await
        };
        for collection in ["configmaps", "secrets", "pods"] {
            let collection = format!("/api/v1/namespaces/{own}/{collection}");
            accepted(&create(&collection, of_a_run(json!({}))).await?)?;
            refused(
                &create(&collection, object(json!({}), true, false)).await?,
                NOT_OWNED,
            )?;
            refused(
                &create(&collection, object(json!({}), false, true)).await?,
                NOT_LABELLED,
            )?;
        }
        let pods = format!("/api/v1/namespaces/{own}/pods");
        for spec in [
            json!({"hostPID": true}),
            json!({"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}),
            json!({"serviceAccountName": "other"}),
        ] {
            let refusal = create(&pods, of_a_run(spec.clone())).await?;
            // An admission plug-in may refuse an unknown service account first.
            ensure!(
                refusal
                    .as_deref()
                    .is_some_and(|why| why.contains(PRIVILEGED) || why.contains("not found")),
                "{spec}: {refusal:?}"
            );
        }
        let runs = format!("/apis/perfrun.io/v1alpha1/namespaces/{own}/perfruns");
        let run = json!({"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "metadata": {"name": "own"},
            "spec": {"workload": {"ping": {}}}});
        refused(&create(&runs, run).await?, NOT_OWNED)?;
        let system = "/api/v1/namespaces/kube-system/configmaps";
        let refusal = create(system, of_a_run(json!({}))).await?;
        refused(&refusal, "changes nothing in the namespaces of Kubernetes")
    });
}

#[test]
fn the_operator_neither_deletes_nor_changes_nor_reads_objects_of_others() {
    admission(async |scene| {
        // No scheduler knows it, so that it is never started.
        let pod = object(json!({"schedulerName": "nobody"}), false, false);
        let pod: Pod = serde_json::from_value(pod)?;
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "object"}}))?;
        scene.api::<Pod>().create(&PostParams::default(), &pod).await?;
        scene
            .api::<ConfigMap>()
            .create(&PostParams::default(), &map)
            .await?;
        let at = |path: &str| format!("/api/v1/namespaces/{}/{path}", scene.namespace);
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
        let deleted = as_operator(scene, Method::DELETE, &at("pods/object"), options.clone()).await?;
        refused(&deleted, NOT_LABELLED)?;
        for (method, path) in [
            (Method::PATCH, "pods/object"),
            (Method::PUT, "pods/object"),
            (Method::DELETE, "pods"),
            (Method::PATCH, "configmaps/object"),
            (Method::DELETE, "configmaps/object"),
            (Method::GET, "secrets"),
            (Method::PATCH, "secrets/object"),
            (Method::DELETE, "secrets/object"),
        ] {
            let answer = as_operator(scene, method.clone(), &at(path), options.clone()).await;
            let answer = answer.with_context(|| format!("{method} {path}"))?;
            refused(&answer, NO_RIGHT).with_context(|| format!("{method} {path}"))?;
        }
        Ok(())
    });
}

/// An object of a run: a pod with these fields in its spec, and of other kinds only the metadata counts.
fn of_a_run(spec: Value) -> Value {
    object(spec, true, true)
}

fn object(spec: Value, labelled: bool, owned: bool) -> Value {
    let mut object = json!({"metadata": {"name": "object"},
        "spec": {"containers": [{"name": "node", "image": "node"}]}});
    if let (Some(all), Value::Object(fields)) = (object["spec"].as_object_mut(), spec) {
        all.extend(fields);
    }
    if labelled {
        object["metadata"]["labels"] = json!({MANAGED_BY_LABEL: MANAGER});
    }
    if owned {
        object["metadata"]["ownerReferences"] = json!([{"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun",
            "name": "run", "uid": "00000000-1111-2222-3333-444444444444", "controller": true}]);
    }
    object
}

/// Makes a request as the operator, without an effect. Returns why it is refused.
async fn as_operator(scene: &Scene, method: Method, path: &str, body: Value) -> Result<Option<String>> {
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}?dryRun=All"))
        .header(
            "Impersonate-User",
            format!("system:serviceaccount:{NAMESPACE}:{NAME}"),
        )
        .header(CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&body)?)?;
    match scene.client().request::<Value>(request).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}

fn accepted(refusal: &Option<String>) -> Result<()> {
    ensure!(refusal.is_none(), "{refusal:?}");
    Ok(())
}

fn refused(refusal: &Option<String>, why: &str) -> Result<()> {
    let said = refusal.as_deref().context("it is accepted")?;
    ensure!(said.contains(why), "{said}");
    Ok(())
}
