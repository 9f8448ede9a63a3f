//! Runs whose results are kept in a store.

use super::*;

#[tokio::test(start_paused = true)]
async fn one_pod_of_the_run_mounts_the_secret_and_is_deleted_with_the_others() {
    let mut scene = Scene::new().await;
    let bucket =
        json!({"url": "s3://results/nightly/", "endpoint": "https://minio.storage:9000", "secret": "s3"});
    let tolerations = json!([{"key": "bench", "operator": "Exists"}]);
    scene.create(
        "run",
        json!({
            "results": {"store": {"objectStore": bucket}},
            "template": {"server": {"tolerations": tolerations}},
        }),
    );
    scene.reconcile("run").await.unwrap();
    let pods = scene.server.objects("/pods");
    let mounts = |pod: &&Value| pod["spec"]["volumes"].to_string().contains("\"s3\"");
    let with_secret: Vec<_> = pods.iter().filter(mounts).collect();
    assert_eq!((pods.len(), with_secret.len()), (3, 1));
    let pod = with_secret[0];
    assert_eq!(pod["metadata"]["name"], scene.pod_name("run", "store", 0));
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "uid-of-run");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["image"], "operator");
    assert_eq!(
        container["args"],
        json!([
            "store",
            "--url=s3://results/nightly/bench/run/uid-of-run/v2",
            "--credentials=/run/credentials",
            "--endpoint=https://minio.storage:9000",
            "--listen=0.0.0.0:9090",
            "--token-file=/run/perfrun/token"
        ])
    );
    let secrets: Vec<_> = pod["spec"]["volumes"].as_array().unwrap().iter().collect();
    let names: Vec<_> = secrets
        .iter()
        .map(|volume| &volume["secret"]["secretName"])
        .collect();
    let token = names::store_token("run", "uid-of-run");
    assert_eq!(names, [&json!("s3"), &json!(token)]);
    let mounts_token = |pod: &&Value| pod["spec"]["volumes"].to_string().contains(&token);
    assert_eq!(pods.iter().filter(mounts_token).count(), 1, "no node knows it");
    let secrets = scene.server.objects(SECRETS);
    let created = secrets
        .iter()
        .find(|secret| secret["metadata"]["name"] == token.as_str());
    assert_eq!(
        created.unwrap()["metadata"]["ownerReferences"][0]["uid"],
        "uid-of-run"
    );
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
    let tolerated = pod["spec"]["tolerations"].as_array().unwrap();
    let tolerated: Vec<_> = tolerated.iter().map(|toleration| &toleration["key"]).collect();
    assert_eq!(
        tolerated,
        [
            "bench",
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable"
        ]
    );

    scene.change("run", |run| run["spec"]["cancel"] = true.into());
    for _ in 0..2 {
        scene.reconcile("run").await.unwrap();
    }
    assert_eq!(scene.pods_and_deleted(), (3, 3));
}
