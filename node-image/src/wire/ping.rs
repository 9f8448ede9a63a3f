//! `/ipfs/ping/1.0.0` (libp2p specs, `ping/ping.md`): 32 bytes there and back, over and over on one stream.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{Counters, Error, is_dropped, read_whole};

/// Bytes of a ping.
pub const SIZE: usize = 32;
/// What errors call it.
const PAYLOAD: &str = "the ping";

/// Echoes until the peer ends the stream.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    counters: &Counters,
) -> Result<(), Error> {
    let mut payload = [0; SIZE];
    loop {
        match read_whole(&mut stream, &mut payload, PAYLOAD).await {
            Ok(true) => Counters::add(&counters.received, SIZE as u64),
            Ok(false) => return Ok(()),
            Err(Error::Stream(error)) if is_dropped(&error) => return Ok(()),
            Err(error) => return Err(error),
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
    if !read_whole(stream, &mut echo, PAYLOAD).await? {
        return Err(Error::TooFewBytes {
            what: PAYLOAD,
            got: 0,
            due: SIZE as u64,
        });
    }
    Counters::add(&counters.received, SIZE as u64);
    if echo == payload {
        Ok(())
    } else {
        Err(Error::WrongEcho)
    }
}
