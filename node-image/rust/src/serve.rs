//! The controlled node: its control port, its trials, and its graceful stop.

use std::{
    net::TcpListener,
    os::fd::BorrowedFd,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use axum::Router;
use perfrun_serve::{Limits, metrics_router};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Control, ControlAddress, MetricsArgs},
    clock,
    control::{Node, router},
    info::{info, program_digest},
    metrics::Metrics,
    restart,
    trials::Trials,
};

/// A conductor has a few connections, which are idle during a trial. A scraper has one.
const LIMITS: Limits = Limits::new(256, Duration::from_secs(60));
/// Each scraper has a connection. It is idle for longer than the usual time between two scrapes.
const METRICS_LIMITS: Limits = Limits::new(16, Duration::from_secs(150));
/// How long a stopping node waits until its outcomes are collected.
const LAST_COLLECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// How long calls in progress may then take.
const LAST_CALLS_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves a conductor until SIGTERM or SIGINT. A running trial then ends with a reason that can still be
/// collected. Where the conductor asks for it, the program restarts.
pub async fn serve(args: Control) -> anyhow::Result<()> {
    clock::now();
    let token = read_token(&args.token_file)?;
    let metrics_args = &args.metrics_args;
    let sockets = Sockets::open(&args.control, metrics_args)?;
    let listen_ip = args.listen.ip();
    let metrics = Arc::new(Metrics::new(metrics_args, args.role));
    let (shown, scrapes) = (metrics.clone(), metrics.scrapes.clone());
    let page = metrics_router(scrapes, move || std::future::ready(shown.encode()));
    let node = Arc::new(Node {
        info: info(listen_ip),
        program_digest: program_digest(),
        trials: Trials::new(listen_ip, metrics.clone()),
        metrics,
        token: token.into(),
        epoch: Arc::new(AtomicU64::new(args.epoch)),
        renew: CancellationToken::new(),
    });
    let stop = CancellationToken::new();
    // Before the first answer, because a peer that received one may send a signal.
    let signalled = stop_signal().context("failed to watch for signals")?;
    let graceful = async {
        signalled.await;
        tracing::info!("stopping");
        node.trials.stop().await;
        let collected = async {
            while node.trials.has_uncollected() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(LAST_COLLECTION_TIMEOUT, collected).await;
        node.metrics
            .scrapes
            .wait_until_read(metrics_args.linger_seconds)
            .await;
        stop.cancel();
        tokio::time::sleep(LAST_CALLS_TIMEOUT).await;
    };
    let renewed = async {
        node.renew.cancelled().await;
        stop.cancel();
        tokio::time::sleep(LAST_CALLS_TIMEOUT).await;
    };
    tokio::select! {
        () = sockets.serve(router(node.clone()), LIMITS, page, stop.clone()) => {}
        () = graceful => {}
        () = renewed => {}
    }
    if node.renew.is_cancelled() {
        let epoch = node.epoch.load(Ordering::Relaxed);
        let digest = node.program_digest.clone().await;
        return Err(restart::restart(epoch, digest)).context("failed to start the program again");
    }
    Ok(())
}

/// The sockets of a program that a conductor calls.
pub(crate) struct Sockets {
    control: tokio::net::TcpListener,
    /// For metrics only. `None` if none is configured.
    metrics: Option<tokio::net::TcpListener>,
}

impl Sockets {
    pub(crate) fn open(control: &ControlAddress, metrics_args: &MetricsArgs) -> anyhow::Result<Self> {
        let metrics = metrics_args.metrics.map(ControlAddress::Bind);
        Ok(Self {
            control: listen(control)?,
            metrics: metrics.map(|address| listen(&address)).transpose()?,
        })
    }

    /// Serves calls, and the page of metrics at both sockets, until `stop`.
    pub(crate) async fn serve(self, calls: Router, limits: Limits, page: Router, stop: CancellationToken) {
        let Self { control, metrics } = self;
        let control = perfrun_serve::serve(control, calls.merge(page.clone()), limits, stop.clone());
        let metrics = async {
            if let Some(metrics) = metrics {
                perfrun_serve::serve(metrics, page, METRICS_LIMITS, stop).await;
            }
        };
        // Waits for both, so that the last scrape has its answer before this ends.
        futures::future::join(control, metrics).await;
    }
}

/// Starts to watch for SIGTERM and SIGINT. The future resolves with the first.
pub fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

pub(crate) fn read_token(file: &Path) -> anyhow::Result<String> {
    let shown = file.display();
    let token =
        std::fs::read_to_string(file).with_context(|| format!("failed to read the token from {shown}"))?;
    let token = token.trim().to_owned();
    ensure!(
        !token.is_empty(),
        "the token in {shown} is empty: write a secret of the run to this file"
    );
    Ok(token)
}

fn listen(address: &ControlAddress) -> anyhow::Result<tokio::net::TcpListener> {
    let listener = match address {
        ControlAddress::Bind(address) => TcpListener::bind(address)
            .with_context(|| format!("failed to bind {address}: is another node running?"))?,
        ControlAddress::Inherited(fd) => {
            ensure!(*fd > 2, "fd:{fd} is a standard stream, not a listening socket");
            // SAFETY: the parent passed this descriptor to this process, which never closes it: a new start
            // of the program inherits it again.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            rustix::net::getsockname(fd).context("the inherited descriptor is not a socket")?;
            TcpListener::from(fd.try_clone_to_owned()?)
        }
    };
    listener
        .set_nonblocking(true)
        .context("failed to set up the control port")?;
    tokio::net::TcpListener::from_std(listener).context("failed to set up the control port")
}
