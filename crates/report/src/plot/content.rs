//! From the rows of a summary to lines and bars.

use perfrun_contract::{
    metric::Metric,
    parameters::Parameters,
    plan::{Cell, StackPair},
    summary::SummaryRow,
};

use super::{
    bars::{self, Bar, Bars},
    canvas::Plot,
    hover::exact,
    lines::{self, Lines, Point, Series, XAxis},
    select::PanelCells,
    theme::{self, SeriesStyle},
};
use crate::{
    order::{distinct, grouped},
    tables::ResultsIndex,
    units::{self, Scale},
};

/// Longest names of pairs, in characters.
const BAR_NAME_MAX: usize = 41;
const LEGEND_NAME_MAX: usize = 83;

/// Each pair has one look in all plots of a run.
fn style(index: &ResultsIndex<'_>, pair: StackPair<'_>) -> SeriesStyle {
    match index.stack_pair_index(pair) {
        Some(number) => SeriesStyle::series(number),
        None => SeriesStyle::RAW,
    }
}

/// The name and the look of a pair's series.
pub(super) fn series(index: &ResultsIndex<'_>, pair: StackPair<'_>, points: Vec<Point>) -> Series {
    Series {
        name: name(pair, LEGEND_NAME_MAX),
        style: style(index, pair),
        points,
    }
}

/// Lines of a metric over a parameter, a line for each pair. Panels with less than two values of the
/// parameter are left out.
pub(super) struct Sweep<'a> {
    pub(super) subject: String,
    /// What the lines are.
    pub(super) lines: String,
    pub(super) x_title: &'static str,
    pub(super) y_title: &'static str,
    /// The parameter and its name.
    pub(super) x_of: fn(&Parameters) -> Option<(f64, String)>,
    pub(super) panels: Vec<PanelCells<'a>>,
}

impl Sweep<'_> {
    pub(super) fn plot(&self, index: &ResultsIndex<'_>) -> Option<Plot> {
        let panels = self.panels.iter();
        let lines = Lines {
            title: format!("{}: {}", index.results.name, self.subject),
            description: format!(
                "{}, with 95 % confidence intervals as bands. Both axes are logarithmic.",
                self.lines
            ),
            x_title: self.x_title,
            unit: self.panels.first()?.metric.unit(),
            x_axis: XAxis::Values,
            panels: panels
                .filter_map(|panel_cells| self.panel(index, panel_cells))
                .collect(),
        };
        (!lines.panels.is_empty()).then(|| lines.plot())
    }

    fn panel(&self, index: &ResultsIndex<'_>, panel_cells: &PanelCells<'_>) -> Option<lines::Panel> {
        let cells = panel_cells.cells.iter();
        let measured = cells.filter_map(|cell| Some((*cell, index.row(cell, panel_cells.metric)?)));
        let pairs = grouped(measured.map(|(cell, row)| (cell.stack_pair(), (cell, row))));
        let cells = pairs.iter().flat_map(|(_, of_pair)| of_pair);
        let mut x = distinct(cells.filter_map(|(cell, _)| (self.x_of)(&cell.parameters)));
        x.sort_by(|a, b| a.0.total_cmp(&b.0));
        let lines = pairs.iter().map(|(pair, of_pair)| {
            let point = |(cell, row): &(&Cell, &SummaryRow)| {
                Some(Point {
                    x: (self.x_of)(&cell.parameters)?.0,
                    y: row.median,
                    interval: row.interval(),
                })
            };
            let mut points: Vec<Point> = of_pair.iter().filter_map(point).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            series(index, *pair, points)
        });
        let panel = lines::Panel {
            title: panel_cells.title.clone(),
            y_title: self.y_title,
            series: lines.collect(),
            x,
        };
        (panel.x.len() > 1).then_some(panel)
    }
}

/// Panels of bars, those with the same key in a row. Whiskers reach to another metric, or over intervals.
pub(super) fn bar_plot<K: PartialEq>(
    index: &ResultsIndex<'_>,
    subject: &str,
    x_title: &'static str,
    caption: &str,
    panels: Vec<(K, PanelCells<'_>, Option<Metric>)>,
) -> Option<Plot> {
    let unit = panels.first()?.1.metric.unit();
    let panels = panels.into_iter().filter_map(|(key, panel_cells, up_to)| {
        let panel = bars::Panel {
            bars: bars(index, &panel_cells, up_to),
            title: panel_cells.title,
            x_title,
        };
        (!panel.bars.is_empty()).then_some((key, panel))
    });
    let rows: Vec<Vec<bars::Panel>> = grouped(panels).into_iter().map(|(_, row)| row).collect();
    let mut bars = rows.iter().flatten().flat_map(|panel| &panel.bars);
    let caption = if bars.any(|bar| bar.whisker.is_some()) {
        caption
    } else {
        "Bars: median; too few trials for an interval."
    };
    let bars = Bars {
        title: format!("{}: {subject}", index.results.name),
        description: format!(
            "{caption} A panel for each transport, network and setting, a bar for each pair of stacks."
        ),
        caption: caption.to_owned(),
        unit,
        rows,
    };
    (!bars.rows.is_empty()).then(|| bars.plot())
}

/// Bars with intervals, those of a path in a row.
pub(super) fn median_bars(
    index: &ResultsIndex<'_>,
    subject: &str,
    x_title: &'static str,
    remark: &str,
    panels: Vec<PanelCells<'_>>,
) -> Option<Plot> {
    let caption = format!("Bars: median; whiskers: its 95 % confidence interval.{remark}");
    let panels = panels.into_iter().map(|panel| (panel.path, panel, None));
    bar_plot(index, subject, x_title, &caption, panels.collect())
}

/// A bar for each cell that has the metric.
fn bars(index: &ResultsIndex<'_>, panel_cells: &PanelCells<'_>, up_to: Option<Metric>) -> Vec<Bar> {
    let bar = |cell: &&Cell| {
        let row = index.row(cell, panel_cells.metric)?;
        let pair = cell.stack_pair();
        let value = units::text(row.unit, row.median);
        let (whisker, label) = match up_to.map(|metric| index.row(cell, metric)) {
            None => (row.interval(), value),
            Some(None) => (None, value),
            Some(Some(top)) => {
                let scale = Scale::of(row.unit, top.median);
                let label = format!("{} / {}", scale.number(row.median), scale.text(top.median));
                (Some((row.median, top.median)), label)
            }
        };
        let hint = match up_to {
            None => exact(row.unit, row.median, row.interval()),
            Some(_) => label.clone(),
        };
        Some(Bar {
            name: name(pair, BAR_NAME_MAX),
            style: style(index, pair),
            value: row.median,
            whisker,
            label,
            hint: format!("{pair}: {hint}"),
        })
    };
    panel_cells.cells.iter().filter_map(bar).collect()
}

/// A pair's name in at most `longest` characters. What one side does not need, the other gets.
fn name(pair: StackPair<'_>, longest: usize) -> String {
    if pair.is_raw_reference() {
        return pair.to_string();
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
