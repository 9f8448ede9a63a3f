//! Peers over an in-memory pipe, for the tests of the protocols.

use std::{fmt::Debug, sync::Arc};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::{Buffers, Counters, Error};

/// Bytes of a write or read in these tests.
pub const CHUNK: usize = 16;
/// Awkward sizes for it.
pub const SIZES: [u64; 6] = [0, 1, 15, 16, 17, 100];
/// Sizes of the pipe: one byte at a time, less than a header, everything at once.
pub const PIPES: [usize; 3] = [1, 7, 1 << 16];

pub fn buffers() -> Buffers {
    Buffers::new(&Arc::from([0; CHUNK]))
}

/// Big-endian headers and zeros, in the order given.
pub fn bytes(parts: &[Part]) -> Vec<u8> {
    parts
        .iter()
        .flat_map(|part| match *part {
            Part::Header(value) => value.to_be_bytes().to_vec(),
            Part::Zeros(count) => vec![0; count as usize],
        })
        .collect()
}

/// What is on the wire.
pub enum Part {
    Header(u64),
    Zeros(u64),
}

/// What a protocol's side makes of a peer that sends `bytes` and is gone, reading nothing.
pub async fn against_a_peer_that_leaves<T>(
    bytes: &[u8],
    side: impl AsyncFnOnce(DuplexStream) -> Result<T, Error>,
) -> Result<T, Error> {
    let (ours, mut theirs) = duplex(1 << 16);
    theirs.write_all(bytes).await.expect("the pipe is large");
    drop(theirs);
    side(ours).await
}

/// What a protocol's side makes of a peer that sends `bytes`, says so, and reads to the end; and what that peer read.
pub async fn against_a_peer_that_ends<T>(
    pipe: usize,
    bytes: &[u8],
    side: impl AsyncFnOnce(DuplexStream) -> Result<T, Error>,
) -> (Result<T, Error>, Vec<u8>) {
    let (ours, theirs) = duplex(pipe);
    let peer = async {
        let (mut read, mut write) = tokio::io::split(theirs);
        let mut heard = vec![];
        let say = async {
            // A side that has read enough may be gone.
            let _ = write.write_all(bytes).await;
            let _ = write.shutdown().await;
        };
        let (_, ended) = tokio::join!(say, read.read_to_end(&mut heard));
        ended.expect("a pipe ends");
        heard
    };
    tokio::join!(side(ours), peer)
}

pub fn too_few<T: Debug>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::TooFewBytes { .. }))
}

pub fn unexpected<T: Debug>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::UnexpectedBytes { .. }))
}

/// Bytes counted as received, and as sent.
pub fn counted(counters: &Counters) -> (u64, u64) {
    use std::sync::atomic::Ordering::Relaxed;
    (counters.received.load(Relaxed), counters.sent.load(Relaxed))
}
