//! Heat maps: squares with a value each, the darker the better.

use plotters::style::text_anchor::HPos;

use super::{
    canvas::{self, Canvas, Drawing, Heading, MARGIN, PANELS_MAX, Plot},
    rows::PanelRows,
    theme::{self, LABEL, TITLE},
};
use crate::units::PERCENT;

/// Maps that have the same axes.
pub(super) struct HeatMaps {
    pub(super) title: String,
    pub(super) description: String,
    /// What a share is of.
    pub(super) caption: String,
    pub(super) x_title: String,
    pub(super) y_title: String,
    pub(super) maps: Vec<Map>,
}

/// Squares in rows, each as long as there are columns.
pub(super) struct Map {
    pub(super) title: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<(String, Vec<Option<Square>>)>,
}

/// A value.
pub(super) struct Square {
    pub(super) value: String,
    /// How good it is: 1 is as good as what it is compared with.
    pub(super) share: f64,
}

const SQUARE: i32 = 46;
const GAP: i32 = 2;
/// Heights in a map: of its heading and the title of its rows, and of the labels of its columns and their
/// title.
const TOP: i32 = 50;
const BOTTOM: i32 = 62;

impl HeatMaps {
    pub(super) fn plot(&self) -> Plot {
        Plot::of(|width| self.draw(width))
    }

    fn draw(&self, width: i32) -> Drawing {
        let maps = &self.maps[..self.maps.len().min(PANELS_MAX)];
        let labels = maps.iter().flat_map(|map| &map.rows).map(|(label, _)| label);
        let left = labels.map(|label| theme::width(label, LABEL)).max().unwrap_or(0) + 12;
        let widest = maps.iter().map(Map::width).max().unwrap_or(0);
        // A page shows a drawing that is too wide for it smaller.
        let width = width.max(left + widest + 2 * MARGIN);
        let columns = if maps.len() > 1 && 2 * (left + widest + MARGIN) <= width - 2 * MARGIN {
            2
        } else {
            1
        };
        let top = MARGIN + TITLE as i32 + 40;
        let map_width = (width - 2 * MARGIN) / columns as i32;
        let rows = maps.chunks(columns).map(|row| {
            let height = row.iter().map(Map::height).max().unwrap_or(0);
            (row, (), height)
        });
        let rows = PanelRows::new(rows, map_width, (0, map_width - MARGIN), |map: &Map| &map.title);
        let bottom = top + rows.height();
        let heading = Heading {
            title: &self.title,
            caption: &self.caption,
            description: &self.description,
        };
        canvas::draw(&heading, (width, bottom + MARGIN), |canvas| {
            rows.paint(canvas, top, |map, _, (x, y)| {
                self.paint(canvas, map, (x, x + left), y);
            });
            canvas.left_out(bottom + 4, self.maps.len() - maps.len());
        })
    }

    fn paint(&self, canvas: &Canvas<'_>, map: &Map, (x0, left): (i32, i32), y0: i32) {
        canvas.text((x0, y0 + 34), &self.y_title, LABEL, HPos::Left, false);
        let width = map.square();
        let mut y = y0 + TOP;
        for (label, squares) in &map.rows {
            canvas.text((left - 8, y + SQUARE / 2), label, LABEL, HPos::Right, false);
            for (square, x) in squares.iter().zip((left..).step_by(width as usize)) {
                let corners = [(x, y), (x + width - GAP, y + SQUARE - GAP)];
                let middle = (x + (width - GAP) / 2, y + SQUARE / 2);
                match square {
                    Some(square) => square.paint(canvas, corners, middle),
                    None => canvas.rectangle(corners, &theme::grid(), false),
                }
            }
            y += SQUARE;
        }
        for (label, x) in map.columns.iter().zip((left..).step_by(width as usize)) {
            canvas.text((x + width / 2, y + 12), label, LABEL, HPos::Center, false);
        }
        let middle = left + map.width() / 2;
        canvas.text((middle, y + 34), &self.x_title, LABEL, HPos::Center, false);
    }
}

impl Map {
    /// How wide a square is, so that its texts fit.
    fn square(&self) -> i32 {
        let squares = self.rows.iter().flat_map(|(_, squares)| squares).flatten();
        let values = squares.map(|square| &square.value);
        let texts = values.chain(&self.columns).map(|text| theme::width(text, LABEL));
        texts.max().unwrap_or(0).max(SQUARE) + 12
    }

    fn width(&self) -> i32 {
        self.columns.len() as i32 * self.square()
    }

    fn height(&self) -> i32 {
        TOP + self.rows.len() as i32 * SQUARE + BOTTOM
    }
}

impl Square {
    fn paint(&self, canvas: &Canvas<'_>, corners: [(i32, i32); 2], (x, y): (i32, i32)) {
        let [area, text] = theme::shade(self.share.clamp(0.0, 1.0));
        canvas.rectangle(corners, &area, true);
        canvas.label_on((x, y - 9), &self.value, &text);
        canvas.label_on((x, y + 9), &PERCENT.text(self.share), &text);
    }
}
