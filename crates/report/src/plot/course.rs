//! What a run did over time: each trial over the run, and what nodes did within a trial.

use perfrun_contract::{
    matrix::IpFamily,
    metric::Metric,
    node::Sample,
    parameters::Parameters,
    plan::{Cell, StackPair},
    record::{Flag, NodeRecord},
    role::Role,
    units::Unit,
};

use super::{
    canvas::Plot,
    content::{lowered, series},
    lines::{Lines, Panel, Point, Series, XAxis},
    select::groups,
    theme::SeriesStyle,
};
use crate::{order::distinct, path::Path, tables::ResultsIndex};

/// Fewer samples of a trial show no course.
const SAMPLES_MIN: usize = 3;

/// Something that samples have.
#[derive(Clone, Copy)]
pub(super) struct SampledQuantity {
    /// The title of its axis.
    title: &'static str,
    unit: Unit,
    value: fn(&Sample) -> Option<f64>,
}

/// Payload that a node received.
pub(super) const RECEIVED: SampledQuantity = SampledQuantity {
    title: "Payload read",
    unit: Unit::BitsPerSecond,
    value: |sample| per_second(sample, sample.bytes_received as f64 * 8.0),
};
/// Payload that a node sent and received.
const PAYLOAD: SampledQuantity = SampledQuantity {
    title: "Payload",
    unit: Unit::BitsPerSecond,
    value: |sample| {
        let bytes = sample.bytes_sent + sample.bytes_received;
        per_second(sample, bytes as f64 * 8.0)
    },
};
/// CPU time for each second.
pub(super) const CPU: SampledQuantity = SampledQuantity {
    title: "CPUs kept busy",
    unit: Unit::Count,
    value: |sample| per_second(sample, sample.cpu_seconds),
};
/// What the allocator has given out.
pub(super) const MEMORY: SampledQuantity = SampledQuantity {
    title: "Memory allocated",
    unit: Unit::Bytes,
    value: |sample| sample.allocated_bytes.map(|bytes| bytes as f64),
};
/// What a relay carries.
pub(super) const CIRCUITS: SampledQuantity = SampledQuantity {
    title: "Open circuits",
    unit: Unit::Count,
    value: |sample| Some(sample.circuits as f64),
};

fn per_second(sample: &Sample, amount: f64) -> Option<f64> {
    (sample.interval_seconds > 0.0).then(|| amount / sample.interval_seconds)
}

/// The value of each measured trial over the run: a panel for each load, path and metric, a point for each
/// trial. Trials that failed or were disturbed are marked.
pub(super) fn trials(index: &ResultsIndex<'_>) -> Option<Plot> {
    let mut panels: Vec<(Unit, Panel)> = vec![];
    for (path, _, cells) in groups(index, |_| true) {
        let metrics = index.headlines(cells.iter().copied());
        let load = cells.first().map(|cell| &cell.parameters);
        let several = metrics.len() > 1;
        for metric in metrics {
            let direction = match metric {
                Metric::UploadGoodput if several => ", upload",
                Metric::DownloadGoodput if several => ", download",
                _ => "",
            };
            let load = load.map_or_else(String::new, ToString::to_string);
            let panel = Panel {
                title: format!("{path}, {load}{direction}"),
                y_title: named(metric),
                series: points(index, &cells, metric),
                x: vec![],
            };
            panels.push((metric.unit(), panel));
        }
    }
    // Of a sweep that begins with sizes that have no rate, those that have one.
    let has_rates = panels.iter().any(|(unit, _)| *unit == Unit::BitsPerSecond);
    let unit = match has_rates {
        true => Unit::BitsPerSecond,
        false => panels.first()?.0,
    };
    let panels = panels.into_iter().filter(|(of_panel, _)| *of_panel == unit);
    let lines = Lines {
        title: format!("{}: each trial over the run", index.results.name),
        description: "The value of each measured trial, in the order in which they ran, over the time since the start of the run. \
                      Trials that failed are crosses at the bottom, and those that something disturbed have a ring. The \
                      axis of values is logarithmic."
            .to_owned(),
        x_title: "Time since the start of the run",
        unit,
        x_axis: XAxis::Run,
        panels: panels.map(|(_, panel)| panel).collect(),
    };
    Some(lines.plot())
}

/// The title of an axis.
fn named(metric: Metric) -> &'static str {
    match metric {
        Metric::UploadGoodput | Metric::DownloadGoodput => "Goodput",
        Metric::MessagesPerSecond => "Messages",
        Metric::OpenMean => "Mean time to open a substream",
        Metric::HandshakeFirstByteP50 => "Median time to the first byte",
        Metric::RoundTripP50 => "Median round trip",
        Metric::TotalSeconds => "Time",
        other => other.into(),
    }
}

/// Points of each pair, then those of trials that were disturbed and that failed.
fn points(index: &ResultsIndex<'_>, cells: &[&Cell], metric: Metric) -> Vec<Series> {
    let (mut all, mut disturbed, mut failed) = (vec![], vec![], vec![]);
    for cell in cells {
        let mut of_cell = vec![];
        for record in index.counting(cell) {
            let point = |y| Point {
                x: record.at_seconds,
                y,
                interval: None,
            };
            let value = record.metrics.get(&metric).filter(|value| value.is_finite());
            match value {
                _ if record.failure.is_some() => failed.push(point(0.0)),
                Some(value) => {
                    of_cell.push(point(*value));
                    if record.flags.contains(&Flag::Disturbed) {
                        disturbed.push(point(*value));
                    }
                }
                None => {}
            }
        }
        all.push(series(index, cell.stack_pair(), of_cell));
    }
    let remarks = [
        ("disturbed", SeriesStyle::DISTURBED, disturbed),
        ("failed", SeriesStyle::FAILED, failed),
    ];
    all.extend(remarks.map(|(name, style, points)| Series {
        name: name.to_owned(),
        style,
        points,
    }));
    all.retain(|series| !series.points.is_empty());
    all
}

/// What nodes of some roles did over time, ramp and all: a panel for each path, load and role, a line for
/// each node.
pub(super) fn nodes(
    index: &ResultsIndex<'_>,
    is_wanted: impl Fn(&Parameters) -> bool,
    roles: &[Role],
    quantity: SampledQuantity,
) -> Option<Plot> {
    let mut panels = vec![];
    for (path, _, cells) in groups(index, is_wanted) {
        let Some(load) = cells.first().map(|cell| &cell.parameters) else {
            continue;
        };
        for &role in roles {
            if !cells.iter().any(|cell| cell.has_process(role)) {
                continue;
            }
            let title = format!("{path}, {load}, {role}");
            let line_of = |cell: &Cell, points| series(index, cell.stack_pair(), points);
            panels.extend(panel(index, &cells, role, quantity, title, line_of));
        }
    }
    let subject = format!("{} over time", lowered(quantity.title));
    over_time(index, &subject, "pair of stacks", quantity, panels)
}

/// An echo over time on all its transports, as the published benchmarks show it: a panel for each pair of
/// stacks, network, load and side, a line for each transport. `None` below two transports.
pub(super) fn transports(index: &ResultsIndex<'_>, quantity: SampledQuantity) -> Option<Plot> {
    let all = index.cells(|parameters| matches!(parameters, Parameters::Echo(_)));
    let pairs = distinct(all.iter().map(|cell| cell.stack_pair()));
    let families = distinct(all.iter().map(|cell| family(cell)));
    let transports = distinct(all.iter().map(|cell| cell.transport));
    // Each transport has one look in all panels.
    let line_of = |cell: &Cell, points| {
        let place = transports.iter().position(|known| *known == cell.transport);
        Series {
            name: cell.transport.to_string(),
            style: SeriesStyle::series(place.unwrap_or_default()),
            points,
        }
    };
    let mut panels = vec![];
    for of_panel in families {
        let (pair, _, _, load) = of_panel;
        for role in [Role::Client, Role::Server] {
            let is_here = |cell: &&Cell| family(cell) == of_panel && cell.has_process(role);
            let cells: Vec<&Cell> = all.iter().copied().filter(is_here).collect();
            if cells.len() < 2 {
                continue;
            }
            let pair = if pairs.len() > 1 {
                format!("{pair}, ")
            } else {
                String::new()
            };
            let title = format!("{pair}{load}{}, {role}", Path::of(cells[0]).suffix());
            panels.extend(panel(index, &cells, role, quantity, title, line_of));
        }
    }
    let subject = format!("{} over time, by transport", lowered(quantity.title));
    over_time(index, &subject, "transport", quantity, panels)
}

/// What cells share that differ in their transports only.
fn family(cell: &Cell) -> (StackPair<'_>, &str, IpFamily, &Parameters) {
    (cell.stack_pair(), &cell.network, cell.ip_family, &cell.parameters)
}

/// What nodes of a role measured over time, in the first trial of each cell that counts: a line for each
/// node, with the name and the look that its cell gives it.
fn panel(
    index: &ResultsIndex<'_>,
    cells: &[&Cell],
    role: Role,
    quantity: SampledQuantity,
    title: String,
    line_of: impl Fn(&Cell, Vec<Point>) -> Series,
) -> Option<Panel> {
    let lines = |cell: &&Cell| {
        let record = index.completed_trials(cell).take(1);
        let nodes = record.flat_map(|record| record.nodes.values());
        let line = |node: &NodeRecord| {
            let point = |sample: &Sample| {
                Some(Point {
                    x: sample.at_seconds,
                    y: (quantity.value)(sample)?,
                    interval: None,
                })
            };
            line_of(cell, node.measured.samples.iter().filter_map(point).collect())
        };
        let of_role = nodes.filter(|node| node.role == role);
        of_role.map(line).collect::<Vec<Series>>()
    };
    let lines: Vec<Series> = cells.iter().flat_map(lines).collect();
    let shows = |series: &Series| !series.points.is_empty();
    lines.iter().any(shows).then_some(Panel {
        title,
        y_title: quantity.title,
        series: lines,
        x: vec![],
    })
}

fn over_time(
    index: &ResultsIndex<'_>,
    subject: &str,
    of_each: &str,
    SampledQuantity { title, unit, .. }: SampledQuantity,
    panels: Vec<Panel>,
) -> Option<Plot> {
    let lines = Lines {
        title: format!("{}: {subject}", index.results.name),
        description: format!(
            "{title} of each node, in each sample of the first measured trial of each {of_each}, from the start on. \
             Both axes are linear."
        ),
        x_title: "Time since the start",
        unit,
        x_axis: XAxis::Time,
        panels,
    };
    (!lines.panels.is_empty()).then(|| lines.plot())
}

/// The payload in each sample of a transfer: a panel for each load and path, a line for each pair.
pub(super) fn payload(index: &ResultsIndex<'_>) -> Option<Plot> {
    let mut panels = vec![];
    for (path, _, cells) in groups(index, |p| matches!(p, Parameters::Bandwidth(_))) {
        let Some(cell) = cells.first() else {
            continue;
        };
        let title = format!("{path}, {}", cell.parameters);
        let line_of = |cell: &Cell, points| series(index, cell.stack_pair(), points);
        panels.extend(panel(index, &cells, Role::Client, PAYLOAD, title, line_of));
    }
    let has_course = |series: &Series| series.points.len() >= SAMPLES_MIN;
    panels.retain(|panel| panel.series.iter().any(has_course));
    let lines = Lines {
        title: format!("{}: payload over time", index.results.name),
        description: "What each client sent and received in each sample of the first measured trial of each pair of stacks. \
                      Both axes are linear."
            .to_owned(),
        x_title: "Time since the start of the trial",
        unit: PAYLOAD.unit,
        x_axis: XAxis::Time,
        panels,
    };
    (!lines.panels.is_empty()).then(|| lines.plot())
}
