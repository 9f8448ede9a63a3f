//! From the rows of a summary to lines and bars.

use perfrun_contract::{
    metric::Metric, node::Sample, plan::Cell, record::NodeRecord, role::Role, summary::SummaryRow,
};

use super::{
    bars::Bar,
    hover::exact,
    lines::{self, Point, Series},
    theme::{self, Look},
};
use crate::{
    tables::{Pair, Source, push_new},
    units::{self, Scale},
};

/// Longest names of pairs, in characters.
const LONGEST_BAR_NAME: usize = 41;
const LONGEST_LEGEND_NAME: usize = 83;

/// Each pair has one look in all plots of a run.
fn look(source: &Source<'_>, pair: Pair<'_>) -> Look {
    match source.place_of(pair) {
        Some(place) => Look::series(place),
        None => Look::RAW,
    }
}

/// The name and the look of a pair's series.
pub(super) fn series(source: &Source<'_>, pair: Pair<'_>, points: Vec<Point>) -> Series {
    Series {
        name: name(pair, LONGEST_LEGEND_NAME),
        look: look(source, pair),
        points,
    }
}

pub(super) fn line_panel(
    source: &Source<'_>,
    cells: &[&Cell],
    x_of: impl Fn(&Cell) -> Option<(f64, String)>,
    (metric, y_title): (Metric, &'static str),
    title: String,
) -> Option<lines::Panel> {
    let (mut x, mut pairs) = (vec![], vec![]);
    for cell in cells.iter().filter(|cell| source.row(cell, metric).is_some()) {
        push_new(&mut pairs, Pair::of(cell));
        x_of(cell).into_iter().for_each(|value| push_new(&mut x, value));
    }
    x.sort_by(|a, b| a.0.total_cmp(&b.0));
    let lines = pairs.iter().map(|&pair| {
        let of_pair = cells.iter().filter(|cell| Pair::of(cell) == pair);
        let point = |cell: &&Cell| {
            let row = source.row(cell, metric)?;
            Some(Point {
                x: x_of(cell)?.0,
                y: row.median,
                interval: interval(row),
            })
        };
        let mut points: Vec<Point> = of_pair.filter_map(point).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        series(source, pair, points)
    });
    let panel = lines::Panel {
        title,
        y_title,
        series: lines.collect(),
        x,
    };
    (panel.x.len() > 1).then_some(panel)
}

/// What nodes of a role measured over time, in the first trial of each cell that counts: a line for each
/// node, with the name and the look that its cell gives it.
pub(super) fn time_panel(
    source: &Source<'_>,
    cells: &[&Cell],
    role: Role,
    (y_title, value): (&'static str, fn(&Sample) -> Option<f64>),
    title: String,
    line_of: impl Fn(&Cell, Vec<Point>) -> Series,
) -> Option<lines::Panel> {
    let lines = |cell: &&Cell| {
        let record = source.counting(cell).find(|record| record.failure.is_none());
        let nodes = record.into_iter().flat_map(|record| record.nodes.values());
        let line = |node: &NodeRecord| {
            let point = |sample: &Sample| {
                Some(Point {
                    x: sample.at_seconds,
                    y: value(sample)?,
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
    lines.iter().any(shows).then_some(lines::Panel {
        title,
        y_title,
        series: lines,
        x: vec![],
    })
}

/// A bar for each cell that has the metric; the whisker reaches to another metric, or over the interval.
pub(super) fn bars(source: &Source<'_>, cells: &[&Cell], metric: Metric, up_to: Option<Metric>) -> Vec<Bar> {
    let bar = |cell: &&Cell| {
        let row = source.row(cell, metric)?;
        let pair = Pair::of(cell);
        let value = units::text(row.unit, row.median);
        let (whisker, label) = match up_to.map(|metric| source.row(cell, metric)) {
            None => (interval(row), value),
            Some(None) => (None, value),
            Some(Some(top)) => {
                let scale = Scale::of(row.unit, top.median);
                let label = format!("{} / {}", scale.number(row.median), scale.text(top.median));
                (Some((row.median, top.median)), label)
            }
        };
        let hint = match up_to {
            None => exact(row.unit, row.median, interval(row)),
            Some(_) => label.clone(),
        };
        Some(Bar {
            name: name(pair, LONGEST_BAR_NAME),
            look: look(source, pair),
            value: row.median,
            whisker,
            label,
            hint: format!("{}: {hint}", pair.label()),
        })
    };
    cells.iter().filter_map(bar).collect()
}

/// A pair's name in at most `longest` characters. What one side does not need, the other gets.
pub(super) fn name(pair: Pair<'_>, longest: usize) -> String {
    if pair.raw {
        return theme::shortened(&pair.label(), longest);
    }
    let room = longest.saturating_sub(" → ".chars().count());
    let server = pair.server.chars().count();
    let client = theme::shortened(pair.client, room.saturating_sub(server).max(room / 2));
    let server = theme::shortened(pair.server, room.saturating_sub(client.chars().count()));
    format!("{client} → {server}")
}

/// The title of an axis within a sentence.
pub(super) fn lowered(title: &str) -> String {
    if title.starts_with("CPU") {
        title.to_owned()
    } else {
        title.to_lowercase()
    }
}

fn interval(row: &SummaryRow) -> Option<(f64, f64)> {
    row.ci95_low.zip(row.ci95_high)
}
