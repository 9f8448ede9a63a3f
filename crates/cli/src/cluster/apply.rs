//! Handing documents over.

use anyhow::{bail, ensure};
use kube::{
    ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use perfrun_api::{document::broken_rules_of_change, spec::PerfRun};
use serde_json::{Value, json};

use super::{
    access::{Cluster, FIELD_MANAGER},
    error::{Act, RUNS},
    stage::Stage,
};

/// What a document comes to, given what the cluster has.
#[derive(Debug, PartialEq)]
pub enum Intent {
    /// It is new.
    Create,
    /// It is there, has not ended, and is left alone.
    Join(Box<PerfRun>),
    /// The same, but what may change has.
    Change(Value),
}

/// What to do about a document.
pub fn intent(wanted: &PerfRun, existing: Option<&PerfRun>) -> anyhow::Result<Intent> {
    let Some(existing) = existing else {
        return Ok(Intent::Create);
    };
    let name = wanted.name_any();
    let stage = Stage::of(existing);
    ensure!(
        !stage.has_ended(),
        "perfrun/{name} is there already and has ended ({}): delete it first, or use another name",
        stage.phase()
    );
    ensure!(
        existing.metadata.deletion_timestamp.is_none(),
        "perfrun/{name} is being deleted: wait until it is gone, or use another name"
    );
    ensure!(
        !existing.spec.cancel,
        "perfrun/{name} is being cancelled: delete it first, or use another name"
    );
    let broken = broken_rules_of_change(existing, wanted);
    if !broken.is_empty() {
        let broken: String = broken.iter().map(|rule| format!("\n  - {rule}")).collect();
        bail!(
            "perfrun/{name} is there already ({}) and is another run: delete it first, or use another name{broken}",
            stage.phase()
        );
    }
    let (spec, there) = (&wanted.spec, &existing.spec);
    if spec.cleanup == there.cleanup && spec.suspend == there.suspend {
        return Ok(Intent::Join(Box::new(existing.clone())));
    }
    // Only that: what is equal may be written in another way, which counts as a change.
    let patch = json!({"spec": {"suspend": spec.suspend, "cleanup": spec.cleanup}});
    Ok(Intent::Change(patch))
}

/// Does what was intended; returns what the cluster has now.
pub async fn apply(cluster: &Cluster, wanted: PerfRun, intent: Intent) -> anyhow::Result<PerfRun> {
    let name = wanted.name_any();
    let act = Act {
        verb: "patch",
        resource: RUNS,
        name: Some(&name),
    };
    let runs = cluster.runs();
    let (params, patch) = match intent {
        Intent::Create => {
            let document =
                serde_json::to_value(handed_over(wanted)).expect("documents are read from JSON values");
            (PatchParams::apply(FIELD_MANAGER), Patch::Apply(document))
        }
        Intent::Change(change) => (written(), Patch::Merge(change)),
        Intent::Join(existing) => return Ok(*existing),
    };
    Ok(cluster.call(&act, runs.patch(&name, &params, &patch)).await?)
}

/// Parameters of a patch that is no apply.
pub fn written() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// What of a document is the user's. The rest is the cluster's, and is in documents that came out of one.
fn handed_over(run: PerfRun) -> PerfRun {
    let ObjectMeta {
        name,
        namespace,
        labels,
        annotations,
        finalizers,
        ..
    } = run.metadata;
    PerfRun {
        metadata: ObjectMeta {
            name,
            namespace,
            labels,
            annotations,
            finalizers,
            ..ObjectMeta::default()
        },
        spec: run.spec,
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::stage::tests::run, *};

    fn refusal(wanted: &PerfRun, existing: &PerfRun) -> String {
        intent(wanted, Some(existing)).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_there_is_created_and_what_goes_on_is_joined() {
        let wanted = run(None, (0, 0), &[]);
        assert_eq!(intent(&wanted, None).unwrap(), Intent::Create);
        let running = run(Some("Running"), (3, 0), &[]);
        let join = Intent::Join(Box::new(running.clone()));
        assert_eq!(intent(&wanted, Some(&running)).unwrap(), join);
    }

    #[test]
    fn what_has_ended_is_in_the_way_whatever_it_was() {
        let mut ended = run(Some("Succeeded"), (40, 0), &[]);
        let text =
            "perfrun/tcp is there already and has ended (Succeeded): delete it first, or use another name";
        assert_eq!(refusal(&run(None, (0, 0), &[]), &ended), text);
        ended.spec.iterations += 1;
        assert_eq!(refusal(&run(None, (0, 0), &[]), &ended), text);
    }

    #[test]
    fn another_document_of_the_same_name_is_refused() {
        let mut running = run(Some("Running"), (3, 0), &[]);
        running.spec.iterations += 1;
        let text = refusal(&run(None, (0, 0), &[]), &running);
        assert!(text.contains("(Running) and is another run"), "{text}");
        assert!(
            text.contains("only suspend, cancel and cleanup can change"),
            "{text}"
        );
    }

    #[test]
    fn what_may_change_is_changed_and_nothing_else_is_touched() {
        let mut held = run(Some("Pending"), (0, 0), &[]);
        held.spec.suspend = true;
        let change = json!({"spec": {"suspend": false, "cleanup": {"keepPodsOnFailure": false}}});
        let wanted = run(None, (0, 0), &[]);
        assert_eq!(intent(&wanted, Some(&held)).unwrap(), Intent::Change(change));
        held.spec.cancel = true;
        assert!(refusal(&wanted, &held).contains("being cancelled"));
    }

    #[test]
    fn a_document_out_of_a_cluster_loses_what_is_the_cluster_s() {
        let mut exported = run(Some("Failed"), (1, 0), &[]);
        exported.metadata.resource_version = Some("7".into());
        exported.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        let document = serde_json::to_value(handed_over(exported)).unwrap();
        let metadata = json!({"name": "tcp", "namespace": "lab", "labels": {"a": "b"}});
        assert_eq!(document["metadata"], metadata);
        assert_eq!(document.get("status"), None);
    }
}
