//! commonware's runtime, on threads of its own, and the networks in it.

use std::{
    io,
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    process,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::authenticated::lookup::{self, Config, Oracle, Receiver};
use commonware_runtime::{
    Metrics as _, Quota, Runner as _, Spawner as _, Supervisor as _,
    tokio::{self as runtime, Context},
};
use perfrun_contract::{
    parameters::{Messages, Workload},
    support::{COMMONWARE_SPARE, commonware_burst, commonware_peers},
};
use tempfile::TempDir;
use tokio::{
    runtime::Handle,
    sync::{Mutex, oneshot},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    handshake::{NAMESPACE, Upgrader},
    metrics::Counts,
};
use crate::{CLOSE_TIMEOUT, StackMetrics, error::describe};

/// commonware's own default, fixed here so that a new default does not change results.
const WORKERS: usize = 2;

const NOT_STARTED: &str = "its runtime failed to start";

/// How often commonware looks for peers to dial, and how long it leaves a peer alone after a dial. Its 0.5 s
/// and 1 s would be most of the time that a dial takes.
const DIAL_INTERVAL: Duration = Duration::from_millis(20);

pub(super) type Sender = lookup::Sender<PublicKey, Context>;
pub(super) type Channel = (Sender, Receiver<PublicKey>);

/// The limits of a network.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the longest message.
    pub message: u32,
    /// Peers that a host can have.
    pub peers: usize,
    /// Messages per second.
    pub rate: NonZeroU32,
    /// Messages of diallers that may be sent at the same moment.
    pub burst: NonZeroU32,
    /// Acknowledgements and greetings that may be sent at the same moment.
    pub answers: NonZeroU32,
    /// Messages that wait for one connection.
    pub mailbox: NonZeroUsize,
    /// Whether connections send these messages before others.
    pub priority: bool,
}

impl Limits {
    /// Most peers of a host that only dials.
    const DIALLER: usize = 4;

    /// Messages per second: one in 100 ns, which is less than sending one takes.
    const RATE: NonZeroU32 = NonZeroU32::new(10_000_000).expect("it is not 0");

    /// The limits by which the network never limits a load that waits for acknowledgements.
    ///
    /// A load has at most a window of messages in flight to each peer, and acknowledges each of them at most
    /// once. With room for a window of each peer, no queue can overflow, so the stack lost what is missing.
    /// The quota is far above any rate. Its burst is that room, because commonware derives its queues from
    /// it.
    ///
    /// A broadcast waits for nothing, so any queue can overflow. Its queues have the most room that a host's
    /// memory allows, and what is lost is a result.
    pub fn of(load: &Messages, listens: bool) -> Self {
        let dialled = Self::DIALLER.max(load.receivers as usize);
        let burst = NonZeroU32::MIN.saturating_add(commonware_burst(load) - 1);
        Self {
            message: load.message_bytes.max(Messages::STAMPED).0 as u32,
            peers: match listens {
                true => commonware_peers(load) as usize,
                false => dialled,
            },
            rate: Self::RATE,
            burst,
            answers: NonZeroU32::MIN.saturating_add(load.window + COMMONWARE_SPARE),
            mailbox: NonZeroUsize::MIN.saturating_add(2 * burst.get() as usize),
            priority: load.priority,
        }
    }

    /// The quotas of data, of acknowledgements and of greetings.
    fn quotas(&self) -> [Quota; 3] {
        [self.burst, self.answers, self.answers].map(|burst| Quota::per_second(self.rate).allow_burst(burst))
    }
}

/// A network that runs.
pub(super) struct Network {
    pub(super) oracle: Oracle<PublicKey>,
    /// Messages from diallers to listeners.
    pub(super) data: Channel,
    /// Messages from listeners to diallers.
    pub(super) acknowledgements: Channel,
    /// Greetings, by which both learn that they are connected.
    pub(super) greetings: Channel,
    /// Stops the network when it is dropped.
    pub(super) stop: DropGuard,
    /// Cancelled when the network has ended.
    pub(super) stopped: CancellationToken,
    pub(super) runtime: Arc<Runtime>,
}

/// The runtime of one or more networks, on threads of its own. Dropping it stops them.
pub(super) struct Runtime {
    /// Before `stop`, because its metrics end with it.
    metered: Metered,
    pub(super) handle: Handle,
    stop: DropGuard,
    /// Cancelled when all threads have ended.
    stopped: CancellationToken,
}

impl Runtime {
    /// The runtime for the network of a host with this load: its own, as two programs have it, or the one of
    /// all hosts of this process whose peers are in this process, too, as in commonware's published
    /// benchmark. `totals` get its counts when it ends.
    pub(super) async fn of(load: &Messages, totals: Arc<StackMetrics>) -> Result<Arc<Self>, String> {
        /// Ends with the last of its hosts.
        static TOGETHER: Mutex<Weak<Runtime>> = Mutex::const_new(Weak::new());
        if !load.is_in_process() {
            return Self::start(totals).await.map(Arc::new);
        }
        let mut together = TOGETHER.lock().await;
        if let Some(runtime) = together.upgrade() {
            return Ok(runtime);
        }
        let runtime = Arc::new(Self::start(totals).await?);
        *together = Arc::downgrade(&runtime);
        Ok(runtime)
    }

    pub(super) async fn start(totals: Arc<StackMetrics>) -> Result<Self, String> {
        let storage = storage().map_err(|error| describe(&error))?;
        let (stop, stopped) = (CancellationToken::new(), CancellationToken::new());
        let (ready, started) = oneshot::channel();
        let (stop_requested, ended) = (stop.clone(), stopped.clone().drop_guard());
        let run = move || {
            // Dropped after the runtime, also if that panics.
            let _ended = ended;
            let config = runtime::Config::new()
                .with_worker_threads(WORKERS)
                .with_storage_directory(storage.path());
            runtime::Runner::new(config).start(|context| async move {
                // The runtime opens it when it starts. So nothing is left of a process that is killed.
                drop(storage);
                // Without a receiver, the host is gone, and stops the runtime.
                let _ = ready.send((context.child("hosts"), Handle::current()));
                stop_requested.cancelled().await;
                if let Err(error) = context.stop(0, Some(CLOSE_TIMEOUT)).await {
                    tracing::warn!(%error, "tasks of commonware did not stop in time");
                }
            });
        };
        let stop = stop.drop_guard();
        let thread = thread::Builder::new().name("commonware".to_owned());
        thread.spawn(run).map_err(|error| describe(&error))?;
        let (context, handle) = started.await.map_err(|_| NOT_STARTED.to_owned())?;
        Ok(Self {
            metered: Metered { context, totals },
            handle,
            stop,
            stopped,
        })
    }

    /// What its networks have counted.
    pub(super) fn counts(&self) -> Counts {
        self.metered.counts()
    }

    /// Stops its networks and waits until they are gone, unless it has another host.
    pub(super) async fn stop(self: Arc<Self>) {
        let Some(Self {
            metered,
            stop,
            stopped,
            ..
        }) = Arc::into_inner(self)
        else {
            return;
        };
        drop((metered, stop));
        // It waits for its own tasks as long.
        if tokio::time::timeout(2 * CLOSE_TIMEOUT, stopped.cancelled())
            .await
            .is_err()
        {
            tracing::warn!("commonware's runtime did not stop in time");
        }
    }
}

/// The metrics of a runtime, which are added to those of all others when it ends.
struct Metered {
    context: Context,
    totals: Arc<StackMetrics>,
}

impl Metered {
    fn counts(&self) -> Counts {
        Counts::read(&self.context.encode())
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.totals.commonware.add(self.counts());
    }
}

/// Starts a network that listens on `listen`. It may still fail to bind, and then ends.
pub(super) async fn start(
    runtime: Arc<Runtime>,
    upgrader: Upgrader,
    listen: SocketAddr,
    limits: Limits,
) -> Result<Network, String> {
    let (stop, stopped) = (CancellationToken::new(), CancellationToken::new());
    let (ready, started) = oneshot::channel();
    let (stop_requested, ended) = (stop.clone(), stopped.clone().drop_guard());
    let host = runtime.metered.context.child("host");
    host.spawn(move |context| async move {
        let _ended = ended;
        let (mut network, oracle) =
            lookup::Network::new(context.child("network"), config_of(upgrader, listen, limits));
        let mut numbers = 0..;
        let channels = limits
            .quotas()
            .map(|quota| network.register(numbers.next().unwrap_or_default(), quota));
        let running = network.start();
        // Without a receiver, the host is gone, and stops the network.
        let _ = ready.send((oracle, channels));
        // The tasks of the network end with this one.
        tokio::select! {
            () = stop_requested.cancelled() => {}
            _ = running => {}
        }
    });
    let stop = stop.drop_guard();
    let (oracle, [data, acknowledgements, greetings]) = started.await.map_err(|_| NOT_STARTED.to_owned())?;
    Ok(Network {
        oracle,
        data,
        acknowledgements,
        greetings,
        stop,
        stopped,
        runtime,
    })
}

/// A folder for the storage of commonware's runtime, which nothing uses. In memory if possible: a
/// runtime begins with a flush of that file system.
pub(super) fn storage() -> io::Result<TempDir> {
    let prefix = format!("perfrun-commonware-{}-", process::id());
    let named = || {
        let mut folder = tempfile::Builder::new();
        folder.prefix(&prefix);
        folder
    };
    named().tempdir_in("/dev/shm").or_else(|_| named().tempdir())
}

fn config_of(upgrader: Upgrader, listen: SocketAddr, limits: Limits) -> Config<Upgrader> {
    // A set also has the host itself.
    let peers = NonZeroUsize::MIN.saturating_add(limits.peers);
    let often = Quota::per_second(NonZeroU32::MAX);
    Config {
        // Peers behind one address are the rule in a benchmark, not an attack.
        bypass_ip_check: true,
        allowed_handshake_rate_per_ip: often,
        allowed_handshake_rate_per_subnet: often,
        peer_connection_cooldown: DIAL_INTERVAL,
        dial_frequency: DIAL_INTERVAL,
        // Queues have room for each set.
        tracked_peer_sets: NonZeroUsize::MIN,
        ..Config::local(upgrader, NAMESPACE, listen, peers, limits.message, limits.mailbox)
    }
}
