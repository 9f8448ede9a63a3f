//! `perfrun logs`.

mod copy;
mod source;

use std::{collections::BTreeSet, io, time::Duration};

use anyhow::anyhow;
use kube::{ResourceExt, api::ListParams};
use perfrun_api::{
    cluster::{NODE_LABEL, RUN_LABEL},
    exit_status::INTERRUPTED,
    planning::draft,
    spec::PerfRun,
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{copy::Copy, source::LogSource};
use super::{
    access::Cluster,
    error::{Call, Error},
    find::find,
    follow::{follow, retry_until_answered},
    status::StatusSummary,
};
use crate::{args, signals::cancel_on_signal, ui::Screen};

/// The pause between two searches for new pods.
const PAUSE: Duration = Duration::from_secs(2);

/// How long to wait for the last lines after a run has ended: pods that are kept may never end.
const GRACE_TIMEOUT: Duration = Duration::from_secs(5);

/// Prints the logs of a run's nodes. Returns the exit status.
pub async fn logs(args: &args::Logs) -> anyhow::Result<u8> {
    let stop = cancel_on_signal();
    let cluster = Cluster::find(&args.target).await?;
    let run = find(&cluster, &args.name).await?;
    let request = Request {
        cluster: &cluster,
        run: &run,
        node: args.node.as_deref(),
    };
    let copied = async {
        if args.follow {
            request.follow().await
        } else {
            request.copy_logs().await
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(INTERRUPTED),
        copied = copied => match copied {
            // A reader that closes the pipe early, such as `head`, is not an error.
            Err(error) if is_broken_pipe(&error) => Ok(0),
            copied => copied.map(|()| 0),
        },
    }
}

struct Request<'a> {
    cluster: &'a Cluster,
    run: &'a PerfRun,
    node: Option<&'a str>,
}

impl Request<'_> {
    /// Prints the logs so far, node by node.
    async fn copy_logs(&self) -> anyhow::Result<()> {
        let sources = self.sources().await?;
        if sources.is_empty() {
            return Err(self.no_logs());
        }
        let width = self.width();
        for source in &sources {
            let copy = Copy {
                cluster: self.cluster.clone(),
                prefix: (sources.len() > 1).then(|| source.prefix(width)),
                source: source.clone(),
            };
            copy.copy_so_far().await?;
        }
        Ok(())
    }

    /// Prints the logs so far and new lines, until the run ends.
    async fn follow(&self) -> anyhow::Result<()> {
        if StatusSummary::of(self.run).has_ended {
            return self.copy_logs().await;
        }
        let screen = Screen::new(true, 0);
        let never = CancellationToken::new();
        let mut copies = Copies::default();
        tokio::select! {
            ended = follow(self.cluster, self.run, &screen, &never) => drop(ended?),
            failed = self.copy_all(&mut copies) => failed?,
        }
        let last_lines = async {
            // A short run may have started and ended since the last search.
            self.copy_new(&mut copies).await?;
            while let Some(ended) = copies.tasks.join_next().await {
                ended??;
            }
            anyhow::Ok(())
        };
        timeout(GRACE_TIMEOUT, last_lines).await.unwrap_or(Ok(()))
    }

    /// Copies the logs of all pods, including those created later. Returns only on an error.
    async fn copy_all(&self, copies: &mut Copies) -> anyhow::Result<()> {
        loop {
            // `follow` reports that the cluster is unreachable.
            let sources = retry_until_answered(None, || self.sources()).await?;
            self.copy_started(sources, copies);
            let pause = sleep(PAUSE);
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    Some(ended) = copies.tasks.join_next() => ended??,
                }
            }
        }
    }

    async fn copy_new(&self, copies: &mut Copies) -> anyhow::Result<()> {
        let sources = self.sources().await?;
        self.copy_started(sources, copies);
        Ok(())
    }

    fn copy_started(&self, sources: Vec<LogSource>, copies: &mut Copies) {
        let width = self.width();
        for source in sources.into_iter().filter(|source| source.has_started) {
            if copies.pods.insert(source.pod.clone()) {
                let copy = Copy {
                    cluster: self.cluster.clone(),
                    prefix: self.node.is_none().then(|| source.prefix(width)),
                    source,
                };
                copies.tasks.spawn(copy.copy_until_end());
            }
        }
    }

    async fn sources(&self) -> Result<Vec<LogSource>, Error> {
        let call = Call::all("list", "pods");
        let node = self.node.map(|node| format!(",{NODE_LABEL}={node}"));
        let selector = format!("{RUN_LABEL}={}{}", self.run.name_any(), node.unwrap_or_default());
        let params = ListParams::default().labels(&selector);
        let pods = self
            .cluster
            .call(&call, self.cluster.pods().list(&params))
            .await?;
        Ok(source::sources(&pods.items))
    }

    /// The names of the run's nodes.
    fn nodes(&self) -> Vec<String> {
        draft(&self.run.spec)
            .map(|plan| plan.nodes.into_iter().map(|node| node.name).collect())
            .unwrap_or_default()
    }

    /// The width of the column with the names of nodes.
    fn width(&self) -> usize {
        self.nodes().iter().map(String::len).max().unwrap_or(0)
    }

    /// Why there are no logs to print.
    fn no_logs(&self) -> anyhow::Error {
        let name = self.run.name_any();
        let status = StatusSummary::of(self.run);
        let nodes = self.nodes();
        match self.node {
            Some(node) if !nodes.iter().any(|other| other == node) => {
                anyhow!("perfrun/{name} has no node {node}: it has {}", nodes.join(", "))
            }
            _ if status.has_ended => anyhow!(
                "perfrun/{name} no longer has pods, and their logs are deleted with them; \
                 spec.cleanup.keepPodsOnFailure keeps the pods of a failed run"
            ),
            _ => anyhow!("perfrun/{name} has no pods yet: {}", status.line()),
        }
    }
}

/// Logs that are being copied.
#[derive(Default)]
struct Copies {
    tasks: JoinSet<anyhow::Result<()>>,
    /// The names of pods whose logs are being copied, or were.
    pods: BTreeSet<String>,
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
