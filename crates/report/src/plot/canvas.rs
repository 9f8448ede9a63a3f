//! An SVG to draw on, and the shapes that plots are made of.

use std::cell::RefCell;

use plotters::{
    coord::Shift,
    prelude::{Circle, DrawingArea, IntoDrawingArea as _, PathElement, Polygon, Rectangle, SVGBackend},
    style::{Color, RGBColor, ShapeStyle, TextStyle, text_anchor::HPos},
};

use super::theme::{self, HEADING, LABEL, Marker, SeriesStyle, TITLE};

/// Width of plots on a screen, in pixels.
const WIDE: i32 = 960;
/// Width of plots on a phone, in pixels: panels stand below each other, and labels above what they name.
const NARROW: i32 = 380;
/// Space around everything.
pub(super) const MARGIN: i32 = 16;

/// A plot shows this number of panels at most: nobody reads more, and pages have to stay small.
pub(super) const PANELS_MAX: usize = 24;
/// The highest plot that a screen shows whole, in pixels.
const SCREEN: i32 = 900;
/// About the largest number of marks with hover text, so that pages stay small.
const HINTS_MAX: usize = 1200;
/// Multiples of it are spread evenly over the numbers from 0 to 1, so that no series of marks has all hints.
const GOLDEN_RATIO: f64 = 0.618_034;

/// A plot.
pub(crate) struct Plot {
    /// For a screen.
    pub(crate) wide: Drawing,
    /// For a phone.
    pub(crate) narrow: Drawing,
}

impl Plot {
    /// Draws the same for each width.
    pub(super) fn of(draw: impl Fn(i32) -> Drawing) -> Self {
        Self {
            wide: draw(WIDE),
            narrow: draw(NARROW),
        }
    }
}

/// A picture of a plot.
pub(crate) struct Drawing {
    pub(crate) title: String,
    pub(crate) svg: String,
    hints: String,
    height: i32,
}

impl Drawing {
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

/// What stands above the panels, and what screen readers say.
pub(super) struct Heading<'a> {
    pub(super) title: &'a str,
    /// What marks mean; may be empty.
    pub(super) caption: &'a str,
    pub(super) description: &'a str,
}

/// A drawing in progress. Writing to memory cannot fail, so the backend's errors are of no interest.
pub(super) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
    width: i32,
    /// How much lower it is than the page, because the head has more than one line.
    lower: i32,
    hints: RefCell<Vec<String>>,
}

/// Draws a plot of the given size. The height is that of a head with a line of title and one of caption; more
/// lines make it higher.
pub(super) fn draw(
    heading: &Heading<'_>,
    (width, height): (i32, i32),
    paint: impl FnOnce(&Canvas<'_>),
) -> Drawing {
    let mut svg = String::new();
    let inner = width - 2 * MARGIN;
    let title = theme::wrapped(heading.title, inner, TITLE);
    let caption = theme::wrapped(heading.caption, inner, LABEL);
    let more = |lines: &[String], size| (lines.len() as i32 - 1).max(0) * theme::line(size);
    let lower_caption = more(&title, TITLE);
    let lower = lower_caption + more(&caption, LABEL);
    let height = height + lower;
    let marks = {
        let size = (width.unsigned_abs(), height.unsigned_abs());
        let page = Canvas {
            area: SVGBackend::with_string(&mut svg, size).into_drawing_area(),
            width,
            lower: 0,
            hints: RefCell::default(),
        };
        page.lines((MARGIN, MARGIN + 8), &title, TITLE, true);
        page.lines((MARGIN, MARGIN + 34 + lower_caption), &caption, LABEL, false);
        let canvas = Canvas {
            area: page.area.margin(lower, 0, 0, 0),
            lower,
            ..page
        };
        paint(&canvas);
        let _ = canvas.area.present();
        canvas.hints.into_inner()
    };
    let share = HINTS_MAX as f64 / marks.len() as f64;
    let is_kept = |(place, _): &(usize, String)| (*place as f64 * GOLDEN_RATIO).fract() < share;
    let marks = marks.into_iter().enumerate().filter(is_kept);
    let hints: String = marks.map(|(_, mark)| mark).collect();
    let hints = match hints.is_empty() {
        true => hints,
        false => format!("<g fill=\"none\" pointer-events=\"all\">\n{hints}</g>\n"),
    };
    let told = format!(
        " role=\"img\"><title>{}</title><desc>{}</desc>",
        escaped(heading.title),
        escaped(heading.description)
    );
    Drawing {
        title: heading.title.to_owned(),
        svg: svg.replacen('>', &told, 1),
        hints,
        height,
    }
}

impl Canvas<'_> {
    pub(super) fn text(&self, at: (i32, i32), text: &str, size: f64, side: HPos, bold: bool) {
        self.styled(at, text, &theme::text(size, side, bold));
    }

    /// Lines of text, the first of them at a point.
    fn lines(&self, (x, y): (i32, i32), lines: &[String], size: f64, bold: bool) {
        for (text, y) in lines.iter().zip((y..).step_by(theme::line(size) as usize)) {
            self.text((x, y), text, size, HPos::Left, bold);
        }
    }

    /// A label in the middle of an area of another colour than the page.
    pub(super) fn label_on(&self, at: (i32, i32), text: &str, color: &RGBColor) {
        self.styled(at, text, &theme::text(LABEL, HPos::Center, false).color(color));
    }

    fn styled(&self, at: (i32, i32), text: &str, style: &TextStyle<'_>) {
        let _ = self
            .area
            .draw_text(&text.replace(char::is_control, " "), style, at);
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

    /// The x axis below a panel: at each tick what `mark` draws, and its label if that does not overlap the
    /// last one, and then the title.
    pub(super) fn x_axis(
        &self,
        ticks: impl Iterator<Item = (i32, impl AsRef<str>)>,
        mark: impl Fn(i32),
        labels_y: i32,
        title_at: (i32, i32),
        title: &str,
    ) {
        let mut free_from = i32::MIN;
        for (x, label) in ticks {
            mark(x);
            let label = label.as_ref();
            let half = theme::width(label, LABEL) / 2;
            if x - half >= free_from {
                self.text((x, labels_y), label, LABEL, HPos::Center, false);
                free_from = x + half + 8;
            }
        }
        self.text(title_at, title, LABEL, HPos::Center, false);
    }

    /// The heading of a panel, which is `width` pixels wide. [`heading_height`] is what it takes beyond the
    /// first line.
    pub(super) fn heading(&self, at: (i32, i32), width: i32, text: &str) {
        self.lines(at, &theme::wrapped(text, width, HEADING), HEADING, true);
    }

    /// What a mark between these corners says while the pointer is on it.
    pub(super) fn hint(&self, corners: [(i32, i32); 2], text: &str) {
        let [(left, top), (right, bottom)] = corners;
        let (width, height) = ((right - left).max(1), (bottom - top).max(1));
        self.hints.borrow_mut().push(format!(
            "<rect x=\"{left}\" y=\"{}\" width=\"{width}\" height=\"{height}\"><title>{}</title></rect>\n",
            top + self.lower,
            escaped(text)
        ));
    }

    /// A line with ends, from one value to another on the same height or beside each other.
    pub(super) fn whisker(&self, from: (i32, i32), to: (i32, i32), color: &impl Color) {
        let (dx, dy) = if from.1 == to.1 { (0, 5) } else { (5, 0) };
        self.line(vec![from, to], color, 2);
        for (x, y) in [from, to] {
            self.line(vec![(x - dx, y - dy), (x + dx, y + dy)], color, 2);
        }
    }

    pub(super) fn marker(&self, (x, y): (i32, i32), style: SeriesStyle) {
        let color = &style.color;
        match style.marker {
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
            let text = format!("{panels} more panels are left out.");
            self.text((MARGIN, y), &text, LABEL, HPos::Left, false);
        }
    }

    /// Series by name, in as many lines as they need from `top` on.
    pub(super) fn legend(&self, top: i32, series: &[(String, SeriesStyle)]) {
        for ((name, style), (x, y)) in series.iter().zip(legend_places(series, self.width)) {
            let y = top + y;
            if !style.is_remark() {
                self.line(vec![(x, y), (x + 24, y)], &style.color, 2);
            }
            self.marker((x + 12, y), *style);
            let name = theme::shortened(name, legend_room(self.width));
            self.text((x + 30, y), &name, LABEL, HPos::Left, false);
        }
    }
}

/// The height that headings of panels side by side take beyond their first lines, in pixels.
pub(super) fn heading_height<'a>(headings: impl Iterator<Item = &'a str>, width: i32) -> i32 {
    let lines = headings.map(|text| theme::wrapped(text, width, HEADING).len());
    (lines.max().unwrap_or(1) as i32 - 1) * theme::line(HEADING)
}

const LEGEND_LINE: i32 = 22;
/// The width of a mark with the space around its name.
const LEGEND_MARK: i32 = 44;

/// Height that a legend takes.
pub(super) fn legend_height(series: &[(String, SeriesStyle)], width: i32) -> i32 {
    legend_places(series, width)
        .last()
        .map_or(0, |(_, y)| y + LEGEND_LINE)
}

/// The longest name in a legend, in characters.
fn legend_room(width: i32) -> usize {
    theme::room(width - 2 * MARGIN - LEGEND_MARK, LABEL)
}

fn legend_places(series: &[(String, SeriesStyle)], width: i32) -> Vec<(i32, i32)> {
    let end = width - MARGIN;
    let longest = legend_room(width);
    let (mut x, mut y) = (MARGIN, 0);
    series
        .iter()
        .map(|(name, _)| {
            let width = LEGEND_MARK + theme::width(&theme::shortened(name, longest), LABEL);
            if x > MARGIN && x + width > end {
                (x, y) = (MARGIN, y + LEGEND_LINE);
            }
            let place = (x, y);
            x += width;
            place
        })
        .collect()
}

fn escaped(text: &str) -> String {
    text.replace(char::is_control, " ")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_marks_some_of_each_series_have_a_hint() {
        let heading = Heading {
            title: "title",
            caption: "",
            description: "",
        };
        let drawn = draw(&heading, (WIDE, 100), |canvas| {
            for mark in 0..4 * HINTS_MAX {
                canvas.hint([(0, 0), (1, 1)], &format!("series {}", mark % 4));
            }
        });
        for series in 0..4 {
            let of_series = drawn.hints.matches(&format!("series {series}")).count();
            assert!(of_series.abs_diff(HINTS_MAX / 4) < 20, "{of_series}");
        }
    }
}
