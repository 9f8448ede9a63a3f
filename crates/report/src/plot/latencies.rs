//! How times are distributed.

use perfrun_contract::{
    distribution::Distribution, histogram::Recorder, measure::merged, node::Measured, plan::Cell, role::Role,
    units::Unit,
};

use super::{
    canvas::{PANELS_MAX, Plot},
    content::series,
    lines::{Lines, Panel, Point, XAxis},
    select::groups,
};
use crate::tables::ResultsIndex;

/// What is drawn, and what it is called.
const DRAWN: [(Distribution, &str); 5] = [
    (Distribution::RoundTrip, "round trips"),
    (Distribution::OneWay, "one way"),
    (Distribution::Open, "opens"),
    (Distribution::HandshakeEstablished, "established"),
    (Distribution::HandshakeFirstByte, "first byte"),
];

/// Points of a line, less one: one for each percentile.
const STEPS: u32 = 100;

/// The share of operations that took at most a time, of all trials of a cell together: a panel for each load,
/// path and distribution, a line for each pair.
pub(super) fn latencies(index: &ResultsIndex<'_>) -> Option<Plot> {
    let mut panels = vec![];
    for (path, _, cells) in groups(index, |parameters| parameters.is_timed()) {
        let load = cells
            .first()
            .map_or_else(String::new, |cell| cell.parameters.to_string());
        for (distribution, name) in DRAWN {
            // What is not drawn need not be read, which takes long.
            let is_drawn = panels.len() < PANELS_MAX;
            let line = |cell: &&Cell| {
                let recorded = recorded(index, cell, distribution);
                let points = match is_drawn {
                    true => points(&merged(recorded.iter().copied(), distribution)?),
                    false => vec![],
                };
                (!recorded.is_empty()).then(|| series(index, cell.stack_pair(), points))
            };
            let panel = Panel {
                title: format!("{path}, {load}, {name}"),
                y_title: "Operations that took at most this time",
                series: cells.iter().filter_map(line).collect(),
                x: vec![],
            };
            panels.extend((!panel.series.is_empty()).then_some(panel));
        }
    }
    let lines = Lines {
        title: format!("{}: distribution of times", index.results.name),
        description: "The share of operations that took at most a time, over all measured trials of each pair of stacks \
                      together. The axis of time is logarithmic."
            .to_owned(),
        x_title: "Time",
        unit: Unit::Share,
        x_axis: XAxis::Durations,
        panels,
    };
    (!lines.panels.is_empty()).then(|| lines.plot())
}

/// The nodes of the measured trials of a cell that recorded a distribution.
fn recorded<'a>(index: &ResultsIndex<'a>, cell: &Cell, distribution: Distribution) -> Vec<&'a Measured> {
    let completed = index.completed_trials(cell);
    let nodes = completed.flat_map(|record| record.nodes.values());
    // Receivers measure the one-way delay, and clients everything else.
    let measures = |role| match distribution {
        Distribution::OneWay => role != Role::Relay,
        _ => role == Role::Client,
    };
    let measured = nodes
        .filter(|node| measures(node.role))
        .map(|node| &node.measured);
    measured
        .filter(|measured| measured.histograms.contains_key(&distribution))
        .collect()
}

fn points(all: &Recorder) -> Vec<Point> {
    let point = |step: u32| {
        let share = f64::from(step) / f64::from(STEPS);
        Point {
            x: all.value_at_quantile(share) as f64 / 1e9,
            y: share,
            interval: None,
        }
    };
    (0..=STEPS).map(point).collect()
}
