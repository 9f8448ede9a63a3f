//! What a document expects of its cells.

use perfrun_contract::{
    compare::{Bound, CellPair, Expectation},
    metric::Better,
    plan::Cell,
};

use super::Error;
use crate::{
    compare::{Expect, value},
    spec::{PerfRunSpec, Selector},
};

/// The expectations of the document, with the cells that they are of. Nothing is expected of controls.
pub(super) fn expectations(
    spec: &PerfRunSpec,
    cells: &[Cell],
    cell_pairs: &[CellPair],
) -> Result<Vec<Expectation>, Error> {
    let numbered = spec.expect.iter().enumerate();
    numbered
        .map(|(index, expect)| {
            expectation(expect, cells, cell_pairs).map_err(|problem| Error::Expectation { index, problem })
        })
        .collect()
}

fn expectation(expect: &Expect, cells: &[Cell], cell_pairs: &[CellPair]) -> Result<Expectation, String> {
    let metric = expect.metric;
    if metric.better() == Better::Neither {
        return Err(format!(
            "of {metric}, neither a higher nor a lower value is better"
        ));
    }
    let bound = bound(expect)?;
    // If no cell can have the metric, `feasibility` refuses the document, but not a run that has begun.
    let is_measured = cells.iter().any(|cell| cell.parameters.may_have(metric));
    let is_meant = |cell: &Cell| {
        is_meant(expect.cells.as_ref(), cell) && (!is_measured || cell.parameters.may_have(metric))
    };
    let is_of_raw = expect.cells.is_none() && cells.iter().all(Cell::is_raw_reference);
    let cells: Vec<usize> = match bound {
        Bound::MaxRegression(_) => cell_pairs
            .iter()
            .filter(|cell_pair| is_meant(&cells[cell_pair.baseline]))
            .map(|cell_pair| cell_pair.candidate)
            .collect(),
        _ => {
            let is_control = |index| {
                cell_pairs
                    .iter()
                    .any(|cell_pair| cell_pair.control == Some(index))
            };
            let numbered = cells.iter().enumerate();
            numbered
                .filter(|(index, cell)| is_meant(cell) && !is_control(*index))
                .map(|(index, _)| index)
                .collect()
        }
    };
    if cells.is_empty() {
        let hint = if is_of_raw {
            "; cells of raw are meant only if it names them: add where: {client: raw}"
        } else {
            ""
        };
        return Err(format!(
            "no cell that is measured matches it and has {metric}{hint}"
        ));
    }
    Ok(Expectation { metric, cells, bound })
}

/// What bounds the metric.
fn bound(expect: &Expect) -> Result<Bound, String> {
    let metric = expect.metric;
    let parsed = |text: &str| {
        value(text, metric.unit()).map_err(|how| format!("{text} is not a value of {metric}: write {how}"))
    };
    Ok(match expect {
        Expect {
            max_regression: Some(share),
            ..
        } => Bound::MaxRegression(share.ratio().get()),
        Expect {
            min_share_of_raw: Some(share),
            ..
        } => Bound::MinShareOfRaw(share.ratio().get()),
        Expect { min: Some(text), .. } => Bound::Min(parsed(text)?),
        Expect { max: Some(text), .. } => Bound::Max(parsed(text)?),
        _ => return Err("it has no bound".to_owned()),
    })
}

/// Whether a cell is meant. The raw reference is, only if the document names it.
fn is_meant(selector: Option<&Selector>, cell: &Cell) -> bool {
    match selector {
        Some(selector) => {
            let names_a_stack = selector.client.is_some() || selector.server.is_some();
            selector.selects(cell) && (names_a_stack || !cell.is_raw_reference())
        }
        None => !cell.is_raw_reference(),
    }
}
