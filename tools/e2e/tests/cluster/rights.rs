//! Rights that the operator lacks. Other tests show that it has all the rights that it needs. Requests have
//! the operator's own token, and no effect.

use anyhow::{Context, Result, ensure};
use http::{Method, Request, header::CONTENT_TYPE};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::{Client, api::PostParams};
use perfrun_api::{
    cluster::{MANAGED_BY_LABEL, MANAGER, RUN_LABEL, TRIALS_KEY},
    pod::{
        CONTROL_PORT, METRICS_PORT, TOKEN_KEY, environment, node_container, pod_spec,
        store::{StoreAccess, store_pod},
    },
    store::Store,
};
use perfrun_contract::{matrix::IpFamily, role::Role};
use perfrun_e2e::{Scene, admission};
use serde_json::{Value, json};

const NOT_OWNED: &str = "only writes objects that a PerfRun owns, and PerfRuns that a PerfSchedule owns";
const NOT_LABELLED: &str = "only writes objects with the label app.kubernetes.io/managed-by=perfrun-operator";
const SECRET: &str = "only creates Secrets that are opaque, immutable and have the one key `token`";
const CONFIG_MAP: &str = "only creates ConfigMaps with compressed results";
const NETWORK_POLICY: &str = "only creates NetworkPolicies of pods with the label perfrun.io/run";
const POD: &str = "only creates pods with a deadline and the service account `default`";
const VOLUMES: &str = "only creates pods whose volumes are of the kinds emptyDir, secret";
const PROFILES: &str = "only creates pods with the profiles of the container runtime";
const INJECTED: &str = "only creates pods with the containers `node` and `link`";
const CONTAINER: &str = "only creates containers without capabilities";
const NO_RIGHT: &str = "cannot";

/// A resource, why an object of it is refused, and what makes it of an object of a run.
type Refused = (&'static str, &'static str, fn(&mut Value));

/// Each of these gives its creator rights of others, or of the Kubernetes node.
const WORST: [Refused; 10] = [
    ("secrets", SECRET, |secret| {
        secret["type"] = json!("kubernetes.io/service-account-token");
        secret["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": "default"});
    }),
    ("pods", VOLUMES, |pod| {
        pod["spec"]["volumes"] = json!([{"name": TOKEN_KEY, "hostPath": {"path": "/"}}]);
    }),
    ("pods", VOLUMES, |pod| {
        let token = json!({"sources": [{"serviceAccountToken": {"path": "token"}}]});
        pod["spec"]["volumes"] = json!([{"name": TOKEN_KEY, "projected": token}]);
    }),
    ("pods", PROFILES, |pod| {
        node(pod)["securityContext"] = json!({"privileged": true});
    }),
    ("pods", CONTAINER, |pod| {
        node(pod)["securityContext"]["capabilities"]["add"] = json!(["SYS_MODULE"]);
    }),
    ("pods", PROFILES, |pod| {
        pod["spec"]["securityContext"]["seccompProfile"] = json!({"type": "Unconfined"});
    }),
    ("pods", POD, |pod| {
        node(pod)["ports"][0]["hostPort"] = json!(CONTROL_PORT);
    }),
    ("pods", CONTAINER, |pod| {
        let key = json!({"secretKeyRef": {"name": "others", "key": "key"}});
        node(pod)["env"] = json!([{"name": "KEY", "valueFrom": key}]);
    }),
    ("pods", POD, |pod| {
        pod["spec"]["shareProcessNamespace"] = json!(false);
        pod["spec"]["hostPID"] = json!(true);
    }),
    ("networkpolicies", NETWORK_POLICY, |policy| {
        policy["spec"] = json!({"podSelector": {}, "ingress": [{}]});
    }),
];

/// No object of a run has these.
const UNNEEDED: [Refused; 14] = [
    ("secrets", SECRET, |secret| {
        secret["immutable"] = json!(false);
    }),
    ("secrets", SECRET, |secret| {
        secret["stringData"]["other"] = json!("text");
    }),
    ("configmaps", CONFIG_MAP, |map| {
        map["data"] = json!({"dashboard.json": "{}"});
    }),
    ("pods", POD, |pod| {
        pod["spec"]["hostIPC"] = json!(true);
    }),
    ("pods", POD, |pod| {
        pod["spec"]["serviceAccountName"] = json!("other");
    }),
    ("pods", POD, |pod| {
        pod["spec"]["automountServiceAccountToken"] = json!(true);
    }),
    ("pods", POD, |pod| {
        pod["spec"]["activeDeadlineSeconds"] = json!(null);
    }),
    ("pods", POD, |pod| {
        pod["spec"]["nodeName"] = json!("any");
    }),
    ("pods", PROFILES, |pod| {
        pod["spec"]["securityContext"]["runAsNonRoot"] = json!(false);
    }),
    ("pods", PROFILES, |pod| {
        pod["spec"]["securityContext"]["sysctls"] = json!([{"name": "net.core.somaxconn", "value": "1024"}]);
    }),
    ("pods", INJECTED, |pod| {
        pod["spec"]["initContainers"] = json!([{"name": "setup", "image": "node"}]);
    }),
    ("pods", CONTAINER, |pod| {
        node(pod)["securityContext"]["capabilities"]["add"] = json!(["NET_ADMIN"]);
    }),
    ("pods", CONTAINER, |pod| {
        node(pod)["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    }),
    ("pods", CONTAINER, |pod| {
        node(pod)["envFrom"] = json!([{"secretRef": {"name": "others"}}]);
    }),
];

#[test]
fn the_operator_writes_only_objects_that_a_run_owns() {
    admission(async |scene| {
        let own = scene.namespace.as_str();
        let operator = &scene.operators().client().await?;
        let create =
            async |collection: &str, object: Value| request(operator, Method::POST, collection, object).await;
        for resource in ["configmaps", "secrets", "pods", "networkpolicies"] {
            let collection = collection(own, resource);
            create(&collection, of_a_run(resource)).await?.is_accepted()?;
            for (lacks, why) in [("ownerReferences", NOT_OWNED), ("labels", NOT_LABELLED)] {
                let mut object = of_a_run(resource);
                object["metadata"][lacks] = json!(null);
                create(&collection, object).await?.is_refused(why)?;
            }
        }
        let mut pod = of_a_run("pods");
        pod["spec"] = pod_that_keeps_results()?;
        create(&collection(own, "pods"), pod).await?.is_accepted()?;
        let run = json!({"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "metadata": {"name": "own"},
            "spec": {"workload": {"ping": {}}}});
        let runs = format!("/apis/perfrun.io/v1alpha1/namespaces/{own}/perfruns");
        create(&runs, run).await?.is_refused(NOT_OWNED)?;
        let system = collection("kube-system", "configmaps");
        let answer = create(&system, of_a_run("configmaps")).await?;
        answer.is_refused("changes nothing in the namespaces of Kubernetes")
    });
}

#[test]
fn the_operators_token_creates_none_of_the_ten_worst_objects() {
    admission(async |scene| are_refused(scene, &WORST).await);
}

#[test]
fn the_operator_creates_only_what_runs_need() {
    admission(async |scene| {
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "other"}}))?;
        let accounts = scene.api::<ServiceAccount>();
        accounts.create(&PostParams::default(), &account).await?;
        are_refused(scene, &UNNEEDED).await
    });
}

#[test]
fn the_operator_neither_deletes_nor_changes_nor_reads_objects_of_others() {
    admission(async |scene| {
        let operator = &scene.operators().client().await?;
        let mut pod = of_a_run("pods");
        pod["metadata"] = json!({"name": "object"});
        // No scheduler knows it, so that it is never started.
        pod["spec"]["schedulerName"] = json!("nobody");
        let pod: Pod = serde_json::from_value(pod)?;
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "object"}}))?;
        scene.api::<Pod>().create(&PostParams::default(), &pod).await?;
        scene
            .api::<ConfigMap>()
            .create(&PostParams::default(), &map)
            .await?;
        let at = |path: &str| format!("/api/v1/namespaces/{}/{path}", scene.namespace);
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
        let deleted = request(operator, Method::DELETE, &at("pods/object"), options.clone()).await?;
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
            let answer = request(operator, method.clone(), &at(path), options.clone()).await;
            let refused = answer.and_then(|answer| answer.is_refused(NO_RIGHT));
            refused.with_context(|| format!("{method} {path}"))?;
        }
        Ok(())
    });
}

async fn are_refused(scene: &Scene, all: &[Refused]) -> Result<()> {
    let operator = scene.operators().client().await?;
    for (resource, why, change) in all {
        let mut object = of_a_run(resource);
        change(&mut object);
        let said = object.to_string();
        let collection = collection(&scene.namespace, resource);
        let answer = request(&operator, Method::POST, &collection, object).await?;
        answer.is_refused(why).context(said)?;
    }
    Ok(())
}

/// The path of a resource in a namespace.
fn collection(namespace: &str, resource: &str) -> String {
    let group = match resource {
        "networkpolicies" => "apis/networking.k8s.io/v1",
        _ => "api/v1",
    };
    format!("/{group}/namespaces/{namespace}/{resource}")
}

/// An object as the operator creates it for a run.
fn of_a_run(resource: &str) -> Value {
    let mut object = match resource {
        "secrets" => json!({"stringData": {TOKEN_KEY: "text"}, "immutable": true}),
        "configmaps" => json!({"binaryData": {TRIALS_KEY: "H4sI"}}),
        "networkpolicies" => json!({"spec": {"podSelector": {"matchLabels": {RUN_LABEL: "run"}}}}),
        _ => json!({"spec": pod_of_a_node()}),
    };
    object["metadata"] = json!({
        "name": "object",
        "labels": {MANAGED_BY_LABEL: MANAGER},
        "ownerReferences": [{"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "name": "run",
            "uid": "00000000-1111-2222-3333-444444444444", "controller": true}],
    });
    object
}

fn pod_of_a_node() -> Value {
    let env = environment("run", "namespace", "server-0", IpFamily::IPv4, METRICS_PORT);
    let ports = [CONTROL_PORT, METRICS_PORT];
    let node = node_container("node", Role::Server, IpFamily::IPv4, ports, env);
    let mut spec = json!(pod_spec(node, "run-token".to_owned()));
    spec["activeDeadlineSeconds"] = json!(60);
    spec
}

fn pod_that_keeps_results() -> Result<Value> {
    let store: Store = serde_json::from_value(json!({"volume": {"claim": "disk"}}))?;
    let access = StoreAccess::Token("run-store-token".to_owned());
    let mut spec = json!(store_pod(&store, "file:///run/results", "operator", &[], access));
    spec["activeDeadlineSeconds"] = json!(60);
    Ok(spec)
}

fn node(pod: &mut Value) -> &mut Value {
    &mut pod["spec"]["containers"][0]
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

/// Makes a request with the operator's token, without an effect.
async fn request(operator: &Client, method: Method, path: &str, body: Value) -> Result<Answer> {
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}?dryRun=All"))
        .header(CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&body)?)?;
    let refusal = match operator.request::<Value>(request).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => Some(status.message),
        Err(error) => return Err(error.into()),
    };
    Ok(Answer { refusal })
}
