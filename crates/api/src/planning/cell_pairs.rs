//! Cells that a document compares with each other.

use perfrun_contract::{compare::CellPair, plan::Cell};

use super::{Error, points::Point, stacks::ResolvedStack};
use crate::{compare::Replaces, spec::PerfRunSpec};

/// What a document compares.
pub(super) struct Comparisons<'a>(Vec<ResolvedComparison<'a>>);

struct ResolvedComparison<'a> {
    baseline: ResolvedStack<'a>,
    candidate: ResolvedStack<'a>,
    replaces: Replaces,
    has_control: bool,
}

/// The points that are compared with another one.
pub(super) struct ComparedPoints<'a> {
    pub candidate: Point<'a>,
    pub control: Option<Point<'a>>,
}

/// Ids of a pair of cells.
pub(super) struct CellPairIds {
    pub baseline: String,
    pub candidate: String,
    pub control: Option<String>,
}

impl<'a> Comparisons<'a> {
    pub(super) fn of(spec: &'a PerfRunSpec) -> Result<Self, Error> {
        let all = spec.compare.iter().map(|compare| {
            Ok(ResolvedComparison {
                baseline: ResolvedStack::named(spec, &compare.baseline)?,
                candidate: ResolvedStack::named(spec, &compare.candidate)?,
                replaces: compare.replaces,
                has_control: compare.control,
            })
        });
        all.collect::<Result<_, _>>().map(Self)
    }

    /// The points with the candidate, and with the control, in place of the baseline. `None` if the document
    /// does not compare this point.
    pub(super) fn others(&self, point: &Point<'a>) -> Option<ComparedPoints<'a>> {
        self.0.iter().find_map(|compared| {
            let candidate = compared.replaced(point, compared.candidate);
            (candidate != *point).then(|| ComparedPoints {
                candidate,
                control: compared
                    .has_control
                    .then(|| compared.replaced(point, compared.baseline.control())),
            })
        })
    }
}

impl<'a> ResolvedComparison<'a> {
    /// The point with this stack in place of the baseline.
    fn replaced(&self, point: &Point<'a>, by: ResolvedStack<'a>) -> Point<'a> {
        let replace = |stack, is_replaced| match is_replaced && stack == self.baseline {
            true => by,
            false => stack,
        };
        Point {
            client: replace(point.client, self.replaces.has_client()),
            server: replace(point.server, self.replaces.has_server()),
            ..*point
        }
    }
}

/// The pairs of cells of these cells.
pub(super) fn indexed(cells: &[Cell], ids: &[CellPairIds]) -> Vec<CellPair> {
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
