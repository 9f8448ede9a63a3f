//! `/libp2p/test/data` of the published relay test (libp2p-relay-test): the client opens a stream and sends
//! nothing, the server writes all data and closes, and the client reads to the end.

use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Arrival, Buffers, Counters, Error, Volume, is_dropped};

/// The name in errors.
const PAYLOAD: &str = "the transfer";

/// Writes `bytes`, closes, and waits until the client is gone: dropping the stream earlier would discard
/// queued data.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    bytes: u64,
    buffers: &Buffers,
    counters: &Counters,
) -> Result<(), Error> {
    let sent = buffers.send(&mut stream, Volume::Bytes(bytes), counters).await?;
    debug_assert_eq!(sent, bytes);
    let end = async {
        stream.shutdown().await?;
        stream.read(&mut [0; 1]).await
    };
    match counters.await_end(end).await {
        None | Some(Ok(0)) => Ok(()),
        Some(Ok(_)) => Err(Error::unexpected("the request", 0)),
        // A client that has received all of it may be gone before the stack knows that the end has arrived.
        Some(Err(error)) if is_dropped(&error) => Ok(()),
        Some(Err(error)) => Err(error.into()),
    }
}

/// A fetched transfer.
#[derive(Clone, Copy, Debug)]
pub struct Fetched {
    pub arrival: Arrival,
    /// When the end of the stream arrived.
    pub ended: Instant,
}

/// Reads to the end of the stream, which must follow after `bytes`.
pub async fn fetch<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    bytes: u64,
    buffers: &mut Buffers,
    counters: &Counters,
) -> Result<Fetched, Error> {
    let mut arrival = Arrival::default();
    // One byte more than is due, to read the end or a byte too many.
    while buffers
        .receive(
            &mut stream,
            (bytes - arrival.bytes).saturating_add(1),
            &mut arrival,
            counters,
        )
        .await?
        > 0
    {
        if arrival.bytes > bytes {
            return Err(Error::unexpected(PAYLOAD, bytes));
        }
    }
    if arrival.bytes < bytes {
        return Err(Error::too_few(PAYLOAD, arrival.bytes, bytes));
    }
    let ended = Instant::now();
    // The server waits for this end. Whether it arrives is not part of the transfer.
    let _ = stream.shutdown().await;
    Ok(Fetched { arrival, ended })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, ErrorKind},
        pin::Pin,
        task::{Context, Poll},
    };

    use tokio::io::{ReadBuf, duplex};

    use super::*;
    use crate::wire::testing::*;

    /// A stream whose end fails, after its peer has received everything.
    struct Ending(ErrorKind);

    impl AsyncRead for Ending {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Ending {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(self.0.into()))
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_before_the_end_arrived_fails_no_server() {
        let served = async |kind| serve(Ending(kind), 10, &buffers(), &Counters::default()).await;
        served(ErrorKind::NotConnected).await.unwrap();
        served(ErrorKind::Other).await.unwrap_err();
    }

    #[tokio::test]
    async fn all_test_data_arrive_and_no_more_is_read() {
        for pipe in PIPES {
            for bytes in SIZES {
                let (ours, theirs) = duplex(pipe);
                let (near, far) = (Counters::default(), Counters::default());
                let (mut reading, writing) = (buffers(), buffers());
                let (fetched, served) = tokio::join!(
                    fetch(ours, bytes, &mut reading, &near),
                    serve(theirs, bytes, &writing, &far)
                );
                served.unwrap();
                assert_eq!(fetched.unwrap().arrival.bytes, bytes, "pipe of {pipe}");
                assert_eq!((counted(&near), counted(&far)), ((bytes, 0), (0, bytes)));
            }
        }
    }

    #[tokio::test]
    async fn a_server_that_ends_early_has_sent_too_few_bytes() {
        let counters = Counters::default();
        let fetching = async |stream| fetch(stream, 10, &mut buffers(), &counters).await;
        let (fetched, _) = against_a_peer_that_ends(64, &[0; 9], fetching).await;
        assert!(too_few(&fetched.map(drop)));
    }

    #[tokio::test]
    async fn a_server_that_sends_more_is_noticed() {
        let counters = Counters::default();
        let fetching = async |stream| fetch(stream, 10, &mut buffers(), &counters).await;
        let (fetched, _) = against_a_peer_that_ends(64, &[0; 11], fetching).await;
        assert!(
            matches!(fetched, Err(Error::UnexpectedBytes { due: 10, .. })),
            "{fetched:?}"
        );
    }
}
