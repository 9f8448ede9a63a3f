//! Panels of horizontal bars with whiskers. Each bar has its name and its value beside it.

use perfrun_contract::units::Unit;
use plotters::style::{Color as _, text_anchor::HPos};

use super::{
    axis::Axis,
    canvas::{self, Canvas, Drawing, Heading, MARGIN, Plot},
    rows::PanelRows,
    theme::{self, LABEL, SeriesStyle, TITLE},
};

/// A plot of rows of panels.
pub(super) struct Bars {
    pub(super) title: String,
    pub(super) description: String,
    /// What the bars and the whiskers are.
    pub(super) caption: String,
    pub(super) unit: Unit,
    /// Panels in a row have the same axis.
    pub(super) rows: Vec<Vec<Panel>>,
}

/// One coordinate system.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x_title: &'static str,
    pub(super) bars: Vec<Bar>,
}

/// One bar.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) style: SeriesStyle,
    pub(super) value: f64,
    pub(super) whisker: Option<(f64, f64)>,
    /// What stands beside it.
    pub(super) label: String,
    /// What it says while the pointer is on it.
    pub(super) hint: String,
}

const BAR: i32 = 16;
const BAR_ROW: i32 = 28;
/// Height of a name above its bar.
const NAME: i32 = 18;
/// The least room for the longest bar.
const ROOM: i32 = 120;
/// Heights in a panel: of its heading, and of the labels below.
const TOP: i32 = 34;
const BOTTOM: i32 = 62;

/// How panels are laid out, in pixels.
struct Layout {
    /// The width of a panel.
    width: i32,
    /// The width of the names beside bars; 0 where they stand above.
    names: i32,
    /// The width of the labels beside bars.
    labels: i32,
    /// From one bar to the next.
    row: i32,
}

impl Bars {
    pub(super) fn plot(&self) -> Plot {
        Plot::of(|width| self.draw(width))
    }

    fn draw(&self, width: i32) -> Drawing {
        let top = MARGIN + TITLE as i32 + 40;
        let bars = || self.rows.iter().flatten().flat_map(|panel| &panel.bars);
        let longest =
            |of: fn(&Bar) -> &str| bars().map(|bar| theme::width(of(bar), LABEL)).max().unwrap_or(0);
        let (names, labels) = (longest(|bar| &bar.name), longest(|bar| &bar.label));
        // Two panels stand side by side where that leaves the bars enough room.
        let most = self.rows.iter().map(Vec::len).max().unwrap_or(1).clamp(1, 2) as i32;
        let room = |columns: i32| (width - 2 * MARGIN) / columns - names - labels - 40;
        let columns = if room(most) >= ROOM { most } else { 1 };
        let is_beside = room(columns) >= ROOM;
        let layout = Layout {
            width: (width - 2 * MARGIN) / columns,
            names: if is_beside { names } else { 0 },
            labels,
            row: if is_beside { BAR_ROW } else { BAR_ROW + NAME },
        };
        let lines = self.rows.iter().flat_map(|row| {
            let chunks = row.chunks(columns as usize);
            chunks.map(|line| {
                let axis = Axis::linear(self.unit, largest(row));
                (line, axis, layout.height(line))
            })
        });
        let heading = (layout.left(), layout.heading());
        let lines = PanelRows::new(lines, layout.width, heading, |panel: &Panel| &panel.title);
        let height = top + lines.height();
        let heading = Heading {
            title: &self.title,
            caption: &self.caption,
            description: &self.description,
        };
        canvas::draw(&heading, (width, height), |canvas| {
            lines.paint(canvas, top, |panel, axis, at| {
                panel.paint(canvas, axis, &layout, at);
            });
        })
    }
}

impl Layout {
    /// Where bars start, from the left of a panel.
    fn left(&self) -> i32 {
        self.names + 10
    }

    /// The width of a heading.
    fn heading(&self) -> i32 {
        self.width - self.left() - 10
    }

    /// The height of panels side by side, with headings of one line.
    fn height(&self, line: &[Panel]) -> i32 {
        let bars = line.iter().map(|panel| panel.bars.len()).max().unwrap_or(0);
        TOP + bars as i32 * self.row + BOTTOM
    }
}

fn largest(row: &[Panel]) -> f64 {
    let bars = row.iter().flat_map(|panel| &panel.bars);
    bars.flat_map(|bar| [bar.value, bar.whisker.map_or(0.0, |whisker| whisker.1)])
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max)
}

impl Panel {
    fn paint(&self, canvas: &Canvas<'_>, axis: &Axis, layout: &Layout, (x0, y0): (i32, i32)) {
        let (left, right) = (x0 + layout.left(), x0 + layout.width - layout.labels - 20);
        let x_at = |value: f64| left + (axis.position(value) * f64::from(right - left)).round() as i32;
        let (top, bottom) = (y0 + TOP, y0 + TOP + self.bars.len() as i32 * layout.row);
        let ticks = axis.ticks.iter().map(|(value, label)| (x_at(*value), label));
        let mark = |x| canvas.line(vec![(x, top), (x, bottom)], &theme::grid(), 1);
        let title_at = ((left + right) / 2, bottom + 34);
        canvas.x_axis(ticks, mark, bottom + 14, title_at, &axis.with_unit(self.x_title));
        for (i, bar) in self.bars.iter().enumerate() {
            let y = top + (i as i32 + 1) * layout.row - BAR_ROW / 2;
            let corners = [(left, y - BAR / 2), (x_at(bar.value), y + BAR / 2)];
            // Paler than the whisker, which lies on it.
            canvas.rectangle(corners, &bar.style.color.mix(0.6), true);
            canvas.rectangle(corners, &bar.style.color, false);
            let mut end = x_at(bar.value);
            if let Some((low, high)) = bar.whisker {
                canvas.whisker((x_at(low), y), (x_at(high), y), &bar.style.color);
                end = end.max(x_at(high));
            }
            canvas.hint([(left, y - BAR / 2), (end, y + BAR / 2)], &bar.hint);
            if layout.names > 0 {
                canvas.text((left - 8, y), &bar.name, LABEL, HPos::Right, false);
            } else {
                let name = theme::shortened(&bar.name, theme::room(layout.heading(), LABEL));
                canvas.text((left + 4, y - NAME), &name, LABEL, HPos::Left, false);
            }
            canvas.text((end + 10, y), &bar.label, LABEL, HPos::Left, false);
        }
        canvas.line(vec![(left, top), (left, bottom)], &theme::TEXT, 1);
    }
}
