//! A real browser, where there is one.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use fantoccini::{Client, ClientBuilder};
use perfrun_test_kit::{Need, skip};
use serde_json::json;

/// What a page is looked at on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Screen {
    Desktop,
    /// A narrow one, whose owner prefers dark pages.
    DarkPhone,
}

/// Size of the phone, in CSS pixels.
pub(crate) const PHONE_WIDTH: u32 = 360;
const PHONE_HEIGHT: u32 = 740;

/// The program that drives the browser, until it is dropped.
pub(crate) struct Driver {
    child: Child,
    url: String,
}

impl Driver {
    /// Starts a browser. Without one, notes that the test is skipped, and returns `None`.
    pub(crate) fn start() -> Option<Self> {
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

    pub(crate) async fn open(&self, screen: Screen) -> Client {
        let mut chrome = json!({ "args": [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
        ]});
        if screen == Screen::DarkPhone {
            chrome["args"]
                .as_array_mut()
                .unwrap()
                .push("--force-dark-mode".into());
            chrome["mobileEmulation"] =
                json!({ "deviceMetrics": { "width": PHONE_WIDTH, "height": PHONE_HEIGHT, "pixelRatio": 2 } });
        }
        let options = serde_json::Map::from_iter([("goog:chromeOptions".to_owned(), chrome)]);
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
