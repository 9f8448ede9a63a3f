//! Which cells of a plan stand in which panel.

use perfrun_contract::{
    metric::Metric,
    parameters::Parameters,
    plan::Cell,
    workload::{Direction, Timing},
};

use crate::{
    order::distinct,
    path::Path,
    tables::{ResultsIndex, paths},
};

/// The cells of a panel, and the metric that it shows of them.
pub(super) struct PanelCells<'a> {
    pub(super) path: Path<'a>,
    pub(super) metric: Metric,
    pub(super) title: String,
    pub(super) cells: Vec<&'a Cell>,
}

/// The panels of a bandwidth plot, with the cells of all pairs and sizes.
pub(super) fn bandwidth_panels<'a>(index: &ResultsIndex<'a>) -> Vec<PanelCells<'a>> {
    let all = index.cells(|parameters| matches!(parameters, Parameters::Bandwidth(_)));
    let transfers = all.iter().filter_map(|cell| cell.parameters.transfer());
    let settings = distinct(transfers.map(|(direction, _, streams)| (direction, streams)));
    let mut panels = vec![];
    for path in paths(&all) {
        for &(direction, streams) in &settings {
            let is_wanted = |cell: &&Cell| {
                let transfer = cell.parameters.transfer();
                transfer.is_some_and(|(d, _, s)| (d, s) == (direction, streams))
            };
            let cells: Vec<&Cell> = all.iter().copied().filter(is_wanted).collect();
            let both = if direction == Direction::Both {
                " (of both)"
            } else {
                ""
            };
            let streams = match streams {
                ..=1 => String::new(),
                _ => format!(", {streams} streams"),
            };
            // A sender's own timing must never be taken for a receiver's.
            let is_compat = |cell: &&Cell| match &cell.parameters {
                Parameters::Bandwidth(load) => load.timing == Timing::Compat,
                _ => false,
            };
            let compat = if cells.iter().any(is_compat) {
                ", compat timing"
            } else {
                ""
            };
            let directions = [
                ("upload", Metric::UploadGoodput, Direction::Download),
                ("download", Metric::DownloadGoodput, Direction::Upload),
            ];
            let directions = directions.into_iter().filter(|(.., other)| direction != *other);
            panels.extend(directions.map(|(name, metric, _)| PanelCells {
                path,
                metric,
                title: format!("{path}, {name}{both}{streams}{compat}"),
                cells: of_path(&cells, path),
            }));
        }
    }
    panels
}

/// Cells by transport and parameters, which become panels, with the parameter that tells them apart.
pub(super) fn groups<'a>(
    index: &ResultsIndex<'a>,
    is_wanted: impl Fn(&Parameters) -> bool,
) -> Vec<(Path<'a>, String, Vec<&'a Cell>)> {
    let all = index.cells(is_wanted);
    let parameters = distinct(all.iter().map(|cell| &cell.parameters));
    let mut groups = vec![];
    for path in paths(&all) {
        for &p in &parameters {
            let cells: Vec<&Cell> = all.iter().copied().filter(|cell| cell.parameters == *p).collect();
            let title = match p {
                Parameters::Handshakes(load) => format!("{path}, {} in flight", load.in_flight),
                _ => path.to_string(),
            };
            groups.push((path, title, of_path(&cells, path)));
        }
    }
    groups
}

/// The groups as panels of a metric.
pub(super) fn panels_of<'a>(
    index: &ResultsIndex<'a>,
    metric: Metric,
    is_wanted: impl Fn(&Parameters) -> bool,
) -> Vec<PanelCells<'a>> {
    let groups = groups(index, is_wanted).into_iter();
    let panels = groups.map(|(path, title, cells)| PanelCells {
        path,
        metric,
        title,
        cells,
    });
    panels.collect()
}

/// The cells of a path and the raw reference that it is compared with, first.
pub(super) fn of_path<'a>(cells: &[&'a Cell], path: Path<'_>) -> Vec<&'a Cell> {
    let is_here = |cell: &&&Cell| Path::of(cell) == if cell.is_raw() { path.raw() } else { path };
    cells.iter().filter(is_here).copied().collect()
}
