//! Panels of horizontal bars with whiskers. Each bar has its name and its value beside it.

use perfrun_contract::units::Unit;
use plotters::style::{Color as _, text_anchor::HPos};

use super::{
    axis::Axis,
    canvas::{self, Canvas, MARGIN, Plot, WIDTH},
    theme::{self, HEADING, LABEL, Look, TITLE},
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
    pub(super) look: Look,
    pub(super) value: f64,
    pub(super) whisker: Option<(f64, f64)>,
    /// What stands beside it.
    pub(super) label: String,
    /// What it says while the pointer is on it.
    pub(super) hint: String,
}

const BAR: i32 = 16;
const BAR_ROW: i32 = 28;
/// Of a panel: its heading, and the labels below.
const TOP: i32 = 34;
const BOTTOM: i32 = 62;

impl Bars {
    pub(super) fn plot(&self) -> Plot {
        let top = MARGIN + TITLE as i32 + 40;
        let bars = || self.rows.iter().flatten().flat_map(|panel| &panel.bars);
        let longest =
            |of: fn(&Bar) -> &str| bars().map(|bar| theme::width(of(bar), LABEL)).max().unwrap_or(0);
        let (names, labels) = (longest(|bar| &bar.name), longest(|bar| &bar.label));
        // Two panels stand side by side where that leaves the bars enough room.
        let most = self.rows.iter().map(Vec::len).max().unwrap_or(1).clamp(1, 2) as i32;
        let room = |columns: i32| (WIDTH - 2 * MARGIN) / columns - names - labels - 40;
        let columns = if room(most) >= 120 { most } else { 1 };
        let lines: Vec<(&[Panel], f64)> = self
            .rows
            .iter()
            .flat_map(|row| {
                row.chunks(columns as usize)
                    .map(move |chunk| (chunk, largest(row)))
            })
            .collect();
        let heights: Vec<i32> = lines.iter().map(|(line, _)| height(line)).collect();
        canvas::draw(
            &self.title,
            &self.description,
            top + heights.iter().sum::<i32>(),
            |canvas| {
                canvas.text((MARGIN, MARGIN + 34), &self.caption, LABEL, HPos::Left, false);
                let width = (WIDTH - 2 * MARGIN) / columns;
                let mut y = top;
                for ((line, largest), height) in lines.iter().zip(&heights) {
                    let axis = Axis::linear(self.unit, *largest);
                    for (i, panel) in line.iter().enumerate() {
                        let x = MARGIN + i as i32 * width;
                        let title = theme::shortened(&panel.title, theme::room(width - names - 20, HEADING));
                        panel.paint(
                            canvas,
                            &axis,
                            &title,
                            (x + names + 10, x + width - labels - 20),
                            y,
                        );
                    }
                    y += height;
                }
            },
        )
    }
}

fn height(line: &[Panel]) -> i32 {
    let bars = line.iter().map(|panel| panel.bars.len()).max().unwrap_or(0);
    TOP + bars as i32 * BAR_ROW + BOTTOM
}

fn largest(row: &[Panel]) -> f64 {
    let bars = row.iter().flat_map(|panel| &panel.bars);
    bars.flat_map(|bar| [bar.value, bar.whisker.map_or(0.0, |whisker| whisker.1)])
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max)
}

impl Panel {
    fn paint(&self, canvas: &Canvas<'_>, axis: &Axis, title: &str, (left, right): (i32, i32), y0: i32) {
        let x_at = |value: f64| left + (axis.place(value) * f64::from(right - left)).round() as i32;
        let (top, bottom) = (y0 + TOP, y0 + TOP + self.bars.len() as i32 * BAR_ROW);
        canvas.text((left, y0 + 14), title, HEADING, HPos::Left, true);
        let mut free_from = i32::MIN;
        for (value, label) in &axis.ticks {
            let x = x_at(*value);
            canvas.line(vec![(x, top), (x, bottom)], &theme::grid(), 1);
            let half = theme::width(label, LABEL) / 2;
            if x - half >= free_from {
                canvas.text((x, bottom + 14), label, LABEL, HPos::Center, false);
                free_from = x + half + 8;
            }
        }
        canvas.text(
            ((left + right) / 2, bottom + 34),
            &axis.with_unit(self.x_title),
            LABEL,
            HPos::Center,
            false,
        );
        for (i, bar) in self.bars.iter().enumerate() {
            let y = top + i as i32 * BAR_ROW + BAR_ROW / 2;
            let corners = [(left, y - BAR / 2), (x_at(bar.value), y + BAR / 2)];
            // Paler than the whisker, which lies on it.
            canvas.rectangle(corners, &bar.look.color.mix(0.6), true);
            canvas.rectangle(corners, &bar.look.color, false);
            let mut end = x_at(bar.value);
            if let Some((low, high)) = bar.whisker {
                canvas.whisker((x_at(low), y), (x_at(high), y), &bar.look.color);
                end = end.max(x_at(high));
            }
            canvas.hint([(left, y - BAR / 2), (end, y + BAR / 2)], &bar.hint);
            canvas.text((left - 8, y), &bar.name, LABEL, HPos::Right, false);
            canvas.text((end + 10, y), &bar.label, LABEL, HPos::Left, false);
        }
        canvas.line(vec![(left, top), (left, bottom)], &theme::TEXT, 1);
    }
}
