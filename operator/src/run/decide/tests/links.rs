//! What the condition LinksVerified shows.

use kube::runtime::events::EventType;
use perfrun_contract::{
    node::Reason,
    record::{LinkCheck, TrialRecord},
};
use perfrun_test_kit::records::{completed, failed};

use super::*;

#[test]
fn only_runs_that_impair_links_have_a_condition_about_them() {
    let life = Life::running();
    let types: Vec<_> = life.status.conditions.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!(types, ["Accepted", "Provisioned", "Running", "Complete"]);
}

#[test]
fn links_are_verified_network_by_network() {
    let mut life = Life::impaired().started();
    assert_eq!(
        life.links(),
        ("Unknown", "NotMeasured", "no link has been measured yet")
    );
    let mut networks = MeasuredNetworks::default();
    networks.add("none", &checked(None));
    let mut progress = Progress {
        measured_networks: networks.clone(),
        ..Progress::default()
    };
    life.conductor = ConductorState::Running(progress.clone());
    life.reconcile();
    let message = "1 of 2 networks were measured and are as configured";
    assert_eq!(life.links(), ("True", "AsConfigured", message));
    assert_eq!(life.reasons(), ["AsConfigured"]);

    // Another operator takes over, and has not read the journal yet.
    life.conductor = ConductorState::None;
    life.reconcile();
    life.conductor = ConductorState::Running(Progress::default());
    life.reconcile();
    assert_eq!(life.links(), ("True", "AsConfigured", message));

    let wrong = "network wan, client-0 to server-0: median round trip (ms): 0.100, expected 59 to 61";
    networks.add("wan", &checked(Some(wrong)));
    progress.measured_networks = networks;
    life.conductor = ConductorState::Running(progress.clone());
    life.reconcile();
    assert_eq!(life.links(), ("False", "ImpairmentNotEffective", wrong));
    assert_eq!(life.events[0].type_, EventType::Warning);
    life.conductor = ConductorState::None;
    life.reconcile();
    assert_eq!(life.links(), ("False", "ImpairmentNotEffective", wrong));

    let ConductorState::Ended(mut outcome) = outcome(EndReason::ImpairmentNotEffective, 1, 1) else {
        panic!()
    };
    outcome.progress.measured_networks = progress.measured_networks;
    life.conductor = ConductorState::Ended(outcome);
    life.reconcile();
    assert_eq!(life.end(), (Phase::Failed, "ImpairmentNotEffective"));
    assert_eq!(life.links(), ("False", "ImpairmentNotEffective", wrong));
}

#[test]
fn a_run_whose_links_cannot_be_impaired_reports_it_in_both_conditions() {
    let mut life = Life::impaired().started();
    life.conductor = outcome(EndReason::ImpairmentUnsupported, 0, 0);
    life.reconcile();
    let message = "it ended as ImpairmentUnsupported";
    assert_eq!(life.links(), ("False", "ImpairmentUnsupported", message));
    assert_eq!(life.end(), (Phase::Failed, "ImpairmentUnsupported"));
}

#[test]
fn a_namespace_that_does_not_allow_link_agents_ends_the_run_immediately() {
    let mut life = Life::impaired();
    let cause = Cause::new(EndReason::ImpairmentUnsupported, "label the namespace");
    life.reconcile_with(Some(Refusal::Final(cause)));
    assert_eq!(life.end(), (Phase::Failed, "ImpairmentUnsupported"));
    assert_eq!(
        life.links(),
        ("False", "ImpairmentUnsupported", "label the namespace")
    );
}

/// A record with measured links, and why they were not as configured.
fn checked(wrong: Option<&str>) -> TrialRecord {
    let mut record = match wrong {
        Some(_) => failed("c0.i0", Reason::ImpairmentNotEffective),
        None => completed("c0.i0"),
    };
    record.links = Some(LinkCheck {
        network: "wan".to_owned(),
        set_seconds: 0.1,
        probe_seconds: 1.0,
        legs: vec![],
    });
    if let (Some(failure), Some(wrong)) = (&mut record.failure, wrong) {
        failure.message = wrong.to_owned();
    }
    record
}
