//! Creating a run from a document, or changing the run that already exists.

use anyhow::{bail, ensure};
use kube::{
    ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use perfrun_api::{document::broken_rules_of_change, spec::PerfRun};
use serde_json::{Value, json};

use super::{
    access::{Cluster, FIELD_MANAGER, patch_params},
    error::{Call, RUNS},
    status::StatusSummary,
};

/// What to do with a document, given the run of its name on the cluster.
#[derive(Debug, PartialEq)]
pub(super) enum Intent {
    /// No run of this name exists.
    Create,
    /// The same run exists and has not ended: leave it alone.
    Join(Box<PerfRun>),
    /// The same run exists, and fields that can change differ.
    Change(Value),
}

/// What to do with a document.
pub(super) fn intent(wanted: &PerfRun, existing: Option<&PerfRun>) -> anyhow::Result<Intent> {
    let Some(existing) = existing else {
        return Ok(Intent::Create);
    };
    let name = wanted.name_any();
    let status = StatusSummary::of(existing);
    ensure!(
        !status.has_ended,
        "perfrun/{name} already exists and has ended ({}): delete it first, or use another name",
        status.phase()
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
            "perfrun/{name} already exists ({}) and differs from the document: delete it first, or use another name{broken}",
            status.phase()
        );
    }
    let (spec, current) = (&wanted.spec, &existing.spec);
    if spec.cleanup == current.cleanup && spec.suspend == current.suspend {
        return Ok(Intent::Join(Box::new(existing.clone())));
    }
    // Only these fields: equal values may be written differently, which would count as a change.
    let patch = json!({"spec": {"suspend": spec.suspend, "cleanup": spec.cleanup}});
    Ok(Intent::Change(patch))
}

/// Carries out an intent. Returns the run as it is on the cluster now.
pub(super) async fn apply(cluster: &Cluster, wanted: PerfRun, intent: Intent) -> anyhow::Result<PerfRun> {
    let name = wanted.name_any();
    let call = Call::of("patch", RUNS, &name);
    let runs = cluster.runs();
    let (params, patch) = match intent {
        Intent::Create => {
            let document = serde_json::to_value(without_cluster_fields(wanted))
                .expect("documents are read from JSON values");
            (PatchParams::apply(FIELD_MANAGER), Patch::Apply(document))
        }
        Intent::Change(change) => (patch_params(), Patch::Merge(change)),
        Intent::Join(existing) => return Ok(*existing),
    };
    Ok(cluster.call(&call, runs.patch(&name, &params, &patch)).await?)
}

/// The fields of a document that belong to the user. A document exported from a cluster also has the
/// cluster's own.
fn without_cluster_fields(run: PerfRun) -> PerfRun {
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
    use super::{super::status::tests::run, *};

    fn refusal(wanted: &PerfRun, existing: &PerfRun) -> String {
        intent(wanted, Some(existing)).unwrap_err().to_string()
    }

    #[test]
    fn a_new_run_is_created_and_a_running_one_is_joined() {
        let wanted = run(None, (0, 0), &[]);
        assert_eq!(intent(&wanted, None).unwrap(), Intent::Create);
        let running = run(Some("Running"), (3, 0), &[]);
        let join = Intent::Join(Box::new(running.clone()));
        assert_eq!(intent(&wanted, Some(&running)).unwrap(), join);
    }

    #[test]
    fn an_ended_run_of_the_same_name_blocks_a_new_one() {
        let mut ended = run(Some("Succeeded"), (40, 0), &["Complete=True Succeeded "]);
        let text =
            "perfrun/tcp already exists and has ended (Succeeded): delete it first, or use another name";
        assert_eq!(refusal(&run(None, (0, 0), &[]), &ended), text);
        ended.spec.iterations += 1;
        assert_eq!(refusal(&run(None, (0, 0), &[]), &ended), text);
    }

    #[test]
    fn another_document_of_the_same_name_is_refused() {
        let mut running = run(Some("Running"), (3, 0), &[]);
        running.spec.iterations += 1;
        let text = refusal(&run(None, (0, 0), &[]), &running);
        assert!(text.contains("(Running) and differs from the document"), "{text}");
        assert!(
            text.contains("only suspend, cancel and cleanup can change"),
            "{text}"
        );
    }

    #[test]
    fn only_fields_that_may_change_are_patched() {
        let mut held = run(Some("Pending"), (0, 0), &[]);
        held.spec.suspend = true;
        let change = json!({"spec": {"suspend": false, "cleanup": {"keepPodsOnFailure": false}}});
        let wanted = run(None, (0, 0), &[]);
        assert_eq!(intent(&wanted, Some(&held)).unwrap(), Intent::Change(change));
        held.spec.cancel = true;
        assert!(refusal(&wanted, &held).contains("being cancelled"));
    }

    #[test]
    fn a_document_from_a_cluster_loses_the_fields_of_the_cluster() {
        let mut exported = run(Some("Failed"), (1, 0), &[]);
        exported.metadata.resource_version = Some("7".into());
        exported.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        let document = serde_json::to_value(without_cluster_fields(exported)).unwrap();
        let metadata = json!({"name": "tcp", "namespace": "lab", "labels": {"a": "b"}});
        assert_eq!(document["metadata"], metadata);
        assert_eq!(document.get("status"), None);
    }
}
