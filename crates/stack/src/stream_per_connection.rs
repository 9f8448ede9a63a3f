//! Connections of stacks that have no multiplexer.

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::{BoxStream, Connection, DialPhases, Error, OPEN_TIMEOUT, Stream, within};

/// A connection whose first stream is the dialled connection. Each further stream is a new connection: the
/// parallel streams of a stack compare with parallel connections.
pub(crate) struct StreamPerConnection<S, Redial> {
    /// The dialled connection, until it becomes the first stream.
    first: Mutex<Option<S>>,
    phases: DialPhases,
    redial: Redial,
}

impl<S, Redial> StreamPerConnection<S, Redial> {
    pub(crate) fn new(first: S, phases: DialPhases, redial: Redial) -> Self {
        Self {
            first: Mutex::new(Some(first)),
            phases,
            redial,
        }
    }
}

#[async_trait]
impl<S, Redial, Dialling> Connection for StreamPerConnection<S, Redial>
where
    S: Stream + 'static,
    Redial: Fn() -> Dialling + Send + Sync,
    Dialling: Future<Output = Result<S, String>> + Send + 'static,
{
    fn phases(&self) -> DialPhases {
        self.phases
    }

    async fn open(&self) -> Result<BoxStream, Error> {
        // Not in the condition itself, which would hold the lock.
        let first = self.first.lock().take();
        if let Some(first) = first {
            return Ok(Box::new(first));
        }
        let opened = within(OPEN_TIMEOUT, (self.redial)()).await;
        Ok(Box::new(opened.map_err(Error::Open)?))
    }

    /// Closes the dialled connection if it was not used. The users of streams close them.
    async fn close(self: Box<Self>) {}
}
