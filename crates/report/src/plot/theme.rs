//! How plots look: on white pages and on dark ones, in colour and without.

use plotters::style::{
    Color as _, FontStyle, IntoFont as _, RGBAColor, RGBColor, TextStyle,
    text_anchor::{HPos, Pos, VPos},
};

/// Plots have no background. Text of this grey has a contrast of at least 4.2 to white and to GitHub's dark
/// page.
pub(super) const TEXT: RGBColor = RGBColor(0x77, 0x7b, 0x83);
/// The raw reference, with which others are compared.
const RAW: RGBColor = RGBColor(0x7d, 0x85, 0x90);
/// Distinguishable with the common kinds of colour blindness (after Okabe and Ito), each with a contrast of
/// at least 3 to white and to dark pages. Markers tell series apart where colours repeat.
const SERIES: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x94, 0x6c),
    RGBColor(0xc0, 0x6c, 0x9b),
    RGBColor(0x96, 0x76, 0x1d),
    RGBColor(0x4c, 0x89, 0xd0),
    RGBColor(0xb5, 0x51, 0x6b),
    RGBColor(0x6e, 0x85, 0x2a),
];

/// From the least of a share to all of it: the darker, the more.
const RAMP: [RGBColor; 2] = [RGBColor(0xe3, 0xed, 0xf7), RGBColor(0x08, 0x40, 0x81)];

/// The colour of an area that stands for a share, and that of text on it. Neither depends on the page.
pub(super) fn shade(share: f64) -> [RGBColor; 2] {
    let part =
        |low: u8, high: u8| (f64::from(low) + (f64::from(high) - f64::from(low)) * share).round() as u8;
    let [RGBColor(r0, g0, b0), RGBColor(r1, g1, b1)] = RAMP;
    // Where the contrasts of black and white to the area are equal.
    let text = if share < 0.675 {
        RGBColor(0, 0, 0)
    } else {
        RGBColor(255, 255, 255)
    };
    [RGBColor(part(r0, r1), part(g0, g1), part(b0, b1)), text]
}

/// Text sizes in pixels.
pub(super) const TITLE: f64 = 18.0;
pub(super) const HEADING: f64 = 15.0;
pub(super) const LABEL: f64 = 13.0;

/// Shapes of points.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Ring,
    /// Around another.
    Halo,
    Cross,
}

/// The look of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SeriesStyle {
    pub(super) color: RGBColor,
    pub(super) marker: Marker,
}

impl SeriesStyle {
    pub(super) const RAW: Self = Self {
        color: RAW,
        marker: Marker::Ring,
    };

    /// The style of trials that failed.
    pub(super) const FAILED: Self = Self {
        color: SERIES[1],
        marker: Marker::Cross,
    };

    /// The style of trials that something disturbed.
    pub(super) const DISTURBED: Self = Self {
        color: TEXT,
        marker: Marker::Halo,
    };

    /// Whether it says something about points of other series.
    pub(super) fn is_remark(self) -> bool {
        matches!(self.marker, Marker::Halo | Marker::Cross)
    }

    /// The look of the n-th series that is not the raw reference.
    pub(super) fn series(n: usize) -> Self {
        const MARKERS: [Marker; 4] = [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond];
        // One step more with each round of colours, so that colour and marker together repeat late.
        let marker = MARKERS[(n + n / SERIES.len()) % MARKERS.len()];
        Self {
            color: SERIES[n % SERIES.len()],
            marker,
        }
    }
}

/// Lines behind the data.
pub(super) fn grid() -> RGBAColor {
    TEXT.mix(0.3)
}

/// Text at a point: where the point is, seen from the text.
pub(super) fn text(size: f64, side: HPos, bold: bool) -> TextStyle<'static> {
    // The backend divides by this factor.
    let font = ("sans-serif", size * 1.24).into_font();
    let font = if bold { font.style(FontStyle::Bold) } else { font };
    TextStyle::from(font)
        .color(&TEXT)
        .pos(Pos::new(side, VPos::Center))
}

/// The greatest width of a character, as a share of the text's size. An estimate, because each page chooses
/// its own font.
const CHARACTER: f64 = 0.62;

/// How wide a text is at most, in pixels.
pub(super) fn width(text: &str, size: f64) -> i32 {
    (text.chars().count() as f64 * size * CHARACTER).ceil() as i32
}

/// How many characters fit into some pixels.
pub(super) fn room(width: i32, size: f64) -> usize {
    (f64::from(width) / (size * CHARACTER)) as usize
}

/// From one line of text to the next, in pixels.
pub(super) fn line(size: f64) -> i32 {
    (size * 1.3).ceil() as i32
}

/// A text in lines of at most `width` pixels. Words that are longer than a line are cut.
pub(super) fn wrapped(text: &str, width: i32, size: f64) -> Vec<String> {
    let longest = room(width, size);
    let mut lines: Vec<String> = vec![];
    for word in text.split_whitespace() {
        let word = shortened(word, longest);
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= longest => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// A text cut in its middle to fit: variants of a stack differ at the end as often as at the beginning.
pub(super) fn shortened(text: &str, longest: usize) -> String {
    let length = text.chars().count();
    if length <= longest {
        return text.to_owned();
    }
    let kept = longest.saturating_sub(1);
    let heading: String = text.chars().take(kept.div_ceil(2)).collect();
    let tail: String = text.chars().skip(length - kept / 2).collect();
    format!("{heading}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WCAG 2.2, relative luminance and contrast ratio.
    fn contrast(a: RGBColor, b: RGBColor) -> f64 {
        let linear = |c: u8| {
            let c = f64::from(c) / 255.0;
            if c <= 0.04045 {
                c / 12.92
            } else {
                ((c + 0.055) / 1.055).powf(2.4)
            }
        };
        let luminance = |c: RGBColor| 0.2126 * linear(c.0) + 0.7152 * linear(c.1) + 0.0722 * linear(c.2);
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn everything_is_readable_on_white_and_on_dark_pages() {
        for page in [RGBColor(255, 255, 255), RGBColor(0x0d, 0x11, 0x17)] {
            assert!(contrast(TEXT, page) >= 4.2, "text: {}", contrast(TEXT, page));
            for color in SERIES.iter().chain([&RAW]) {
                assert!(
                    contrast(*color, page) >= 3.0,
                    "{color:?} on {page:?}: {}",
                    contrast(*color, page)
                );
            }
        }
    }

    #[test]
    fn text_on_every_share_is_readable() {
        for percent in 0..=100 {
            let [area, text] = shade(f64::from(percent) / 100.0);
            assert!(
                contrast(area, text) >= 4.5,
                "{percent} %: {}",
                contrast(area, text)
            );
        }
    }

    #[test]
    fn series_styles_repeat_late() {
        let looks: Vec<SeriesStyle> = (0..32).map(SeriesStyle::series).collect();
        for (i, style) in looks.iter().enumerate() {
            assert!(!looks[..i].contains(style), "{i}");
        }
    }

    #[test]
    fn lines_break_between_words_and_no_word_is_lost() {
        let width = width("a line of", LABEL);
        assert_eq!(wrapped("a line of words", width, LABEL), ["a line of", "words"]);
        assert_eq!(wrapped("is incomprehensible", width, LABEL), ["is", "inco…ible"]);
        assert!(wrapped("", width, LABEL).is_empty());
    }

    #[test]
    fn long_texts_keep_both_ends() {
        assert_eq!(shortened("litep2p-next.1", 9), "lite…xt.1");
        assert_eq!(shortened("raw", 9), "raw");
        assert_eq!(shortened("raw", 0), "…");
    }
}
