//! commonware's runtime and network, on threads of their own.

use std::{
    io,
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    process, thread,
    time::Duration,
};

use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::authenticated::lookup::{self, Config, Oracle, Receiver};
use commonware_runtime::{
    Quota, Runner as _, Spawner as _, Supervisor as _,
    tokio::{self as runtime, Context},
};
use perfrun_contract::{
    parameters::Messages,
    support::{COMMONWARE_SPARE, commonware_burst, commonware_peers},
};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::handshake::{NAMESPACE, Upgrader};
use crate::stack::{CLOSE_TIMEOUT, address};

/// commonware's own default, fixed here so that a new default does not change results.
const WORKERS: usize = 2;

/// How often commonware looks for peers to dial, and how long it leaves a peer alone after a dial. Its 0.5 s
/// and 1 s would be most of the time that a dial takes.
const DIAL_INTERVAL: Duration = Duration::from_millis(20);

pub(super) type Sender = lookup::Sender<PublicKey, Context>;
pub(super) type Channel = (Sender, Receiver<PublicKey>);

/// The limits of a network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of the longest message.
    pub(super) message: u32,
    /// Peers that a host can have.
    pub(super) peers: usize,
    /// Messages per second.
    pub(super) rate: NonZeroU32,
    /// Messages of diallers that may be sent at the same moment.
    pub(super) burst: NonZeroU32,
    /// Acknowledgements and greetings that may be sent at the same moment.
    pub(super) answers: NonZeroU32,
    /// Messages that wait for one connection.
    pub(super) mailbox: NonZeroUsize,
    /// Whether connections send these messages before others.
    pub(super) priority: bool,
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
    pub(super) fn of(load: &Messages, listens: bool) -> Self {
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
    /// Reads the metrics of the network.
    pub(super) metrics: Context,
    pub(super) runtime: Runtime,
}

/// The runtime of a network. Dropping it stops the network.
pub(super) struct Runtime {
    stop: DropGuard,
    /// Cancelled when all threads have ended.
    pub(super) stopped: CancellationToken,
}

impl Runtime {
    /// Stops the network and waits until it is gone.
    pub(super) async fn stop(self) {
        drop(self.stop);
        // It waits for its own tasks as long.
        if tokio::time::timeout(2 * CLOSE_TIMEOUT, self.stopped.cancelled())
            .await
            .is_err()
        {
            tracing::warn!("commonware's runtime did not stop in time");
        }
    }
}

/// Starts a network that listens on `listen`. It may still fail to bind, and then stops.
pub(super) async fn start(upgrader: Upgrader, listen: SocketAddr, limits: Limits) -> Result<Network, String> {
    let storage = storage().map_err(|error| address::describe(&error))?;
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
            let (mut network, oracle) =
                lookup::Network::new(context.child("network"), config_of(upgrader, listen, limits));
            let mut channels = 0..;
            let [data, acknowledgements, greetings] = limits
                .quotas()
                .map(|quota| network.register(channels.next().unwrap_or_default(), quota));
            let running = network.start();
            // Without a receiver, the host is gone, and stops the network.
            let _ = ready.send((
                context.child("metrics"),
                oracle,
                data,
                acknowledgements,
                greetings,
            ));
            tokio::select! {
                () = stop_requested.cancelled() => {}
                _ = running => {}
            }
            if let Err(error) = context.stop(0, Some(CLOSE_TIMEOUT)).await {
                tracing::warn!(%error, "tasks of commonware did not stop in time");
            }
        });
    };
    let runtime = Runtime {
        stop: stop.drop_guard(),
        stopped,
    };
    let thread = thread::Builder::new().name("commonware".to_owned());
    thread.spawn(run).map_err(|error| address::describe(&error))?;
    let (metrics, oracle, data, acknowledgements, greetings) = started
        .await
        .map_err(|_| "its runtime failed to start".to_owned())?;
    Ok(Network {
        oracle,
        data,
        acknowledgements,
        greetings,
        metrics,
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
