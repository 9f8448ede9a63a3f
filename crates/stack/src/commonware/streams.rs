//! The stream layer of commonware (commonware-stream), where each stream is an encrypted TCP connection.
//!
//! It is what commonware-p2p sends its messages over. Its sockets are those of commonware's runtime, and the
//! node's threads drive them, as they drive those of the other stacks.

mod sealed;

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use commonware_runtime::{
    Error as RuntimeError, Listener as _, ListenerOf, Network as _, Runner as _, SinkOf, StreamOf,
    Supervisor as _,
    tokio::{self as runtime, Context},
};
use commonware_stream::{Upgrader as _, sake, utils::codec};
use futures::TryFutureExt;
use perfrun_contract::matrix::Transport;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OnceCell, Semaphore, mpsc},
    time::sleep,
};
use tokio_util::sync::DropGuard;

use self::sealed::Sealed;
use super::{
    address::Address,
    handshake::{NAMESPACE, Upgrader},
    network, setup, unsupported,
};
use crate::{
    CONNECTIONS_MAX, Connection, DIAL_TIMEOUT, DialPhases, Error, Host, IDLE_TIMEOUT, Inbound, Reservation,
    address::cannot_listen, error::describe, interfaces, stream_per_connection::StreamPerConnection,
    tasks::Tasks, within,
};

/// Starts a host that makes connections with `upgrader`.
pub(super) async fn start(
    listen: Option<SocketAddr>,
    upgrader: Upgrader,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    let context = context().await?;
    let tasks = Tasks::default();
    let stop = tasks.stop_on_drop();
    let mut addresses = Vec::new();
    if let Some(listen) = listen {
        let failed = cannot_listen(Transport::Tcp, listen);
        // commonware would not report why it failed to.
        drop(TcpListener::bind(listen).await.map_err(&failed)?);
        let bound = context.bind(listen).await;
        let listener = bound.map_err(|error| failed(io::Error::other(error)))?;
        addresses =
            interfaces::dialable(Transport::Tcp, listener.local_addr().map_err(&failed)?).map_err(&failed)?;
        for address in &mut addresses {
            address.push_str(&Address::suffix(&upgrader.public_key(), None));
        }
        let upgrader = upgrader.clone();
        tasks.spawn(accept(context, listener, upgrader, inbound, tasks.clone()));
    }
    Ok(Box::new(Streams {
        addresses,
        dialler: Dialler { context, upgrader },
        tasks,
        _stop: stop,
    }))
}

/// commonware's clock, random numbers and sockets, which need none of the threads of its runtime: sockets
/// belong to the runtime of the task that opens them.
async fn context() -> Result<&'static Context, Error> {
    static CONTEXT: OnceCell<Context> = OnceCell::const_new();
    let start = || {
        let storage = network::storage().map_err(|error| describe(&error))?;
        let config = runtime::Config::new()
            .with_worker_threads(1)
            .with_storage_directory(storage.path())
            .with_connect_timeout(DIAL_TIMEOUT)
            .with_read_write_timeout(IDLE_TIMEOUT)
            // A closed connection would otherwise lose the end of what it was given.
            .with_zero_linger(false);
        Ok(runtime::Runner::new(config).start(|context| async move { context.child("streams") }))
    };
    let started = CONTEXT.get_or_try_init(|| async {
        let started = tokio::task::spawn_blocking(start).await;
        started.map_err(|_| "its runtime failed to start".to_owned())?
    });
    started.await.map_err(setup)
}

async fn accept(
    context: &'static Context,
    mut listener: ListenerOf<Context>,
    upgrader: Upgrader,
    inbound: mpsc::UnboundedSender<Inbound>,
    tasks: Tasks,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        match listener.accept().await {
            Ok((from, sink, stream)) => {
                let Ok(counted) = Arc::clone(&room).try_acquire_owned() else {
                    tracing::debug!("refused a connection above the limit");
                    continue;
                };
                let listen = upgrader.clone().listen(
                    context.child("listen"),
                    NAMESPACE,
                    Sealed::MOST,
                    // Only nodes of perfrun know the namespace.
                    |_| async { true },
                    stream,
                    sink,
                );
                let inbound = inbound.clone();
                tasks.spawn(async move {
                    match upgraded(listen).await {
                        Ok((_, sender, receiver)) => {
                            let stream = Sealed::new(sender, receiver, Some(counted));
                            // Without a receiver, the connection is dropped, which the peer notices.
                            let _ = inbound.send(Inbound::Connection);
                            let _ = inbound.send(Inbound::Stream(Box::new(stream)));
                        }
                        Err(reason) => tracing::warn!(%from, reason, "a handshake failed"),
                    }
                });
            }
            Err(error) => {
                // Usually the process is out of file descriptors, which closing connections return.
                tracing::warn!(%error, "failed to accept a connection");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// The result of a handshake, or why it failed.
async fn upgraded<T>(handshake: impl Future<Output = Result<T, sake::Error>>) -> Result<T, String> {
    within(DIAL_TIMEOUT, handshake.map_err(reason)).await
}

fn reason(error: sake::Error) -> String {
    const CLOCKS: &str = "the clocks of the two machines differ by more than the handshake allows";
    let described = describe(&error);
    match error {
        sake::Error::HandshakeError(sake_error) if is_of_clocks(&sake_error) => {
            format!("{CLOCKS} ({described})")
        }
        // A peer that refuses a message closes the connection and does not say why.
        sake::Error::Frame(codec::Error::RecvFailed(RuntimeError::RecvFailed)) => {
            format!("the peer ended the handshake: it has stopped, or {CLOCKS}; its log says which")
        }
        _ => described,
    }
}

fn is_of_clocks(error: &commonware_cryptography::handshake::sake::Error) -> bool {
    matches!(
        error,
        commonware_cryptography::handshake::sake::Error::InvalidTimestamp(..)
    )
}

#[derive(Clone)]
struct Dialler {
    context: &'static Context,
    upgrader: Upgrader,
}

impl Dialler {
    /// Connects to a peer, and returns the stream and when TCP was connected.
    async fn dial(self, peer: Address) -> Result<(Sealed, Instant), String> {
        let dialled: Result<(SinkOf<Context>, StreamOf<Context>), _> = self.context.dial(peer.socket).await;
        let (sink, stream) = match dialled {
            Ok(dialled) => dialled,
            // commonware does not report why.
            Err(error) => {
                let plain = TcpStream::connect(peer.socket).await;
                return Err(plain.err().map_or(describe(&error), |error| describe(&error)));
            }
        };
        let connected = Instant::now();
        let dial = self.upgrader.dial(
            self.context.child("dial"),
            NAMESPACE,
            Sealed::MOST,
            peer.key,
            stream,
            sink,
        );
        let (sender, receiver) = upgraded(dial).await?;
        Ok((Sealed::new(sender, receiver, None), connected))
    }
}

struct Streams {
    addresses: Vec<String>,
    dialler: Dialler,
    tasks: Tasks,
    _stop: DropGuard,
}

#[async_trait]
impl Host for Streams {
    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn dial(&self, address: &str) -> Result<Box<dyn Connection>, Error> {
        let peer = Address::parse(address)?;
        let dialler = self.dialler.clone();
        let dial = move || dialler.clone().dial(peer.clone());
        let began = Instant::now();
        let dialled = within(DIAL_TIMEOUT, dial()).await;
        let (first, connected) = dialled.map_err(|reason| Error::dial(address, reason))?;
        let phases = DialPhases {
            transport: Some(connected - began),
            established: began.elapsed(),
            ..DialPhases::default()
        };
        let redial = move || dial().map_ok(|(stream, _)| stream);
        Ok(Box::new(StreamPerConnection::new(first, phases, redial)))
    }

    async fn reserve(&self, _: &str) -> Result<Reservation, Error> {
        Err(unsupported("relays"))
    }

    async fn close(self: Box<Self>) {
        self.tasks.end().await;
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use commonware_cryptography::ed25519::PrivateKey;
    use perfrun_contract::matrix::Cups;

    use super::*;
    use crate::commonware::handshake::{CLOCK_DIFFERENCE_MAX, upgrader};

    async fn dial_between(dialler: Duration, listener: Duration) -> Result<(), Error> {
        use commonware_cryptography::Signer as _;
        let (inbound, _events) = mpsc::unbounded_channel();
        let upgraders = [(1, listener), (2, dialler)]
            .map(|(seed, clocks)| upgrader(PrivateKey::from_seed(seed), Cups::V1, clocks));
        let [listening, dialling] = upgraders;
        let here = (Ipv4Addr::LOCALHOST, 0).into();
        let server = start(Some(here), listening, inbound.clone()).await?;
        let client = start(None, dialling, inbound).await?;
        client.dial(&server.addresses()[0]).await.map(drop)
    }

    #[tokio::test]
    async fn clocks_that_differ_too_much_are_the_reason_of_a_failed_dial() {
        dial_between(CLOCK_DIFFERENCE_MAX, CLOCK_DIFFERENCE_MAX)
            .await
            .expect("clocks that agree");
        for (dialler, listener) in [
            (CLOCK_DIFFERENCE_MAX, Duration::ZERO),
            (Duration::ZERO, CLOCK_DIFFERENCE_MAX),
        ] {
            let error = dial_between(dialler, listener)
                .await
                .expect_err("a dial that fails");
            assert!(matches!(error, Error::Dial { .. }), "{error}");
            assert!(error.to_string().contains("clocks"), "{error}");
        }
    }
}
