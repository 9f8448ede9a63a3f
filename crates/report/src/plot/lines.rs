//! Panels of lines: over a logarithmic axis, with bands for intervals, or over time. Panels of points over a
//! run, and of shares up to a time.

use perfrun_contract::units::Unit;
use plotters::style::{Color as _, text_anchor::HPos};

use super::{
    axis::Axis,
    canvas::{self, Canvas, Drawing, Heading, MARGIN, PANELS_MAX, Plot},
    hover::exact,
    rows::PanelRows,
    theme::{self, LABEL, SeriesStyle, TITLE},
};
use crate::units;

/// A plot of one or more panels with the same series.
pub(super) struct Lines {
    pub(super) title: String,
    pub(super) description: String,
    pub(super) x_title: &'static str,
    pub(super) unit: Unit,
    pub(super) x_axis: XAxis,
    pub(super) panels: Vec<Panel>,
}

/// What lines go over.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum XAxis {
    /// The values of each panel; both axes are logarithmic.
    Values,
    /// Seconds; both axes are linear, from zero on. There are too many points to mark.
    Time,
    /// Seconds since the start of the run, linear; y is logarithmic. Points are single ones.
    Run,
    /// Durations; the axis is logarithmic. y is a share from 0 to 1. Points are not marked.
    Durations,
}

impl XAxis {
    fn has_lines(self) -> bool {
        self != Self::Run
    }

    fn has_markers(self) -> bool {
        matches!(self, Self::Values | Self::Run)
    }

    fn x_axis(self, panel: &Panel, all: &[Panel]) -> Axis {
        match self {
            Self::Values => Axis::categories(panel.x.clone()),
            Self::Time => Axis::linear(Unit::Seconds, panel.x_values().fold(0.0, f64::max)),
            Self::Run => {
                let whole = all.iter().flat_map(Panel::x_values);
                Axis::linear(Unit::Seconds, whole.fold(0.0, f64::max))
            }
            Self::Durations => Axis::logarithmic(Unit::Seconds, panel.x_values()),
        }
    }

    fn y_axis(self, unit: Unit, values: impl Iterator<Item = f64>) -> Axis {
        match self {
            Self::Values | Self::Run => Axis::logarithmic(unit, values),
            Self::Time => Axis::linear(unit, values.fold(0.0, f64::max)),
            Self::Durations => Axis::linear(unit, 1.0),
        }
    }
}

/// One coordinate system.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) y_title: &'static str,
    /// Values of the x axis and their names, over values.
    pub(super) x: Vec<(f64, String)>,
    pub(super) series: Vec<Series>,
}

/// One line, or points of one kind.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) style: SeriesStyle,
    pub(super) points: Vec<Point>,
}

/// A value with its interval, if it has one.
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) interval: Option<(f64, f64)>,
}

const PANEL_HEIGHT: i32 = 344;
/// Margins of a panel: for its heading, for the labels of y, for those of x, and at the end.
const TOP: i32 = 52;
const LEFT: i32 = 92;
const BOTTOM: i32 = 56;
const RIGHT: i32 = 18;
/// The least width of a panel beside another.
const NARROWEST: i32 = 320;
/// From a point to where the pointer is still on it.
const REACH: i32 = 6;

impl Lines {
    pub(super) fn plot(&self) -> Plot {
        Plot::of(|width| self.draw(width))
    }

    fn draw(&self, width: i32) -> Drawing {
        let legend = self.legend();
        let top = MARGIN + TITLE as i32 + 20;
        let first = top + canvas::legend_height(&legend, width);
        let panels = &self.panels[..self.panels.len().min(PANELS_MAX)];
        let columns = if panels.len() == 1 || width < 2 * NARROWEST {
            1
        } else {
            2
        };
        let panel_width = (width - 2 * MARGIN) / columns as i32;
        // Two neighbours are compared, so they have the same scale.
        let rows = panels.chunks(2).flat_map(|pair| {
            let axis = self.y_axis(pair);
            pair.chunks(columns)
                .map(move |row| (row, axis.clone(), PANEL_HEIGHT))
        });
        let heading = (0, panel_width - RIGHT);
        let rows = PanelRows::new(rows, panel_width, heading, |panel: &Panel| &panel.title);
        let bottom = first + rows.height();
        let heading = Heading {
            title: &self.title,
            caption: "",
            description: &self.description,
        };
        canvas::draw(&heading, (width, bottom + MARGIN), |canvas| {
            canvas.legend(top, &legend);
            canvas.left_out(bottom + 4, self.panels.len() - panels.len());
            rows.paint(canvas, first, |panel, axis, at| {
                self.panel(canvas, panel, axis, at, panel_width);
            });
        })
    }

    fn y_axis(&self, panels: &[Panel]) -> Axis {
        let series = panels.iter().flat_map(|panel| &panel.series);
        let values = series.flat_map(|series| &series.points).flat_map(Point::extent);
        self.x_axis.y_axis(self.unit, values)
    }

    fn legend(&self) -> Vec<(String, SeriesStyle)> {
        let mut legend: Vec<(String, SeriesStyle)> = vec![];
        for series in self.panels.iter().flat_map(|panel| &panel.series) {
            if !legend.iter().any(|(name, _)| *name == series.name) {
                legend.push((series.name.clone(), series.style));
            }
        }
        legend
    }

    /// What a point says while the pointer is on it.
    fn hint(&self, panel: &Panel, series: &Series, point: &Point) -> String {
        let named = panel.x.iter().find(|(x, _)| *x == point.x);
        let x = named.map_or_else(|| units::text(Unit::Seconds, point.x), |(_, name)| name.clone());
        format!(
            "{}, {x}: {}",
            series.name,
            exact(self.unit, point.y, point.interval)
        )
    }

    fn panel(&self, canvas: &Canvas<'_>, panel: &Panel, y_axis: &Axis, (x0, y0): (i32, i32), width: i32) {
        let (left, right) = (x0 + LEFT, x0 + width - RIGHT);
        let (top, bottom) = (y0 + TOP, y0 + PANEL_HEIGHT - BOTTOM);
        let x_axis = self.x_axis.x_axis(panel, &self.panels);
        let x_at = |value: f64| left + (x_axis.position(value) * f64::from(right - left)).round() as i32;
        let y_at = |value: f64| bottom - (y_axis.position(value) * f64::from(bottom - top)).round() as i32;

        let y_title = y_axis.with_unit(panel.y_title);
        canvas.text((x0, y0 + 30), &y_title, LABEL, HPos::Left, false);
        for (value, label) in &y_axis.ticks {
            let y = y_at(*value);
            canvas.line(vec![(left, y), (right, y)], &theme::grid(), 1);
            canvas.text((left - 8, y), label, LABEL, HPos::Right, false);
        }
        canvas.line(vec![(left, bottom), (right, bottom)], &theme::TEXT, 1);
        let ticks = x_axis.ticks.iter().map(|(value, label)| (x_at(*value), label));
        let mark = |x| canvas.line(vec![(x, bottom), (x, bottom + 4)], &theme::TEXT, 1);
        let title_at = ((left + right) / 2, bottom + 38);
        canvas.x_axis(
            ticks,
            mark,
            bottom + 16,
            title_at,
            &x_axis.with_unit(self.x_title),
        );
        for series in &panel.series {
            band(canvas, series, x_at, y_at);
        }
        for series in &panel.series {
            let points: Vec<(i32, i32)> = series
                .points
                .iter()
                .map(|point| (x_at(point.x), y_at(point.y)))
                .collect();
            // A remark would hide what it is about.
            let hinted = series.points.iter().filter(|_| !series.style.is_remark());
            for (point, (x, y)) in hinted.zip(&points) {
                let corners = [(x - REACH, y - REACH), (x + REACH, y + REACH)];
                canvas.hint(corners, &self.hint(panel, series, point));
            }
            if self.x_axis.has_lines() {
                canvas.line(points.clone(), &series.style.color, 2);
            }
            if self.x_axis.has_markers() {
                for point in &points {
                    canvas.marker(*point, series.style);
                }
            }
        }
    }
}

/// Intervals as a band around the line; around a single point, as a whisker.
fn band(canvas: &Canvas<'_>, series: &Series, x_at: impl Fn(f64) -> i32, y_at: impl Fn(f64) -> i32) {
    let ends = |point: &Point| {
        point
            .interval
            .map(|(low, high)| (x_at(point.x), y_at(low), y_at(high)))
    };
    let known: Vec<(i32, i32, i32)> = series.points.iter().filter_map(ends).collect();
    match known.as_slice() {
        [] => {}
        [(x, low, high)] => canvas.whisker((*x, *low), (*x, *high), &series.style.color),
        _ => {
            let upper = known.iter().map(|(x, _, high)| (*x, *high));
            let lower = known.iter().rev().map(|(x, low, _)| (*x, *low));
            canvas.filled(upper.chain(lower).collect(), &series.style.color.mix(0.22));
        }
    }
}

impl Panel {
    fn x_values(&self) -> impl Iterator<Item = f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        points.map(|point| point.x)
    }
}

impl Point {
    fn extent(&self) -> impl Iterator<Item = f64> {
        [
            Some(self.y),
            self.interval.map(|i| i.0),
            self.interval.map(|i| i.1),
        ]
        .into_iter()
        .flatten()
    }
}
