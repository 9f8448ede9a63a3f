//! Which cells of a plan stand in which panel.

use perfrun_contract::{
    metric::Metric,
    parameters::{Bandwidth, Parameters},
    plan::Cell,
    workload::{Direction, Timing},
};

use crate::{
    path::Path,
    tables::{Source, paths, push_new},
};

/// What becomes a panel of a bandwidth plot: transport, metric, title, cells of all pairs and sizes.
pub(super) fn bandwidth_panels<'a>(source: &Source<'a>) -> Vec<(Path<'a>, Metric, String, Vec<&'a Cell>)> {
    let all = cells(source, |parameters| {
        matches!(parameters, Parameters::Bandwidth(_))
    });
    let mut settings: Vec<(Direction, u32)> = vec![];
    for cell in &all {
        if let Some((direction, _, streams)) = cell.parameters.transfer() {
            push_new(&mut settings, (direction, streams));
        }
    }
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
            let streams = if streams > 1 {
                format!(", {streams} streams")
            } else {
                String::new()
            };
            // A sender's own timing must never be taken for a receiver's.
            let is_compat = |cell: &&Cell| {
                matches!(
                    cell.parameters,
                    Parameters::Bandwidth(Bandwidth {
                        timing: Timing::Compat,
                        ..
                    })
                )
            };
            let compat = if cells.iter().any(is_compat) {
                ", compat timing"
            } else {
                ""
            };
            let mut panel = |name: &str, metric| {
                let title = format!("{path}, {name}{both}{streams}{compat}");
                panels.push((path, metric, title, of_path(&cells, path)));
            };
            if direction != Direction::Download {
                panel("upload", Metric::UploadGoodput);
            }
            if direction != Direction::Upload {
                panel("download", Metric::DownloadGoodput);
            }
        }
    }
    panels
}

/// Cells by transport and parameters, which become panels, with the parameter that tells them apart.
pub(super) fn groups<'a>(
    source: &Source<'a>,
    is_wanted: impl Fn(&Parameters) -> bool,
) -> Vec<(Path<'a>, String, Vec<&'a Cell>)> {
    let all = cells(source, is_wanted);
    let mut parameters: Vec<&Parameters> = vec![];
    all.iter()
        .for_each(|cell| push_new(&mut parameters, &cell.parameters));
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

pub(super) fn cells<'a>(source: &Source<'a>, is_wanted: impl Fn(&Parameters) -> bool) -> Vec<&'a Cell> {
    source
        .plan()
        .cells
        .iter()
        .filter(|cell| is_wanted(&cell.parameters))
        .collect()
}

/// The cells of a path and the baseline that it is held against, first.
pub(super) fn of_path<'a>(cells: &[&'a Cell], path: Path<'_>) -> Vec<&'a Cell> {
    let is_here = |cell: &&&Cell| Path::of(cell) == if cell.is_raw() { path.raw() } else { path };
    cells.iter().filter(is_here).copied().collect()
}
