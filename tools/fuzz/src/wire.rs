//! What peers send on a stream.
//!
//! The first byte of an input is the size of the pieces in which the rest arrives.

use std::{
    future::poll_fn,
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use perfrun_contract::{
    histogram::recorder,
    parameters::{Amount, Messages},
    quantity::ByteSize,
    workload::MessageMode,
};
use perfrun_node::wire::{
    self, Buffers, Counters, Volume,
    messages::{Framed, open, run, serve, serve_broadcast},
    perf::Download,
};
use perfrun_stack::{
    fuzzing::{introduced, relay_target},
    messenger::Messenger,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    runtime::{Builder, Runtime},
};

/// Bytes of a read or write.
const CHUNK: usize = 64;

/// Bytes that a peer takes before it leaves: it may request more than anybody can send.
const TAKES: usize = 1 << 16;

/// A peer that says what the input has, and ends its side of the stream.
struct Peer<'a> {
    said: &'a [u8],
    piece: usize,
    takes: usize,
}

impl<'a> Peer<'a> {
    fn of(input: &'a [u8]) -> Option<Self> {
        let (piece, said) = input.split_first()?;
        Some(Self {
            said,
            piece: usize::from(*piece).max(1),
            takes: TAKES,
        })
    }
}

impl AsyncRead for Peer<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.said.len().min(self.piece).min(into.remaining());
        let (now, later) = self.said.split_at(count);
        into.put_slice(now);
        self.said = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Peer<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let count = from.len().min(self.takes);
        self.takes -= count;
        Poll::Ready(match count {
            0 => Err(io::ErrorKind::BrokenPipe.into()),
            count => Ok(count),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime of one thread starts");
}

fn wait<T>(exchange: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(exchange))
}

fn buffers() -> Buffers {
    Buffers::new(&Arc::from([0; CHUNK]))
}

/// Reads an input as each of these sides.
macro_rules! sides {
    ($input:expr, $($side:expr),+) => {{
        $(if let Some(peer) = Peer::of($input) {
            // What a peer says may be wrong.
            let _ = wait($side(peer));
        })+
    }};
}

pub(crate) fn perf(input: &[u8]) {
    let counters = Counters::default();
    sides!(
        input,
        async |peer: Peer<'_>| wire::perf::serve(peer, &mut buffers(), &counters).await,
        async |peer: Peer<'_>| {
            let (upload, download) = (Volume::Bytes(100), Download::Bytes(100));
            wire::perf::run(peer, upload, download, &mut buffers(), &counters).await
        }
    );
}

pub(crate) fn litep2p_perf(input: &[u8]) {
    let counters = Counters::default();
    sides!(
        input,
        async |peer: Peer<'_>| wire::litep2p_perf::serve(peer, &mut buffers(), &counters).await,
        async |peer: Peer<'_>| wire::litep2p_perf::run(peer, 100, 100, &mut buffers(), &counters).await
    );
}

pub(crate) fn ping(input: &[u8]) {
    let counters = Counters::default();
    sides!(
        input,
        async |peer: Peer<'_>| wire::ping::serve(peer, &counters).await,
        async |mut peer: Peer<'_>| wire::ping::round_trip(&mut peer, [0; wire::ping::SIZE], &counters).await
    );
}

/// The nonce of the relay that reads the input.
const NONCE: [u8; 16] = *b"nonce of a relay";

/// The first bytes of a connection to a raw relay.
pub(crate) fn relay(input: &[u8]) {
    let Some(peer) = Peer::of(input) else { return };
    let said = peer.said;
    let Some(target) = wait(relay_target(NONCE, peer)) else {
        return;
    };
    assert!(said.starts_with(&NONCE), "a stranger is connected to {target}");
    let is_here = match target.ip() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local() || ip.is_unspecified(),
        IpAddr::V6(ip) => {
            ip.is_loopback()
                || ip.is_unicast_link_local()
                || ip.is_unspecified()
                || ip.to_ipv4_mapped().is_some()
        }
    };
    assert!(!is_here && !target.ip().is_multicast(), "{target}");
}

/// Bytes of an introduction: a key, a port and a clock.
const INTRODUCTION: usize = 42;

/// The first bytes of a connection to a host of commonware-p2p.
pub(crate) fn introduction(input: &[u8]) {
    let Some(peer) = Peer::of(input) else { return };
    let said = peer.said;
    let Some((key, port)) = wait(introduced(peer)) else {
        return;
    };
    assert!(said.len() >= INTRODUCTION, "half an introduction is accepted");
    let named = [&key[..], &port.to_be_bytes()].concat();
    assert!(said.starts_with(&named), "another peer is introduced: {named:?}");
}

pub(crate) fn test_data(input: &[u8]) {
    let counters = Counters::default();
    sides!(
        input,
        async |peer: Peer<'_>| wire::test_data::serve(peer, 100, &buffers(), &counters).await,
        async |peer: Peer<'_>| wire::test_data::fetch(peer, 100, &mut buffers(), &counters).await
    );
}

pub(crate) fn echo(input: &[u8]) {
    let counters = Counters::default();
    let line = wire::echo::line(10);
    sides!(
        input,
        async |mut peer: Peer<'_>| {
            while wire::echo::serve(&mut peer, &line, &counters).await? {}
            Ok::<_, wire::Error>(())
        },
        async |mut peer: Peer<'_>| wire::echo::round_trip(&mut peer, &line, &counters).await
    );
}

pub(crate) fn messages(input: &[u8]) {
    let counters = Counters::default();
    let load = |mode| Messages {
        mode,
        message_bytes: ByteSize(20),
        amount: Amount::Count(5),
        window: 2,
        rate: None,
        priority: false,
        receivers: 1,
    };
    let (stream, broadcast) = (load(MessageMode::Stream), load(MessageMode::Broadcast));
    sides!(
        input,
        async |peer: Peer<'_>| {
            let mut messenger = Framed::new(peer);
            while poll_fn(|cx| messenger.poll_receive(cx)).await?.is_some() {}
            io::Result::Ok(())
        },
        async |peer: Peer<'_>| serve(&mut Framed::new(peer), &stream, &counters, &mut recorder()).await,
        async |peer: Peer<'_>| serve_broadcast(
            &mut Framed::new(peer),
            &broadcast,
            &counters,
            &mut recorder()
        )
        .await,
        async |peer: Peer<'_>| {
            let mut messenger = Framed::new(peer);
            open(&mut messenger, None).await?;
            run(&mut messenger, &stream, &counters, &mut recorder()).await
        }
    );
}
