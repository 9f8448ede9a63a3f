//! `/ipfs/ping/1.0.0` (libp2p specs, `ping/ping.md`): 32 bytes there and back, over and over on one stream.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Counters, Error, is_dropped};

/// Bytes of a ping.
pub const SIZE: usize = 32;

/// Echoes until the peer ends the stream.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, counters: &Counters) -> Result<(), Error> {
    let mut payload = [0; SIZE];
    loop {
        match stream.read_exact(&mut payload).await {
            Ok(_) => Counters::add(&counters.received, SIZE as u64),
            Err(error) if is_dropped(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        stream.write_all(&payload).await?;
        stream.flush().await?;
        Counters::add(&counters.sent, SIZE as u64);
    }
}

/// One round trip.
pub async fn round_trip<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    payload: [u8; SIZE],
    counters: &Counters,
) -> Result<(), Error> {
    stream.write_all(&payload).await?;
    stream.flush().await?;
    Counters::add(&counters.sent, SIZE as u64);
    let mut echo = [0; SIZE];
    stream.read_exact(&mut echo).await?;
    Counters::add(&counters.received, SIZE as u64);
    if echo == payload { Ok(()) } else { Err(Error::WrongEcho) }
}
