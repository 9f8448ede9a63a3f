//! A drawing of a dashboard with what its queries give, for pages: no test has a Grafana.

mod charts;
mod table;
mod values;

use std::collections::BTreeSet;

use anyhow::Result;
use maud::{Markup, html};

use super::{
    Answer, Dashboard, Panel, Prometheus, Scope, Series,
    live::{query, step},
};
use crate::pictures::keep;

/// What each drawing says, so that nobody takes it for a picture of Grafana.
pub const SENTENCE: &str =
    "Drawn from the dashboard's queries by cargo xtask pictures; Grafana looks different.";

/// Pixels of a column and of a line of Grafana's grid.
const COLUMN: f64 = 50.0;
const LINE: f64 = 26.0;
const WIDTH: f64 = 24.0 * COLUMN;
/// Pixels above the grid, for the title and the sentence.
const HEAD: f64 = 64.0;
/// Pixels between two panels.
const GAP: f64 = 6.0;
/// Pixels of a panel above its content, for its title.
const TITLE: f64 = 26.0;
/// How often a repeated row is drawn at most.
const REPETITIONS: usize = 2;

/// The size of a panel in pixels.
#[derive(Clone, Copy)]
struct Size {
    width: f64,
    height: f64,
}

/// The time that graphs show, in seconds of Unix time.
#[derive(Clone, Copy)]
struct Span {
    from: f64,
    to: f64,
    /// Seconds between two points.
    step: f64,
}

/// A series with the name that its legend gives.
struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
    /// Whether it is of the first query of its panel.
    is_first: bool,
}

/// A panel at its place.
struct Placed<'a> {
    panel: &'a Panel,
    /// The line of the grid on which it begins.
    line: u32,
    /// The value for which its row is repeated, which of them it is, and their number.
    repeated: Option<(&'a str, usize, usize)>,
}

/// Sends the queries of a dashboard as Grafana would, draws the answers, and keeps the drawing if pictures
/// are kept.
pub async fn keep_picture(prometheus: &Prometheus, dashboard: &Dashboard, scope: &Scope<'_>) -> Result<()> {
    let answers = query(prometheus, dashboard, scope).await?;
    let span = Span {
        from: scope.from,
        to: scope.to,
        step: step(scope),
    };
    let name = dashboard.file.file_stem().unwrap_or_default().display();
    let drawn = drawn(dashboard, &answers, span);
    keep(&format!("dashboards/{name}.svg"), drawn.as_bytes())
}

fn drawn(dashboard: &Dashboard, answers: &[Answer], span: Span) -> String {
    let placed = placed(dashboard, answers);
    let lines = placed.iter().map(|it| it.line + it.panel.grid_pos.h).max();
    let height = HEAD + f64::from(lines.unwrap_or_default()) * LINE;
    let caption = format!("Graphs span {:.0} s. {SENTENCE}", span.to - span.from);
    let picture = html! {
        svg width=(WIDTH) height=(height) viewBox=(format!("0 0 {WIDTH} {height}"))
            xmlns="http://www.w3.org/2000/svg" role="img" font-family="system-ui, sans-serif" font-size="12"
            fill="#1f2328" {
            title { (dashboard.title) }
            rect width="100%" height="100%" fill="#f4f5f5" {}
            text x="10" y="26" font-size="18" font-weight="bold" { (dashboard.title) }
            text x="10" y="48" { (caption) }
            @for one in &placed { (one.drawn(answers, span)) }
        }
    };
    picture.into_string() + "\n"
}

/// All panels of a dashboard, and the first repetitions of its repeated rows.
fn placed<'a>(dashboard: &'a Dashboard, answers: &'a [Answer]) -> Vec<Placed<'a>> {
    let mut placed = vec![];
    let mut shift = 0;
    // A row, and the panels in it.
    for group in dashboard.panels.chunk_by(|_, next| next.kind != "row") {
        let row = &group[0];
        let mut values: Vec<&str> = vec![];
        if row.kind == "row" && row.repeat.is_some() {
            let in_row = |answer: &&Answer| group.iter().any(|panel| panel.title == answer.panel);
            let of_row = answers.iter().filter(in_row);
            values.extend(of_row.filter_map(|answer| answer.repeated_for.as_deref()));
            // Each panel of the row has an answer for each value.
            let mut seen = BTreeSet::new();
            values.retain(|value| seen.insert(*value));
        }
        let ends = group.iter().map(|panel| panel.grid_pos.y + panel.grid_pos.h);
        let height = ends.max().unwrap_or_default() - row.grid_pos.y;
        let count = values.len();
        let repetitions = values.iter().take(REPETITIONS).enumerate();
        let mut repetitions: Vec<_> = repetitions
            .map(|(i, value)| Some((*value, i + 1, count)))
            .collect();
        if repetitions.is_empty() {
            repetitions.push(None);
        }
        for (i, repeated) in repetitions.into_iter().enumerate() {
            if i > 0 {
                shift += height;
            }
            placed.extend(group.iter().map(|panel| Placed {
                panel,
                line: panel.grid_pos.y + shift,
                repeated,
            }));
        }
    }
    placed
}

impl Placed<'_> {
    fn drawn(&self, answers: &[Answer], span: Span) -> Markup {
        let Self {
            panel,
            line,
            repeated,
        } = *self;
        let place = panel.grid_pos;
        let left = f64::from(place.x) * COLUMN + GAP / 2.0;
        let at = format!("translate({left} {})", HEAD + f64::from(line) * LINE);
        if panel.kind == "row" {
            return html! { text transform=(at) x="8" y="18" font-weight="bold" { (self.heading()) } };
        }
        let value = repeated.map(|(value, ..)| value);
        // An annotation may be called like a panel.
        let is_shown = |answer: &&Answer| {
            let is_of_panel = panel.targets.iter().any(|target| target.ref_id == answer.letter);
            let is_of_value = value.is_none() || answer.repeated_for.as_deref() == value;
            is_of_panel && answer.panel == panel.title && is_of_value
        };
        let answers: Vec<&Answer> = answers.iter().filter(is_shown).collect();
        let title = answers
            .first()
            .map_or(panel.title.as_str(), |answer| &answer.title);
        let size = Size {
            width: f64::from(place.w) * COLUMN - GAP,
            height: f64::from(place.h) * LINE - GAP,
        };
        html! {
            g transform=(at) {
                rect width=(size.width) height=(size.height) rx="3" fill="#ffffff" stroke="#d8d9da" {}
                text x="8" y="17" font-weight="bold" { (title) }
                (content(panel, &answers, size, span))
            }
        }
    }

    /// The title of a row.
    fn heading(&self) -> String {
        let Self { panel, repeated, .. } = self;
        match (&panel.repeat, repeated) {
            (Some(variable), Some((value, which, count))) => {
                let title = panel.title.replace(&format!("${variable}"), value);
                format!("{title} (row {which} of {count})")
            }
            _ => panel.title.clone(),
        }
    }
}

fn content(panel: &Panel, answers: &[&Answer], size: Size, span: Span) -> Markup {
    if answers.iter().all(|answer| answer.series.is_empty()) {
        let text = panel.field_config["defaults"]["noValue"]
            .as_str()
            .unwrap_or("No data");
        let [x, y] = [size.width, size.height + TITLE].map(|length| length / 2.0);
        return html! { text x=(x) y=(y) text-anchor="middle" fill="#6e7781" { (text) } };
    }
    match panel.kind.as_str() {
        "table" => table::drawn(panel, answers, size, span.to),
        "heatmap" => charts::heatmap(answers, size, span),
        "state-timeline" => charts::timeline(&curves(panel, answers), size, span),
        "stat" | "gauge" => values::stat(panel, &curves(panel, answers), size),
        "bargauge" => values::bars(panel, &curves(panel, answers), size),
        _ => charts::lines(panel, &curves(panel, answers), size, span),
    }
}

fn curves(panel: &Panel, answers: &[&Answer]) -> Vec<Curve> {
    let mut curves = vec![];
    for answer in answers {
        let target = panel
            .targets
            .iter()
            .position(|target| target.ref_id == answer.letter);
        let legend = target.map_or("", |index| &panel.targets[index].legend_format);
        curves.extend(answer.series.iter().map(|series| Curve {
            name: named(legend, series),
            points: series.points(),
            is_first: target == Some(0),
        }));
    }
    curves
}

/// The name that a legend gives to a series: each `{{label}}` is replaced by its value.
fn named(legend: &str, series: &Series) -> String {
    let mut parts = legend.split("{{");
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (label, rest) = part.split_once("}}").unwrap_or((part, ""));
        name += series.labels.get(label.trim()).map_or("", String::as_str);
        name += rest;
    }
    name.trim().to_owned()
}

/// A text that takes at most this many pixels, with dots for what is left out.
fn cut(text: &str, pixels: f64) -> String {
    // A letter of 12 pixels is about 6.5 wide.
    let letters = (pixels / 6.5).max(1.0) as usize;
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters - 1).collect();
    kept + "…"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Answer, SENTENCE, Span, drawn, named};
    use crate::dashboards::all;

    const SPAN: Span = Span {
        from: 0.0,
        to: 60.0,
        step: 1.0,
    };

    #[test]
    fn a_drawing_has_every_title_and_says_that_it_is_a_drawing() {
        for dashboard in all().unwrap() {
            let drawn = drawn(&dashboard, &[], SPAN);
            assert!(drawn.contains(SENTENCE), "{drawn}");
            for panel in &dashboard.panels {
                let title = format!(">{}</text>", panel.title);
                assert!(drawn.contains(&title), "{}: {title}", dashboard.title);
            }
        }
    }

    /// What a query of each panel of a dashboard has for these values of the variable that repeats its row.
    fn answers(dashboard: &super::Dashboard, values: &[&str]) -> Vec<Answer> {
        let series = json!({ "metric": { "le": "0.5", "cell": "one" }, "values": [[1.0, "2"], [2.0, "3"]] });
        let answer = |panel: &super::Panel, value: &&str| Answer {
            dashboard: dashboard.uid.clone(),
            panel: panel.title.clone(),
            title: panel.title.clone(),
            letter: "A".to_owned(),
            repeated_for: Some((*value).to_owned()),
            expression: String::new(),
            instant: false,
            series: vec![serde_json::from_value(series.clone()).unwrap()],
        };
        let panels = dashboard.shown();
        panels
            .flat_map(|panel| values.iter().map(move |value| (panel, value)))
            .map(|(panel, value)| answer(panel, value))
            .collect()
    }

    #[test]
    fn every_kind_of_panel_is_drawn_and_a_row_is_repeated_twice() {
        for dashboard in all().unwrap() {
            let answers = answers(&dashboard, &["first", "second", "third"]);
            let drawn = drawn(&dashboard, &answers, SPAN);
            assert!(
                !drawn.contains("No data") && !drawn.contains("NaN") && !drawn.contains("inf"),
                "{drawn}"
            );
            if dashboard.uid == "perfrun-stacks" {
                assert!(drawn.contains(">second (row 2 of 3)</text>"), "{drawn}");
                assert!(!drawn.contains("third"), "{drawn}");
            }
        }
    }

    #[test]
    fn a_series_is_named_by_its_labels() {
        let series = json!({ "metric": { "role": "client", "run_node": "client-0" } });
        let series = serde_json::from_value(series).unwrap();
        assert_eq!(named("streams, {{role}}", &series), "streams, client");
        assert_eq!(named("{{run_node}} {{ phase }}", &series), "client-0");
    }
}
