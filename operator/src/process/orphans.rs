//! Pods whose run no longer exists. If Kubernetes does not delete them, only a person does: the operator
//! deletes only pods that a run owns.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use kube::{Resource, ResourceExt, runtime::reflector::Store};

use crate::api::watched::{WatchedPod, WatchedRun};

/// Pause between two checks of all pods.
const PAUSE: Duration = Duration::from_secs(15);

/// In how many checks in a row a pod has no run when it is reported. Kubernetes deletes the pods of a deleted
/// run within seconds.
const CHECKS_UNTIL_REPORT: u8 = 2;

/// Most pods that a message names. Anybody may give pods the label of the operator.
const NAMED_MAX: usize = 20;

/// The pods whose run no longer exists.
pub(crate) fn orphaned(runs: &[Arc<WatchedRun>], pods: &[Arc<WatchedPod>]) -> Vec<Arc<WatchedPod>> {
    let living: HashSet<&str> = runs.iter().filter_map(|run| run.meta().uid.as_deref()).collect();
    let is_orphaned = |pod: &&Arc<WatchedPod>| {
        let mut owners = pod.owner_references().iter();
        !owners.any(|owner| living.contains(owner.uid.as_str()))
    };
    pods.iter().filter(is_orphaned).cloned().collect()
}

/// Reports each pod whose run no longer exists once. Does not end on its own. Runs and pods must have been
/// listed.
pub(crate) async fn report_orphaned(runs: &Store<WatchedRun>, pods: &Store<WatchedPod>) {
    let mut checks = OrphanedChecks::default();
    let mut ticks = tokio::time::interval(PAUSE);
    loop {
        ticks.tick().await;
        let due = checks.note(&orphaned(&runs.state(), &pods.state()));
        if !due.is_empty() {
            let names = due[..due.len().min(NAMED_MAX)].join(", ");
            tracing::warn!(
                count = due.len(),
                pods = names,
                "pods of runs that no longer exist: delete them, or they end at their deadline"
            );
        }
    }
}

/// In how many checks in a row each pod has had no run, by its UID.
#[derive(Default)]
struct OrphanedChecks(HashMap<String, u8>);

impl OrphanedChecks {
    /// Notes the pods that have no run. Returns the names of those to report.
    fn note(&mut self, orphaned: &[Arc<WatchedPod>]) -> Vec<String> {
        let (mut checks, mut due) = (HashMap::new(), vec![]);
        for pod in orphaned {
            let uid = pod.uid().unwrap_or_default();
            let number = self.0.get(&uid).map_or(1, |before| before.saturating_add(1));
            if number == CHECKS_UNTIL_REPORT {
                let namespace = pod.namespace().unwrap_or_default();
                due.push(format!("{namespace}/{}", pod.name_any()));
            }
            checks.insert(uid, number);
        }
        self.0 = checks;
        due
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use serde_json::json;

    use super::*;

    fn run(uid: &str) -> Arc<WatchedRun> {
        Arc::new(serde_json::from_value(json!({"metadata": {"uid": uid}})).unwrap())
    }

    fn pod(name: &str, owner: &str) -> Arc<WatchedPod> {
        let owner =
            json!({"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "name": "a-run", "uid": owner});
        let metadata = json!({"name": name, "namespace": "bench", "uid": name, "ownerReferences": [owner]});
        Arc::new(serde_json::from_value(json!({"metadata": metadata})).unwrap())
    }

    #[test]
    fn pods_without_a_living_run_are_orphaned() {
        let nobodys = serde_json::from_value(json!({"metadata": {"name": "nobodys"}})).unwrap();
        let pods = [pod("owned", "living"), pod("left", "deleted"), Arc::new(nobodys)];
        let orphaned = orphaned(&[run("living")], &pods);
        let names: Vec<_> = orphaned.iter().map(|pod| pod.name_any()).collect();
        assert_eq!(names, ["left", "nobodys"]);
    }

    #[test]
    fn a_pod_is_reported_once_when_two_checks_have_shown_that_it_has_no_run() {
        let (first, second) = (pod("first", "deleted"), pod("second", "deleted"));
        let mut checks = OrphanedChecks::default();
        assert!(checks.note(from_ref(&first)).is_empty());
        assert_eq!(checks.note(&[first.clone(), second.clone()]), ["bench/first"]);
        assert_eq!(checks.note(&[first.clone(), second]), ["bench/second"]);
        for _ in 0..300 {
            assert!(checks.note(from_ref(&first)).is_empty());
        }
        assert!(checks.note(&[]).is_empty());
        assert!(checks.note(from_ref(&first)).is_empty(), "it is another pod now");
        assert_eq!(checks.note(from_ref(&first)), ["bench/first"]);
    }
}
