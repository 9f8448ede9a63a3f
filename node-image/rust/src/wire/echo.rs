//! `/echo/1.0.0` (WebRTC transport benchmarks): a line there and the same line back, repeatedly on one
//! stream.
//!
//! The line is zeros in ASCII and a line feed. Both ends know it and compare what arrives with one copy that
//! all streams share, so that ten thousand streams need no buffers.

use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::{Counters, Error, is_dropped};

/// The name in errors.
const LINE: &str = "the line";
/// Bytes of one read, into the stack of the call.
const CHUNK: usize = 4096;

/// The line with this number of bytes, including the line feed.
pub fn line(bytes: usize) -> Arc<[u8]> {
    let mut line = vec![b'0'; bytes.max(1)];
    *line.last_mut().expect("it has at least one byte") = b'\n';
    line.into()
}

/// Echoes one line. `false` if the peer ended or dropped the stream instead.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    line: &[u8],
    counters: &Counters,
) -> Result<bool, Error> {
    let due = line.len() as u64;
    match receive(stream, line).await {
        Ok(Received::Whole) => Counters::add(&counters.received, due),
        Ok(Received::Other) => return Err(Error::WrongLine),
        Ok(Received::Ended(0)) => return Ok(false),
        Ok(Received::Ended(got)) => {
            return Err(Error::too_few(LINE, got, due));
        }
        Err(error) if is_dropped(&error) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    send(stream, line, counters).await?;
    Ok(true)
}

/// Sends the line and waits for its echo.
pub async fn round_trip<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    line: &[u8],
    counters: &Counters,
) -> Result<(), Error> {
    send(stream, line, counters).await?;
    match receive(stream, line).await? {
        Received::Whole => {
            Counters::add(&counters.received, line.len() as u64);
            Ok(())
        }
        Received::Other => Err(Error::WrongEcho),
        Received::Ended(got) => Err(Error::too_few(LINE, got, line.len() as u64)),
    }
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, line: &[u8], counters: &Counters) -> io::Result<()> {
    stream.write_all(line).await?;
    stream.flush().await?;
    Counters::add(&counters.sent, line.len() as u64);
    Ok(())
}

/// What arrived for a line.
enum Received {
    Whole,
    /// Other bytes than those of the line.
    Other,
    /// The end of the stream, after this number of bytes.
    Ended(u64),
}

async fn receive<S: AsyncRead + Unpin>(stream: &mut S, line: &[u8]) -> io::Result<Received> {
    let mut got = 0;
    while got < line.len() {
        let due = &line[got..];
        // The number of bytes, or `None` if they differ from the line.
        let read = poll_fn(|cx| {
            let mut chunk = [MaybeUninit::uninit(); CHUNK];
            let mut into = ReadBuf::uninit(&mut chunk[..due.len().min(CHUNK)]);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut into))?;
            let read = into.filled();
            Poll::Ready(io::Result::Ok(due.starts_with(read).then_some(read.len())))
        });
        match read.await? {
            None => return Ok(Received::Other),
            Some(0) => return Ok(Received::Ended(got as u64)),
            Some(n) => got += n,
        }
    }
    Ok(Received::Whole)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use crate::wire::testing::{
        PIPES, against_a_peer_that_ends, against_a_peer_that_leaves, counted, too_few,
    };

    /// Awkward lengths of a line: only the line feed, one read, and around one read.
    const LENGTHS: [usize; 6] = [1, 2, 1024, CHUNK - 1, CHUNK, CHUNK + 1];

    #[test]
    fn the_line_is_the_published_one() {
        let line = line(1024);
        assert_eq!(line.len(), 1024);
        assert_eq!(line.split_last(), Some((&b'\n', &[b'0'; 1023][..])));
    }

    #[tokio::test]
    async fn a_line_goes_there_and_the_same_comes_back() {
        for (length, pipe) in LENGTHS.into_iter().flat_map(|l| PIPES.map(|pipe| (l, pipe))) {
            let (mut ours, mut theirs) = duplex(pipe);
            let counters = Counters::default();
            let line = line(length);
            let peer = async {
                let mut heard = vec![0; length];
                theirs.read_exact(&mut heard).await.unwrap();
                assert_eq!(heard, *line);
                theirs.write_all(&heard).await.unwrap();
            };
            let (trip, ()) = tokio::join!(round_trip(&mut ours, &line, &counters), peer);
            trip.unwrap();
            assert_eq!(counted(&counters), (length as u64, length as u64));
        }
    }

    async fn served(mut stream: tokio::io::DuplexStream, line: &[u8]) -> Result<u64, Error> {
        let mut lines = 0;
        while serve(&mut stream, line, &Counters::default()).await? {
            lines += 1;
        }
        Ok(lines)
    }

    #[tokio::test]
    async fn a_server_echoes_until_its_peer_ends() {
        for (length, pipe) in LENGTHS.into_iter().flat_map(|l| PIPES.map(|pipe| (l, pipe))) {
            let line = line(length);
            for lines in [0, 1, 3] {
                let said = line.repeat(lines);
                let side = async |stream| served(stream, &line).await;
                let (lines_served, heard) = against_a_peer_that_ends(pipe, &said, side).await;
                assert_eq!(lines_served.unwrap(), lines as u64);
                assert_eq!(heard, said, "pipe of {pipe}");
            }
        }
    }

    #[tokio::test]
    async fn half_a_line_has_too_few_bytes_on_both_sides() {
        let line = line(10);
        for got in 1..10 {
            let side = async |stream| served(stream, &line).await;
            let ended = against_a_peer_that_leaves(&line[..got], side).await;
            assert!(too_few(&ended), "{got}: {ended:?}");
        }
        for got in 0..10 {
            let trip = async |mut stream| round_trip(&mut stream, &line, &Counters::default()).await;
            let (trip, _) = against_a_peer_that_ends(64, &line[..got], trip).await;
            assert!(too_few(&trip), "{got}: {trip:?}");
        }
    }

    #[tokio::test]
    async fn one_wrong_byte_is_noticed_wherever_it_is() {
        for length in [2, CHUNK + 1] {
            let line = line(length);
            for at in [0, length / 2, length - 1] {
                let mut other = line.to_vec();
                other[at] ^= 1;
                let trip = async |mut stream| round_trip(&mut stream, &line, &Counters::default()).await;
                let (trip, _) = against_a_peer_that_ends(1 << 16, &other, trip).await;
                assert!(matches!(trip, Err(Error::WrongEcho)), "{at}: {trip:?}");
                let side = async |stream| served(stream, &line).await;
                let (side, _) = against_a_peer_that_ends(1 << 16, &other, side).await;
                assert!(matches!(side, Err(Error::WrongLine)), "{at}: {side:?}");
            }
        }
    }
}
