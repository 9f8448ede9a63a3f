//! Cells that a document compares with each other.

use perfrun_contract::{compare::CellPair, matrix::StackName, plan::Cell};

use super::points::Point;
use crate::{
    compare::{Compare, Replaces},
    spec::PerfRunSpec,
};

/// The end of a control's name, after that of its baseline. No variant has a name with `_`.
const CONTROL: &str = "_control";

/// What a document compares.
pub(super) struct Comparisons<'a>(Vec<Compared<'a>>);

struct Compared<'a> {
    compare: &'a Compare,
    /// The name of its control, if it has one.
    control: Option<StackName>,
}

/// The points that are compared with another one.
pub(super) struct Others<'a> {
    pub candidate: Point<'a>,
    pub control: Option<Point<'a>>,
}

/// Ids of a pair of cells.
pub(super) struct Ids {
    pub baseline: String,
    pub candidate: String,
    pub control: Option<String>,
}

impl<'a> Comparisons<'a> {
    pub(super) fn of(spec: &'a PerfRunSpec) -> Self {
        let all = spec.compare.iter().map(|compare| Compared {
            compare,
            control: compare
                .control
                .then(|| StackName(format!("{}{CONTROL}", compare.baseline))),
        });
        Self(all.collect())
    }

    /// The points with the candidate, and with the control, in place of the baseline. None if the document
    /// does not compare this point.
    pub(super) fn others<'b>(&'b self, point: &Point<'b>) -> Option<Others<'b>> {
        self.0.iter().find_map(|Compared { compare, control }| {
            let candidate = replaced(point, compare, &compare.candidate);
            (candidate != *point).then(|| Others {
                candidate,
                control: control.as_ref().map(|control| replaced(point, compare, control)),
            })
        })
    }
}

/// The point with this variant in place of the baseline.
fn replaced<'a>(point: &Point<'a>, compare: &Compare, by: &'a StackName) -> Point<'a> {
    let replace = |name: &'a StackName, sides: [Replaces; 2]| {
        let is_replaced = *name == compare.baseline && sides.contains(&compare.replaces);
        if is_replaced { by } else { name }
    };
    Point {
        client: replace(point.client, [Replaces::Client, Replaces::Both]),
        server: replace(point.server, [Replaces::Server, Replaces::Both]),
        ..*point
    }
}

/// The variant that a name stands for, and whether it names the control of that variant.
pub(super) fn variant(name: &StackName) -> (&str, bool) {
    match name.0.strip_suffix(CONTROL) {
        Some(baseline) => (baseline, true),
        None => (&name.0, false),
    }
}

/// The pairs of cells of these cells.
pub(super) fn indexed(cells: &[Cell], ids: &[Ids]) -> Vec<CellPair> {
    let index = |id: &String| cells.iter().position(|cell| cell.id == *id);
    let cell_pairs = ids.iter();
    cell_pairs
        .filter_map(|ids| {
            Some(CellPair {
                baseline: index(&ids.baseline)?,
                candidate: index(&ids.candidate)?,
                control: ids.control.as_ref().and_then(index),
            })
        })
        .collect()
}
