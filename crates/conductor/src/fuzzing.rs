//! What fuzz targets call with what nodes reported.

use std::time::Duration;

use perfrun_contract::{
    node::{Info, Outcome},
    plan::{Cell, Trial},
    record::TrialRecord,
    role::Role,
};

use crate::{
    clock::Offset,
    record::{Facts, Observations, add_disturbance, record},
};

/// The record of a trial at whose end the nodes of the cell reported these outcomes.
pub fn record_of(
    trial: &Trial,
    cell: &Cell,
    outcomes: Vec<(String, Role, Outcome)>,
    info: &Info,
) -> TrialRecord {
    let names: Vec<String> = outcomes.iter().map(|(name, ..)| name.clone()).collect();
    let mut observations = Observations::default();
    for (name, role, outcome) in outcomes {
        observations.add_outcome(&name, role, outcome);
    }
    let mut record = record(Facts {
        trial,
        cell,
        attempt: 0,
        after_loss: false,
        session: 0,
        observations,
        requested_starts: names.iter().map(|name| (name.clone(), 0)).collect(),
        offsets: names
            .iter()
            .map(|name| (name.clone(), Offset::default()))
            .collect(),
        server_clock_uncertainty: None,
        debug_build: false,
        window_limit: None,
        at: Duration::ZERO,
        took: Duration::ZERO,
    });
    let nodes = names.iter().map(|name| (name.as_str(), info)).collect();
    add_disturbance(&mut record, &nodes);
    record
}
