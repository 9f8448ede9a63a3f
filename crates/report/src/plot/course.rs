//! What a run did over time: each trial over the run, and the payload within a trial.

use perfrun_contract::{
    node::{Role, Sample},
    parameters::Parameters,
    plan::Cell,
    record::{Flag, Metric, TrialRecord},
    units::Unit,
};

use super::{
    canvas::Plot,
    content::{series, time_panel},
    lines::{Lines, Over, Panel, Point, Series},
    select::groups,
    theme::Look,
};
use crate::tables::{Pair, Source, push_new};

/// Fewer samples of a trial show no course.
const LEAST_SAMPLES: usize = 3;

/// The value of each measured trial over the run: a panel for each load, path and metric, a point for each
/// trial. Trials that failed or were disturbed are marked.
pub(super) fn trials(source: &Source<'_>) -> Option<Plot> {
    let mut panels: Vec<(Unit, Panel)> = vec![];
    for (path, _, cells) in groups(source, |_| true) {
        let mut metrics = vec![];
        let records = cells.iter().flat_map(|cell| source.counting(cell));
        for (metric, _) in records.flat_map(TrialRecord::headlines) {
            push_new(&mut metrics, metric);
        }
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
                series: points(source, &cells, metric),
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
        title: format!("{}: each trial over the run", source.results.name),
        description: "The value of each measured trial, in the order in which they ran, over the time since the start of the run. \
                      Trials that failed are crosses at the bottom, and those that something disturbed have a ring. The \
                      axis of values is logarithmic."
            .to_owned(),
        x_title: "Time since the start of the run",
        unit,
        over: Over::Run,
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
fn points(source: &Source<'_>, cells: &[&Cell], metric: Metric) -> Vec<Series> {
    let (mut all, mut disturbed, mut failed) = (vec![], vec![], vec![]);
    for cell in cells {
        let mut of_cell = vec![];
        for record in source.counting(cell) {
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
        all.push(series(source, Pair::of(cell), of_cell));
    }
    let remarks = [
        ("disturbed", Look::DISTURBED, disturbed),
        ("failed", Look::FAILED, failed),
    ];
    all.extend(remarks.map(|(name, look, points)| Series {
        name: name.to_owned(),
        look,
        points,
    }));
    all.retain(|series| !series.points.is_empty());
    all
}

/// The payload in each sample of a transfer: a panel for each load and path, a line for each pair.
pub(super) fn payload(source: &Source<'_>) -> Option<Plot> {
    let rate = |sample: &Sample| {
        let bytes = sample.bytes_sent + sample.bytes_received;
        (sample.interval_seconds > 0.0).then(|| bytes as f64 * 8.0 / sample.interval_seconds)
    };
    let mut panels = vec![];
    for (path, _, cells) in groups(source, |p| matches!(p, Parameters::Bandwidth { .. })) {
        let Some(cell) = cells.first() else {
            continue;
        };
        let title = format!("{path}, {}", cell.parameters);
        panels.extend(time_panel(source, &cells, Role::Client, ("Payload", rate), title));
    }
    let has_course = |series: &Series| series.points.len() >= LEAST_SAMPLES;
    panels.retain(|panel| panel.series.iter().any(has_course));
    let lines = Lines {
        title: format!("{}: payload over time", source.results.name),
        description: "What each client sent and received in each sample of the first measured trial of each pair of stacks. \
                      Both axes are linear."
            .to_owned(),
        x_title: "Time since the start of the trial",
        unit: Unit::BitsPerSecond,
        over: Over::Time,
        panels,
    };
    (!lines.panels.is_empty()).then(|| lines.plot())
}
