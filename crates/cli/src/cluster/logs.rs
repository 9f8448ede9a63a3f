//! `perfrun logs`.

mod copy;
mod source;

use std::{collections::BTreeSet, io, time::Duration};

use anyhow::anyhow;
use kube::{ResourceExt, api::ListParams};
use perfrun_api::{
    cluster::{NODE_LABEL, RUN_LABEL},
    planning::plan,
    spec::PerfRun,
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{copy::Copy, source::Source};
use super::{
    access::Cluster,
    error::{Act, Error},
    find::find,
    follow::{follow, patiently},
    run::stop_on_signal,
    stage::Stage,
};
use crate::{args, run::INTERRUPTED, ui::Screen};

/// Between two looks for new pods.
const PAUSE: Duration = Duration::from_secs(2);

/// For the last lines after a run has ended: pods that are kept may never end.
const GRACE: Duration = Duration::from_secs(5);

/// Prints what the nodes of a run log; returns the exit status.
pub async fn logs(args: &args::Logs) -> anyhow::Result<u8> {
    let stop = stop_on_signal();
    let cluster = Cluster::find(&args.target).await?;
    let run = find(&cluster, &args.name).await?;
    let command = Command {
        cluster: &cluster,
        run: &run,
        node: args.node.as_deref(),
    };
    let copied = async {
        if args.follow {
            command.follow().await
        } else {
            command.print().await
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(INTERRUPTED),
        copied = copied => match copied {
            // A reader who has seen enough, as `head` has, is no error.
            Err(error) if is_broken_pipe(&error) => Ok(0),
            copied => copied.map(|()| 0),
        },
    }
}

struct Command<'a> {
    cluster: &'a Cluster,
    run: &'a PerfRun,
    node: Option<&'a str>,
}

impl Command<'_> {
    /// Prints what there is, node by node.
    async fn print(&self) -> anyhow::Result<()> {
        let sources = self.sources().await?;
        if sources.is_empty() {
            return Err(self.nothing());
        }
        let width = self.width();
        for source in &sources {
            let copy = Copy {
                cluster: self.cluster.clone(),
                prefix: (sources.len() > 1).then(|| source.prefix(width)),
                source: source.clone(),
            };
            copy.once().await?;
        }
        Ok(())
    }

    /// Prints what there is and what comes, until the run ends.
    async fn follow(&self) -> anyhow::Result<()> {
        if Stage::of(self.run).has_ended() {
            return self.print().await;
        }
        let screen = Screen::new(true, 0);
        let never = CancellationToken::new();
        let mut copies = Copies::default();
        tokio::select! {
            ended = follow(self.cluster, self.run, &screen, &never) => drop(ended?),
            failed = self.copy_all(&mut copies) => failed?,
        }
        let last_lines = async {
            // A short run may have begun and ended since the last look.
            self.copy_new(&mut copies).await?;
            while let Some(ended) = copies.tasks.join_next().await {
                ended??;
            }
            anyhow::Ok(())
        };
        timeout(GRACE, last_lines).await.unwrap_or(Ok(()))
    }

    /// Copies the logs of all pods, also of those that come later. Ends only by an error.
    async fn copy_all(&self, copies: &mut Copies) -> anyhow::Result<()> {
        loop {
            // Who follows the run says that the cluster cannot be reached.
            let sources = patiently(None, || self.sources()).await?;
            self.copy_those(sources, copies);
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
        self.copy_those(sources, copies);
        Ok(())
    }

    fn copy_those(&self, sources: Vec<Source>, copies: &mut Copies) {
        let width = self.width();
        for source in sources.into_iter().filter(|source| source.has_started) {
            if copies.pods.insert(source.pod.clone()) {
                let copy = Copy {
                    cluster: self.cluster.clone(),
                    prefix: self.node.is_none().then(|| source.prefix(width)),
                    source,
                };
                copies.tasks.spawn(copy.until_it_ends());
            }
        }
    }

    async fn sources(&self) -> Result<Vec<Source>, Error> {
        let act = Act {
            verb: "list",
            resource: "pods",
            name: None,
        };
        let node = self.node.map(|node| format!(",{NODE_LABEL}={node}"));
        let selector = format!("{RUN_LABEL}={}{}", self.run.name_any(), node.unwrap_or_default());
        let params = ListParams::default().labels(&selector);
        let pods = self.cluster.call(&act, self.cluster.pods().list(&params)).await?;
        Ok(source::sources(&pods.items))
    }

    /// Names of the run's nodes.
    fn nodes(&self) -> Vec<String> {
        plan(&self.run.spec)
            .map(|plan| plan.nodes.into_iter().map(|node| node.name).collect())
            .unwrap_or_default()
    }

    /// Of the column that says whose a line is.
    fn width(&self) -> usize {
        self.nodes().iter().map(String::len).max().unwrap_or(0)
    }

    /// Why there is nothing to print.
    fn nothing(&self) -> anyhow::Error {
        let name = self.run.name_any();
        let stage = Stage::of(self.run);
        let nodes = self.nodes();
        match self.node {
            Some(node) if !nodes.iter().any(|known| known == node) => {
                anyhow!("perfrun/{name} has no node {node}: it has {}", nodes.join(", "))
            }
            _ if stage.has_ended() => anyhow!(
                "perfrun/{name} has no pods any more, and logs go with them; spec.cleanup.keepPodsOnFailure keeps those \
                 of a run that fails"
            ),
            _ => anyhow!("perfrun/{name} has no pods yet: {}", stage.line()),
        }
    }
}

/// Logs that are being copied.
#[derive(Default)]
struct Copies {
    tasks: JoinSet<anyhow::Result<()>>,
    /// Those that are or were.
    pods: BTreeSet<String>,
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
