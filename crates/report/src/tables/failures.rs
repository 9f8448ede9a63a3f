//! Operations that failed in trials that continued, by reason.

use std::collections::BTreeMap;

use perfrun_contract::{
    node::{Reason, Role},
    plan::Cell,
};

use super::source::{Pair, Source};
use crate::{
    path::Path,
    table::{Kind, Table},
};

/// A row for each reason at each side of a cell. `None` if nothing failed.
pub(super) fn table(source: &Source<'_>) -> Option<Table> {
    let mut rows = vec![];
    for cell in &source.plan().cells {
        // A relay's own count has only refusals, which it counts by their status.
        for role in [Role::Client, Role::Server] {
            rows.extend(counts(source, cell, role).into_iter().map(|(reason, count)| {
                vec![
                    Path::of(cell).to_string().into(),
                    cell.parameters.to_string().into(),
                    Pair::of(cell).header().into(),
                    role.to_string().into(),
                    reason.as_ref().into(),
                    count.to_string().into(),
                ]
            }));
        }
    }
    let header = ["Transport", "Load", "Pair", "Side", "Reason", "Times"];
    (!rows.is_empty()).then(|| Table {
        title: "Failed operations".to_owned(),
        caption: "in trials that continued, all measured trials of a cell together".to_owned(),
        keys: 5,
        header: header.map(str::to_owned).to_vec(),
        rows,
        footnotes: vec![],
        kind: Kind::Detail,
    })
}

fn counts(source: &Source<'_>, cell: &Cell, role: Role) -> BTreeMap<Reason, u64> {
    let continued = source.counting(cell).filter(|record| record.failure.is_none());
    let nodes = continued.flat_map(|record| record.nodes.values());
    let mut counts = BTreeMap::new();
    for (reason, count) in nodes
        .filter(|node| node.role == role)
        .flat_map(|node| &node.measured.errors)
    {
        *counts.entry(*reason).or_default() += count;
    }
    counts
}
