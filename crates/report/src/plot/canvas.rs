//! An SVG to draw on, and the shapes that plots are made of.

use std::cell::RefCell;

use plotters::{
    coord::Shift,
    prelude::{Circle, DrawingArea, IntoDrawingArea as _, PathElement, Polygon, Rectangle, SVGBackend},
    style::{Color, RGBColor, ShapeStyle, TextStyle, text_anchor::HPos},
};

use super::theme::{self, LABEL, Look, Marker, TITLE};

/// Width of all plots, in pixels.
pub(super) const WIDTH: i32 = 960;
/// Space around everything.
pub(super) const MARGIN: i32 = 16;

/// A plot shows this number of panels at most: nobody reads more, and pages have to stay small.
pub(super) const MOST_PANELS: usize = 24;
/// The highest plot that a screen shows whole, in pixels.
const SCREEN: i32 = 900;
/// The largest number of marks with hover text, so that pages stay small. Of more marks, some in equal
/// distances have one.
const MOST_HINTS: usize = 1200;

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
    hints: RefCell<Vec<String>>,
}

/// Draws a plot of the given height under a title, which is also what screen readers say.
pub(super) fn draw(title: &str, description: &str, height: i32, paint: impl FnOnce(&Canvas<'_>)) -> Plot {
    let mut svg = String::new();
    let hints = {
        let size = (WIDTH.unsigned_abs(), height.unsigned_abs());
        let canvas = Canvas {
            area: SVGBackend::with_string(&mut svg, size).into_drawing_area(),
            hints: RefCell::default(),
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
        canvas.hints.into_inner()
    };
    let step = hints.len().div_ceil(MOST_HINTS).max(1);
    let hints: String = hints.into_iter().step_by(step).collect();
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

    /// What a mark between these corners says while the pointer is on it.
    pub(super) fn hint(&self, [(left, top), (right, bottom)]: [(i32, i32); 2], text: &str) {
        let (width, height) = ((right - left).max(1), (bottom - top).max(1));
        self.hints.borrow_mut().push(format!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"><title>{}</title></rect>\n",
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
