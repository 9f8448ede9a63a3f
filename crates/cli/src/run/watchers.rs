//! Those who watch runs besides the user at the terminal: scrapers of metrics, and browsers.

use perfrun_api::results::Results;
use perfrun_conductor::{Event, NodeHandle};
use tokio_util::sync::CancellationToken;

use super::exporter::Exporter;
use crate::{args, output::write_line_to_stderr, page::Page};

/// What `--metrics-listen` and `--ui` serve. Outlives the runs, which follow one another.
pub(super) struct Watchers {
    exporter: Exporter,
    page: Option<Page>,
}

impl Watchers {
    /// Serves what the arguments request.
    pub(super) async fn serve(args: &args::Run) -> anyhow::Result<Self> {
        let exporter = match args.metrics_listen {
            Some(address) => Exporter::serve(address).await?,
            None => Exporter::default(),
        };
        let page = match args.ui {
            Some(address) => Some(Page::serve(address).await?),
            None => None,
        };
        if let Some(page) = &page {
            write_line_to_stderr(format_args!("watch it at {}", page.url()));
        }
        Ok(Self { exporter, page })
    }

    pub(super) fn begin(&self, results: &Results, is_last: bool) {
        self.exporter.begin(results);
        if let Some(page) = &self.page {
            page.begin(results, is_last);
        }
    }

    pub(super) fn node_started(&self, name: &str, handle: NodeHandle) {
        self.exporter.watch(name, handle);
    }

    pub(super) fn on(&self, event: Event<'_>) {
        self.exporter.on(event);
        if let Some(page) = &self.page {
            page.on(event);
        }
    }

    /// Keeps the last values of the metrics of the nodes, which are about to stop.
    pub(super) async fn keep_last_pages(&self) {
        self.exporter.keep_last_pages().await;
    }

    /// Gives scrapers the results of a run that has ended. They may not be saved yet.
    pub(super) fn end(&self, results: &Results) {
        self.exporter.end(results);
    }

    /// Gives browsers the report of a run that is over, if it was the last one.
    pub(super) async fn show_report(&self, results: &Results) {
        if let Some(page) = &self.page {
            page.end(results).await;
        }
    }

    /// Waits until scrapers have read how the last run ended.
    pub(super) async fn last_scrape(&self, quiet: bool, cancel: &CancellationToken) {
        self.exporter.last_scrape(quiet, cancel).await;
    }
}
