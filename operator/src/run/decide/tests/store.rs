//! The pod that keeps results, of runs with a store.

use super::*;

impl Life {
    fn with_store() -> Self {
        Self::of(&(DOCUMENT.to_owned() + "  results: {store: {volume: {claim: disk}}}\n"))
    }

    /// Creates the pod that keeps results, in this state.
    fn create_store(&mut self, decision: &Decision, state: PodState) {
        let incarnation = decision.create_store.expect("the run needs the pod");
        self.pods.push(NodePod {
            name: format!("store-{incarnation}"),
            uid: format!("uid-of-store-{incarnation}"),
            node: STORE_NODE.to_owned(),
            incarnation,
            created: Some(self.now),
            deleting: false,
            state,
            foreign_containers: vec![],
        });
    }
}

#[test]
fn trials_begin_when_results_can_be_kept() {
    let mut life = Life::with_store();
    let first = life.reconcile();
    life.create(&first, &ready());
    life.create_store(&first, PodState::Starting);
    let decision = life.reconcile();
    assert_eq!(
        (decision.command, decision.create_store),
        (ConductorCommand::None, None)
    );
    life.pods[2].state = ready();
    assert_eq!(life.reconcile().command, ConductorCommand::Start);
    assert_eq!(
        Life::new().reconcile().create_store,
        None,
        "a run without a store"
    );
}

#[test]
fn a_lost_pod_is_replaced_while_trials_are_in_progress_or_taken_over() {
    let mut life = Life::with_store();
    let first = life.reconcile();
    life.create(&first, &ready());
    life.create_store(&first, ready());
    life.reconcile();
    life.conductor = ConductorState::Running(Progress::default());
    life.reconcile();
    life.pods[2].state = gone();
    let decision = life.reconcile();
    assert_eq!(
        (decision.create_store, names(&decision.create)),
        (Some(1), vec![])
    );
    life.conductor = ConductorState::None;
    let decision = life.reconcile();
    assert_eq!(
        (decision.create_store, decision.command),
        (Some(1), ConductorCommand::None)
    );
    life.create_store(&decision, ready());
    assert_eq!(life.reconcile().command, ConductorCommand::Start);
}

#[test]
fn a_pod_that_ends_again_and_again_is_given_up() {
    let mut life = Life::with_store();
    let mut decision = life.reconcile();
    life.create(&decision, &ready());
    for incarnation in 0..STORE_STARTS_MAX {
        assert_eq!(decision.create_store, Some(incarnation));
        life.create_store(&decision, ready());
        life.reconcile();
        life.conductor = ConductorState::Running(Progress::default());
        life.pods.last_mut().unwrap().state = gone();
        decision = life.later(20).reconcile();
    }
    assert_eq!(decision.create_store, None);
    life.conductor = ConductorState::None;
    let decision = life.reconcile();
    assert_eq!(
        (decision.create_store, decision.command),
        (None, ConductorCommand::Conclude)
    );
}

#[test]
fn a_cancelled_run_that_is_taken_over_needs_the_pod_to_keep_results() {
    let mut life = Life::with_store();
    let first = life.reconcile();
    life.create(&first, &ready());
    life.create_store(&first, ready());
    life.reconcile();
    life.pods[2].state = gone();
    life.spec.cancel = true;
    let decision = life.reconcile();
    assert_eq!(
        (decision.create_store, decision.command),
        (Some(1), ConductorCommand::Conclude)
    );
    assert!(decision.wake.is_some());
}

#[test]
fn a_store_that_cannot_be_used_ends_the_run_before_any_trial() {
    let mut life = Life::with_store();
    let mut decision = life.reconcile();
    life.create(&decision, &ready());
    for _ in 0..CRASHES_MAX {
        life.create_store(&decision, gone());
        decision = life.later(8).reconcile();
    }
    assert_eq!(life.end(), (Phase::Failed, "NodeCrashed"));
    let message = &life.condition(Type::Complete).message;
    assert!(message.contains("ended with exit code 1"), "{message}");
}

#[test]
fn a_missing_claim_ends_the_run_in_time_with_advice() {
    let mut life = Life::with_store();
    let first = life.reconcile();
    life.create(&first, &ready());
    life.create_store(&first, PodState::Starting);
    life.reconcile();
    life.later(61).reconcile();
    assert_eq!(life.end(), (Phase::Failed, "StoreNotReady"));
    let message = &life.condition(Type::Complete).message;
    assert!(
        message.contains("`kubectl describe` shows its events"),
        "{message}"
    );
}

#[test]
fn a_node_that_never_starts_is_not_the_fault_of_the_store() {
    let mut life = Life::with_store();
    let first = life.reconcile();
    life.create(&first, &PodState::Starting);
    life.create_store(&first, PodState::Starting);
    life.reconcile();
    life.later(61).reconcile();
    assert_eq!(life.end(), (Phase::Failed, "ProvisionTimeout"));
}

#[test]
fn the_pod_that_keeps_results_is_deleted_even_if_others_of_a_failed_run_are_kept() {
    let mut life = Life::with_store();
    life.spec.cleanup.keep_pods_on_failure = true;
    let first = life.reconcile();
    life.create(&first, &ready());
    life.create_store(&first, ready());
    life.reconcile();
    life.conductor = outcome(EndReason::Internal, 0, 0);
    life.reconcile();
    let decision = life.reconcile();
    assert!(decision.delete_store && !decision.delete_pods);
    life.pods[2].deleting = true;
    assert!(!life.reconcile().delete_store);
}

#[test]
fn the_status_has_the_location_of_results() {
    let mut life = Life::with_store();
    let ConductorState::Ended(mut ended) = outcome(EndReason::Succeeded, 2, 0) else {
        unreachable!("it has ended")
    };
    let stored = StoredResults {
        location: "s3://results/bench/tcp/uid-1/v2".to_owned(),
        image: "operator".to_owned(),
        pull_secrets: vec!["registry".to_owned()],
    };
    ended.stored = Some(stored.clone());
    life.conductor = ConductorState::Ended(ended);
    life.reconcile();
    assert_eq!(life.status.store, Some(stored));
}
