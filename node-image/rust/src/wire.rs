//! What is sent on a stream, written once for all stacks and generic over the stream.
//!
//! Integers are big-endian u64, payload is zeros, and nothing has a frame. There are three exceptions: each
//! of [`messages`] follows its length, a u32; a line of [`echo`] is zeros in ASCII; a [`ping`] begins with
//! its number. A declared length is only counted down; nothing is allocated for it. Every loop reads and
//! writes in turn in one task: litep2p's yamux loses a waker when two tasks poll the two halves of a stream
//! (rust-yamux issue 232).

mod counters;
pub mod echo;
pub mod litep2p_perf;
pub mod messages;
mod payload;
pub mod perf;
pub mod ping;
pub mod test_data;
#[cfg(test)]
mod testing;

use std::io;

use perfrun_contract::{matrix::Protocol, node::Reason};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(crate) use self::counters::Counts;
pub use self::{
    counters::{Counters, Echoing},
    payload::{Arrival, Buffers, Exchange, Volume},
};

/// Why an exchange ended early.
#[derive(Debug, Error)]
pub enum Error {
    /// The peer ended the stream early.
    #[error("the peer ended the stream after {got} of {due} bytes of {what}")]
    TooFewBytes {
        what: &'static str,
        /// Bytes that arrived.
        got: u64,
        /// Bytes that were due.
        due: u64,
    },
    /// The peer sent more than was due.
    #[error("the peer sent more than the {due} bytes of {what} that were due")]
    UnexpectedBytes {
        what: &'static str,
        /// Bytes that were due.
        due: u64,
    },
    /// The peer echoed other bytes than it received.
    #[error("the peer echoed other bytes than it was sent")]
    WrongEcho,
    /// The peer sent another line than the one that both ends use.
    #[error("the peer sent another line than the one that both ends use")]
    WrongLine,
    /// A message did not arrive.
    #[error("message {expected} is lost: {got} arrived in its place")]
    MessageLost {
        /// The number that was due.
        expected: u64,
        /// The number that arrived.
        got: u64,
    },
    /// The last messages before a silence did not arrive.
    #[error("message {first} is lost: a check arrived that was sent after it")]
    TailLost {
        /// The first of them.
        first: u64,
    },
    /// The peer acknowledged a message that is not in flight.
    #[error("the peer acknowledged message {got}, and messages {from} to {to} were in flight")]
    WrongAcknowledgement {
        /// The number that arrived.
        got: u64,
        /// First message in flight.
        from: u64,
        /// Last message in flight.
        to: u64,
    },
    /// The stack refused to send a message.
    #[error("the stack refused to send message {0}: its quota is used up, or its queue is full")]
    MessageRefused(u64),
    /// The stream broke.
    #[error("the stream broke: {0}")]
    Stream(#[from] io::Error),
}

impl Error {
    fn too_few(what: &'static str, got: u64, due: u64) -> Self {
        Self::TooFewBytes { what, got, due }
    }

    fn unexpected(what: &'static str, due: u64) -> Self {
        Self::UnexpectedBytes { what, due }
    }

    /// The reason in the results.
    pub fn reason(&self) -> Reason {
        match self {
            Self::TooFewBytes { .. } => Reason::TooFewBytes,
            Self::UnexpectedBytes { .. } | Self::WrongLine => Reason::UnexpectedBytes,
            Self::WrongEcho => Reason::WrongEcho,
            Self::MessageLost { .. } | Self::TailLost { .. } => Reason::MessageLost,
            Self::WrongAcknowledgement { .. } => Reason::UnexpectedBytes,
            Self::MessageRefused(_) => Reason::Refused,
            Self::Stream(_) => Reason::StreamFailed,
        }
    }
}

/// Serves one stream until it ends. `bytes` is what a server sends to a client that only reads.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    protocol: Protocol,
    stream: S,
    bytes: u64,
    buffers: &mut Buffers,
    counters: &Counters,
) -> Result<Arrival, Error> {
    match protocol {
        Protocol::Perf => return perf::serve(stream, buffers, counters).await,
        Protocol::Litep2pPerf => return litep2p_perf::serve(stream, buffers, counters).await,
        Protocol::TestData => test_data::serve(stream, bytes, buffers, counters).await?,
        // Echoes and messages have servers of their own.
        Protocol::Ping | Protocol::Echo | Protocol::Messages => ping::serve(stream, counters).await?,
    }
    Ok(Arrival::default())
}

/// Reads a header. `None` if the stream ended before its first byte.
async fn read_header<S: AsyncRead + Unpin>(stream: &mut S, what: &'static str) -> Result<Option<u64>, Error> {
    let mut header = [0; 8];
    Ok(read_whole(stream, &mut header, what)
        .await?
        .then(|| u64::from_be_bytes(header)))
}

/// Fills `into`. `false` if the stream ended before its first byte.
async fn read_whole<S: AsyncRead + Unpin>(
    stream: &mut S,
    into: &mut [u8],
    what: &'static str,
) -> Result<bool, Error> {
    let got = stream.read(into).await?;
    read_rest(stream, into, got, what).await
}

/// Fills `into`, or else the stream may end. `false` if it did, or if its end is lost.
async fn read_next<S: AsyncRead + Unpin>(
    stream: &mut S,
    into: &mut [u8],
    what: &'static str,
    counters: &Counters,
) -> Result<bool, Error> {
    let got = counters.await_end(stream.read(into)).await.unwrap_or(Ok(0))?;
    read_rest(stream, into, got, what).await
}

/// Fills what is left of `into` after a first read, which got 0 bytes at the end of the stream.
async fn read_rest<S: AsyncRead + Unpin>(
    stream: &mut S,
    into: &mut [u8],
    mut got: usize,
    what: &'static str,
) -> Result<bool, Error> {
    if got == 0 {
        return Ok(false);
    }
    while got < into.len() {
        match stream.read(&mut into[got..]).await? {
            0 => {
                return Err(Error::too_few(what, got as u64, into.len() as u64));
            }
            n => got += n,
        }
    }
    Ok(true)
}

/// Writes a header.
async fn write_header<S: AsyncWrite + Unpin>(stream: &mut S, value: u64) -> io::Result<()> {
    stream.write_all(&value.to_be_bytes()).await
}

/// Whether an error means that the peer dropped the stream, which is how several protocols end.
pub(crate) fn is_dropped(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof, WriteZero,
    };
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof | WriteZero
    )
}
