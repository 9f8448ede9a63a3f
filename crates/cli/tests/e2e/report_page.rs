//! report.html, read by a real browser: what it shows is what results.json has.

use std::collections::BTreeMap;

use fantoccini::Client;
use perfrun_api::results::Results;
use perfrun_contract::{
    distribution::Distribution,
    measure::merged,
    metric::Metric,
    node::Reason,
    record::Flag,
    role::Role,
    units::{self, Unit},
};
use perfrun_test_kit::results::run;
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    browser::{Driver, PHONE_WIDTH, Screen},
    perfrun::Scratch,
};

const SPEC: &str = "
  workload: {ping: {count: 500}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], networks: [none, far, lossy, both], rawReference: false}
  networks:
    - {name: far, delay: 5ms}
    - {name: lossy, loss: 1%}
    - {name: both, delay: 5ms, loss: 1%}
  iterations: 8
";

/// What the first panel of a plot is of.
const FIRST_CELL: usize = 0;

/// Everything in plots, by the name of the plot.
const PLOTS: &str = r#"
    const number = (element, name) => Number(element.getAttribute(name));
    const read = (svg) => ({
        texts: [...svg.querySelectorAll("text")].map((text) => ({
            x: number(text, "x"), y: number(text, "y"), text: text.textContent.trim(),
        })),
        circles: [...svg.querySelectorAll("circle")].map((circle) => ({
            x: number(circle, "cx"), y: number(circle, "cy"), radius: number(circle, "r"),
        })),
        lines: [...svg.querySelectorAll("polyline")].map((line) =>
            line.getAttribute("points").trim().split(/\s+/).map((point) => point.split(",").map(Number))),
    });
    return Object.fromEntries(
        [...document.querySelectorAll("figure")].map((figure) => [figure.id, read(figure.querySelector("svg"))]));
"#;

const VALUES: &str = r#"
    return [...document.querySelectorAll("td[data-cell]")].map((field) =>
        [field.dataset.cell, field.dataset.metric, Number(field.dataset.value), field.textContent]);
"#;

/// Each text of each drawing that this screen shows: its size on the screen, and whether a part of it is
/// outside its drawing.
const LABELS: &str = r#"
    const isShown = (text) => getComputedStyle(text.closest("figure div")).display !== "none";
    return [...document.querySelectorAll("svg text")].filter(isShown).map((text) => {
        const [whole, own] = [text.ownerSVGElement, text].map((element) => element.getBoundingClientRect());
        return {
            text: text.textContent.trim(),
            pixels: parseFloat(getComputedStyle(text).fontSize) * text.ownerSVGElement.getScreenCTM().a,
            isCut: own.left < whole.left || own.right > whole.right || own.top < whole.top || own.bottom > whole.bottom,
        };
    });
"#;

/// The plots that are wider than their page.
const WIDER: &str = r#"
    const isWider = (figure) => figure.scrollWidth > figure.clientWidth;
    return [...document.querySelectorAll("figure")].filter(isWider).map((figure) => figure.id);
"#;

/// The smallest text that people read on a phone, in CSS pixels.
const TEXT_MIN: f64 = 11.0;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "the text is for messages")]
struct Label {
    text: String,
    pixels: f64,
    is_cut: bool,
}

#[derive(Debug, Deserialize)]
struct Drawn {
    texts: Vec<Text>,
    circles: Vec<Circle>,
    lines: Vec<Vec<[f64; 2]>>,
}

#[derive(Debug, Deserialize)]
struct Text {
    x: f64,
    y: f64,
    text: String,
}

#[derive(Debug, Deserialize)]
struct Circle {
    x: f64,
    y: f64,
    radius: f64,
}

/// From values to pixels, by two ticks. Of a logarithmic axis, the values are logarithms.
struct Scale([(f64, f64); 2]);

impl Scale {
    fn of(ticks: &[(f64, f64)]) -> Self {
        assert!(ticks.len() > 1, "{ticks:?}");
        Self([ticks[0], ticks[ticks.len() - 1]])
    }

    fn pixel(&self, value: f64) -> f64 {
        let Self([(first, low), (last, high)]) = self;
        first + (value - low) / (high - low) * (last - first)
    }

    /// A pixel for the value, and one for each of the ticks.
    fn has(&self, pixel: f64, value: f64) -> bool {
        (pixel - self.pixel(value)).abs() <= 2.0
    }
}

impl Drawn {
    /// Ticks of the vertical axis of the first panel, upwards: labels end 8 pixels left of it.
    fn vertical(&self, value: impl Fn(&str) -> f64) -> Vec<(f64, f64)> {
        let labels: Vec<&Text> = self.texts.iter().filter(|text| text.x == 100.0).collect();
        let panel = labels.chunk_by(|below, above| above.y < below.y).next().unwrap();
        panel.iter().map(|label| (label.y, value(&label.text))).collect()
    }

    /// Ticks of the horizontal axis of the first panel: labels 16 pixels below it.
    fn horizontal(&self, bottom: f64, value: impl Fn(&str) -> f64) -> Vec<(f64, f64)> {
        let labels = self.texts.iter().filter(|label| label.y == bottom + 16.0);
        let ticks = labels.filter(|label| label.x < PANEL);
        ticks.map(|label| (label.x, value(&label.text))).collect()
    }
}

/// Where the second panel of a row begins.
const PANEL: f64 = 480.0;

fn number(text: &str) -> f64 {
    text.parse().unwrap()
}

/// `120 µs`, as a logarithm of seconds.
fn log_seconds(text: &str) -> f64 {
    let (value, unit) = text.split_once(' ').unwrap();
    let factor = BTreeMap::from([("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)])[unit];
    (number(value) * factor).ln()
}

fn results() -> Results {
    run(SPEC)
        .changed("ping-500.far/", Metric::RoundTripP50, 43.0)
        .changed("ping-500.lossy/", Metric::RoundTripP50, 2.0)
        .changed("ping-500.both/", Metric::RoundTripP50, 47.0)
        .flagged("ping-500/c0.i2", Flag::Disturbed)
        .failing("ping-500/c0.i5", Reason::Timeout, "not done")
        .results()
}

/// The page that perfrun makes of these results, as a URL.
fn page(scratch: &Scratch, results: &Results) -> String {
    let file = scratch.write("results.json", &serde_json::to_string(results).unwrap());
    let report = scratch
        .call(&["report", file.to_str().unwrap(), "--output", "html"])
        .expect(0);
    let page = scratch.write("report.html", &report.stdout);
    format!("file://{}", page.display())
}

#[tokio::test]
async fn a_browser_shows_the_values_of_results() {
    let Some(driver) = Driver::start() else { return };
    let (scratch, results) = (Scratch::new(), results());
    let browser = driver.open(Screen::Desktop).await;
    browser.goto(&page(&scratch, &results)).await.unwrap();

    let values: Vec<(String, String, f64, String)> = read(&browser, VALUES).await;
    assert!(values.len() > 20, "{values:?}");
    for (cell, metric, value, text) in &values {
        let row = results.summary.iter();
        let row = row
            .clone()
            .find(|row| row.cell == *cell && row.metric.as_ref() == metric);
        assert_eq!(row.unwrap().median, *value, "{cell} {metric}: {text}");
    }

    let plots: BTreeMap<String, Drawn> = read(&browser, PLOTS).await;
    let names: Vec<&str> = plots.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["delay-loss.svg", "latencies.svg", "ping.svg", "trials.svg"]
    );
    shows_each_trial(&plots["trials.svg"], &results);
    shows_how_times_are_distributed(&plots["latencies.svg"], &results);
    shows_medians_by_delay_and_loss(&plots["delay-loss.svg"], &results);
    browser.close().await.unwrap();
}

fn shows_each_trial(drawn: &Drawn, results: &Results) {
    let ticks = drawn.vertical(log_seconds);
    let y = Scale::of(&ticks);
    let x = Scale::of(&drawn.horizontal(ticks[0].0, number));
    let of_cell = results.trials.iter();
    let of_cell = of_cell.filter(|record| record.trial.cell == FIRST_CELL && !record.trial.warmup);
    let completed = of_cell.filter(|record| record.failure.is_none());
    let expected: Vec<_> = completed.collect();
    assert_eq!(expected.len(), 7, "one of eight failed");
    let row = ticks[0].0;
    let here = |circle: &&Circle| circle.x < PANEL && circle.y < row;
    let of_radius = |radius: f64| {
        let circles = drawn.circles.iter().filter(here);
        circles
            .filter(move |circle| circle.radius == radius)
            .collect::<Vec<_>>()
    };
    // The legend has one of each above the panel.
    let top = ticks[ticks.len() - 1].0;
    let points: Vec<_> = of_radius(4.0)
        .into_iter()
        .filter(|circle| circle.y > top - 1.0)
        .collect();
    assert_eq!(points.len(), expected.len());
    for (point, record) in points.iter().zip(&expected) {
        let value = record.metrics[&Metric::RoundTripP50];
        assert!(
            x.has(point.x, record.at_seconds) && y.has(point.y, value.ln()),
            "{point:?}: {value}"
        );
    }
    let disturbed: Vec<_> = of_radius(8.0)
        .into_iter()
        .filter(|circle| circle.y > top - 1.0)
        .collect();
    let [ring] = disturbed[..] else {
        panic!("{disturbed:?}")
    };
    assert!(x.has(ring.x, expected[2].at_seconds), "{ring:?}");
}

fn shows_how_times_are_distributed(drawn: &Drawn, results: &Results) {
    let ticks = drawn.vertical(|label| number(label) / 100.0);
    let y = Scale::of(&ticks);
    let x = Scale::of(&drawn.horizontal(ticks[0].0, log_seconds));
    let trials = results.trials.iter();
    let of_cell = trials.filter(|record| record.trial.cell == FIRST_CELL && !record.trial.warmup);
    let nodes = of_cell.flat_map(|record| record.nodes.values());
    let clients = nodes
        .filter(|node| node.role == Role::Client)
        .map(|node| &node.measured);
    let all = merged(clients, Distribution::RoundTrip).unwrap();
    assert_eq!(all.len(), 7 * 500);
    let line = drawn.lines.iter().find(|line| line.len() > 50).unwrap();
    for (percent, [px, py]) in line.iter().enumerate() {
        let share = percent as f64 / 100.0;
        let seconds = all.value_at_quantile(share) as f64 / 1e9;
        assert!(
            y.has(*py, share) && x.has(*px, seconds.ln()),
            "{percent}: {px} {py} {seconds}"
        );
    }
}

fn shows_medians_by_delay_and_loss(drawn: &Drawn, results: &Results) {
    let find = |text: &str| drawn.texts.iter().find(|drawn| drawn.text == text);
    let at = |network: &str| {
        let cell = results
            .plan
            .cells
            .iter()
            .find(|cell| cell.network == network)
            .unwrap();
        let rows = results.summary.iter();
        let mut of_cell = rows.filter(|row| row.cell == cell.id && row.metric == Metric::RoundTripP50);
        of_cell.next().unwrap().median
    };
    let unimpaired = at("none");
    for (network, delay, loss) in [
        ("none", "0 s", "0 %"),
        ("far", "10.0 ms", "0 %"),
        ("lossy", "0 s", "1 %"),
        ("both", "10.0 ms", "1 %"),
    ] {
        let median = at(network);
        let value = units::text(Metric::RoundTripP50.unit(), median);
        let value = find(&value).unwrap_or_else(|| panic!("{network}: {value}"));
        // In the column of its delay and the row of its loss.
        let (delay, loss) = (find(delay).unwrap(), find(loss).unwrap());
        assert!(
            (value.x - delay.x).abs() <= 2.0 && (value.y - loss.y).abs() <= 10.0,
            "{network}"
        );
        let share = units::text(Unit::Share, unimpaired / median);
        let below = |text: &Text| text.text == share && text.x == value.x && text.y == value.y + 18.0;
        assert!(drawn.texts.iter().any(below), "{network}: {share}");
    }
}

#[tokio::test]
async fn a_phone_shows_a_dark_page_whose_plots_fit_and_can_be_read() {
    let Some(driver) = Driver::start() else { return };
    let (scratch, results) = (Scratch::new(), results());
    let browser = driver.open(Screen::DarkPhone).await;
    browser.goto(&page(&scratch, &results)).await.unwrap();
    let (width, content): (u32, u32) = read(
        &browser,
        "return [innerWidth, document.documentElement.scrollWidth]",
    )
    .await;
    assert_eq!((width, content), (PHONE_WIDTH, PHONE_WIDTH));
    let wider: Vec<String> = read(&browser, WIDER).await;
    assert!(wider.is_empty(), "they scroll sideways: {wider:?}");
    let labels: Vec<Label> = read(&browser, LABELS).await;
    assert!(labels.len() > 20, "{labels:?}");
    for label in &labels {
        assert!(label.pixels >= TEXT_MIN, "too small: {label:?}");
        assert!(!label.is_cut, "cut off at the edge of its plot: {label:?}");
    }
    let (is_dark, text): (bool, String) = read(
        &browser,
        "return [matchMedia('(prefers-color-scheme: dark)').matches, getComputedStyle(document.body).color]",
    )
    .await;
    assert_eq!((is_dark, text.as_str()), (true, "rgb(255, 255, 255)"));
    browser.close().await.unwrap();
}

/// What a script in the page returns.
async fn read<T: DeserializeOwned>(browser: &Client, script: &str) -> T {
    serde_json::from_value(browser.execute(script, vec![]).await.unwrap()).unwrap()
}
