//! `/perf/1.0.0` (libp2p specs, `perf/perf.md`).
//!
//! ```text
//! client → server : u64 D, then U bytes, then half-close
//! server → client : D bytes after the client's end of stream, then close
//! ```

use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{Arrival, Buffers, Counters, Error, Exchange, Volume, is_dropped, read_header, write_header};

/// The announced length of a download that the client will cut off: the specification allows it.
const ENDLESS: u64 = u64::MAX;

/// What the client wants to receive.
#[derive(Clone, Copy, Debug)]
pub enum Download {
    /// So many bytes.
    Bytes(u64),
    /// As much as comes until this moment; then the stream is reset.
    Until(Instant),
}

/// Serves one exchange; returns what arrived.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    buffers: &mut Buffers,
    counters: &Counters,
) -> Result<Arrival, Error> {
    let mut arrival = Arrival::default();
    const HEADER: &str = "the perf header";
    let download = read_header(&mut stream, HEADER).await?;
    let download = download.ok_or(Error::TooFewBytes {
        what: HEADER,
        got: 0,
        due: 8,
    })?;
    while buffers
        .receive(&mut stream, u64::MAX, &mut arrival, counters)
        .await?
        > 0
    {}
    match buffers.send(&mut stream, Volume::Bytes(download), counters).await {
        Ok(_) => {}
        Err(error) if download == ENDLESS && is_dropped(&error) => return Ok(arrival),
        Err(error) => return Err(error.into()),
    }
    // Everything is sent. A peer that has it all may be gone before our end of stream is.
    let _ = stream.shutdown().await;
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
    stream.shutdown().await?;
    let written = Instant::now();

    let mut arrival = Arrival::default();
    match download {
        Download::Bytes(due) => {
            buffers
                .receive_exactly(&mut stream, "the download", due, &mut arrival, counters)
                .await?;
            let mut excess = Arrival::default();
            if buffers
                .receive(&mut stream, u64::MAX, &mut excess, counters)
                .await?
                > 0
            {
                return Err(Error::UnexpectedBytes {
                    what: "the download",
                    due,
                });
            }
        }
        Download::Until(deadline) => {
            let receive = async {
                while buffers
                    .receive(&mut stream, u64::MAX, &mut arrival, counters)
                    .await?
                    > 0
                {}
                Ok::<_, Error>(())
            };
            match tokio::time::timeout_at(deadline.into(), receive).await {
                Err(_deadline) => {}
                Ok(Err(error)) => return Err(error),
                Ok(Ok(())) => {
                    return Err(Error::TooFewBytes {
                        what: "the download",
                        got: arrival.bytes,
                        due: ENDLESS,
                    });
                }
            }
        }
    }
    let consumed = arrival.first().unwrap_or_else(Instant::now);
    Ok(Exchange {
        sent,
        begun,
        written,
        consumed,
        asked: written,
        arrival,
    })
}
