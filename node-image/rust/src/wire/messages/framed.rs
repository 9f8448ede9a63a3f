//! Messages on a stream: each follows its length, a big-endian u32.
//!
//! What follows the head of a message is zeros. The sender writes them from one place for all messages, where
//! the stream takes several buffers in one call, and the receiver skips them as they come, so that a declared
//! length takes no memory.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use perfrun_contract::limits::MESSAGE_MAX;
use perfrun_stack::messenger::{Message, Messenger};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes of a read, and of messages that are written together. The kernel sends 64 KiB as one segment,
/// and a longer write as that and a short one, which costs as much: raw TCP passes a third of the messages of
/// 16 KiB then.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// Messages with more zeros than this are not copied into the buffer, if the stream lets it. Copying shorter
/// ones costs less than a write for each of them.
const COPIED_BYTES_MAX: usize = 32 << 10;

/// Bytes of a length.
const LENGTH: usize = 4;

static ZEROS: [u8; BATCH_BYTES_MAX] = [0; BATCH_BYTES_MAX];

/// Messages on a stream.
pub struct Framed<S> {
    stream: S,
    /// Bytes that must be written, from `written` on, before `zeros` zeros.
    out: Vec<u8>,
    written: usize,
    zeros: usize,
    /// Bytes that were read. Those in `unread` wait.
    read: Box<[u8]>,
    unread: std::ops::Range<usize>,
    /// The message that is arriving, and the zeros of it that are still due.
    arriving: Option<(Message, usize)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Framed<S> {
    /// Frames messages on `stream`.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            out: Vec::with_capacity(BATCH_BYTES_MAX + COPIED_BYTES_MAX),
            written: 0,
            zeros: 0,
            read: vec![0; BATCH_BYTES_MAX].into(),
            unread: 0..0,
            arriving: None,
        }
    }

    #[cfg(test)]
    pub(super) fn into_inner(self) -> S {
        self.stream
    }

    /// Writes everything that waits.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() || self.zeros > 0 {
            let (head, zeros) = (
                &self.out[self.written..],
                &ZEROS[..self.zeros.min(BATCH_BYTES_MAX)],
            );
            let stream = Pin::new(&mut self.stream);
            let count = match zeros {
                [] => ready!(stream.poll_write(cx, head))?,
                zeros => ready!(stream.poll_write_vectored(cx, &[IoSlice::new(head), IoSlice::new(zeros)]))?,
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_head = count.min(head.len());
            self.written += of_head;
            self.zeros -= count - of_head;
        }
        self.out.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Takes a message, or the part of it that has arrived, from what was read.
    fn take(&mut self) -> io::Result<Option<Message>> {
        let (message, due) = match self.arriving.take() {
            Some(arriving) => arriving,
            None => match self.take_head()? {
                Some(head) => head,
                None => return Ok(None),
            },
        };
        let skipped = due.min(self.unread.len());
        self.unread.start += skipped;
        if skipped == due {
            return Ok(Some(message));
        }
        self.arriving = Some((message, due - skipped));
        Ok(None)
    }

    /// Takes the length, the number and the stamp, once all of them are there.
    fn take_head(&mut self) -> io::Result<Option<(Message, usize)>> {
        let unread = &self.read[self.unread.clone()];
        let Some((length, rest)) = unread.split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let bytes = u32::from_be_bytes(*length) as usize;
        if !(Message::LEAST..=MESSAGE_MAX.0 as usize).contains(&bytes) {
            let error = format!("the peer announced a message of {bytes} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        let Some((message, head)) = Message::parsed(rest, bytes) else {
            return Ok(None);
        };
        self.unread.start += LENGTH + head;
        Ok(Some((message, bytes - head)))
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Messenger for Framed<S> {
    fn poll_send(&mut self, cx: &mut Context<'_>, message: Message) -> Poll<io::Result<bool>> {
        if self.zeros > 0 || self.out.len() + LENGTH + message.bytes > BATCH_BYTES_MAX {
            ready!(self.poll_write(cx))?;
        }
        let length = u32::try_from(message.bytes).map_err(io::Error::other)?;
        self.out.extend(length.to_be_bytes());
        let head = message.write_head(&mut self.out);
        let zeros = message.bytes - head;
        if zeros > COPIED_BYTES_MAX && self.stream.is_write_vectored() {
            self.zeros = zeros;
        } else {
            self.out.resize(self.out.len() + zeros, 0);
        }
        Poll::Ready(Ok(true))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Message>>> {
        loop {
            if let Some(message) = self.take()? {
                return Poll::Ready(Ok(Some(message)));
            }
            // At most a part of a head is left.
            self.read.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
            let mut buffer = ReadBuf::new(&mut self.read[self.unread.end..]);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            match buffer.filled().len() {
                0 if self.arriving.is_none() && self.unread.is_empty() => return Poll::Ready(Ok(None)),
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                count => self.unread.end += count,
            }
        }
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A stream that breaks has ended, too.
        self.poll_receive(cx).map(|_| ())
    }
}
