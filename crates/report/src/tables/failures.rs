//! Operations that failed in trials that continued, by reason.

use std::collections::BTreeMap;

use perfrun_contract::{
    matrix::Transport,
    node::{Measured, Reason},
    plan::Cell,
    role::Role,
};

use super::{Notes, ResultsIndex, key_fields};
use crate::table::{self, Kind, Table};

/// A row for each reason at each side of a cell. `None` if nothing failed.
pub(super) fn table(index: &ResultsIndex<'_>) -> Option<Table> {
    let (mut rows, mut notes) = (vec![], Notes::default());
    for cell in &index.plan().cells {
        // A relay's own count has only refusals, which it counts by their status.
        for role in [Role::Client, Role::Server] {
            for (reason, count) in counts(index, cell, role) {
                let mut times = table::Field::from(count.to_string());
                if let Some(note) = note(index, cell, role, (reason, count)) {
                    times.notes.push(notes.index(note));
                }
                let mut row = key_fields(cell, cell.parameters.to_string());
                row.extend([role.to_string().into(), reason.as_ref().into(), times]);
                rows.push(row);
            }
        }
    }
    let keys = ["Transport", "Load", "Stacks", "Side", "Reason"];
    Table::new(Kind::Detail, &keys, ["Times"], rows)
        .called(
            "Failed operations",
            "counts over all measured trials of a cell that continued",
        )
        .with_footnotes(notes)
        .unless_empty()
}

/// How many operations of the kind there were in all, where that says more than the count.
fn note(index: &ResultsIndex<'_>, cell: &Cell, role: Role, (reason, count): (Reason, u64)) -> Option<String> {
    let sum = |of: fn(&Measured) -> u64| measured(index, cell, role).map(of).sum::<u64>();
    match (role, reason) {
        // There a stack loses dials to a server that is well.
        (Role::Client, Reason::DialFailed) if cell.transport == Transport::WebrtcDirect => {
            Some(format!("of {} dials", count + sum(|ends| ends.connections)))
        }
        // Of an echo, lines may also be late. Then their clients count failures, too.
        (Role::Server, Reason::Timeout)
            if cell.parameters.pace().is_none()
                || measured(index, cell, Role::Client).all(|client| client.failures == 0) =>
        {
            Some(format!(
                "ends of streams that did not arrive, of {}: nothing else was due on them",
                sum(|ends| ends.streams)
            ))
        }
        _ => None,
    }
}

fn counts(index: &ResultsIndex<'_>, cell: &Cell, role: Role) -> BTreeMap<Reason, u64> {
    let mut counts = BTreeMap::new();
    for (reason, count) in measured(index, cell, role).flat_map(|node| &node.errors) {
        *counts.entry(*reason).or_default() += count;
    }
    counts
}

/// What the nodes of a side measured in trials that continued.
fn measured<'a>(index: &ResultsIndex<'a>, cell: &Cell, role: Role) -> impl Iterator<Item = &'a Measured> {
    index
        .completed_trials(cell)
        .flat_map(|record| record.nodes.values())
        .filter(move |node| node.role == role)
        .map(|node| &node.measured)
}
