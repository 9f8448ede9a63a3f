//! `perfrun run --metrics-listen`: one target for Prometheus, with the metrics of all nodes and the results
//! so far.
//!
//! Nodes are in their own network namespaces, out of reach of scrapers. So the exporter fetches their pages
//! over their control sockets, and only when it is scraped: without a scraper it costs a measurement nothing.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use perfrun_api::results::Results;
use perfrun_conductor::{Event, NodeHandle, client::Error};
use perfrun_contract::{
    metrics::LOCAL,
    plan::Plan,
    record::TrialRecord,
    run::Phase,
    tally::{Conclusion, Counts, Tally},
};
use perfrun_metrics::{RunView, Scrapes, WAIT_MAX, merge, page_of_runs};
use perfrun_serve::{Limits, metrics_router, serve};
use tokio::{
    net::TcpListener,
    time::{Instant, timeout},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::output::write_line_to_stderr;

/// How long a user who has stopped the run waits for the scrape that reads its end.
const WAIT_AFTER_STOP_MAX: Duration = Duration::from_secs(15);

/// How long perfrun waits in the end for scrapers to take the answers in progress.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of requests for the last page of a node. A machine that pauses lets the first one time out.
const LAST_TRIES: u32 = 2;

/// A scraper has a connection, which is idle for longer than the usual time between two scrapes.
const LIMITS: Limits = Limits::new(16, Duration::from_secs(150));

/// Serves metrics until it is dropped. The default serves nothing.
#[derive(Default)]
pub(super) struct Exporter(Option<Server>);

struct Server {
    metrics: Arc<Metrics>,
    /// Ends with the answers in progress after `stop`.
    serving: TaskTracker,
    stop: CancellationToken,
    _stop: DropGuard,
}

#[derive(Default)]
struct Metrics {
    scrapes: Arc<Scrapes>,
    /// Where the pages of nodes come from. Pages of an earlier run may still be unread.
    nodes: Mutex<BTreeMap<NodeKey, PageSource>>,
    ended: Mutex<Vec<RunView>>,
    current: Mutex<Option<Current>>,
}

/// The names of a run and of a node in it.
type NodeKey = (String, String);

/// Where the page of a node comes from.
#[derive(Clone)]
enum PageSource {
    /// The node runs, and serves its page.
    Running(NodeHandle),
    /// The node has stopped, and its last page is kept since then, until a scraper has read it.
    Stopped { page: Arc<str>, since: Instant },
}

/// The run in progress.
struct Current {
    plan: Plan,
    /// The run as it was when it began.
    view: RunView,
    /// Without the nodes' measurements, which the statistics do not need.
    records: Vec<TrialRecord>,
}

impl Exporter {
    /// Starts to serve metrics at the address.
    pub(super) async fn serve(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("failed to listen at {address}: choose another address with --metrics-listen")
        })?;
        let metrics = Arc::<Metrics>::default();
        let page = {
            let metrics = metrics.clone();
            move || {
                let metrics = metrics.clone();
                async move { metrics.page().await }
            }
        };
        let router = metrics_router(metrics.scrapes.clone(), page);
        let stop = CancellationToken::new();
        let serving = TaskTracker::new();
        serving.spawn(serve(listener, router, LIMITS, stop.clone()));
        serving.close();
        Ok(Self(Some(Server {
            metrics,
            serving,
            _stop: stop.clone().drop_guard(),
            stop,
        })))
    }

    /// Serves the metrics of a run that begins or is resumed.
    pub(super) fn begin(&self, results: &Results) {
        let Some(metrics) = self.metrics() else { return };
        let current = Current {
            plan: results.plan.clone(),
            view: view(results),
            records: results.trials.iter().map(TrialRecord::brief).collect(),
        };
        *metrics.current.lock() = Some(current);
    }

    /// Takes in an event of the run in progress.
    pub(super) fn on(&self, event: Event<'_>) {
        let Some(metrics) = self.metrics() else { return };
        let Some(current) = &mut *metrics.current.lock() else {
            return;
        };
        match event {
            Event::TrialEnded { record } => current.records.push(record.brief()),
            Event::NotNeeded { not_needed } => {
                current.view.trials.not_needed = not_needed.trials as usize;
            }
            _ => {}
        }
    }

    /// Serves the results of the run in progress, which has ended.
    pub(super) fn end(&self, results: &Results) {
        let Some(metrics) = self.metrics() else { return };
        let mut view = view(results);
        let Conclusion { phase, reason, .. } = results.conclusion();
        view.phase = phase;
        view.reason = Some(reason.to_string());
        view.ended = Some(results.ended.as_millisecond() as f64 / 1e3);
        view.summary = results.summary.clone();
        if let Some(judged) = &results.judged {
            view.verdict = judged.verdict;
            view.comparisons = judged.comparisons.clone();
        }
        *metrics.current.lock() = None;
        metrics.ended.lock().push(view);
        metrics.scrapes.note_change();
    }

    /// Serves the metrics of a node that was started, possibly in place of a lost one.
    pub(super) fn watch(&self, name: &str, handle: NodeHandle) {
        let Some(metrics) = self.metrics() else { return };
        let current = metrics.current.lock();
        let run = current.as_ref().map(|current| current.view.name.clone());
        let key = (run.unwrap_or_default(), name.to_owned());
        metrics.nodes.lock().insert(key, PageSource::Running(handle));
    }

    /// Keeps the pages of the nodes, which are about to stop.
    pub(super) async fn keep_last_pages(&self) {
        let Some(metrics) = self.metrics() else { return };
        let pages = metrics.pages(LAST_TRIES).await;
        let mut nodes = metrics.nodes.lock();
        let since = Instant::now();
        for (name, page) in pages {
            let source = nodes.get_mut(&name);
            if let Some(source) = source.filter(|source| matches!(source, PageSource::Running(_))) {
                let page = page.into();
                *source = PageSource::Stopped { page, since };
            }
        }
    }

    /// Waits until a scraper reads the last page, with the end of the run, unless no scraper ever came. Waits
    /// for a shorter time if the user has stopped the run, and ends when the user stops the wait.
    pub(super) async fn last_scrape(&self, quiet: bool, cancel: &CancellationToken) {
        let Some(server) = &self.0 else { return };
        let is_stopped = cancel.is_cancelled();
        server.wait_for_last_scrape(quiet, cancel).await;
        // The end of the program would cut the answers in progress, the last one among them.
        server.stop.cancel();
        tokio::select! {
            _ = timeout(LAST_ANSWERS_TIMEOUT, server.serving.wait()) => {}
            () = cancel.cancelled(), if !is_stopped => {}
        }
    }

    fn metrics(&self) -> Option<&Metrics> {
        self.0.as_ref().map(|server| &*server.metrics)
    }
}

impl Server {
    async fn wait_for_last_scrape(&self, quiet: bool, cancel: &CancellationToken) {
        let is_stopped = cancel.is_cancelled();
        let limit = if is_stopped { WAIT_AFTER_STOP_MAX } else { WAIT_MAX };
        let scraped = self.metrics.scrapes.wait_until_read(limit);
        tokio::pin!(scraped);
        if futures::poll!(scraped.as_mut()).is_ready() {
            return;
        }
        if !quiet {
            write_line_to_stderr(format_args!(
                "waiting at most {} s for the final scrape of the metrics; press Ctrl-C to exit now",
                limit.as_secs()
            ));
        }
        tokio::select! {
            () = scraped => {}
            // A second signal ends the program.
            () = cancel.cancelled(), if !is_stopped => {}
        }
    }
}

impl Metrics {
    async fn page(&self) -> String {
        // A page that was made is not yet read: its scraper may have given up.
        self.nodes.lock().retain(|_, source| match source {
            PageSource::Running(_) => true,
            PageSource::Stopped { since, .. } => !self.scrapes.was_read_after(*since),
        });
        let nodes = self.pages(1).await;
        let runs = self
            .ended
            .lock()
            .iter()
            .cloned()
            .chain(self.current.lock().as_ref().map(Current::now))
            .collect();
        let runs = page_of_runs(runs, Timestamp::now().as_duration().as_secs_f64());
        merge(nodes.iter().map(|(_, page)| page.as_str()).chain([runs.as_str()]))
    }

    /// The pages of all nodes that answer one of this number of requests.
    async fn pages(&self, tries: u32) -> Vec<(NodeKey, String)> {
        let nodes = self.nodes.lock().clone();
        let pages = nodes
            .into_iter()
            .map(async |(name, source)| (name, page_of(source, tries).await));
        join_all(pages).await
    }
}

async fn page_of(source: PageSource, tries: u32) -> String {
    let handle = match source {
        PageSource::Running(handle) => handle,
        PageSource::Stopped { page, .. } => return page.to_string(),
    };
    let agent = async {
        let agent = handle.agent.as_ref()?;
        fetched(tries, || agent.metrics()).await
    };
    let (node, agent) = futures::join!(fetched(tries, || handle.node.metrics()), agent);
    let pages: Vec<_> = node.into_iter().chain(agent).collect();
    merge(pages.iter().map(String::as_str))
}

/// A page that one of this number of tries fetched. A node that is starting, or was lost, has a page the next
/// time.
async fn fetched<F>(tries: u32, fetch: impl Fn() -> F) -> Option<String>
where
    F: Future<Output = Result<String, Error>>,
{
    for _ in 0..tries {
        match fetch().await {
            Ok(page) => return Some(page),
            Err(error) => {
                tracing::debug!(error = error.describe(), "failed to fetch the metrics of a node");
            }
        }
    }
    None
}

impl Current {
    fn now(&self) -> RunView {
        RunView {
            trials: Counts {
                not_needed: self.view.trials.not_needed,
                ..Tally::of(&self.plan, &self.records).counts()
            },
            summary: perfrun_judge::summarize(&self.plan, &self.records),
            ..self.view.clone()
        }
    }
}

/// The metrics of a run that has not ended.
fn view(results: &Results) -> RunView {
    RunView {
        namespace: LOCAL.to_owned(),
        name: results.name.clone(),
        workload: results.spec.workload.name(),
        phase: Phase::Running,
        reason: None,
        started: Some(results.started.as_millisecond() as f64 / 1e3),
        ended: None,
        trials: results.tally().counts(),
        iterations: results.spec.iterations,
        cells: results.plan.cells.as_slice().into(),
        skipped: results.plan.skipped.len(),
        summary: vec![],
        verdict: None,
        comparisons: vec![],
    }
}
