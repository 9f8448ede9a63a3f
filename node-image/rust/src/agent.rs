//! The link agent: impairs what its network namespace sends to peers, and measures links to other agents.
//!
//! The agent is a separate process beside the node, so that the node needs no capability, and the cost of an
//! impaired link is not charged to the stack under test. A conductor sets the link over the control port, see
//! [`perfrun_contract::node`]. On exit the agent removes everything. If it is killed, the interface stays
//! closed or impaired until the next agent takes over, which happens immediately if it has a state file.

mod emulation;
mod metrics;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use axum::{
    Json, Router,
    extract::{State, rejection::JsonRejection},
    http::StatusCode,
    routing::{get, put},
};
use parking_lot::Mutex;
use perfrun_contract::node::{LinkRequest, LinkStatus, ProbeRequest};
use perfrun_emulator::probe;
use perfrun_link::{Abilities, probe::Measurement};
use perfrun_serve::{Limits, metrics_router};
use tokio::{net::UdpSocket, sync::oneshot, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

use self::{emulation::Emulation, metrics::Metrics};
use crate::{
    args,
    control::{RefusedCall, guard, unreadable},
    serve::{Sockets, read_token, stop_signal},
};

/// A conductor has one or two connections, a scraper has one.
const LIMITS: Limits = Limits::new(64, Duration::from_secs(60));
/// How long calls in progress may take when the agent stops.
const LAST_CALLS_TIMEOUT: Duration = Duration::from_secs(1);

/// The state that calls work on.
struct Agent {
    interface: String,
    abilities: Abilities,
    emulation: Arc<Mutex<Emulation>>,
    listen_ip: std::net::IpAddr,
    probe_port: u16,
    /// One measurement at a time: a second one would be traffic for the first.
    probing: Arc<tokio::sync::Mutex<()>>,
    metrics: Metrics,
}

/// Serves a conductor until SIGTERM or SIGINT, and leaves the interface as it was.
pub async fn serve(args: args::LinkAgent) -> anyhow::Result<()> {
    let token = read_token(&args.token_file)?;
    let sockets = Sockets::open(&args.control, &args.metrics_args)?;
    let listen_ip = args.listen.ip();
    let bound = std::net::UdpSocket::bind(SocketAddr::new(listen_ip, 0));
    let socket = bound.with_context(|| format!("failed to bind a UDP port of {listen_ip} for probes"))?;
    socket.set_nonblocking(true)?;
    let probe_port = socket.local_addr()?.port();
    let answering = on_time(async { probe::serve(UdpSocket::from_std(socket)?).await })?;
    if args.make_tun_device {
        make_tun_device();
    }
    let interface = args.interface.clone();
    let abilities = spawn_blocking({
        let interface = interface.clone();
        move || perfrun_emulator::abilities::detect(&interface)
    })
    .await?;
    let emulation = Emulation::new(&interface, abilities.clone(), args.state_file);
    let emulation = spawn_blocking(move || emulation.restored()).await??;
    let emulation = Arc::new(Mutex::new(emulation));
    let agent = Arc::new(Agent {
        interface,
        abilities,
        metrics: Metrics::new(&args.metrics_args, emulation.clone()),
        emulation: emulation.clone(),
        listen_ip,
        probe_port,
        probing: Arc::default(),
    });
    // For `perfrun link show` in this network namespace, which otherwise only sees the filters.
    let shown = emulation.clone();
    let _status =
        perfrun_emulator::Status::serve(&args.interface, move || shown.lock().state().ok().flatten())
            .inspect_err(|error| tracing::info!(%error, "perfrun link show cannot query this agent"));
    let stop = CancellationToken::new();
    let signalled = stop_signal().context("failed to watch for signals")?;
    let (shown, scrapes) = (agent.clone(), agent.metrics.scrapes.clone());
    let page = metrics_router(scrapes, move || std::future::ready(shown.metrics.encode()));
    let graceful = async {
        signalled.await;
        // The counters may have changed until now, since no packet is known to be the last.
        agent.metrics.scrapes.note_change();
        agent
            .metrics
            .scrapes
            .wait_until_read(args.metrics_args.linger_seconds)
            .await;
        stop.cancel();
        tokio::time::sleep(LAST_CALLS_TIMEOUT).await;
    };
    let calls = router(agent.clone(), token.into());
    tokio::select! {
        () = sockets.serve(calls, LIMITS, page, stop.clone()) => {}
        () = graceful => {}
        ended = answering => {
            ended.context("the thread that answers probes has ended")?.context("failed to answer probes")?;
        }
    }
    spawn_blocking(move || emulation.lock().remove()).await?
}

fn router(agent: Arc<Agent>, token: Arc<str>) -> Router {
    let guarded = Router::new()
        .route("/v1/link", get(get_link).put(put_link))
        .route("/v1/link/probe", put(put_probe));
    let open = Router::new()
        .route("/healthz", get(async || "ok\n"))
        // The agent answers calls only after it has restored its link, so it is always ready.
        .route("/readyz", get(async || "ok\n"));
    open.merge(guard(guarded, token, Arc::default()))
        .with_state(agent)
}

async fn get_link(State(agent): State<Arc<Agent>>) -> Result<Json<LinkStatus>, RefusedCall> {
    // The conductor asks after each trial. A page from before would lack the end of the trial.
    agent.metrics.scrapes.note_change();
    let emulation = agent.emulation.clone();
    let (instance, state) = blocking(move || Ok(emulation.lock().verified())).await?;
    Ok(Json(LinkStatus {
        instance,
        interface: agent.interface.clone(),
        capabilities: agent.abilities.clone(),
        probe_port: agent.probe_port,
        state,
    }))
}

async fn put_link(
    State(agent): State<Arc<Agent>>,
    request: Result<Json<LinkRequest>, JsonRejection>,
) -> Result<StatusCode, RefusedCall> {
    let Json(request) = request.map_err(unreadable)?;
    let emulation = agent.emulation.clone();
    blocking(move || emulation.lock().set(request)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn put_probe(
    State(agent): State<Arc<Agent>>,
    request: Result<Json<ProbeRequest>, JsonRejection>,
) -> Result<Json<Measurement>, RefusedCall> {
    let Json(ProbeRequest { server, plan }) = request.map_err(unreadable)?;
    plan.check()
        .map_err(|bad| RefusedCall::new(StatusCode::BAD_REQUEST, bad.to_string()))?;
    let Ok(alone) = agent.probing.clone().try_lock_owned() else {
        return Err(RefusedCall::new(
            StatusCode::LOCKED,
            "another measurement is in progress: retry when it has ended".into(),
        ));
    };
    // Not a status of a gateway: the call reached the agent, but the agent did not reach its peer.
    let failed = |why: String| RefusedCall::new(StatusCode::UNPROCESSABLE_ENTITY, why);
    let from = SocketAddr::new(agent.listen_ip, 0);
    let measuring = on_time(async move {
        let socket = UdpSocket::bind(from).await?;
        let measured = probe::measure(socket, server, &plan).await?;
        drop(alone);
        anyhow::Ok(measured)
    });
    let measured = async { measuring?.await? }.await;
    let measured = measured.map_err(|error| failed(format!("{error:#}")))?;
    agent.metrics.record(&measured);
    Ok(Json(measured))
}

/// Runs work on its own thread, which wakes up as punctually as the emulator, so that the result describes
/// the link and not how busy the machine is.
fn on_time<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> std::io::Result<oneshot::Receiver<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (done, outcome) = oneshot::channel();
    std::thread::Builder::new()
        .name("probe".to_owned())
        .spawn(move || {
            perfrun_emulator::realtime::acquire();
            // The caller may no longer wait.
            let _ = done.send(runtime.block_on(work));
        })?;
    Ok(outcome)
}

/// Runs work that may block for some milliseconds.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Result<T, RefusedCall> {
    let done = spawn_blocking(work).await;
    done.map_err(anyhow::Error::from)
        .flatten()
        .map_err(|error| RefusedCall::new(StatusCode::NOT_IMPLEMENTED, format!("{error:#}")))
}

/// Creates /dev/net/tun, which containers do not have. If that fails, the agent later reports that impairing
/// in user space is not available, with the reason.
fn make_tun_device() {
    let path = Path::new("/dev/net/tun");
    if path.exists() {
        return;
    }
    let made = std::fs::create_dir_all("/dev/net").and_then(|()| {
        use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
        Ok(mknodat(
            CWD,
            path,
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o600),
            makedev(10, 200),
        )?)
    });
    if let Err(error) = made {
        tracing::info!(%error, "/dev/net/tun does not exist and cannot be created");
    }
}
