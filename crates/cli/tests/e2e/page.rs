//! `--ui`, looked at by a real browser.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use fantoccini::{Client, ClientBuilder, Locator};
use perfrun_test_kit::{Need, skip};
use serde_json::json;

use crate::{
    document,
    perfrun::{Mode, PATIENCE, Place, Running},
};

/// The program that drives the browser, until it is dropped.
struct Driver {
    child: Child,
    url: String,
}

impl Driver {
    /// None, and noted as skipped, where there is no browser.
    fn start() -> Option<Self> {
        let spawned = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = spawned else {
            skip(
                Need::Browser,
                "in a browser",
                "needs `apt-get install chromium chromium-driver`",
            );
            return None;
        };
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut driver = Self {
            child,
            url: String::new(),
        };
        let port = output.lines().find_map(|line| {
            let line = line.unwrap();
            let port = line.split_once("started successfully on port ")?.1;
            Some(port.trim_end_matches('.').to_owned())
        });
        driver.url = format!("http://127.0.0.1:{}", port.expect("chromedriver says its port"));
        Some(driver)
    }

    async fn open(&self) -> Client {
        let options = json!({ "goog:chromeOptions": { "args": [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
        ]}});
        let serde_json::Value::Object(options) = options else {
            unreachable!()
        };
        let mut builder = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
        builder.capabilities(options).connect(&self.url).await.unwrap()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Ends its browsers, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_browser_shows_the_run_and_then_its_report() {
    let Some(driver) = Driver::start() else { return };
    let browser = driver.open().await;
    let place = Place::new();
    let document = document::steady("shown", 1000, 6);
    let mut perfrun = Running::start(place.command(Mode::Loopback, &document, &["--ui"]));
    perfrun.says("watch it at http://127.0.0.1:");
    let stderr = perfrun.stderr();
    let url = stderr
        .split_once("watch it at ")
        .unwrap()
        .1
        .lines()
        .next()
        .unwrap()
        .to_owned();

    browser.goto(&url).await.unwrap();
    let wait = || browser.wait().at_most(PATIENCE).every(Duration::from_millis(50));
    // A dot for a trial that has ended, while others are still to come.
    wait().for_element(Locator::Css("#cells circle")).await.unwrap();
    let stage = browser
        .find(Locator::Id("stage"))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        stage.starts_with("running, ") && stage.ends_with(" of 6 trials"),
        "{stage}"
    );
    let cells = browser
        .find(Locator::Id("cells"))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(cells.starts_with("raw.raw.tcp.ping-100 roundTripP50 "), "{cells}");

    let report = wait()
        .for_element(Locator::XPath("//h2[text()='Round trips']"))
        .await;
    report.unwrap();
    assert_eq!(
        browser.current_url().await.unwrap().as_str(),
        format!("{url}report")
    );
    let heading = browser.find(Locator::Css("h1")).await.unwrap();
    assert_eq!(heading.text().await.unwrap(), "shown");
    perfrun.ended().expect(0);
    // It stays, and so does the file.
    let shown = browser.source().await.unwrap();
    browser
        .goto(&format!("file://{}/report.html", place.only_run().display()))
        .await
        .unwrap();
    assert_eq!(browser.source().await.unwrap(), shown);
    browser.close().await.unwrap();
}

#[test]
fn the_page_is_for_this_machine_only() {
    let place = Place::new();
    let ended = place
        .run(Mode::Loopback, &document::run("open"), &["--ui=0.0.0.0:0"])
        .expect(1);
    assert!(ended.stderr.contains("use a loopback address"), "{ended}");
}
