//! Pictures of pages in a real browser, which docs/ shows. `cargo xtask pictures` keeps them.

use std::time::Duration;

use fantoccini::Client;
use perfrun_test_kit::pictures::keep;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::{
    browser::{Driver, Screen},
    document,
    page::address,
    perfrun::{Mode, Running, Scratch, TEST_TIMEOUT},
};

/// Committed results of a run that has a verdict.
const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/regression");

/// The size of a picture in pixels, with what a window has around it.
const WIDTH: u32 = 1000;
const HEIGHT: u32 = 800;

/// The share of trials that have ended.
const DONE: &str = "return document.getElementById('progress').value;";

#[tokio::test]
async fn a_picture_shows_a_report_of_committed_results() {
    let Some(driver) = Driver::start() else { return };
    let scratch = Scratch::new();
    let report = scratch.call(&["report", RESULTS, "--output", "html"]).expect(0);
    let page = scratch.write("report.html", &report.stdout);
    let browser = driver.open(Screen::Desktop).await;
    browser.set_window_size(WIDTH, HEIGHT).await.unwrap();
    browser.goto(&format!("file://{}", page.display())).await.unwrap();
    take(&browser, "report.png").await;
    browser.close().await.unwrap();
}

#[tokio::test]
async fn a_picture_shows_the_page_of_a_run_in_progress() {
    let Some(driver) = Driver::start() else { return };
    let scratch = Scratch::new();
    let transfers = json!({ "bandwidth": { "duration": "500ms", "directions": ["upload", "download"] } });
    let matrix = json!({ "clients": ["libp2p", "litep2p"], "servers": ["libp2p"], "transports": ["tcp"] });
    let document = document::run("live")
        .with("workload", transfers)
        .with("matrix", matrix)
        .with("iterations", json!(6));
    let browser = driver.open(Screen::Desktop).await;
    browser.set_window_size(WIDTH, HEIGHT).await.unwrap();
    let mut perfrun = Running::start(scratch.command(Mode::Loopback, &document, &["--ui"]));
    browser.goto(&address(&mut perfrun)).await.unwrap();
    timeout(TEST_TIMEOUT, half(&browser)).await.unwrap();
    take(&browser, "live-page.png").await;
    browser.close().await.unwrap();
    perfrun.signal(Signal::INT);
    perfrun.ended().expect(130);
}

/// Waits until half of the trials have ended.
async fn half(browser: &Client) {
    while browser.execute(DONE, vec![]).await.unwrap().as_f64().unwrap() < 0.5 {
        sleep(Duration::from_millis(50)).await;
    }
}

async fn take(browser: &Client, name: &str) {
    let picture = browser.screenshot().await.unwrap();
    assert!(picture.starts_with(b"\x89PNG"), "{name} is not a PNG");
    keep(name, &picture).unwrap();
}
