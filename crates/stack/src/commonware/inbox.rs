//! The messages of one channel, which commonware-p2p gives to one receiver for all peers.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    io,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{Receiver as _, authenticated::lookup::Receiver};
use commonware_runtime::IoBuf;
use parking_lot::Mutex;

use super::peers::Session;
use crate::messenger::Message;

/// Gives each peer's messages to that peer's messenger.
///
/// A task in between would cost each message a hop. Instead, a messenger that looks for its own messages also
/// puts those of others into their queues. A message wakes all messengers that wait, because the one that
/// waited last may never look again.
pub(super) struct Inbox {
    state: Mutex<State>,
    waiting: Arc<Waiting>,
    waker: Waker,
}

struct State {
    receiver: Receiver<PublicKey>,
    /// Those who receive.
    slots: HashMap<PublicKey, Slot>,
}

struct Slot {
    session: Session,
    /// Messages that another messenger found.
    queue: VecDeque<Message>,
    /// Whether the peer has ended.
    has_ended: bool,
}

impl Inbox {
    pub(super) fn new(receiver: Receiver<PublicKey>) -> Self {
        let waiting = Arc::new(Waiting::default());
        Self {
            state: Mutex::new(State {
                receiver,
                slots: HashMap::new(),
            }),
            waker: Arc::clone(&waiting).into(),
            waiting,
        }
    }

    /// Keeps messages of a peer from now on. An earlier session of that peer ends.
    pub(super) fn open(&self, key: PublicKey, session: Session) {
        let slot = Slot {
            session,
            queue: VecDeque::new(),
            has_ended: false,
        };
        self.state.lock().slots.insert(key, slot);
        self.waiting.wake_all();
    }

    /// Notes that a peer has ended.
    pub(super) fn end(&self, key: &PublicKey, session: Session) {
        if let Some(slot) = self.state.lock().slot(key, session) {
            slot.has_ended = true;
        }
        self.waiting.wake_all();
    }

    /// Drops messages of a peer from now on.
    pub(super) fn close(&self, key: &PublicKey, session: Session) {
        let mut state = self.state.lock();
        if state.slot(key, session).is_some() {
            state.slots.remove(key);
        }
        self.waiting.forget(session);
    }

    /// The next message of a peer. `None` after the peer has ended.
    pub(super) fn poll_receive(
        &self,
        key: &PublicKey,
        session: Session,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Message>>> {
        let mut state = self.state.lock();
        if let Some(message) = state.slot(key, session).and_then(|slot| slot.queue.pop_front()) {
            return Poll::Ready(Ok(Some(message)));
        }
        // Before it looks: a message may arrive in between.
        self.waiting.register(session, cx.waker());
        loop {
            // A future that is pending has taken nothing, and may be dropped.
            let received = pin!(state.receiver.recv()).poll(&mut Context::from_waker(&self.waker));
            match received {
                Poll::Ready(Ok((from, buffer))) if from == *key => {
                    return Poll::Ready(parsed(&buffer).map(Some));
                }
                Poll::Ready(Ok((from, buffer))) => {
                    let Some(slot) = state.slots.get_mut(&from) else {
                        tracing::debug!("dropped a message of a peer that has no messenger");
                        continue;
                    };
                    match parsed(&buffer) {
                        Ok(message) => slot.queue.push_back(message),
                        Err(_) => slot.has_ended = true,
                    }
                    let session = slot.session;
                    self.waiting.wake_one(session);
                }
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, error)));
                }
                Poll::Pending => break,
            }
        }
        match state.slot(key, session) {
            Some(slot) if !slot.has_ended => Poll::Pending,
            _ => Poll::Ready(Ok(None)),
        }
    }

    /// Ready when the peer has ended.
    pub(super) fn poll_ended(&self, key: &PublicKey, session: Session, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        self.waiting.register(session, cx.waker());
        match state.slot(key, session) {
            Some(slot) if !slot.has_ended => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

impl State {
    fn slot(&mut self, key: &PublicKey, session: Session) -> Option<&mut Slot> {
        self.slots.get_mut(key).filter(|slot| slot.session == session)
    }
}

fn parsed(buffer: &IoBuf) -> io::Result<Message> {
    let bytes: &[u8] = buffer.as_ref();
    match Message::parsed(bytes, bytes.len()) {
        Some((message, _)) => Ok(message),
        None => {
            let error = format!("a message of {} bytes has no number", bytes.len());
            Err(io::Error::new(io::ErrorKind::InvalidData, error))
        }
    }
}

/// The messengers that wait for messages.
#[derive(Default)]
struct Waiting(Mutex<Vec<(Session, Waker)>>);

impl Waiting {
    fn register(&self, session: Session, waker: &Waker) {
        let mut waiting = self.0.lock();
        match waiting.iter_mut().find(|(of, _)| *of == session) {
            Some((_, registered)) => registered.clone_from(waker),
            None => waiting.push((session, waker.clone())),
        }
    }

    fn forget(&self, session: Session) {
        self.0.lock().retain(|(of, _)| *of != session);
    }

    fn wake_one(&self, session: Session) {
        let mut waiting = self.0.lock();
        if let Some(at) = waiting.iter().position(|(of, _)| *of == session) {
            waiting.swap_remove(at).1.wake();
        }
    }

    fn wake_all(&self) {
        for (_, waker) in self.0.lock().drain(..) {
            waker.wake();
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}
