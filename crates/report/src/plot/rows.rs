//! Where the panels of a plot stand.

use super::canvas::{Canvas, MARGIN, heading_height};

/// Rows, each of panels side by side.
pub(super) struct PanelRows<'a, P, S> {
    /// From one panel to the next.
    width: i32,
    /// Where a heading starts, from the left of its panel, and the width of a heading.
    heading: (i32, i32),
    title: fn(&P) -> &str,
    /// The panels of a row, what they share, and heights: what headings take beyond the first lines, and the
    /// rest.
    rows: Vec<(&'a [P], S, [i32; 2])>,
}

impl<'a, P, S> PanelRows<'a, P, S> {
    /// Rows of panels, what those share, and a height with headings of one line.
    pub(super) fn new(
        rows: impl Iterator<Item = (&'a [P], S, i32)>,
        width: i32,
        heading: (i32, i32),
        title: fn(&P) -> &str,
    ) -> Self {
        let rows = rows.map(|(panels, shared, height)| {
            let more = heading_height(panels.iter().map(title), heading.1);
            (panels, shared, [more, height])
        });
        Self {
            width,
            heading,
            title,
            rows: rows.collect(),
        }
    }

    /// The height of all rows.
    pub(super) fn height(&self) -> i32 {
        self.rows.iter().flat_map(|(.., heights)| heights).sum()
    }

    /// Draws headings, and what `paint` draws below the first lines of them, from `top` on.
    pub(super) fn paint(&self, canvas: &Canvas<'_>, top: i32, paint: impl Fn(&P, &S, (i32, i32))) {
        let (inset, width) = self.heading;
        let mut y = top;
        for (panels, shared, [more, height]) in &self.rows {
            for (panel, x) in panels.iter().zip((MARGIN..).step_by(self.width as usize)) {
                canvas.heading((x + inset, y + 14), width, (self.title)(panel));
                paint(panel, shared, (x, y + more));
            }
            y += more + height;
        }
    }
}
