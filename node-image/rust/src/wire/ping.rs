//! `/ipfs/ping/1.0.0` (libp2p specs, `ping/ping.md`): 32 bytes there and back, repeatedly on one stream.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{Counters, Error, is_dropped, read_next, read_whole};

/// Bytes of a ping.
pub const SIZE: usize = 32;
/// The name in errors.
const PAYLOAD: &str = "the ping";

/// Echoes until the peer ends the stream.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    counters: &Counters,
) -> Result<(), Error> {
    let mut payload = [0; SIZE];
    loop {
        match read_next(&mut stream, &mut payload, PAYLOAD, counters).await {
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

/// Sends a ping and waits for its echo.
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
        return Err(Error::too_few(PAYLOAD, 0, SIZE as u64));
    }
    Counters::add(&counters.received, SIZE as u64);
    if echo == payload {
        Ok(())
    } else {
        Err(Error::WrongEcho)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use crate::wire::testing::*;

    #[tokio::test]
    async fn pings_are_32_bytes_there_and_the_same_back() {
        for pipe in PIPES {
            let (mut ours, mut theirs) = duplex(pipe);
            let counters = Counters::default();
            let payload = std::array::from_fn(|i| i as u8);
            let peer = async {
                let mut heard = [0; SIZE];
                theirs.read_exact(&mut heard).await.unwrap();
                assert_eq!(heard, payload);
                theirs.write_all(&heard).await.unwrap();
            };
            let (trip, ()) = tokio::join!(round_trip(&mut ours, payload, &counters), peer);
            trip.unwrap();
            assert_eq!(counted(&counters), (32, 32));
        }
    }

    #[tokio::test]
    async fn a_server_echoes_until_its_peer_ends() {
        for (pipe, pings) in PIPES.into_iter().zip([0, 1, 3]) {
            let counters = Counters::default();
            let said: Vec<u8> = (0..pings * SIZE).map(|i| i as u8).collect();
            let serving = async |stream| serve(stream, &counters).await;
            let (served, heard) = against_a_peer_that_ends(pipe, &said, serving).await;
            served.unwrap();
            assert_eq!(heard, said, "pipe of {pipe}");
            assert_eq!(counted(&counters), (said.len() as u64, said.len() as u64));
        }
    }

    #[tokio::test]
    async fn half_a_ping_has_too_few_bytes_on_both_sides() {
        for got in 1..SIZE {
            let counters = Counters::default();
            let served =
                against_a_peer_that_leaves(&[0; SIZE][..got], async |stream| serve(stream, &counters).await)
                    .await;
            assert!(too_few(&served), "{got}: {served:?}");
        }
        for got in 0..SIZE {
            let counters = Counters::default();
            let trip = async |mut stream| round_trip(&mut stream, [0; SIZE], &counters).await;
            let (trip, _) = against_a_peer_that_ends(64, &[0; SIZE][..got], trip).await;
            assert!(too_few(&trip), "{got}: {trip:?}");
        }
    }

    #[tokio::test]
    async fn another_answer_than_the_echo_is_unexpected() {
        let counters = Counters::default();
        let trip = async |mut stream| round_trip(&mut stream, [1; SIZE], &counters).await;
        let (trip, _) = against_a_peer_that_ends(64, &[2; SIZE], trip).await;
        assert!(matches!(trip, Err(Error::WrongEcho)), "{trip:?}");
    }
}
