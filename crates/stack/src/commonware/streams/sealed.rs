//! A stream of bytes over the sealed messages of one connection.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context as Waker, Poll, ready},
};

use commonware_cryptography::ChaCha20Poly1305;
use commonware_runtime::{Buf as _, Error as RuntimeError, IoBufs, SinkOf, StreamOf, tokio::Context};
use commonware_stream::cups;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
};

type Sender = cups::Sender<ChaCha20Poly1305, SinkOf<Context>>;
type Receiver = cups::Receiver<ChaCha20Poly1305, StreamOf<Context>>;
type Pending<T> = Pin<Box<dyn Future<Output = Result<T, cups::Error>> + Send>>;

/// An encrypted connection as a stream.
///
/// commonware has no end of stream: it reports a connection that ends in any way as one that failed. An empty
/// message therefore ends a direction, and a connection that ends without one is a reset.
pub(super) struct Sealed {
    /// `None` while it sends, and after the end or a failure.
    sender: Option<Sender>,
    /// A message on its way. commonware forbids to drop it halfway.
    sending: Option<Pending<Option<Sender>>>,
    received: IoBufs,
    receiving: Receiving,
    /// Counts an accepted connection against the limit.
    _counted: Option<OwnedSemaphorePermit>,
}

enum Receiving {
    Next(Pending<(Receiver, IoBufs)>),
    Ended,
    Failed,
}

impl Sealed {
    /// Bytes of the longest message.
    pub(super) const MOST: u32 = 64 << 10;

    pub(super) fn new(sender: Sender, receiver: Receiver, counted: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            sender: Some(sender),
            sending: None,
            received: IoBufs::default(),
            receiving: Receiving::Next(Box::pin(receive(receiver))),
            _counted: counted,
        }
    }

    /// Ready when the last message is written to the socket.
    fn poll_sent(&mut self, cx: &mut Waker<'_>) -> Poll<io::Result<()>> {
        if let Some(sending) = &mut self.sending {
            let sent = ready!(sending.as_mut().poll(cx));
            self.sending = None;
            self.sender = sent.map_err(broken)?;
        }
        Poll::Ready(Ok(()))
    }
}

/// Sends a message. After an empty one it drops the sender, which ends this direction of the connection.
async fn send(mut sender: Sender, message: Vec<u8>) -> Result<Option<Sender>, cups::Error> {
    let is_end = message.is_empty();
    sender.send(message).await?;
    Ok((!is_end).then_some(sender))
}

async fn receive(mut receiver: Receiver) -> Result<(Receiver, IoBufs), cups::Error> {
    let message = receiver.recv().await?;
    Ok((receiver, message))
}

fn broken(error: cups::Error) -> io::Error {
    use cups::Error::{RecvFailed, SendFailed};
    let kind = match &error {
        RecvFailed(RuntimeError::Timeout) | SendFailed(RuntimeError::Timeout) => io::ErrorKind::TimedOut,
        RecvFailed(_) => io::ErrorKind::ConnectionReset,
        SendFailed(_) => io::ErrorKind::BrokenPipe,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}

impl AsyncRead for Sealed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Waker<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A message must leave while its sender waits for the answer. The next write reports a failure.
        let _ = self.poll_sent(cx);
        while !self.received.has_remaining() {
            let next = match &mut self.receiving {
                Receiving::Next(next) => ready!(next.as_mut().poll(cx)),
                Receiving::Ended => return Poll::Ready(Ok(())),
                Receiving::Failed => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            };
            match next {
                Ok((receiver, message)) if message.has_remaining() => {
                    self.received = message;
                    self.receiving = Receiving::Next(Box::pin(receive(receiver)));
                }
                Ok(_) => self.receiving = Receiving::Ended,
                Err(error) => {
                    self.receiving = Receiving::Failed;
                    return Poll::Ready(Err(broken(error)));
                }
            }
        }
        let bytes = self.received.remaining().min(into.remaining());
        self.received.copy_to_slice(into.initialize_unfilled_to(bytes));
        into.advance(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Sealed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Waker<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_sent(cx))?;
        if from.is_empty() {
            // An empty message would be the end.
            return Poll::Ready(Ok(0));
        }
        let Some(sender) = self.sender.take() else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let message = &from[..from.len().min(Self::MOST as usize)];
        self.sending = Some(Box::pin(send(sender, message.to_vec())));
        match self.poll_sent(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(message.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Waker<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Waker<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(cx))?;
        if let Some(sender) = self.sender.take() {
            self.sending = Some(Box::pin(send(sender, Vec::new())));
        }
        self.poll_sent(cx)
    }
}
