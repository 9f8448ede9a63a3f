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
use perfrun_metrics::Scrapes;
use perfrun_serve::{Limits, metrics_router};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Control, ControlAddress, Observed},
    clock,
    control::{Node, router},
    info::{info, program_digest},
    metrics::Metrics,
    process,
    trials::Trials,
};

/// A conductor has a few connections, which are idle during a trial. A scraper has one.
const LIMITS: Limits = Limits::new(256, Duration::from_secs(60));
/// Each scraper has a connection. It is idle for longer than the usual time between two scrapes.
const METRICS_LIMITS: Limits = Limits::new(16, Duration::from_secs(150));
/// How long a stopping node waits until its outcomes are collected.
const LAST_COLLECTION: Duration = Duration::from_secs(3);
/// How long calls in progress may then take.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// Serves a conductor until SIGTERM or SIGINT. A running trial then ends with a reason that can still be
/// collected. Where the conductor asks for it, the program restarts.
pub async fn serve(args: Control) -> anyhow::Result<()> {
    clock::now();
    let token = read_token(&args.token_file)?;
    let listener = listen(&args.control)?;
    let listen_ip = args.listen.ip();
    let observed = &args.observed;
    let metrics = Arc::new(Metrics::new(observed, args.role));
    let (page, scrapes) = (metrics.clone(), metrics.scrapes.clone());
    let extra = metrics_listener(observed)?;
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
        let _ = tokio::time::timeout(LAST_COLLECTION, collected).await;
        node.metrics.scrapes.seen(observed.linger_seconds).await;
        stop.cancel();
        tokio::time::sleep(LAST_CALLS).await;
    };
    let renewed = async {
        node.renew.cancelled().await;
        stop.cancel();
        tokio::time::sleep(LAST_CALLS).await;
    };
    // Waits for both, so that the last scrape has its answer before this ends.
    let serving = futures::future::join(
        perfrun_serve::serve(listener, router(node.clone()), LIMITS, stop.clone()),
        serve_metrics(extra, scrapes, move || page.encode(), stop.clone()),
    );
    tokio::select! {
        _ = serving => {}
        () = graceful => {}
        () = renewed => {}
    }
    if node.renew.is_cancelled() {
        let epoch = node.epoch.load(Ordering::Relaxed);
        let digest = node.program_digest.clone().await;
        return Err(process::restart(epoch, digest)).context("failed to start the program again");
    }
    Ok(())
}

/// The additional socket for metrics. `None` if none is configured.
pub(crate) fn metrics_listener(observed: &Observed) -> anyhow::Result<Option<tokio::net::TcpListener>> {
    let address = observed.metrics.map(ControlAddress::Bind);
    address.map(|address| listen(&address)).transpose()
}

/// Serves metrics on the additional socket, if there is one, until `stop`.
pub(crate) async fn serve_metrics(
    listener: Option<tokio::net::TcpListener>,
    scrapes: Arc<Scrapes>,
    encode: impl Fn() -> String + Clone + Send + Sync + 'static,
    stop: CancellationToken,
) {
    if let Some(listener) = listener {
        let router = metrics_router(scrapes, move || std::future::ready(encode()));
        perfrun_serve::serve(listener, router, METRICS_LIMITS, stop).await;
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

pub(crate) fn listen(address: &ControlAddress) -> anyhow::Result<tokio::net::TcpListener> {
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
