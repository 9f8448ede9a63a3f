//! Rights that the operator lacks. Other tests show that it has all the rights that it needs.

use anyhow::{Context, Result, ensure};
use http::{Method, Request, header::CONTENT_TYPE};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
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
            create(&collection, of_a_run(json!({}))).await?.is_accepted()?;
            let not_owned = object(json!({}), true, false);
            create(&collection, not_owned).await?.is_refused(NOT_OWNED)?;
            let not_labelled = object(json!({}), false, true);
            create(&collection, not_labelled)
                .await?
                .is_refused(NOT_LABELLED)?;
        }
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "other"}}))?;
        let accounts = scene.api::<ServiceAccount>();
        accounts.create(&PostParams::default(), &account).await?;
        let pods = format!("/api/v1/namespaces/{own}/pods");
        for spec in [
            json!({"hostPID": true}),
            json!({"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}),
            json!({"serviceAccountName": "other"}),
            json!({"hostIPC": true}),
            json!({"containers": [privileged()]}),
            json!({"initContainers": [privileged()]}),
        ] {
            let answer = create(&pods, of_a_run(spec.clone())).await?;
            answer.is_refused(PRIVILEGED).with_context(|| spec.to_string())?;
        }
        let runs = format!("/apis/perfrun.io/v1alpha1/namespaces/{own}/perfruns");
        let run = json!({"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "metadata": {"name": "own"},
            "spec": {"workload": {"ping": {}}}});
        create(&runs, run).await?.is_refused(NOT_OWNED)?;
        let system = "/api/v1/namespaces/kube-system/configmaps";
        let answer = create(system, of_a_run(json!({}))).await?;
        answer.is_refused("changes nothing in the namespaces of Kubernetes")
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
        deleted.is_refused(NOT_LABELLED)?;
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
            let refused = answer.and_then(|answer| answer.is_refused(NO_RIGHT));
            refused.with_context(|| format!("{method} {path}"))?;
        }
        Ok(())
    });
}

fn privileged() -> Value {
    json!({"name": "privileged", "image": "node", "securityContext": {"privileged": true}})
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

/// What the API server answers.
#[derive(Debug)]
struct Answer {
    /// Why it refuses the request. `None` if it accepts it.
    refusal: Option<String>,
}

impl Answer {
    fn is_accepted(&self) -> Result<()> {
        ensure!(self.refusal.is_none(), "{self:?}");
        Ok(())
    }

    fn is_refused(&self, why: &str) -> Result<()> {
        let said = self.refusal.as_deref().context("it is accepted")?;
        ensure!(said.contains(why), "{said}");
        Ok(())
    }
}

/// Makes a request as the operator, without an effect.
async fn as_operator(scene: &Scene, method: Method, path: &str, body: Value) -> Result<Answer> {
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}?dryRun=All"))
        .header(
            "Impersonate-User",
            format!("system:serviceaccount:{NAMESPACE}:{NAME}"),
        )
        .header(CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&body)?)?;
    let refusal = match scene.client().request::<Value>(request).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => Some(status.message),
        Err(error) => return Err(error.into()),
    };
    Ok(Answer { refusal })
}
