//! Peers over an in-memory pipe, for the tests of the protocols.

use std::{fmt::Debug, sync::Arc, time::Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::{Arrival, Buffers, Counters, Error, Exchange};

/// Bytes of a write or read in these tests.
pub(crate) const CHUNK: usize = 16;
/// Awkward sizes of a transfer with such chunks.
pub(crate) const SIZES: [u64; 6] = [0, 1, 15, 16, 17, 100];
/// Sizes of the pipe: one byte, less than a header, and everything.
pub(crate) const PIPES: [usize; 3] = [1, 7, 1 << 16];

pub(crate) fn buffers() -> Buffers {
    Buffers::new(&Arc::from([0; CHUNK]))
}

/// Big-endian headers and zeros, in the order given.
pub(crate) fn bytes(parts: &[Part]) -> Vec<u8> {
    parts
        .iter()
        .flat_map(|part| match *part {
            Part::Header(value) => value.to_be_bytes().to_vec(),
            Part::Zeros(count) => vec![0; count as usize],
        })
        .collect()
}

/// A part of a message.
pub(crate) enum Part {
    Header(u64),
    Zeros(u64),
}

/// Runs one side against a peer that sends `bytes` and leaves without reading.
pub(crate) async fn against_a_peer_that_leaves<T>(
    bytes: &[u8],
    side: impl AsyncFnOnce(DuplexStream) -> Result<T, Error>,
) -> Result<T, Error> {
    let (ours, mut theirs) = duplex(1 << 16);
    theirs.write_all(bytes).await.expect("the pipe is large");
    drop(theirs);
    side(ours).await
}

/// Runs one side against a peer that sends `bytes`, ends its stream, and reads to the end. Also returns what
/// it read.
pub(crate) async fn against_a_peer_that_ends<T>(
    pipe: usize,
    bytes: &[u8],
    side: impl AsyncFnOnce(DuplexStream) -> Result<T, Error>,
) -> (Result<T, Error>, Vec<u8>) {
    let (ours, theirs) = duplex(pipe);
    let peer = async {
        let (mut read, mut write) = tokio::io::split(theirs);
        let mut heard = vec![];
        let say = async {
            // The other side may be gone when it has read enough.
            let _ = write.write_all(bytes).await;
            let _ = write.shutdown().await;
        };
        let (_, ended) = tokio::join!(say, read.read_to_end(&mut heard));
        ended.expect("a pipe ends");
        heard
    };
    tokio::join!(side(ours), peer)
}

/// Checks the moments of an upload whose reader takes its first byte when everything is in the pipe.
pub(crate) async fn ends_when_its_reader_has_it(
    running: impl Future<Output = Result<Exchange, Error>>,
    serving: impl Future<Output = Result<Arrival, Error>>,
) {
    let slow = async {
        let gate = Instant::now();
        serving.await.expect("the upload is served");
        gate
    };
    // Polled in this order.
    let (ran, gate) = futures::join!(running, slow);
    let exchange = ran.expect("the upload ends");
    assert!(
        exchange.begun <= exchange.written && exchange.written <= gate,
        "{exchange:?}"
    );
    assert!(exchange.consumed >= gate, "{exchange:?}");
}

pub(crate) fn too_few<T: Debug>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::TooFewBytes { .. }))
}

pub(crate) fn unexpected<T: Debug>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::UnexpectedBytes { .. }))
}

/// Bytes counted as received, and as sent.
pub(crate) fn counted(counters: &Counters) -> (u64, u64) {
    use std::sync::atomic::Ordering::Relaxed;
    (counters.received.load(Relaxed), counters.sent.load(Relaxed))
}
