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

use super::peers::Registration;
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
    /// The slots of those who receive, by the peers whose messages they take.
    slots: HashMap<PublicKey, Slot>,
}

struct Slot {
    registration: Registration,
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

    /// Keeps messages of a peer from now on. An earlier registration of that peer ends.
    pub(super) fn open(&self, key: PublicKey, registration: Registration) {
        let slot = Slot {
            registration,
            queue: VecDeque::new(),
            has_ended: false,
        };
        self.state.lock().slots.insert(key, slot);
        self.waiting.wake_all();
    }

    /// Notes that a peer has ended.
    pub(super) fn end(&self, key: &PublicKey, registration: Registration) {
        if let Some(slot) = self.state.lock().slot(key, registration) {
            slot.has_ended = true;
        }
        self.waiting.wake_all();
    }

    /// Drops messages of a peer from now on.
    pub(super) fn close(&self, key: &PublicKey, registration: Registration) {
        let mut state = self.state.lock();
        if state.slot(key, registration).is_some() {
            state.slots.remove(key);
        }
        self.waiting.forget(registration);
    }

    /// The next message of a peer. `None` after the peer has ended.
    pub(super) fn poll_receive(
        &self,
        key: &PublicKey,
        registration: Registration,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Message>>> {
        let mut state = self.state.lock();
        if let Some(message) = state
            .slot(key, registration)
            .and_then(|slot| slot.queue.pop_front())
        {
            return Poll::Ready(Ok(Some(message)));
        }
        // Before it looks: a message may arrive in between.
        self.waiting.register(registration, cx.waker());
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
                    let registration = slot.registration;
                    self.waiting.wake_one(registration);
                }
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, error)));
                }
                Poll::Pending => break,
            }
        }
        match state.slot(key, registration) {
            Some(slot) if !slot.has_ended => Poll::Pending,
            _ => Poll::Ready(Ok(None)),
        }
    }

    /// Ready when the peer has ended.
    pub(super) fn poll_ended(
        &self,
        key: &PublicKey,
        registration: Registration,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut state = self.state.lock();
        self.waiting.register(registration, cx.waker());
        match state.slot(key, registration) {
            Some(slot) if !slot.has_ended => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

impl State {
    fn slot(&mut self, key: &PublicKey, registration: Registration) -> Option<&mut Slot> {
        self.slots
            .get_mut(key)
            .filter(|slot| slot.registration == registration)
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
struct Waiting(Mutex<Vec<(Registration, Waker)>>);

impl Waiting {
    fn register(&self, registration: Registration, waker: &Waker) {
        let mut waiting = self.0.lock();
        match waiting.iter_mut().find(|(of, _)| *of == registration) {
            Some((_, registered)) => registered.clone_from(waker),
            None => waiting.push((registration, waker.clone())),
        }
    }

    fn forget(&self, registration: Registration) {
        self.0.lock().retain(|(of, _)| *of != registration);
    }

    fn wake_one(&self, registration: Registration) {
        let mut waiting = self.0.lock();
        if let Some(at) = waiting.iter().position(|(of, _)| *of == registration) {
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
