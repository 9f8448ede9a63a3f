//! A forest plot: a row for each comparison, its estimate as a point and its interval as a whisker, and a
//! line where there is no difference.

use plotters::style::{Color as _, text_anchor::HPos};

use super::{
    canvas::{self, Canvas, Drawing, Heading, MARGIN, Plot},
    theme::{self, LABEL, SeriesStyle},
};

/// A forest plot.
pub(super) struct Forest {
    pub(super) title: String,
    pub(super) description: String,
    /// Rows with the same heading stand together.
    pub(super) groups: Vec<(String, Vec<Row>)>,
    /// A band of ratios that count as equal.
    pub(super) equal: (f64, f64),
}

/// One comparison.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) style: SeriesStyle,
    pub(super) ratio: f64,
    /// The ends of the interval; an end that is open reaches the edge.
    pub(super) interval: (Option<f64>, Option<f64>),
    /// What stands beside it.
    pub(super) label: String,
    /// What it says while the pointer is on it.
    pub(super) hint: String,
}

const ROW: i32 = 24;
/// Height of a row whose name and label stand above it.
const HIGH_ROW: i32 = 60;
const LINE: i32 = 18;
const TOP: i32 = 66;
const HEAD: i32 = 28;
const BOTTOM: i32 = 58;
/// The least room for the axis and what is around it.
const AXIS: i32 = 270;
/// Ticks are at multiples of these changes, as shares, on both sides of zero; the first that gives few enough
/// is used. For larger ones, ticks are at powers of four.
const STEPS: [f64; 7] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];
const TICKS_MAX: f64 = 4.0;
const CAPTION: &str = "Points: difference of pairs of neighbouring trials; whiskers: its 95 % confidence interval; grey: counts as equal.";

impl Forest {
    pub(super) fn plot(&self) -> Plot {
        Plot::of(|width| self.draw(width))
    }

    fn draw(&self, width: i32) -> Drawing {
        let rows = || self.groups.iter().flat_map(|(_, rows)| rows);
        let longest =
            |of: fn(&Row) -> &str| rows().map(|row| theme::width(of(row), LABEL)).max().unwrap_or(0);
        let labels = longest(|row| &row.label);
        let inner = width - 2 * MARGIN;
        // Long names leave the axis some room.
        let names = longest(|row| &row.name).min(inner - labels - AXIS);
        let (left, right, height) = match names > 0 {
            true => (MARGIN + names + 10, width - MARGIN - labels - 20, ROW),
            false => (MARGIN, width - MARGIN, HIGH_ROW),
        };
        let head_of = |heading: &str| HEAD + canvas::heading_height([heading].into_iter(), inner);
        let heads: i32 = self.groups.iter().map(|(heading, _)| head_of(heading)).sum();
        let (top, bottom) = (TOP, TOP + heads + rows().count() as i32 * height);
        let heading = Heading {
            title: &self.title,
            caption: CAPTION,
            description: &self.description,
        };
        canvas::draw(&heading, (width, bottom + BOTTOM), |canvas| {
            let reach = self.reach();
            let x_at = |ratio: f64| {
                let place = (ratio.max(f64::MIN_POSITIVE).ln() / reach).clamp(-1.0, 1.0);
                f64::midpoint(f64::from(left), f64::from(right)) + place * f64::from(right - left) / 2.0
            };
            let x_at = |ratio| x_at(ratio).round() as i32;
            let band = [(x_at(self.equal.0), top), (x_at(self.equal.1), bottom)];
            canvas.rectangle(band, &theme::TEXT.mix(0.12), true);
            self.axis(canvas, x_at, reach, (top, bottom));
            let mut y = top;
            for (heading, rows) in &self.groups {
                canvas.heading((MARGIN, y + HEAD / 2), inner, heading);
                y += head_of(heading);
                for row in rows {
                    y += height;
                    let middle = y - ROW / 2;
                    row.paint(canvas, x_at, (left, right), middle);
                    if names > 0 {
                        let name = theme::shortened(&row.name, theme::room(names, LABEL));
                        canvas.text((left - 10, middle), &name, LABEL, HPos::Right, false);
                        canvas.text((right + 14, middle), &row.label, LABEL, HPos::Left, false);
                    } else {
                        let above = [(2, &row.name), (1, &row.label)];
                        for (lines, text) in above {
                            let text = theme::shortened(text, theme::room(inner, LABEL));
                            canvas.text((left, middle - lines * LINE), &text, LABEL, HPos::Left, false);
                        }
                    }
                }
            }
            canvas.line(vec![(x_at(1.0), top), (x_at(1.0), bottom)], &theme::TEXT, 2);
        })
    }

    /// The largest logarithm that is shown: of all ends and estimates, without those that failures make
    /// infinite.
    fn reach(&self) -> f64 {
        let rows = self.groups.iter().flat_map(|(_, rows)| rows);
        let shown = rows.flat_map(|row| [Some(row.ratio), row.interval.0, row.interval.1]);
        let shown = shown.flatten().chain([self.equal.0, self.equal.1]);
        let logs = shown.map(|ratio| ratio.ln().abs()).filter(|log| log.is_finite());
        logs.fold(0.02, f64::max) * 1.1
    }

    fn axis(&self, canvas: &Canvas<'_>, x_at: impl Fn(f64) -> i32, reach: f64, (top, bottom): (i32, i32)) {
        // A change of −50 % is as far from 0 as +100 %: on this axis both are a factor of two.
        let above = ticks(reach);
        let below = above.iter().rev().map(|ratio| 1.0 / ratio);
        let ratios = below.chain([1.0]).chain(above.iter().copied());
        let ticks = ratios.map(|ratio| {
            let label = match ratio == 1.0 {
                true => "0 %".to_owned(),
                false => format!("{:+.0} %", (ratio - 1.0) * 100.0).replace('-', "−"),
            };
            (x_at(ratio), label)
        });
        let mark = |x| canvas.line(vec![(x, top), (x, bottom)], &theme::grid(), 1);
        let title = "Candidate against baseline (logarithmic)";
        canvas.x_axis(ticks, mark, bottom + 14, (x_at(1.0), bottom + 36), title);
    }
}

/// The ratios above one that have a tick, on an axis that ends at the exponential of `reach`.
fn ticks(reach: f64) -> Vec<f64> {
    let most = reach.exp() - 1.0;
    let few = STEPS.into_iter().find(|step| most / step <= TICKS_MAX);
    let places = (1..).map(f64::from);
    if let Some(step) = few {
        let changes = places.map(|place| place * step);
        return changes
            .take_while(|change| *change <= most)
            .map(|change| 1.0 + change)
            .collect();
    }
    let apart = 4_f64.ln() * (reach / (TICKS_MAX * 4_f64.ln())).ceil();
    let logs = places.map(|place| place * apart);
    logs.take_while(|log| *log <= reach).map(f64::exp).collect()
}

impl Row {
    fn paint(&self, canvas: &Canvas<'_>, x_at: impl Fn(f64) -> i32, (left, right): (i32, i32), y: i32) {
        canvas.hint([(left, y - ROW / 2), (right, y + ROW / 2)], &self.hint);
        let (low, high) = self.interval;
        if low.is_some() || high.is_some() {
            let from = low.map_or(left, &x_at);
            let to = high.map_or(right, &x_at);
            canvas.whisker((from, y), (to, y), &self.style.color);
        }
        if self.ratio.is_finite() && self.ratio > 0.0 {
            canvas.marker((x_at(self.ratio), y), self.style);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(reach: f64) -> Vec<f64> {
        let ratios = ticks(reach).into_iter();
        ratios.map(|ratio| (ratio * 100.0).round() / 100.0).collect()
    }

    #[test]
    fn ticks_are_few_and_round_at_any_reach() {
        assert_eq!(rounded(0.03), [1.01, 1.02, 1.03]);
        assert_eq!(rounded(0.5), [1.2, 1.4, 1.6]);
        assert_eq!(rounded(1.5), [2.0, 3.0, 4.0]);
        assert_eq!(rounded(3.3), [4.0, 16.0]);
        assert_eq!(rounded(7.0), [16.0, 256.0]);
        for reach in 1..1000 {
            let ticks = ticks(f64::from(reach) / 50.0);
            assert!((1..=4).contains(&ticks.len()), "{reach}: {ticks:?}");
        }
    }
}
