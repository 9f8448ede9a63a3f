//! `perfrun run --metrics-listen`: one target for Prometheus, with the metrics of all nodes and the results so far.
//!
//! Nodes are in network namespaces of their own, where no scraper reaches them. So their pages are fetched over their control
//! sockets when somebody asks, and only then: without a scraper nothing of this costs a measurement anything.

use std::{
    collections::BTreeMap,
    io::{Write, stderr},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context;
use axum::{Router, http::header, routing::get};
use futures::future::join_all;
use jiff::Timestamp;
use perfrun_api::results::Results;
use perfrun_conductor::export::{LOCAL, RunView, page_of_runs};
use perfrun_conductor::{Contact, Event};
use perfrun_contract::{
    plan::Plan,
    record::TrialRecord,
    run::Phase,
    tally::{Counts, Tally, Verdict},
};
use perfrun_metrics::{CONTENT_TYPE, LONGEST_WAIT, Scrapes, merge};
use tokio::{net::TcpListener, task::AbortHandle};
use tokio_util::sync::CancellationToken;

/// How long a user who has stopped the run is kept waiting for the scrape that says so.
const LONGEST_WAIT_AFTER_STOP: Duration = Duration::from_secs(15);

/// Serves until dropped; by default nothing, to nobody.
#[derive(Default)]
pub struct Exporter(Option<Served>);

struct Served {
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Default)]
struct Shared {
    scrapes: Scrapes,
    /// By the names of the run and the node: pages of an earlier run may still be there.
    nodes: Mutex<BTreeMap<Name, Node>>,
    ended: Mutex<Vec<RunView>>,
    current: Mutex<Option<Current>>,
}

type Name = (String, String);

/// A node's page.
#[derive(Clone)]
enum Node {
    /// It is asked for it.
    There(Contact),
    /// It had this one when it was last asked; kept until somebody has read it.
    Gone(Arc<str>),
}

/// The run that goes on.
struct Current {
    plan: Plan,
    /// What it said of itself when it began.
    view: RunView,
    /// Without what nodes measured: that is not needed for statistics.
    records: Vec<TrialRecord>,
}

impl Exporter {
    /// Begins to serve.
    pub async fn serve(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("failed to bind {address}: name another address with --metrics-listen")
        })?;
        let shared = Arc::<Shared>::default();
        let page = {
            let shared = shared.clone();
            async move || ([(header::CONTENT_TYPE, CONTENT_TYPE)], shared.page().await)
        };
        let router = Router::new().route("/metrics", get(page));
        let task = tokio::spawn(async { axum::serve(listener, router).await }).abort_handle();
        Ok(Self(Some(Served { shared, task })))
    }

    /// A run begins, or goes on.
    pub fn begin(&self, results: &Results) {
        let Some(shared) = self.shared() else { return };
        let current = Current {
            plan: results.plan.clone(),
            view: view(results),
            records: results.trials.iter().map(TrialRecord::brief).collect(),
        };
        *lock(&shared.current) = Some(current);
    }

    /// Something happens in it.
    pub fn on(&self, event: Event<'_>) {
        if let (Some(shared), Event::TrialEnded { record }) = (self.shared(), event)
            && let Some(current) = &mut *lock(&shared.current)
        {
            current.records.push(record.brief());
        }
    }

    /// The run has ended.
    pub fn end(&self, results: &Results) {
        let Some(shared) = self.shared() else { return };
        let mut view = view(results);
        let Verdict { phase, reason, .. } = results.verdict();
        view.phase = phase;
        view.reason = Some(reason.to_string());
        view.ended = Some(results.ended.as_millisecond() as f64 / 1e3);
        view.summary = results.summary.clone();
        *lock(&shared.current) = None;
        lock(&shared.ended).push(view);
        shared.scrapes.changed();
    }

    /// A node is there, perhaps in place of a lost one.
    pub fn watch(&self, name: &str, contact: Contact) {
        let Some(shared) = self.shared() else { return };
        let current = lock(&shared.current);
        let run = current.as_ref().map(|current| current.view.name.clone());
        let name = (run.unwrap_or_default(), name.to_owned());
        lock(&shared.nodes).insert(name, Node::There(contact));
    }

    /// Nodes will end now: what they counted last is not to be lost with them.
    pub async fn keep_last_pages(&self) {
        if let Some(shared) = self.shared() {
            let pages = shared.pages().await;
            let gone = |(name, page): (Name, String)| (name, Node::Gone(page.into()));
            *lock(&shared.nodes) = pages.into_iter().map(gone).collect();
        }
    }

    /// Waits until a scraper that has read the page before reads the last one, which says how the run ended; not for long after
    /// the user has stopped it, and no longer when the user stops the wait.
    pub async fn last_scrape(&self, quiet: bool, cancel: &CancellationToken) {
        let Some(shared) = self.shared() else { return };
        let is_stopped = cancel.is_cancelled();
        let most = if is_stopped {
            LONGEST_WAIT_AFTER_STOP
        } else {
            LONGEST_WAIT
        };
        let seen = shared.scrapes.seen(most);
        tokio::pin!(seen);
        if futures::poll!(seen.as_mut()).is_ready() {
            return;
        }
        if !quiet {
            // Nobody may be there to read it.
            let _ = writeln!(
                stderr(),
                "waiting until the last metrics are scraped, at most {} s; Ctrl-C to end at once",
                most.as_secs()
            );
        }
        tokio::select! {
            () = seen => {}
            // A second signal ends the program.
            () = cancel.cancelled(), if !is_stopped => {}
        }
    }

    fn shared(&self) -> Option<&Shared> {
        self.0.as_ref().map(|served| &*served.shared)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    async fn page(&self) -> String {
        self.scrapes.scraped();
        let nodes = self.pages().await;
        lock(&self.nodes).retain(|_, node| matches!(node, Node::There(_)));
        let runs = lock(&self.ended)
            .iter()
            .cloned()
            .chain(lock(&self.current).as_ref().map(Current::now))
            .collect();
        let runs = page_of_runs(runs, Timestamp::now().as_duration().as_secs_f64());
        merge(nodes.iter().map(|(_, page)| page.as_str()).chain([runs.as_str()]))
    }

    /// The pages of all nodes that answer.
    async fn pages(&self) -> Vec<(Name, String)> {
        let nodes = lock(&self.nodes).clone();
        let pages = nodes
            .into_iter()
            .map(async |(name, node)| (name, page_of(node).await));
        join_all(pages).await
    }
}

async fn page_of(node: Node) -> String {
    let contact = match node {
        Node::There(contact) => contact,
        Node::Gone(page) => return page.to_string(),
    };
    let agent = async { Some(contact.agent.as_ref()?.metrics().await) };
    let (node, agent) = futures::join!(contact.node.metrics(), agent);
    let pages = [Some(node), agent].into_iter().flatten();
    // One that is just being started, or was lost, has a page the next time.
    let pages: Vec<_> = pages
        .filter_map(|page| {
            page.inspect_err(|error| tracing::debug!(error = error.describe(), "a node has no metrics now"))
                .ok()
        })
        .collect();
    merge(pages.iter().map(String::as_str))
}

impl Current {
    fn now(&self) -> RunView {
        let Counts {
            completed, failed, ..
        } = Tally::of(&self.plan, &self.records).counts();
        RunView {
            completed: number(completed),
            failed: number(failed),
            summary: perfrun_report::summarize(&self.plan, &self.records),
            ..self.view.clone()
        }
    }
}

/// A run as it is known when it goes on.
fn view(results: &Results) -> RunView {
    let Counts {
        planned,
        completed,
        failed,
    } = results.tally().counts();
    RunView {
        namespace: LOCAL.to_owned(),
        name: results.name.clone(),
        workload: results.spec.workload.name(),
        phase: Phase::Running,
        reason: None,
        started: Some(results.started.as_millisecond() as f64 / 1e3),
        ended: None,
        planned: number(planned),
        completed: number(completed),
        failed: number(failed),
        iterations: results.spec.iterations,
        cells: results.plan.cells.as_slice().into(),
        skipped: number(results.plan.skipped.len()),
        summary: vec![],
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
