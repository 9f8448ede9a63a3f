//! An SVG to draw on, and the shapes that plots are made of.

use std::cell::RefCell;

use plotters::{
    coord::Shift,
    prelude::{Circle, DrawingArea, IntoDrawingArea as _, PathElement, Polygon, Rectangle, SVGBackend},
    style::{Color, RGBColor, ShapeStyle, TextStyle, text_anchor::HPos},
};

use super::theme::{self, HEADING, LABEL, Look, Marker, TITLE};

/// Width of all plots, in pixels.
pub(super) const WIDTH: i32 = 960;
/// Space around everything.
pub(super) const MARGIN: i32 = 16;

/// A plot shows this number of panels at most: nobody reads more, and pages have to stay small.
pub(super) const MOST_PANELS: usize = 24;
/// The highest plot that a screen shows whole, in pixels.
const SCREEN: i32 = 900;
/// About the largest number of marks with hover text, so that pages stay small.
const MOST_HINTS: usize = 1200;
/// Multiples of it are spread evenly over the numbers from 0 to 1, so that no series of marks has all hints.
const GOLDEN_RATIO: f64 = 0.618_034;

/// A plot.
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) svg: String,
    hints: String,
    height: i32,
}

impl Plot {
    /// Whether it is higher than a screen.
    pub(crate) fn is_high(&self) -> bool {
        self.height > SCREEN
    }

    /// The picture for a page, where a mark says its value while the pointer is on it.
    pub(crate) fn with_hints(&self) -> String {
        match self.svg.rsplit_once("</svg>") {
            Some((drawn, end)) => format!("{drawn}{}</svg>{end}", self.hints),
            None => self.svg.clone(),
        }
    }
}

/// A drawing in progress. Writing to memory cannot fail, so the backend's errors are of no interest.
pub(super) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
    /// Of marks, and of headings that are too long to be shown whole.
    hints: [RefCell<Vec<String>>; 2],
}

/// Draws a plot of the given height under a title, which is also what screen readers say.
pub(super) fn draw(title: &str, description: &str, height: i32, paint: impl FnOnce(&Canvas<'_>)) -> Plot {
    let mut svg = String::new();
    let [marks, headings] = {
        let size = (WIDTH.unsigned_abs(), height.unsigned_abs());
        let canvas = Canvas {
            area: SVGBackend::with_string(&mut svg, size).into_drawing_area(),
            hints: Default::default(),
        };
        let longest = theme::room(WIDTH - 2 * MARGIN, TITLE);
        canvas.text(
            (MARGIN, MARGIN + 8),
            &theme::shortened(title, longest),
            TITLE,
            HPos::Left,
            true,
        );
        paint(&canvas);
        let _ = canvas.area.present();
        canvas.hints.map(RefCell::into_inner)
    };
    let share = MOST_HINTS as f64 / marks.len() as f64;
    let is_kept = |(place, _): &(usize, String)| (*place as f64 * GOLDEN_RATIO).fract() < share;
    let marks = marks
        .into_iter()
        .enumerate()
        .filter(is_kept)
        .map(|(_, mark)| mark);
    let hints: String = marks.chain(headings).collect();
    let hints = match hints.is_empty() {
        true => hints,
        false => format!("<g fill=\"none\" pointer-events=\"all\">\n{hints}</g>\n"),
    };
    let told = format!(
        " role=\"img\"><title>{}</title><desc>{}</desc>",
        escaped(title),
        escaped(description)
    );
    Plot {
        title: title.to_owned(),
        svg: svg.replacen('>', &told, 1),
        hints,
        height,
    }
}

impl Canvas<'_> {
    pub(super) fn text(&self, at: (i32, i32), text: &str, size: f64, side: HPos, bold: bool) {
        self.styled(at, text, &theme::text(size, side, bold));
    }

    /// A label in the middle of an area of another colour than the page.
    pub(super) fn label_on(&self, at: (i32, i32), text: &str, color: &RGBColor) {
        self.styled(at, text, &theme::text(LABEL, HPos::Center, false).color(color));
    }

    fn styled(&self, at: (i32, i32), text: &str, style: &TextStyle<'_>) {
        let printable: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let _ = self.area.draw_text(&printable, style, at);
    }

    pub(super) fn line(&self, points: Vec<(i32, i32)>, color: &impl Color, width: u32) {
        let style = ShapeStyle {
            color: color.to_rgba(),
            filled: false,
            stroke_width: width,
        };
        let _ = self.area.draw(&PathElement::new(points, style));
    }

    pub(super) fn filled(&self, points: Vec<(i32, i32)>, color: &impl Color) {
        let _ = self.area.draw(&Polygon::new(points, color.filled()));
    }

    pub(super) fn rectangle(&self, corners: [(i32, i32); 2], color: &impl Color, filled: bool) {
        let style = ShapeStyle {
            color: color.to_rgba(),
            filled,
            stroke_width: 1,
        };
        let _ = self.area.draw(&Rectangle::new(corners, style));
    }

    /// The heading of a panel that ends at `right`. A pointer on it shows what is cut off.
    pub(super) fn heading(&self, (x, y): (i32, i32), right: i32, text: &str) {
        let shown = theme::shortened(text, theme::room(right - x, HEADING));
        self.text((x, y), &shown, HEADING, HPos::Left, true);
        if shown != text {
            let [_, headings] = &self.hints;
            headings
                .borrow_mut()
                .push(hint([(x, y - 14), (right, y + 6)], text));
        }
    }

    /// What a mark between these corners says while the pointer is on it.
    pub(super) fn hint(&self, corners: [(i32, i32); 2], text: &str) {
        let [marks, _] = &self.hints;
        marks.borrow_mut().push(hint(corners, text));
    }

    /// A line with ends, from one value to another on the same height or beside each other.
    pub(super) fn whisker(&self, from: (i32, i32), to: (i32, i32), color: &impl Color) {
        let (dx, dy) = if from.1 == to.1 { (0, 5) } else { (5, 0) };
        self.line(vec![from, to], color, 2);
        for (x, y) in [from, to] {
            self.line(vec![(x - dx, y - dy), (x + dx, y + dy)], color, 2);
        }
    }

    pub(super) fn marker(&self, (x, y): (i32, i32), look: Look) {
        let color = &look.color;
        match look.marker {
            Marker::Circle => {
                let _ = self.area.draw(&Circle::new((x, y), 4, color.filled()));
            }
            Marker::Ring => {
                let _ = self.area.draw(&Circle::new((x, y), 4, color.stroke_width(2)));
            }
            Marker::Square => self.rectangle([(x - 4, y - 4), (x + 4, y + 4)], color, true),
            Marker::Triangle => self.filled(vec![(x, y - 5), (x + 5, y + 4), (x - 5, y + 4)], color),
            Marker::Diamond => self.filled(vec![(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)], color),
            Marker::Halo => {
                let _ = self.area.draw(&Circle::new((x, y), 8, color.stroke_width(1)));
            }
            Marker::Cross => {
                for rise in [-5, 5] {
                    self.line(vec![(x - 5, y - rise), (x + 5, y + rise)], color, 2);
                }
            }
        }
    }

    /// Says how many panels are not drawn, if there are any.
    pub(super) fn left_out(&self, y: i32, panels: usize) {
        if panels > 0 {
            let text = format!("{panels} more panels are not drawn: results.json has their values.");
            self.text((MARGIN, y), &text, LABEL, HPos::Left, false);
        }
    }

    /// Series by name, in as many lines as they need from `top` on.
    pub(super) fn legend(&self, top: i32, series: &[(String, Look)]) {
        for ((name, look), (x, y)) in series.iter().zip(legend_places(series)) {
            let y = top + y;
            if !look.is_remark() {
                self.line(vec![(x, y), (x + 24, y)], &look.color, 2);
            }
            self.marker((x + 12, y), *look);
            self.text((x + 30, y), name, LABEL, HPos::Left, false);
        }
    }
}

const LEGEND_LINE: i32 = 22;

/// Height that a legend takes.
pub(super) fn legend_height(series: &[(String, Look)]) -> i32 {
    legend_places(series).last().map_or(0, |(_, y)| y + LEGEND_LINE)
}

fn legend_places(series: &[(String, Look)]) -> Vec<(i32, i32)> {
    let (mut x, mut y) = (MARGIN, 0);
    series
        .iter()
        .map(|(name, _)| {
            let width = 30 + theme::width(name, LABEL) + 14;
            if x > MARGIN && x + width > WIDTH - MARGIN {
                (x, y) = (MARGIN, y + LEGEND_LINE);
            }
            let place = (x, y);
            x += width;
            place
        })
        .collect()
}

fn hint([(left, top), (right, bottom)]: [(i32, i32); 2], text: &str) -> String {
    let (width, height) = ((right - left).max(1), (bottom - top).max(1));
    format!(
        "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"><title>{}</title></rect>\n",
        escaped(text)
    )
}

fn escaped(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    plain
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_marks_some_of_each_series_have_a_hint_and_so_have_long_headings() {
        let plot = draw("title", "", 100, |canvas| {
            canvas.heading((0, 20), 50, "a heading that is too long for its panel");
            for mark in 0..4 * MOST_HINTS {
                canvas.hint([(0, 0), (1, 1)], &format!("series {}", mark % 4));
            }
        });
        let hints = |text: &str| plot.hints.matches(text).count();
        assert_eq!(hints("too long for its panel"), 1);
        for series in 0..4 {
            let of_series = hints(&format!("series {series}"));
            assert!(of_series.abs_diff(MOST_HINTS / 4) < 20, "{of_series}");
        }
    }
}
