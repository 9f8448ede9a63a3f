//! `/litep2p-perf/1.0.0` (Litep2p Performance Protocol).
//!
//! ```text
//! client → server : u64 U, then U bytes, then u64 D
//! server → client : D bytes
//! ```
//!
//! There is no half-close and no acknowledgement in it. Our server closes its side after the last byte rather than
//! dropping the stream, so that a reset cannot overtake data; to a client both look like the end of the stream.

use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Arrival, Buffers, Counters, Error, Exchange, Volume, is_dropped, read_header, write_header};

/// How long a client looks for bytes beyond the download, and a server for the client's end. Not timed.
const LINGER: Duration = Duration::from_secs(1);

/// Serves one exchange; returns what arrived. A stream that ends before its first byte was only opened (the substreams
/// workload).
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    buffers: &mut Buffers,
    counters: &Counters,
) -> Result<Arrival, Error> {
    let mut arrival = Arrival::default();
    let upload = match read_header(&mut stream, "the upload header").await {
        Ok(Some(upload)) => upload,
        Ok(None) => return Ok(arrival),
        Err(Error::Stream(error)) if is_dropped(&error) => return Ok(arrival),
        Err(error) => return Err(error),
    };
    buffers
        .receive_exactly(&mut stream, "the upload", upload, &mut arrival, counters)
        .await?;
    let download = read_header(&mut stream, "the download header").await?;
    let download = download.ok_or(Error::TooFewBytes {
        what: "the download header",
        got: 0,
        due: 8,
    })?;
    buffers
        .send(&mut stream, Volume::Bytes(download), counters)
        .await?;
    let _ = stream.shutdown().await;
    let _ = tokio::time::timeout(LINGER, stream.read(&mut [0; 1])).await;
    Ok(arrival)
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
    let asked = Instant::now();

    let mut arrival = Arrival::default();
    buffers
        .receive_exactly(&mut stream, "the download", download, &mut arrival, counters)
        .await?;
    let mut excess = Arrival::default();
    let end = buffers.receive(&mut stream, u64::MAX, &mut excess, counters);
    // With a download, its first byte has proved that the upload was consumed, and the rest is only a check; without
    // one, the end of the stream is the proof, and it must come.
    let end = if download > 0 {
        tokio::time::timeout(LINGER, end).await.unwrap_or(Ok(0))
    } else {
        end.await
    };
    match end {
        Ok(0) => {}
        Ok(_) => {
            return Err(Error::UnexpectedBytes {
                what: "the download",
                due: download,
            });
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
        asked,
        arrival,
    })
}
