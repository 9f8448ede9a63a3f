//! Pairs of cells that a document compares.

use perfrun_contract::{compare::Twin, plan::Cell};

use super::points::Point;
use crate::{
    compare::{Compare, Replaces},
    spec::PerfRunSpec,
};

/// The point that is compared with this one: the point with the candidate in place of the baseline. None if
/// the document does not compare this point.
pub(super) fn candidate<'a>(spec: &'a PerfRunSpec, point: &Point<'a>) -> Option<Point<'a>> {
    spec.compare.iter().find_map(|compare| {
        let Compare {
            baseline,
            candidate,
            replaces,
        } = compare;
        let replace = |name, sides: [Replaces; 2]| match name == baseline && sides.contains(replaces) {
            true => candidate,
            false => name,
        };
        let twin = Point {
            client: replace(point.client, [Replaces::Client, Replaces::Both]),
            server: replace(point.server, [Replaces::Server, Replaces::Both]),
            ..*point
        };
        (twin != *point).then_some(twin)
    })
}

/// The twins of these cells, from the ids of baselines and candidates.
pub(super) fn indexed(cells: &[Cell], ids: &[(String, String)]) -> Vec<Twin> {
    let index = |id: &String| cells.iter().position(|cell| cell.id == *id);
    let twins = ids.iter();
    twins
        .filter_map(|(baseline, candidate)| {
            Some(Twin {
                baseline: index(baseline)?,
                candidate: index(candidate)?,
            })
        })
        .collect()
}
