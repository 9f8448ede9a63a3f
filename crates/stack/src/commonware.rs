//! commonware-p2p, with peers whose addresses are known (authenticated lookup), and its stream layer.
//!
//! commonware-p2p passes messages and has no streams. Its runtime runs beside the node's, on threads of its
//! own. Workloads with streams use the layer below it, `streams`.

pub(crate) mod address;
mod handshake;
mod inbox;
pub(crate) mod introduction;
#[doc(hidden)]
pub mod limited;
mod messenger;
mod metrics;
mod network;
mod peers;
mod streams;

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use commonware_codec::DecodeExt;
use commonware_cryptography::{
    Signer,
    ed25519::{PrivateKey, PublicKey},
};
use commonware_p2p::{Receiver as _, Recipients, Sender as _, authenticated::lookup};
use commonware_runtime::IoBuf;
use parking_lot::Mutex;
use perfrun_contract::{
    matrix::{Identity, Stack, Transport},
    role::Role,
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::{Notify, mpsc},
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(super) use self::metrics::Totals;
use self::{
    address::Address,
    handshake::Upgrader,
    inbox::Inbox,
    introduction::{Answer, Introduction},
    messenger::{Bodies, Exchange, NetworkBroadcaster},
    network::{Limits, Network, Runtime, Sender},
    peers::{Origin, Peers, Refused, Registration},
};
use super::{
    BoxStream, CLOSE_TIMEOUT, Connection, DIAL_TIMEOUT, DialPhases, Error, Host, HostConfig, Inbound, Keys,
    Reservation, accept, interfaces, tasks::Tasks,
};
use crate::{
    error::describe,
    messenger::{BoxMessenger, Broadcaster, Message},
};

/// Time between the greetings of a dialler.
const GREETING_INTERVAL: Duration = Duration::from_millis(10);

/// A dialler's greeting.
const HELLO: &[u8] = b"hello";

/// A listener's answer to a greeting.
const WELCOME: &[u8] = b"welcome";

/// Introductions at the same time. More than the peers that a host can have, so that one above gets a reason.
const INTRODUCTIONS_MAX: usize = 1024;

/// Attempts to find a free port, which another program may take before commonware does.
const PORT_ATTEMPTS: usize = 8;

pub(super) async fn start(
    config: HostConfig,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    if config.role() == Role::Relay {
        return Err(unsupported("relays"));
    }
    let seed = match config.identity {
        Keys::New(Identity::Ed25519) => rand::random(),
        Keys::Seeded(seed) => seed,
        Keys::New(identity) => return Err(unsupported(&format!("an {identity} identity"))),
    };
    let key = PrivateKey::decode(seed.to_vec()).map_err(|error| setup(error.to_string()))?;
    let upgrader = handshake::upgrader(
        key.clone(),
        config.settings.cups(),
        handshake::CLOCK_DIFFERENCE_MAX,
    );
    let Some(load) = config.parameters.messages() else {
        return streams::start(config.listen.map(SocketAddr::from), upgrader, inbound).await;
    };
    let limits = Limits::of(load, config.listen.is_some());
    let runtime = Runtime::of(load, config.metrics).await.map_err(setup)?;
    start_network(runtime, config.listen, key, upgrader, limits, inbound).await
}

/// Starts a host that passes messages.
async fn start_network(
    runtime: Arc<Runtime>,
    listen: Option<(IpAddr, u16)>,
    key: PrivateKey,
    upgrader: Upgrader,
    limits: Limits,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    let clocks = upgrader.handshake.synchrony_bound;
    let (network, socket) = match listen {
        Some(listen) => {
            let (network, socket) = listen_on(&runtime, listen, &upgrader, limits).await?;
            (network, Some(socket))
        }
        // commonware always listens. Nobody learns on which port.
        None => {
            let somewhere = (Ipv4Addr::UNSPECIFIED, 0).into();
            let started = network::start(runtime, upgrader, somewhere, limits).await;
            (started.map_err(setup)?, None)
        }
    };
    let Network {
        oracle,
        data,
        acknowledgements,
        greetings,
        stop: network,
        stopped,
        runtime,
    } = network;
    let shared = Arc::new(Shared {
        own: Introduction {
            key: key.public_key(),
            port: socket.map_or(0, |socket| socket.port()),
        },
        clocks,
        peers: Mutex::new(Peers::new(oracle, key.public_key(), limits.peers)),
        greet: greetings.0,
        greeted: Mutex::default(),
        send_data: data.0,
        data: Arc::new(Inbox::new(data.1)),
        acknowledge: acknowledgements.0,
        acknowledgements: Arc::new(Inbox::new(acknowledgements.1)),
        zeros: IoBuf::from(vec![0; limits.message as usize - Message::LEAST]),
        priority: limits.priority,
        stopped,
        tasks: Tasks::default(),
    });
    let stop = shared.tasks.stop_on_drop();
    let addresses = match socket {
        Some(socket) => accept_introductions(&shared, socket).await?,
        None => Vec::new(),
    };
    shared
        .tasks
        .spawn(answer(Arc::clone(&shared), greetings.1, inbound));
    Ok(Box::new(Commonware {
        addresses,
        shared,
        runtime,
        network,
        _stop: stop,
    }))
}

/// Accepts introductions for a network that listens on a socket. Returns the addresses to dial.
async fn accept_introductions(shared: &Arc<Shared>, socket: SocketAddr) -> Result<Vec<String>, Error> {
    let failed = super::address::cannot_listen(Transport::Tcp, socket);
    let listener = TcpListener::bind((socket.ip(), 0)).await.map_err(&failed)?;
    let port = listener.local_addr().map_err(&failed)?.port();
    let mut addresses = interfaces::dialable(Transport::Tcp, socket).map_err(&failed)?;
    for address in &mut addresses {
        address.push_str(&Address::suffix(&shared.own.key, Some(port)));
    }
    shared.tasks.spawn(accept(Arc::clone(shared), listener));
    Ok(addresses)
}

/// Starts a network that listens. Port 0 takes a free one.
async fn listen_on(
    runtime: &Arc<Runtime>,
    (ip, port): (IpAddr, u16),
    upgrader: &Upgrader,
    limits: Limits,
) -> Result<(Network, SocketAddr), Error> {
    for _ in 0..PORT_ATTEMPTS {
        // commonware would not report which port it took, nor why it failed to.
        let failed = super::address::cannot_listen(Transport::Tcp, (ip, port));
        let reserved = TcpListener::bind((ip, port)).await.map_err(&failed)?;
        let socket = reserved.local_addr().map_err(&failed)?;
        drop(reserved);
        let network = network::start(Arc::clone(runtime), upgrader.clone(), socket, limits)
            .await
            .map_err(setup)?;
        tokio::select! {
            () = until_bound(socket) => return Ok((network, socket)),
            () = network.stopped.cancelled() => {}
            () = sleep(CLOSE_TIMEOUT) => {}
        }
    }
    let why = io::Error::other("another program takes each free port before commonware does");
    Err(super::address::cannot_listen(Transport::Tcp, (ip, port))(why))
}

/// Ready when the socket accepts connections. commonware does not report it.
async fn until_bound(socket: SocketAddr) {
    while TcpStream::connect(socket).await.is_err() {
        sleep(Duration::from_millis(1)).await;
    }
}

fn unsupported(what: &str) -> Error {
    Error::unsupported(Stack::Commonware, what)
}

fn setup(reason: String) -> Error {
    Error::setup(Stack::Commonware, reason)
}

/// The state that a host's tasks and connections share.
struct Shared {
    own: Introduction,
    /// How far the clocks of two peers may differ.
    clocks: Duration,
    peers: Mutex<Peers>,
    greet: Sender,
    /// Who waits for the answer to a greeting, or has waited.
    greeted: Mutex<HashMap<PublicKey, Arc<Notify>>>,
    send_data: Sender,
    data: Arc<Inbox>,
    acknowledge: Sender,
    acknowledgements: Arc<Inbox>,
    zeros: IoBuf,
    /// Whether messages are sent with priority.
    priority: bool,
    stopped: CancellationToken,
    tasks: Tasks,
}

impl Shared {
    /// The end of an exchange at a dialler, who sends data, or at a listener, who acknowledges it.
    fn exchange(&self, key: PublicKey, registration: Registration, end: Option<DropGuard>) -> BoxMessenger {
        let (sender, inbox) = match end {
            Some(_) => (&self.send_data, &self.acknowledgements),
            None => (&self.acknowledge, &self.data),
        };
        inbox.open(key.clone(), registration);
        Box::new(Exchange {
            key,
            registration,
            sender: sender.clone(),
            inbox: Arc::clone(inbox),
            bodies: Bodies::new(self.zeros.clone()),
            priority: self.priority,
            stopped: self.stopped.clone(),
            _end: end,
        })
    }

    fn greet(&self, key: &PublicKey, greeting: &'static [u8]) {
        // A greeting that is lost is repeated.
        let _ = self
            .greet
            .clone()
            .send(Recipients::One(key.clone()), greeting, false);
    }

    /// Ends a registration of a peer.
    fn end_registration(&self, key: &PublicKey, registration: Registration) {
        self.peers.lock().remove(key, registration);
        self.data.end(key, registration);
        self.acknowledgements.end(key, registration);
    }
}

/// Takes introductions.
async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let take = |stream, from: SocketAddr, counted| {
        let admitted = Arc::clone(&shared);
        shared.tasks.spawn(async move {
            if let Err(error) = admit(&admitted, stream, from.ip()).await {
                tracing::debug!(%error, "an introduction failed");
            }
            drop(counted);
        });
    };
    accept::accept(listener, INTRODUCTIONS_MAX, "an introduction", take).await;
}

/// Accepts a peer's connections for as long as its introduction lasts.
async fn admit(shared: &Shared, mut stream: TcpStream, ip: IpAddr) -> io::Result<()> {
    let (Introduction { key, port }, apart) = introduction::read(&mut stream).await?;
    if apart >= shared.clocks {
        return introduction::answer(&mut stream, Answer::Clocks).await;
    }
    let added = shared
        .peers
        .lock()
        .add(key.clone(), SocketAddr::new(ip, port), Origin::Introduced);
    match added {
        Ok(registration) => {
            let answered = introduction::answer(&mut stream, Answer::Welcome).await;
            if answered.is_ok() {
                introduction::ended(stream).await;
            }
            shared.end_registration(&key, registration);
            answered
        }
        Err(Refused::Full) => introduction::answer(&mut stream, Answer::Full).await,
        Err(Refused::Own) => Err(io::Error::other("the peer has this host's own key")),
    }
}

/// Answers greetings, and reports each peer with its first one.
async fn answer(
    shared: Arc<Shared>,
    mut greetings: lookup::Receiver<PublicKey>,
    inbound: mpsc::UnboundedSender<Inbound>,
) {
    // An error means that the network has stopped.
    while let Ok((key, greeting)) = greetings.recv().await {
        if greeting.as_ref() == WELCOME {
            if let Some(dial) = shared.greeted.lock().get(&key) {
                dial.notify_one();
            }
        } else if greeting.as_ref() == HELLO {
            let first = shared.peers.lock().connect(&key);
            if let Some(registration) = first {
                let messenger = shared.exchange(key.clone(), registration, None);
                // Without a receiver, the messenger is dropped.
                let _ = inbound.send(Inbound::Connection);
                let _ = inbound.send(Inbound::Messenger(messenger));
            }
            shared.greet(&key, WELCOME);
        }
    }
}

struct Commonware {
    addresses: Vec<String>,
    shared: Arc<Shared>,
    /// Before the network, with which its metrics end.
    runtime: Arc<Runtime>,
    network: DropGuard,
    _stop: DropGuard,
}

#[async_trait]
impl Host for Commonware {
    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn dial(&self, address: &str) -> Result<Box<dyn Connection>, Error> {
        let peer = Address::parse(address)?;
        let failed = |reason: String| Error::dial(address, reason);
        let introduction = peer
            .introduction
            .ok_or_else(|| Error::address(address, "it has no /introduction/<port>"))?;
        let dialled = timeout(DIAL_TIMEOUT, dial(&self.shared, peer, introduction)).await;
        let connected = dialled.map_err(|_| failed(format!("no answer in {DIAL_TIMEOUT:?}")))?;
        Ok(Box::new(connected.map_err(failed)?))
    }

    /// Whether commonware's quota, which is far above any load, limited one.
    fn fault(&self) -> Option<String> {
        let held_back = self.runtime.counts().held_back;
        (held_back > 0)
            .then(|| format!("commonware's quota, which perfrun sets, held {held_back} messages back"))
    }

    async fn reserve(&self, _: &str) -> Result<Reservation, Error> {
        Err(unsupported("relays"))
    }

    fn broadcaster(&self) -> Option<Box<dyn Broadcaster>> {
        Some(Box::new(NetworkBroadcaster {
            sender: self.shared.send_data.clone(),
            bodies: Bodies::new(self.shared.zeros.clone()),
            stopped: self.shared.stopped.clone(),
            priority: self.shared.priority,
        }))
    }

    fn runtime(&self) -> Handle {
        self.runtime.handle.clone()
    }

    async fn close(self: Box<Self>) {
        self.shared.tasks.end().await;
        self.runtime.stop().await;
        // The runtime may have another host.
        drop(self.network);
        self.shared.stopped.cancelled().await;
    }
}

/// Introduces this host to a peer, lets commonware dial it, and waits until messages pass both ways.
async fn dial(shared: &Arc<Shared>, peer: Address, introduction: SocketAddr) -> Result<Connected, String> {
    let introduced = introduction::introduce(introduction, &shared.own).await;
    let stream = match introduced {
        Ok((stream, Answer::Welcome)) => stream,
        Ok((_, Answer::Full)) => return Err("it has as many peers as it can have".to_owned()),
        Ok((_, Answer::Clocks)) => {
            return Err(format!(
                "its clock differs from this one by {:?} or more",
                shared.clocks
            ));
        }
        Err(error) => return Err(describe(&error)),
    };
    let began = Instant::now();
    let key = peer.key;
    let added = shared.peers.lock().add(key.clone(), peer.socket, Origin::Dialled);
    let registration = added.map_err(|refused| match refused {
        Refused::Full => "this host has as many peers as it can have".to_owned(),
        Refused::Own => "it has this host's own key".to_owned(),
    })?;
    let end = CancellationToken::new();
    let guard = end.clone().drop_guard();
    shared.tasks.spawn(end_registration_at_end(
        Arc::clone(shared),
        key.clone(),
        registration,
        stream,
        end.clone(),
    ));
    let answered = Arc::new(Notify::new());
    shared.greeted.lock().insert(key.clone(), Arc::clone(&answered));
    loop {
        // commonware drops what is sent before it is connected.
        shared.greet(&key, HELLO);
        tokio::select! {
            () = answered.notified() => break,
            () = end.cancelled() => return Err("the peer has ended".to_owned()),
            () = shared.stopped.cancelled() => return Err("commonware's network has stopped".to_owned()),
            () = sleep(GREETING_INTERVAL) => {}
        }
    }
    // Of the stack only, without the introduction. It has the time until commonware looks for peers to dial.
    let established = began.elapsed();
    let messenger = shared.exchange(key, registration, Some(guard));
    Ok(Connected {
        phases: DialPhases::of(established),
        messenger: Mutex::new(Some(messenger)),
    })
}

/// Ends a registration of a peer when either end of the connection ends: this one by `end`, the peer by its
/// introduction.
async fn end_registration_at_end(
    shared: Arc<Shared>,
    key: PublicKey,
    registration: Registration,
    stream: TcpStream,
    end: CancellationToken,
) {
    end.run_until_cancelled(introduction::ended(stream)).await;
    end.cancel();
    shared.end_registration(&key, registration);
}

/// A connection, which lasts as long as its messenger.
struct Connected {
    phases: DialPhases,
    messenger: Mutex<Option<BoxMessenger>>,
}

#[async_trait]
impl Connection for Connected {
    fn phases(&self) -> DialPhases {
        self.phases
    }

    async fn open(&self) -> Result<BoxStream, Error> {
        Err(unsupported("streams: commonware-p2p passes messages"))
    }

    async fn messenger(&self) -> Result<Option<BoxMessenger>, Error> {
        let taken = self.messenger.lock().take();
        taken
            .map(Some)
            .ok_or_else(|| Error::Open("a connection has one exchange of messages".to_owned()))
    }

    async fn close(self: Box<Self>) {
        // commonware does not report when a connection is closed.
    }
}
