//! Which cells of a plan stand in which panel.

use perfrun_api::{
    matrix::Transport,
    plan::{Cell, Parameters},
    results::Metric,
    workload::{Direction, Timing},
};

use crate::tables::{Source, push_new};

/// What becomes a panel of a bandwidth plot: transport, metric, title, cells of all pairs and sizes.
pub(super) fn bandwidth_panels<'a>(source: &Source<'a>) -> Vec<(Transport, Metric, String, Vec<&'a Cell>)> {
    let all = cells(source, |parameters| {
        matches!(parameters, Parameters::Bandwidth { .. })
    });
    let mut settings: Vec<(Direction, u32)> = vec![];
    for cell in &all {
        if let Parameters::Bandwidth {
            direction, streams, ..
        } = cell.parameters
        {
            push_new(&mut settings, (direction, streams));
        }
    }
    let mut panels = vec![];
    for transport in transports(&all) {
        for &(direction, streams) in &settings {
            let is_wanted = |cell: &&Cell| {
                matches!(cell.parameters, Parameters::Bandwidth { direction: d, streams: s, .. }
                    if (d, s) == (direction, streams))
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
                    Parameters::Bandwidth {
                        timing: Timing::Compat,
                        ..
                    }
                )
            };
            let compat = if cells.iter().any(is_compat) {
                ", compat timing"
            } else {
                ""
            };
            let mut panel = |name: &str, metric| {
                let title = format!("{transport}, {name}{both}{streams}{compat}");
                panels.push((transport, metric, title, of_transport(&cells, transport)));
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
) -> Vec<(Transport, String, Vec<&'a Cell>)> {
    let all = cells(source, is_wanted);
    let mut parameters: Vec<&Parameters> = vec![];
    all.iter()
        .for_each(|cell| push_new(&mut parameters, &cell.parameters));
    let mut groups = vec![];
    for transport in transports(&all) {
        for &p in &parameters {
            let cells: Vec<&Cell> = all.iter().copied().filter(|cell| cell.parameters == *p).collect();
            let title = match p {
                Parameters::Handshakes { in_flight, .. } => format!("{transport}, {in_flight} in flight"),
                _ => transport.to_string(),
            };
            groups.push((transport, title, of_transport(&cells, transport)));
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

/// Transports that have a panel; the baseline has one of its own only where nothing stands beside it.
pub(super) fn transports(cells: &[&Cell]) -> Vec<Transport> {
    let mut transports: Vec<Transport> = vec![];
    for cell in cells.iter().filter(|cell| !cell.is_raw()) {
        push_new(&mut transports, cell.transport);
    }
    for cell in cells.iter().filter(|cell| cell.is_raw()) {
        if !transports
            .iter()
            .any(|transport| transport.raw() == cell.transport)
        {
            transports.push(cell.transport);
        }
    }
    transports
}

/// The cells of a transport and the baseline that it is held against, first.
pub(super) fn of_transport<'a>(cells: &[&'a Cell], transport: Transport) -> Vec<&'a Cell> {
    let is_here = |cell: &&&Cell| cell.transport == if cell.is_raw() { transport.raw() } else { transport };
    cells.iter().filter(is_here).copied().collect()
}
