//! `/perf/1.0.0` (libp2p specs, `perf/perf.md`).
//!
//! ```text
//! client → server : u64 D, then U bytes, then half-close
//! server → client : D bytes after the client's end of stream, then close
//! ```

use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{Arrival, Buffers, Counters, Error, Exchange, Volume, is_dropped, read_header, write_header};

/// The announced length of a download that the client will cut off, as the specification allows.
const ENDLESS: u64 = u64::MAX;

/// The download that a client requests.
#[derive(Clone, Copy, Debug)]
pub enum Download {
    /// A number of bytes.
    Bytes(u64),
    /// As much as arrives until a moment, when the client resets the stream.
    Until(Instant),
}

/// Serves one exchange and returns the arrival.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    buffers: &mut Buffers,
    counters: &Counters,
) -> Result<Arrival, Error> {
    let mut arrival = Arrival::default();
    const HEADER: &str = "the perf header";
    let download = read_header(&mut stream, HEADER).await?;
    let download = download.ok_or(Error::too_few(HEADER, 0, 8))?;
    while buffers
        .receive(&mut stream, u64::MAX, &mut arrival, counters)
        .await?
        > 0
    {}
    let send = buffers.send(&mut stream, Volume::Bytes(download), counters);
    if download == ENDLESS {
        // Only the peer ends this.
        return match counters.await_end(send).await {
            Some(Err(error)) if !is_dropped(&error) => Err(error.into()),
            _ => Ok(arrival),
        };
    }
    send.await?;
    // Everything is sent. A peer that has received all of it may be gone before the end of stream.
    let _ = counters.await_end(stream.shutdown()).await;
    Ok(arrival)
}

/// Runs one exchange. Drops the stream at its end, which resets it if it was cut off.
pub async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    upload: Volume,
    download: Download,
    buffers: &mut Buffers,
    counters: &Counters,
) -> Result<Exchange, Error> {
    let announced = match download {
        Download::Bytes(bytes) => bytes,
        Download::Until(_) => ENDLESS,
    };
    write_header(&mut stream, announced).await?;
    let begun = Instant::now();
    let sent = buffers.send(&mut stream, upload, counters).await?;
    let requested = Instant::now();
    let mut arrival = Arrival::default();
    let mut written = None;
    match download {
        Download::Bytes(due) => {
            const DOWNLOAD: &str = "the download";
            let first = buffers.shutdown_and_receive(&mut stream, due, &mut arrival, counters);
            written = Some(first.await?);
            buffers
                .receive_exactly(&mut stream, DOWNLOAD, due, &mut arrival, counters)
                .await?;
            let mut excess = Arrival::default();
            let more = buffers.receive(&mut stream, u64::MAX, &mut excess, counters);
            if arrival.bytes > due || more.await? > 0 {
                return Err(Error::unexpected(DOWNLOAD, due));
            }
        }
        Download::Until(deadline) => {
            let receive = async {
                let first = buffers.shutdown_and_receive(&mut stream, ENDLESS, &mut arrival, counters);
                written = Some(first.await?);
                while buffers
                    .receive(&mut stream, u64::MAX, &mut arrival, counters)
                    .await?
                    > 0
                {}
                Ok::<_, Error>(())
            };
            match tokio::time::timeout_at(deadline.into(), receive).await {
                Err(_deadline) => arrival.extend_until(deadline),
                Ok(Err(error)) => return Err(error),
                Ok(Ok(())) => {
                    return Err(Error::too_few("the download", arrival.bytes, ENDLESS));
                }
            }
        }
    }
    let consumed = arrival.first().unwrap_or_else(Instant::now);
    Ok(Exchange {
        sent,
        begun,
        written: written.unwrap_or(consumed),
        consumed,
        requested,
        arrival,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use crate::wire::testing::{Part::*, *};

    #[tokio::test]
    async fn a_client_sends_the_size_it_requests_and_then_its_bytes() {
        for pipe in PIPES {
            for (up, down) in SIZES.into_iter().zip(SIZES.into_iter().rev()) {
                let (ours, mut theirs) = duplex(pipe);
                let counters = Counters::default();
                let peer = async {
                    let mut heard = vec![];
                    theirs.read_to_end(&mut heard).await.unwrap();
                    theirs.write_all(&bytes(&[Zeros(down)])).await.unwrap();
                    theirs.shutdown().await.unwrap();
                    heard
                };
                let mut buffers = buffers();
                let running = run(
                    ours,
                    Volume::Bytes(up),
                    Download::Bytes(down),
                    &mut buffers,
                    &counters,
                );
                let (ran, heard) = tokio::join!(running, peer);
                let exchange = ran.unwrap();
                assert_eq!(heard, bytes(&[Header(down), Zeros(up)]), "pipe of {pipe}");
                assert_eq!((exchange.sent, exchange.arrival.bytes), (up, down));
                assert_eq!(counted(&counters), (down, up));
            }
        }
    }

    #[tokio::test]
    async fn a_server_sends_exactly_the_requested_bytes_and_ends() {
        for pipe in PIPES {
            for (up, down) in SIZES.into_iter().zip(SIZES.into_iter().rev()) {
                let counters = Counters::default();
                let mut buffers = buffers();
                let serving = async |stream| serve(stream, &mut buffers, &counters).await;
                let said = bytes(&[Header(down), Zeros(up)]);
                let (served, heard) = against_a_peer_that_ends(pipe, &said, serving).await;
                assert_eq!(served.unwrap().bytes, up);
                assert_eq!(heard, bytes(&[Zeros(down)]), "pipe of {pipe}");
                assert_eq!(counted(&counters), (up, down));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_sends_nothing_before_the_end_of_the_upload() {
        let (ours, mut theirs) = duplex(64);
        let (mut buffers, counters) = (buffers(), Counters::default());
        let client = async {
            theirs.write_all(&bytes(&[Header(9), Zeros(30)])).await.unwrap();
            let early = tokio::time::timeout(Duration::from_millis(50), theirs.read_u8()).await;
            assert!(early.is_err(), "the server answered before the end: {early:?}");
            theirs.shutdown().await.unwrap();
            let mut heard = vec![];
            theirs.read_to_end(&mut heard).await.unwrap();
            heard.len()
        };
        let (served, heard) = tokio::join!(serve(ours, &mut buffers, &counters), client);
        assert_eq!((served.unwrap().bytes, heard), (30, 9));
    }

    #[tokio::test]
    async fn a_stream_that_ends_early_has_too_few_bytes_wherever_it_ends() {
        for cut in 0..8 {
            let (mut buffers, counters) = (buffers(), Counters::default());
            let serving = async |stream| serve(stream, &mut buffers, &counters).await;
            let served = against_a_peer_that_leaves(&[0; 8][..cut], serving).await;
            assert!(too_few(&served), "{cut}: {served:?}");
        }
        for got in 0..20 {
            let (mut buffers, counters) = (buffers(), Counters::default());
            let running = async |stream| {
                run(
                    stream,
                    Volume::Bytes(3),
                    Download::Bytes(20),
                    &mut buffers,
                    &counters,
                )
                .await
            };
            let (ran, _) = against_a_peer_that_ends(64, &vec![0; got], running).await;
            assert!(too_few(&ran), "{got}: {ran:?}");
            assert_eq!(counted(&counters), (got as u64, 3));
        }
        let (mut buffers, counters) = (buffers(), Counters::default());
        let until = Download::Until(Instant::now() + Duration::from_secs(60));
        let running = async |stream| run(stream, Volume::Bytes(0), until, &mut buffers, &counters).await;
        let (ran, _) = against_a_peer_that_ends(64, &[0; 40], running).await;
        assert!(too_few(&ran), "an endless download ended: {ran:?}");
    }

    #[tokio::test]
    async fn bytes_that_were_not_due_are_noticed() {
        for down in SIZES {
            let (mut buffers, counters) = (buffers(), Counters::default());
            let running = async |stream| {
                run(
                    stream,
                    Volume::Bytes(0),
                    Download::Bytes(down),
                    &mut buffers,
                    &counters,
                )
                .await
            };
            let (ran, _) = against_a_peer_that_ends(64, &bytes(&[Zeros(down + 1)]), running).await;
            assert!(unexpected(&ran), "{down}: {ran:?}");
        }
    }

    #[tokio::test]
    async fn an_endless_download_allocates_nothing_and_ends_with_its_client() {
        let (ours, mut theirs) = duplex(64);
        let (mut buffers, counters) = (buffers(), Counters::default());
        let client = async {
            theirs
                .write_all(&bytes(&[Header(u64::MAX), Zeros(2)]))
                .await
                .unwrap();
            theirs.shutdown().await.unwrap();
            theirs.read_exact(&mut [0; 1000]).await.unwrap();
            drop(theirs);
        };
        let (served, ()) = tokio::join!(serve(ours, &mut buffers, &counters), client);
        assert_eq!(served.unwrap().bytes, 2);
        let (received, sent) = counted(&counters);
        assert_eq!(received, 2);
        assert!((1000..=1064).contains(&sent), "{sent}");
        assert!(buffers.read.capacity() <= CHUNK);
    }

    #[tokio::test]
    async fn a_time_bounded_exchange_ends_at_its_time_and_counts_the_same_on_both_ends() {
        for is_upload in [true, false] {
            let deadline = Instant::now() + Duration::from_millis(250);
            let (upload, download) = if is_upload {
                (Volume::Until(deadline), Download::Bytes(0))
            } else {
                (Volume::Bytes(0), Download::Until(deadline))
            };
            let (ours, theirs) = duplex(100);
            let (mut sending, mut serving) = (buffers(), buffers());
            let (client, server) = (Counters::default(), Counters::default());
            let (ran, served) = futures::join!(
                run(ours, upload, download, &mut sending, &client),
                serve(theirs, &mut serving, &server)
            );
            let exchange = ran.unwrap();
            assert_eq!(served.unwrap().bytes, exchange.sent);
            // Bytes in flight when the client cut the download off are lost.
            let ((got, sent), (arrived, answered)) = (counted(&client), counted(&server));
            assert_eq!(sent, arrived);
            assert!(got <= answered && answered <= got + 100, "{got} of {answered}");
            assert!(got + sent > 0);
        }
    }

    #[tokio::test]
    async fn a_strict_upload_ends_when_the_reader_has_it_a_compat_one_when_it_is_written() {
        for down in [0, 1] {
            let (ours, theirs) = duplex(1 << 16);
            let (mut sending, mut serving) = (buffers(), buffers());
            let counters = Counters::default();
            let running = run(
                ours,
                Volume::Bytes(1000),
                Download::Bytes(down),
                &mut sending,
                &counters,
            );
            ends_when_its_reader_has_it(running, serve(theirs, &mut serving, &counters)).await;
        }
    }
}
