//! `/litep2p-perf/1.0.0` (Litep2p Performance Protocol).
//!
//! ```text
//! client → server : u64 U, then U bytes, then u64 D
//! server → client : D bytes
//! ```
//!
//! The protocol has no half-close and no acknowledgement. This server closes its side after the last byte
//! instead of dropping the stream, so that a reset cannot overtake data. To a client both look like the end
//! of the stream.

use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{
    Arrival, Buffers, Counters, Error, Exchange, Volume, is_dropped, read_header, read_next, write_header,
};

/// How long a client waits for bytes beyond the download, and a server for the client's end. Not part of any
/// time.
const LINGER: Duration = Duration::from_secs(1);

/// Serves one exchange and returns the arrival. A stream that ends before its first byte was only opened (the
/// substreams workload).
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    buffers: &mut Buffers,
    counters: &Counters,
) -> Result<Arrival, Error> {
    let mut arrival = Arrival::default();
    let mut header = [0; 8];
    let upload = match read_next(&mut stream, &mut header, "the upload header", counters).await {
        Ok(true) => u64::from_be_bytes(header),
        Ok(false) => return Ok(arrival),
        Err(Error::Stream(error)) if is_dropped(&error) => return Ok(arrival),
        Err(error) => return Err(error),
    };
    buffers
        .receive_exactly(&mut stream, "the upload", upload, &mut arrival, counters)
        .await?;
    let download = read_header(&mut stream, "the download header").await?;
    let download = download.ok_or(Error::too_few("the download header", 0, 8))?;
    buffers
        .send(&mut stream, Volume::Bytes(download), counters)
        .await?;
    if counters.await_end(stream.shutdown()).await.is_none() {
        return Ok(arrival);
    }
    match tokio::time::timeout(LINGER, stream.read(&mut [0; 1])).await {
        Ok(Ok(1..)) => Err(Error::unexpected("the upload", upload)),
        _ => Ok(arrival),
    }
}

/// Runs one exchange.
pub async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    upload: u64,
    download: u64,
    buffers: &mut Buffers,
    counters: &Counters,
) -> Result<Exchange, Error> {
    write_header(&mut stream, upload).await?;
    let begun = Instant::now();
    let sent = buffers.send(&mut stream, Volume::Bytes(upload), counters).await?;
    let written = Instant::now();
    write_header(&mut stream, download).await?;
    stream.flush().await?;
    let requested = Instant::now();

    let mut arrival = Arrival::default();
    buffers
        .receive_exactly(&mut stream, "the download", download, &mut arrival, counters)
        .await?;
    let mut excess = Arrival::default();
    let end = buffers.receive(&mut stream, u64::MAX, &mut excess, counters);
    // The first byte of a download proves that the upload was consumed, so the end is only a check. Without a
    // download, the end of the stream is the proof, and it must arrive.
    let end = if download > 0 {
        tokio::time::timeout(LINGER, end).await.unwrap_or(Ok(0))
    } else {
        end.await
    };
    match end {
        Ok(0) => {}
        Ok(_) => {
            return Err(Error::unexpected("the download", download));
        }
        Err(error) if is_dropped(&error) => {}
        Err(error) => return Err(error.into()),
    }
    let consumed = arrival.first().unwrap_or_else(Instant::now);
    Ok(Exchange {
        sent,
        begun,
        written,
        consumed,
        requested,
        arrival,
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::wire::testing::{Part::*, *};

    #[tokio::test]
    async fn a_client_sends_a_size_its_bytes_and_the_size_it_requests() {
        for pipe in PIPES {
            for (up, down) in SIZES.into_iter().zip(SIZES.into_iter().rev()) {
                let (ours, mut theirs) = duplex(pipe);
                let counters = Counters::default();
                let expected = bytes(&[Header(up), Zeros(up), Header(down)]);
                let peer = async {
                    let mut heard = vec![0xff; expected.len()];
                    theirs.read_exact(&mut heard).await.unwrap();
                    theirs.write_all(&bytes(&[Zeros(down)])).await.unwrap();
                    theirs.shutdown().await.unwrap();
                    theirs.read_to_end(&mut heard).await.unwrap();
                    heard
                };
                let mut buffers = buffers();
                let (ran, heard) = tokio::join!(run(ours, up, down, &mut buffers, &counters), peer);
                let exchange = ran.unwrap();
                assert_eq!(heard, expected, "{up} up, {down} down, pipe of {pipe}");
                assert_eq!((exchange.sent, exchange.arrival.bytes), (up, down));
                assert_eq!(counted(&counters), (down, up));
            }
        }
    }

    #[tokio::test]
    async fn a_server_sends_exactly_the_requested_bytes() {
        for pipe in PIPES {
            for (up, down) in SIZES.into_iter().zip(SIZES.into_iter().rev()) {
                let counters = Counters::default();
                let said = bytes(&[Header(up), Zeros(up), Header(down)]);
                let mut buffers = buffers();
                let serving = async |stream| serve(stream, &mut buffers, &counters).await;
                let (served, heard) = against_a_peer_that_ends(pipe, &said, serving).await;
                assert_eq!(served.unwrap().bytes, up);
                assert_eq!(
                    heard,
                    bytes(&[Zeros(down)]),
                    "{up} up, {down} down, pipe of {pipe}"
                );
                assert_eq!(counted(&counters), (up, down));
            }
        }
    }

    /// What this side wrote in the recorded conversation.
    fn recorded(side: &str) -> Vec<u8> {
        let writes = include_str!("litep2p_perf/recorded.txt").lines();
        let writes = writes.filter_map(|line| line.strip_prefix(side)?.strip_prefix(' '));
        let write = |text: &str| match text.strip_suffix(" zeros") {
            Some(count) => vec![0; count.parse().unwrap()],
            None => u64::from_str_radix(text, 16).unwrap().to_be_bytes().to_vec(),
        };
        writes.flat_map(write).collect()
    }

    #[tokio::test]
    async fn both_sides_hold_their_part_of_a_recorded_conversation() {
        let (theirs, answer) = (recorded("client"), recorded("server"));
        let counters = Counters::default();
        let mut buffers = buffers();
        let serving = async |stream| serve(stream, &mut buffers, &counters).await;
        let (served, heard) = against_a_peer_that_ends(64, &theirs, serving).await;
        assert_eq!(served.unwrap().bytes, 2048);
        assert_eq!(heard, answer);

        let (ours, mut peer) = duplex(64);
        // The published servers drop the stream after their last write.
        let peer = async move {
            let mut heard = vec![0xff; theirs.len()];
            peer.read_exact(&mut heard).await.unwrap();
            peer.write_all(&answer).await.unwrap();
            (heard, theirs)
        };
        let (ran, (heard, theirs)) = tokio::join!(run(ours, 2048, 3072, &mut buffers, &counters), peer);
        assert_eq!(ran.unwrap().arrival.bytes, 3072);
        assert_eq!(heard, theirs);
    }

    #[tokio::test]
    async fn a_stream_that_ends_early_has_too_few_bytes_wherever_it_ends() {
        let whole = bytes(&[Header(20), Zeros(20), Header(0)]);
        for cut in 0..=whole.len() {
            let counters = Counters::default();
            let mut buffers = buffers();
            let serving = async |stream| serve(stream, &mut buffers, &counters).await;
            let served = against_a_peer_that_leaves(&whole[..cut], serving).await;
            // A stream that was only opened is how the substreams workload looks.
            let fine = cut == 0 || cut == whole.len();
            assert!(
                if fine { served.is_ok() } else { too_few(&served) },
                "{cut}: {served:?}"
            );
            assert_eq!(
                counted(&counters).0,
                (cut as u64).saturating_sub(8).min(20),
                "{cut}"
            );
        }
        for got in 0..20 {
            let mut buffers = buffers();
            let counters = Counters::default();
            let running = async |stream| run(stream, 0, 20, &mut buffers, &counters).await;
            let (ran, _) = against_a_peer_that_ends(64, &vec![0; got], running).await;
            assert!(too_few(&ran), "{got}: {ran:?}");
        }
    }

    #[tokio::test]
    async fn bytes_that_were_not_due_are_noticed_on_both_sides() {
        for down in SIZES {
            let mut buffers = buffers();
            let counters = Counters::default();
            let running = async |stream| run(stream, 0, down, &mut buffers, &counters).await;
            let (ran, _) = against_a_peer_that_ends(64, &bytes(&[Zeros(down + 1)]), running).await;
            assert!(unexpected(&ran), "{down}: {ran:?}");
        }
        let mut buffers = buffers();
        let counters = Counters::default();
        let said = bytes(&[Header(3), Zeros(3), Header(2), Zeros(1)]);
        let serving = async |stream| serve(stream, &mut buffers, &counters).await;
        let (served, _) = against_a_peer_that_ends(64, &said, serving).await;
        assert!(unexpected(&served), "{served:?}");
    }

    #[tokio::test]
    async fn a_declared_length_allocates_nothing() {
        let counters = Counters::default();
        let mut buffers = buffers();
        let said = bytes(&[Header(u64::MAX), Zeros(1000)]);
        let serving = async |stream| serve(stream, &mut buffers, &counters).await;
        let served = against_a_peer_that_leaves(&said, serving).await;
        let counts = matches!(
            served,
            Err(Error::TooFewBytes {
                got: 1000,
                due: u64::MAX,
                ..
            })
        );
        assert!(counts, "{served:?}");
        assert_eq!(counted(&counters), (1000, 0));
        assert!(buffers.read.capacity() <= CHUNK);
        // Endless downloads end with the client.
        let said = bytes(&[Header(0), Header(u64::MAX)]);
        let serving = async |stream| serve(stream, &mut buffers, &counters).await;
        let served = against_a_peer_that_leaves(&said, serving).await;
        assert!(matches!(served, Err(Error::Stream(_))), "{served:?}");
        assert!(buffers.read.capacity() <= CHUNK);
    }

    #[tokio::test]
    async fn a_client_that_drops_the_stream_after_its_download_is_served() {
        let (ours, mut theirs) = duplex(64);
        let client = async {
            theirs
                .write_all(&bytes(&[Header(5), Zeros(5), Header(40)]))
                .await
                .unwrap();
            theirs.read_exact(&mut [0; 40]).await.unwrap();
            drop(theirs);
        };
        let (mut buffers, counters) = (buffers(), Counters::default());
        let (served, ()) = tokio::join!(serve(ours, &mut buffers, &counters), client);
        assert_eq!(served.unwrap().bytes, 5);
        assert_eq!(counted(&counters), (5, 40));
    }

    #[tokio::test]
    async fn a_strict_upload_ends_when_the_reader_has_it_a_compat_one_when_it_is_written() {
        for down in [0, 1] {
            let (ours, theirs) = duplex(1 << 16);
            let (mut sending, mut serving) = (buffers(), buffers());
            let counters = Counters::default();
            let running = run(ours, 1000, down, &mut sending, &counters);
            ends_when_its_reader_has_it(running, serve(theirs, &mut serving, &counters)).await;
        }
    }
}
