//! Transports, their limits, and the moment at which a TCP connection is established.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Instant,
};

use futures::{
    FutureExt, TryFutureExt,
    future::{self, BoxFuture},
};
use libp2p::{
    PeerId, Transport as _,
    core::{
        muxing::StreamMuxerBox,
        transport::{Boxed, DialOpts, ListenerId, MemoryTransport, TransportError, TransportEvent},
        upgrade::Version,
    },
    identity::Keypair,
    multiaddr::Multiaddr,
    noise, quic, tcp, tls, websocket, yamux,
};
use parking_lot::Mutex;
use perfrun_contract::{
    limits::STREAMS_MAX,
    matrix::{Stack, Transport},
};

use super::setup;
use crate::{DIAL_TIMEOUT, Error, congestion, with_spare};

/// yamux reserves 256 KiB for each stream that it may have, of the 1 GiB that libp2p grants a connection at
/// most.
const YAMUX_STREAMS_MAX: usize = STREAMS_MAX as usize;
const YAMUX_STREAMS_DEFAULT: usize = 512;
/// The number of identifiers for SCTP streams of one side (RFC 8832, 6).
const WEBRTC_STREAMS_MAX: usize = 1 << 15;
const QUIC_STREAMS_DEFAULT: usize = 256;
const NEGOTIATING_STREAMS_DEFAULT: usize = 128;

/// The number of streams that a connection may have. Each default is a limit that libp2p does not report:
/// streams above it wait, are reset, or end the connection.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    streams: usize,
    pub(super) negotiating_streams: usize,
}

impl Limits {
    pub(super) fn new(transport: Transport, max_streams: usize) -> Result<Self, Error> {
        let streams = with_spare(max_streams);
        let most = match transport {
            Transport::Tcp | Transport::TcpTls | Transport::Ws | Transport::Memory => YAMUX_STREAMS_MAX,
            Transport::QuicV1 => u32::MAX as usize,
            Transport::WebrtcDirect => WEBRTC_STREAMS_MAX,
            Transport::Webtransport => 0,
        };
        if max_streams > most {
            let what = format!("{max_streams} streams on one {transport} connection");
            return Err(Error::unsupported(Stack::Libp2p, what));
        }
        Ok(Self {
            streams: streams.min(most),
            negotiating_streams: max_streams.max(NEGOTIATING_STREAMS_DEFAULT),
        })
    }

    pub(super) fn yamux(self) -> yamux::Config {
        let mut config = yamux::Config::default();
        // Only if needed: yamux takes the reserve for streams from the growth of their windows.
        if self.streams > YAMUX_STREAMS_DEFAULT {
            config.set_max_num_streams(self.streams);
        }
        config
    }

    fn quic(self, keypair: &Keypair) -> quic::Config {
        let mut config = quic::Config::new(keypair);
        // `Limits::new` has checked that the number fits.
        config.max_concurrent_stream_limit =
            u32::try_from(self.streams.max(QUIC_STREAMS_DEFAULT)).unwrap_or(u32::MAX);
        config.handshake_timeout = DIAL_TIMEOUT;
        config
    }
}

/// Builds a transport, with the choices of libp2p's own `SwarmBuilder`.
pub(super) fn build(
    transport: Transport,
    keypair: &Keypair,
    limits: Limits,
    congestion: &congestion::Tcp,
) -> Result<Boxed<(PeerId, StreamMuxerBox)>, Error> {
    let tcp = || {
        let congestion = congestion.clone();
        Timed(tcp::tokio::Transport::new(tcp::Config::new().nodelay(true))).and_then(
            move |stream: tcp::tokio::TcpStream, _| {
                future::ready(congestion.set_up(&stream.0).map(|()| stream))
            },
        )
    };
    // This saves a round trip per upgrade. The run chooses the negotiation of streams, which is another one.
    let version = Version::V1Lazy;
    Ok(match transport {
        Transport::Tcp => tcp()
            .upgrade(version)
            .authenticate(noise::Config::new(keypair).map_err(setup)?)
            .multiplex(limits.yamux())
            .timeout(DIAL_TIMEOUT)
            .boxed(),
        Transport::TcpTls => tcp()
            .upgrade(version)
            .authenticate(tls::Config::new(keypair).map_err(setup)?)
            .multiplex(limits.yamux())
            .timeout(DIAL_TIMEOUT)
            .boxed(),
        Transport::Ws => websocket::Config::new(tcp())
            .upgrade(version)
            .authenticate(noise::Config::new(keypair).map_err(setup)?)
            .multiplex(limits.yamux())
            .timeout(DIAL_TIMEOUT)
            .boxed(),
        Transport::Memory => Timed(MemoryTransport::new())
            .upgrade(version)
            .authenticate(noise::Config::new(keypair).map_err(setup)?)
            .multiplex(limits.yamux())
            .timeout(DIAL_TIMEOUT)
            .boxed(),
        Transport::QuicV1 => quic::tokio::Transport::new(limits.quic(keypair))
            .map(|(peer, connection), _| (peer, StreamMuxerBox::new(connection)))
            .boxed(),
        Transport::WebrtcDirect => webrtc(keypair)?,
        // The contract has refused it.
        Transport::Webtransport => return Err(Error::unsupported(Stack::Libp2p, "webtransport")),
    })
}

#[cfg(feature = "webrtc")]
fn webrtc(keypair: &Keypair) -> Result<Boxed<(PeerId, StreamMuxerBox)>, Error> {
    use libp2p_webrtc::tokio as webrtc;

    // Its DTLS uses the default ciphers of the process and panics without them. An earlier host may have set
    // them.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificate = webrtc::Certificate::generate(&mut rand::rng()).map_err(setup)?;
    Ok(webrtc::Transport::new(keypair.clone(), certificate)
        .map(|(peer, connection), _| (peer, StreamMuxerBox::new(connection)))
        .boxed())
}

#[cfg(not(feature = "webrtc"))]
fn webrtc(_: &Keypair) -> Result<Boxed<(PeerId, StreamMuxerBox)>, Error> {
    Err(Error::without_webrtc(Stack::Libp2p))
}

/// When the socket of a dial was connected.
pub(super) type Connected = Arc<OnceLock<Instant>>;

tokio::task_local! {
    /// Belongs to the dial of the current task.
    static CONNECTED: Connected;
}

/// Passes the [`Connected`] of a dial to the task that dials.
///
/// The swarm numbers connections but does not pass the number to its transports. It spawns a task for each
/// dial before `dial` returns, so that a value stored here immediately before belongs to that task.
#[derive(Clone, Default)]
pub(super) struct DialClock(Arc<Mutex<Option<Connected>>>);

impl DialClock {
    /// Sets the value that the next dial will fill, or clears it.
    pub(super) fn expect(&self, connected: Option<Connected>) {
        *self.0.lock() = connected;
    }

    /// Runs a task of the swarm. In the task of the next dial, [`Timed`] finds the value to fill.
    pub(super) fn run(&self, task: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        let expected = self.0.lock().take();
        match expected {
            Some(connected) => CONNECTED.scope(connected, task).boxed(),
            None => task,
        }
    }
}

/// A transport that records when a dial has connected, also below another transport.
struct Timed<T>(T);

impl<T> libp2p::Transport for Timed<T>
where
    T: libp2p::Transport + Unpin,
    T::Dial: Send + 'static,
    T::Output: 'static,
    T::Error: 'static,
{
    type Output = T::Output;
    type Error = T::Error;
    type ListenerUpgrade = T::ListenerUpgrade;
    type Dial = BoxFuture<'static, Result<T::Output, T::Error>>;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Result<(), TransportError<T::Error>> {
        self.0.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.0.remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, opts: DialOpts) -> Result<Self::Dial, TransportError<T::Error>> {
        let dial = self.0.dial(address, opts)?;
        // A dial has one address here, so the value is set once.
        Ok(dial
            .inspect_ok(|_| {
                let _ = CONNECTED.try_with(|connected| connected.set(Instant::now()));
            })
            .boxed())
    }

    fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, T::Error>> {
        Pin::new(&mut self.0).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_streams_than_yamux_can_hold_are_refused_instead_of_panicking() {
        for streams in [0, 1, 512, 513, 4096] {
            Limits::new(Transport::Tcp, streams)
                .expect("yamux can hold them")
                .yamux();
        }
        assert!(matches!(
            Limits::new(Transport::Tcp, 4097),
            Err(Error::Unsupported { .. })
        ));
        assert!(Limits::new(Transport::QuicV1, 4097).is_ok());
    }
}
