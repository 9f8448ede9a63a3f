//! Makes streams on WebRTC behave like those on other transports.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use perfrun_contract::matrix::Transport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{BoxStream, Stream};

/// libp2p negotiates and sends messages of 16 KiB, but cannot receive more than 8 KiB: a longer message ends
/// the stream and blocks the connection (rust-libp2p issue 4049). The 32 bytes are room for its frame and a
/// flag.
const CHANNEL_MESSAGE_MAX: usize = 8192 - 32;

/// Wraps a stream as its transport requires.
pub(super) fn boxed(transport: Transport, stream: impl Stream + 'static) -> BoxStream {
    match transport {
        Transport::WebrtcDirect => Box::new(WebrtcStream { stream, ended: false }),
        _ => Box::new(stream),
    }
}

struct WebrtcStream<S> {
    stream: S,
    /// Whether the peer's end was read. libp2p answers another read with an error.
    ended: bool,
}

impl<S: Stream> AsyncRead for WebrtcStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.remaining();
        if !self.ended {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
            self.ended = before > 0 && buf.remaining() == before;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> AsyncWrite for WebrtcStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        // Otherwise libp2p would join this write and unsent bytes into a longer message.
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        let short = buf.get(..CHANNEL_MESSAGE_MAX).unwrap_or(buf);
        Pin::new(&mut self.stream).poll_write(cx, short)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
