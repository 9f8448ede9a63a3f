//! Operations that failed in trials that continued, by reason.

use std::collections::BTreeMap;

use perfrun_contract::{
    matrix::Transport,
    node::{Measured, Reason, Role},
    plan::Cell,
};

use super::source::{Pair, Source};
use crate::{
    path::Path,
    table::{self, Kind, Table},
};

/// A row for each reason at each side of a cell. `None` if nothing failed.
pub(super) fn table(source: &Source<'_>) -> Option<Table> {
    let (mut rows, mut footnotes) = (vec![], vec![]);
    for cell in &source.plan().cells {
        // A relay's own count has only refusals, which it counts by their status.
        for role in [Role::Client, Role::Server] {
            for (reason, count) in counts(source, cell, role) {
                let mut times = table::Cell::from(count.to_string());
                // There a stack loses dials to a server that is well.
                if (cell.transport, role, reason)
                    == (Transport::WebrtcDirect, Role::Client, Reason::DialFailed)
                {
                    let connections: u64 = measured(source, cell, role).map(|ends| ends.connections).sum();
                    times.notes.push(footnotes.len());
                    footnotes.push(format!("of {} dials", count + connections));
                }
                rows.push(vec![
                    Path::of(cell).to_string().into(),
                    cell.parameters.to_string().into(),
                    Pair::of(cell).header().into(),
                    role.to_string().into(),
                    reason.as_ref().into(),
                    times,
                ]);
            }
        }
    }
    let header = ["Transport", "Load", "Pair", "Side", "Reason", "Times"];
    (!rows.is_empty()).then(|| Table {
        title: "Failed operations".to_owned(),
        caption: "in trials that continued, all measured trials of a cell together".to_owned(),
        keys: 5,
        header: header.map(str::to_owned).to_vec(),
        rows,
        footnotes,
        kind: Kind::Detail,
    })
}

fn counts(source: &Source<'_>, cell: &Cell, role: Role) -> BTreeMap<Reason, u64> {
    let mut counts = BTreeMap::new();
    for (reason, count) in measured(source, cell, role).flat_map(|node| &node.errors) {
        *counts.entry(*reason).or_default() += count;
    }
    counts
}

/// What the nodes of a side measured in trials that continued.
fn measured<'a>(source: &Source<'a>, cell: &Cell, role: Role) -> impl Iterator<Item = &'a Measured> {
    let continued = source.counting(cell).filter(|record| record.failure.is_none());
    continued
        .flat_map(|record| record.nodes.values())
        .filter(move |node| node.role == role)
        .map(|node| &node.measured)
}
