//! Introductions: how a listening host learns whom to accept.
//!
//! Hosts of commonware-p2p accept only peers whose keys they know. A dialler therefore connects to another
//! port first, and sends its key, the port on which it listens (0 if it does not listen) and its wall clock,
//! which commonware's handshake compares. The listener answers with one byte. The connection carries nothing
//! else, and stays open while the peers exchange messages. Its end shows each of them that the other has
//! ended, which commonware-p2p does not report.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use commonware_codec::DecodeExt;
use commonware_cryptography::ed25519::PublicKey;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// How long a peer may take to introduce itself.
const INTRODUCTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a key.
const KEY: usize = 32;

/// A dialler: its key and the port on which it listens.
pub(crate) struct Introduction {
    pub(crate) key: PublicKey,
    pub(crate) port: u16,
}

/// The listener's answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Answer {
    /// The listener accepts the dialler's connections now.
    Welcome = 1,
    /// The listener has as many peers as it can have.
    Full = 2,
    /// The clocks of the two differ by more than a handshake allows.
    Clocks = 3,
}

/// Introduces a dialler, and returns the connection and the listener's answer.
pub(super) async fn introduce(
    to: SocketAddr,
    introduction: &Introduction,
) -> io::Result<(TcpStream, Answer)> {
    let mut stream = TcpStream::connect(to).await?;
    let mut bytes = introduction.key.as_ref().to_vec();
    bytes.extend(introduction.port.to_be_bytes());
    bytes.extend(clock().to_be_bytes());
    stream.write_all(&bytes).await?;
    let answer = match stream.read_u8().await? {
        1 => Answer::Welcome,
        2 => Answer::Full,
        3 => Answer::Clocks,
        other => {
            let error = format!("the answer to an introduction is {other}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
    };
    Ok((stream, answer))
}

/// Milliseconds since 1970, as in commonware's handshake.
fn clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as u64
}

/// Reads an introduction, and how far the dialler's clock and this one differ.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(Introduction, Duration)> {
    let whole = async {
        let mut key = [0; KEY];
        stream.read_exact(&mut key).await?;
        io::Result::Ok((key, stream.read_u16().await?, stream.read_u64().await?))
    };
    let (key, port, theirs) = timeout(INTRODUCTION_TIMEOUT, whole).await??;
    let key =
        PublicKey::decode(key.to_vec()).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let apart = Duration::from_millis(clock().abs_diff(theirs));
    Ok((Introduction { key, port }, apart))
}

/// Answers an introduction.
pub(super) async fn answer(stream: &mut TcpStream, answer: Answer) -> io::Result<()> {
    timeout(INTRODUCTION_TIMEOUT, stream.write_u8(answer as u8)).await?
}

/// Ready when the other end is gone. Anything but its end breaks the protocol, and counts as one.
pub(super) async fn ended(mut stream: TcpStream) {
    // Both an end and an error mean that the peer is gone.
    let _ = stream.read_u8().await;
}
