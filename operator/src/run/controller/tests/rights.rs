//! The rights that the chart grants, and those that the operator uses.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_chart_grants_no_right_that_the_operator_does_not_use() {
    let scene = Scene::new().await;
    let server = &scene.server;
    // The first operator of an installation.
    server.remove(&format!("/api/v1/namespaces/{SYSTEM}/secrets/{KEY_SECRET}"));
    scene.server.key().await;
    let mut leadership = server.leadership("this");
    leadership.acquire().await;
    leadership.release().await;
    // Objects of others have the names of a pod, a network policy, and the run of a schedule.
    let name = scene.pod_name("pod-exists", "client-0", 0);
    server.put(
        &format!("/api/v1/namespaces/bench/pods/{name}"),
        json!({"metadata": {"name": name}}),
    );
    let name = names::network_policy("policy-exists", "uid-of-policy-exists");
    server.put(
        &format!("/apis/networking.k8s.io/v1/namespaces/bench/networkpolicies/{name}"),
        json!({"metadata": {"name": name}}),
    );
    for minute in 0..3 {
        let due = Timestamp::now() + SignedDuration::from_mins(minute);
        scene.create(&run_name("often", due), json!({"suspend": true}));
    }
    let beside = json!({"exclusive": false});
    for name in ["pod-exists", "policy-exists", "suspended"] {
        scene.create(name, json!({"topology": beside}));
    }
    scene.create(
        "deleted",
        json!({"cancel": true, "cleanup": {"ttlSecondsAfterFailure": 0}}),
    );
    scene.create("over", json!({"topology": beside}));
    scene.change("over", |run| {
        run["status"] = json!({"phase": "Running", "conditions": [{"type": "Running", "status": "True",
            "reason": "Measuring", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    });
    scene.create("unreadable", json!({"topology": beside}));
    scene.change("unreadable", |run| run["status"]["phase"] = 7.into());
    let run = json!({"spec": {"topology": beside, "workload": {"ping": {}}}});
    let schedule = json!({"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfSchedule",
        "metadata": {"name": "often", "namespace": "bench", "uid": "often", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedule": "* * * * *", "runTemplate": run}});
    server.put(
        "/apis/perfrun.io/v1alpha1/namespaces/bench/perfschedules/often",
        schedule,
    );
    let operator = scene.operate();
    wait_for_pods(server, "suspended").await;
    scene.change("suspended", |run| run["spec"]["suspend"] = true.into());
    // The second event is a repetition of the first.
    scene.change("unreadable", |run| {
        run["metadata"]["labels"] = json!({"team": "net"});
    });
    // No call shows these: OpenShift demands them of everybody who creates objects with an owner.
    let never_called = ["perfruns/finalizers update", "perfschedules/finalizers update"];
    let all_are_used = async {
        while server.unused_rights() != never_called {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(600), all_are_used).await;
    assert!(waited.is_ok(), "unused: {:?}", server.unused_rights());
    operator.abort();
}
