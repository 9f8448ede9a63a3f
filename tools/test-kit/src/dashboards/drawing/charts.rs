//! Graphs over time.

use std::{collections::BTreeMap, fmt::Write};

use maud::{Markup, html};

use super::{
    Answer, Curve, Panel, Size, Span, TITLE, cut,
    values::{unit, written},
};

/// Colours that colour-blind people can tell apart.
const COLORS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6e7781", "#1f2328",
];
/// Pixels below a graph, for its time axis and its legend.
const FOOT: f64 = 38.0;
/// The number of shades in a heat map.
const SHADES: usize = 4;

/// The place of a graph in its panel.
struct Plot {
    left: f64,
    width: f64,
    height: f64,
    span: Span,
}

impl Plot {
    fn of(size: Size, left: f64, span: Span) -> Self {
        Self {
            left,
            width: size.width - left - 10.0,
            height: size.height - TITLE - FOOT,
            span,
        }
    }

    fn x(&self, time: f64) -> f64 {
        self.left + (time - self.span.from) / (self.span.to - self.span.from) * self.width
    }

    /// A pixel for a share of the height, counted from the bottom.
    fn y(&self, share: f64) -> f64 {
        TITLE + (1.0 - share) * self.height
    }

    /// A line through points, as a path of SVG. Points that are further apart than those of a query are not
    /// joined. A point is a time, and a pixel.
    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        let mut before = f64::NEG_INFINITY;
        for (time, y) in points {
            let x = self.x(time);
            let result = if time - before > 1.5 * self.span.step {
                // A round end makes a dot of a point alone.
                write!(path, "M{x:.1} {y:.1}h0")
            } else {
                write!(path, "L{x:.1} {y:.1}")
            };
            result.expect("a string takes all text");
            before = time;
        }
        path
    }

    /// The axes, with what is written at the ends of the vertical one.
    fn axes(&self, low: &str, high: &str) -> Markup {
        let [bottom, end] = [self.y(0.0), self.left + self.width];
        html! {
            path d=(format!("M{} {TITLE}V{bottom}H{end}", self.left)) fill="none" stroke="#d8d9da" {}
            g fill="#6e7781" text-anchor="end" {
                text x=(self.left - 6.0) y=(TITLE + 10.0) { (high) }
                text x=(self.left - 6.0) y=(bottom) { (low) }
                text x=(end) y=(bottom + 14.0) { (format!("{:.0} s", self.span.to - self.span.from)) }
            }
        }
    }
}

pub(super) fn lines(panel: &Panel, curves: &[Curve], size: Size, span: Span) -> Markup {
    let shown = &curves[..curves.len().min(COLORS.len())];
    let values = shown
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|(_, value)| *value);
    let (low, mut high) = values.fold((0.0, 0.0), |(low, high), value| {
        (f64::min(low, value), f64::max(high, value))
    });
    if high <= low {
        high = low + 1.0;
    }
    let plot = Plot::of(size, 86.0, span);
    let path = |curve: &Curve| {
        let points = curve.points.iter();
        plot.path(points.map(|(time, value)| (*time, plot.y((value - low) / (high - low)))))
    };
    html! {
        (plot.axes(&written(low, unit(panel)), &written(high, unit(panel))))
        @for (curve, color) in shown.iter().zip(COLORS) {
            path d=(path(curve)) fill="none" stroke=(color) stroke-width="1.5" stroke-linecap="round"
                stroke-dasharray=[(!curve.is_first).then_some("5 4")] {}
        }
        (legend(curves, shown.len(), size))
    }
}

/// The names of what is shown, in its colours, as far as they fit on a line.
fn legend(curves: &[Curve], shown: usize, size: Size) -> Markup {
    let width = (size.width - 90.0) / shown.max(1) as f64;
    let more = curves.len() - shown;
    html! {
        @for (i, (curve, color)) in curves[..shown].iter().zip(COLORS).enumerate() {
            text x=(8.0 + i as f64 * width) y=(size.height - 8.0) fill=(color) { (cut(&curve.name, width - 10.0)) }
        }
        @if more > 0 {
            text x=(size.width - 8.0) y=(size.height - 8.0) text-anchor="end" { (format!("{more} more")) }
        }
    }
}

/// Times at which series are above 0, a line for each.
pub(super) fn timeline(curves: &[Curve], size: Size, span: Span) -> Markup {
    const HEIGHT: f64 = 18.0;
    let plot = Plot::of(size, size.width * 0.4, span);
    let fitting = ((plot.height / HEIGHT) as usize).min(curves.len());
    let path = |curve: &Curve, y: f64| {
        let above = curve.points.iter().filter(|(_, value)| *value > 0.0);
        plot.path(above.map(|(time, _)| (*time, y)))
    };
    let more = curves.len() - fitting;
    html! {
        @for (i, curve) in curves[..fitting].iter().enumerate() {
            @let y = TITLE + (i as f64 + 0.5) * HEIGHT;
            text x="8" y=(y + 4.0) { (cut(&curve.name, plot.left - 16.0)) }
            path d=(path(curve, y)) fill="none" stroke=(COLORS[0]) stroke-width="10" stroke-linecap="round" {}
        }
        @if more > 0 {
            text x="8" y=(size.height - 8.0) { (format!("{more} more")) }
        }
    }
}

/// A bucket of a histogram: its upper limit, and what is at most this, by the number of the step.
type Bucket = (f64, BTreeMap<usize, f64>);

fn buckets(answers: &[&Answer], span: Span) -> Vec<Bucket> {
    let series = answers.iter().flat_map(|answer| &answer.series);
    let mut buckets: Vec<Bucket> = series
        .filter_map(|series| {
            let limit = series.labels.get("le")?.parse().ok()?;
            let points = series.points().into_iter();
            let step = |time: f64| ((time - span.from) / span.step).round() as usize;
            Some((limit, points.map(|(time, count)| (step(time), count)).collect()))
        })
        .collect();
    buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    buckets
}

/// What each bucket has more than the one below: the step, the number of the bucket, and the count.
fn cells(buckets: &[Bucket]) -> Vec<(usize, usize, f64)> {
    let mut cells = vec![];
    for (bucket, (_, counts)) in buckets.iter().enumerate() {
        let below = bucket.checked_sub(1).map(|below| &buckets[below].1);
        for (step, count) in counts {
            let below = below.and_then(|below| below.get(step)).copied().unwrap_or(0.0);
            if *count > below {
                cells.push((*step, bucket, count - below));
            }
        }
    }
    cells
}

/// Counts of a histogram over time, darker where there are more.
pub(super) fn heatmap(answers: &[&Answer], size: Size, span: Span) -> Markup {
    let buckets = buckets(answers, span);
    let cells = cells(&buckets);
    let of_bucket = |(_, bucket, _): &(usize, usize, f64)| *bucket;
    let first = cells.iter().map(of_bucket).min().unwrap_or_default();
    let last = cells.iter().map(of_bucket).max().unwrap_or_default();
    let most = cells.iter().map(|(.., count)| *count).fold(0.0, f64::max);
    let plot = Plot::of(size, 86.0, span);
    let rows = (last - first + 1) as f64;
    let [width, height] = [plot.width * span.step / (span.to - span.from), plot.height / rows];
    let mut shades = [const { String::new() }; SHADES];
    for (step, bucket, count) in cells {
        let shade = (count / most * SHADES as f64).ceil() as usize;
        let x = plot.x(span.from + step as f64 * span.step) - width / 2.0;
        let y = plot.y((bucket - first + 1) as f64 / rows);
        let path = &mut shades[shade.clamp(1, SHADES) - 1];
        write!(path, "M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z").expect("a string takes all text");
    }
    let limit = |bucket: usize| buckets.get(bucket).map_or(0.0, |(limit, _)| *limit);
    let low = bucket_name(first.checked_sub(1).map_or(0.0, limit));
    html! {
        (plot.axes(&low, &bucket_name(limit(last))))
        @for (i, path) in shades.iter().enumerate() {
            path d=(path) fill=(COLORS[0]) fill-opacity=((i + 1) as f64 / SHADES as f64) {}
        }
    }
}

fn bucket_name(limit: f64) -> String {
    if limit.is_finite() {
        written(limit, "s")
    } else {
        "more".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Plot, Size, Span, cells};

    #[test]
    fn a_line_ends_where_points_are_missing() {
        let span = Span {
            from: 0.0,
            to: 10.0,
            step: 1.0,
        };
        let size = Size {
            width: 110.0,
            height: 164.0,
        };
        let plot = Plot::of(size, 0.0, span);
        let points = [(0.0, 5.0), (1.0, 6.0), (4.0, 7.0)];
        assert_eq!(plot.path(points.into_iter()), "M0.0 5.0h0L10.0 6.0M40.0 7.0h0");
    }

    #[test]
    fn a_cell_has_what_its_bucket_has_more_than_the_one_below() {
        let buckets = vec![
            (0.001, BTreeMap::from([(0, 2.0)])),
            (0.01, BTreeMap::from([(0, 2.0), (1, 3.0)])),
            (f64::INFINITY, BTreeMap::from([(0, 5.0), (1, 3.0)])),
        ];
        assert_eq!(cells(&buckets), [(0, 0, 2.0), (1, 1, 3.0), (0, 2, 3.0)]);
    }
}
