//! Pods that end, and those that replace them.

use super::*;
use crate::names::INCARNATIONS_MAX;

fn lost() -> PodState {
    PodState::Gone(Cause::new(EndReason::NodeLost, "the kubelet refuses it"))
}

#[test]
fn a_pod_that_never_starts_is_replaced_after_a_pause_that_doubles_and_then_ends_the_run() {
    let mut life = Life::new();
    let mut decision = life.reconcile();
    for pause in [1_u64, 3, 7, 15] {
        life.create(&decision, &lost());
        let waits = life.reconcile();
        assert_eq!(waits.create, []);
        assert_eq!(waits.wake.unwrap().as_secs(), pause);
        decision = life.later(pause.cast_signed()).reconcile();
        assert_eq!(decision.create.len(), 2);
    }
    life.create(&decision, &lost());
    life.reconcile();
    assert_eq!(life.end(), (Phase::Failed, "NodeLost"));
    let message = &life.condition(Type::Complete).message;
    assert_eq!(message, "the kubelet refuses it (tried 5 times)");
}

#[test]
fn a_pod_that_was_lost_does_not_count_as_a_node_that_exited() {
    let mut life = Life::new();
    let mut decision = life.reconcile();
    for state in [lost(), lost(), gone()] {
        life.create(&decision, &state);
        life.reconcile();
        decision = life.later(15).reconcile();
        assert_eq!(decision.create.len(), 2, "{state:?}");
    }
    assert_eq!(life.status.phase, Some(Phase::Provisioning));
}

#[test]
fn a_node_that_is_lost_often_is_replaced_after_a_pause() {
    let mut life = Life::running();
    for pause in [0_u64, 1, 3, 7, 10, 10] {
        life.pods.last_mut().unwrap().state = lost();
        let mut decision = life.reconcile();
        if pause > 0 {
            assert_eq!(decision.create, [], "{pause}");
            assert_eq!(decision.wake, Some(Duration::from_secs(pause)));
            decision = life.later(pause.cast_signed()).reconcile();
        }
        assert_eq!(decision.create.len(), 1, "{pause}");
        life.create(&decision, &ready());
        life.reconcile();
    }
}

#[test]
fn a_run_that_is_taken_over_keeps_its_results_when_a_node_never_starts() {
    let mut life = Life::running();
    life.conductor = ConductorState::None;
    life.pods[1].state = lost();
    for _ in 0..5 {
        let decision = life.later(30).reconcile();
        assert_eq!(
            (decision.command, decision.create.len()),
            (ConductorCommand::None, 1)
        );
        life.create(&decision, &lost());
    }
    let decision = life.later(30).reconcile();
    assert_eq!(
        (decision.command, decision.create.len()),
        (ConductorCommand::Conclude, 0)
    );
}

#[test]
fn a_node_that_never_starts_again_is_given_up_while_trials_are_in_progress() {
    let mut life = Life::running();
    life.pods[1].state = lost();
    for _ in 0..5 {
        let decision = life.later(30).reconcile();
        assert!(decision.given_up.is_empty());
        life.create(&decision, &lost());
    }
    let decision = life.later(30).reconcile();
    assert_eq!(decision.create, []);
    assert_eq!(decision.given_up["client-0"].message, "the kubelet refuses it");
    assert_eq!(life.status.phase, Some(Phase::Running));
}

#[test]
fn replaced_pods_are_deleted_but_the_last() {
    let mut life = Life::running();
    let replaced: [&[&str]; 3] = [
        &[],
        &["uid-of-client-0-0"],
        &["uid-of-client-0-0", "uid-of-client-0-1"],
    ];
    for replaced in replaced {
        life.pods.last_mut().unwrap().state = gone();
        let decision = life.later(60).reconcile();
        assert_eq!(decision.delete, replaced);
        life.create(&decision, &ready());
        life.reconcile();
    }
}

#[test]
fn a_node_whose_names_are_used_up_is_given_up() {
    let mut life = Life::running();
    life.pods[1].incarnation = INCARNATIONS_MAX;
    life.reconcile();
    life.pods[1].state = lost();
    let decision = life.later(60).reconcile();
    assert_eq!(decision.create, []);
    assert!(decision.given_up.contains_key("client-0"));
}

#[test]
fn no_name_of_a_pod_is_used_twice_and_a_suspended_run_begins_afresh() {
    let mut life = Life::new();
    let first = life.reconcile();
    life.create(&first, &PodState::Starting);
    life.reconcile();
    life.spec.suspend = true;
    life.turn = Err("ns/other is active".to_owned());
    for state in [PodState::Starting, lost(), lost()] {
        life.pods.iter_mut().for_each(|pod| pod.state = state.clone());
        life.reconcile();
    }
    life.pods.clear();
    life.reconcile();
    (life.spec.suspend, life.turn) = (false, Ok(()));
    let decision = life.reconcile();
    assert_eq!(names(&decision.create), ["server-0-1", "client-0-1"]);
}

#[test]
fn a_step_of_the_wall_clock_ends_no_patience_with_the_api_server() {
    let mut life = Life::new();
    life.is_written = false;
    let first = life.reconcile();
    life.create(&first, &PodState::Starting);
    assert!(matches!(life.later(60).reconcile().stage, Stage::Ending { .. }));
    for hours in [1, -3] {
        life.now += SignedDuration::from_hours(hours);
        assert!(!life.later(149).reconcile().delete_pods, "{hours}");
    }
    assert!(life.later(2).reconcile().delete_pods);
}

#[test]
fn a_step_of_the_wall_clock_does_not_shorten_the_pause_before_a_pod_is_replaced() {
    let mut life = Life::new();
    let first = life.reconcile();
    life.create(&first, &PodState::Starting);
    life.reconcile();
    life.pods.iter_mut().for_each(|pod| pod.state = lost());
    life.now += SignedDuration::from_secs(10);
    assert_eq!(life.reconcile().create, []);
    assert_eq!(life.later(1).reconcile().create.len(), 2);
}
