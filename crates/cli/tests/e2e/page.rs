//! `--ui`, looked at by a real browser.

use std::time::Duration;

use fantoccini::Locator;

use crate::{
    browser::{Driver, Screen},
    document,
    perfrun::{Mode, Running, Scratch, TEST_TIMEOUT},
};

#[tokio::test]
async fn a_browser_shows_the_run_and_then_its_report() {
    let Some(driver) = Driver::start() else { return };
    let browser = driver.open(Screen::Desktop).await;
    let scratch = Scratch::new();
    let document = document::steady("shown", 1000, 15);
    let mut perfrun = Running::start(scratch.command(Mode::Loopback, &document, &["--ui"]));
    let url = address(&mut perfrun);

    browser.goto(&url).await.unwrap();
    let wait = || {
        browser
            .wait()
            .at_most(TEST_TIMEOUT)
            .every(Duration::from_millis(50))
    };
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
        stage.starts_with("running, ") && stage.ends_with(" of 15 trials"),
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

    // The page opens the report itself. A search for an element fails when it meets that navigation.
    let report = format!("{url}report").parse().unwrap();
    wait().for_url(&report).await.unwrap();
    wait()
        .for_element(Locator::XPath("//h2[text()='Round trips']"))
        .await
        .unwrap();
    let heading = browser.find(Locator::Css("h1")).await.unwrap();
    assert_eq!(heading.text().await.unwrap(), "shown");
    perfrun.ended().expect(0);
    // It stays, and so does the file.
    let shown = browser.source().await.unwrap();
    browser
        .goto(&format!("file://{}/report.html", scratch.only_run().display()))
        .await
        .unwrap();
    assert_eq!(browser.source().await.unwrap(), shown);
    browser.close().await.unwrap();
}

/// The address of the page, as perfrun prints it.
pub(crate) fn address(perfrun: &mut Running) -> String {
    perfrun.wait_for_output("watch it at http://127.0.0.1:");
    let stderr = perfrun.stderr();
    let (_, url) = stderr.split_once("watch it at ").unwrap();
    url.lines().next().unwrap().to_owned()
}

#[test]
fn the_page_is_for_this_machine_only() {
    let scratch = Scratch::new();
    let ended = scratch
        .run(Mode::Loopback, &document::run("open"), &["--ui=0.0.0.0:0"])
        .expect(2);
    assert!(ended.stderr.contains("use a loopback address"), "{ended}");
}
