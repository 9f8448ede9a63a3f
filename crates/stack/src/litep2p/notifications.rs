//! Messages by litep2p's notification protocol, which passes whole messages on two substreams of a peer, one
//! in each direction.

use std::{
    collections::HashMap,
    future::pending,
    io,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::StreamExt;
use litep2p::{
    PeerId, ProtocolName,
    protocol::notification::{
        Config, ConfigBuilder, Direction, NotificationError, NotificationEvent, NotificationHandle,
        NotificationSink, ValidationResult,
    },
};
use perfrun_contract::{parameters::Messages, workload::MessageMode};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::sleep,
};
use tokio_util::sync::{PollSemaphore, ReusableBoxFuture};

use crate::{
    Error, Inbound, OPEN_TIMEOUT,
    messenger::{BoxMessenger, Message, Messenger},
    tasks::Tasks,
    within,
};

const NAME: &str = "/perfrun/notifications/1.0.0";

/// What each end says before its first message. litep2p needs one, and both accept any.
const HANDSHAKE: [u8; 1] = [0];

/// How often an open is tried, and the time between two tries: see [`Notifications::open`].
const TRIES: u32 = 100;
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// A notification that makes room for more messages at the peer that gets it: see
/// [`Flow::messages_per_credit`].
const CREDIT: [u8; 1] = [0];

/// How many messages may be on their way to a peer.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Most messages that have not arrived. All queues have room for them.
    in_flight_max: usize,
    /// Messages after which a receiver sends a credit. `None` if the load waits for acknowledgements.
    messages_per_credit: Option<usize>,
}

impl Flow {
    /// Beside the window: the first message and the end.
    const SPARE: usize = 4;

    /// Most bytes and most messages of a broadcast that are on their way to all receivers together: more
    /// than a link of 1 Gbit/s and 100 ms holds, and what litep2p sends in that time. More would only wait.
    const BYTES: u64 = 16 << 20;
    const MESSAGES: u64 = 1 << 14;

    /// Credits for the messages that may be on their way.
    const CREDITS: usize = 4;

    /// The limits by which no queue limits a load that waits for acknowledgements: its window.
    ///
    /// A broadcast waits for nothing, and litep2p's queue to a peer grows without a bound, because it takes
    /// notifications while the substream takes none. So the receiver of a broadcast sends credits.
    fn of(load: &Messages) -> Self {
        if load.mode != MessageMode::Broadcast {
            return Self {
                in_flight_max: load.window as usize + Self::SPARE,
                messages_per_credit: None,
            };
        }
        let to_all = (Self::BYTES / load.message_bytes.0).min(Self::MESSAGES) as usize;
        let messages_per_credit = (to_all / load.receivers as usize / Self::CREDITS).max(1);
        Self {
            in_flight_max: messages_per_credit * Self::CREDITS,
            messages_per_credit: Some(messages_per_credit),
        }
    }
}

/// The notification protocol of a host.
#[derive(Clone)]
pub(super) struct Notifications(mpsc::UnboundedSender<Command>);

enum Command {
    /// Open a notification stream to a connected peer.
    Open {
        peer: PeerId,
        reply: oneshot::Sender<Result<Exchange, NotificationError>>,
    },
    /// Close the notification stream of a peer whose exchange was dropped.
    Close { peer: PeerId },
}

impl Notifications {
    /// Starts the task that takes notifications. The configuration belongs to litep2p.
    pub(super) fn start(
        load: &Messages,
        inbound: mpsc::UnboundedSender<Inbound>,
        tasks: &Tasks,
    ) -> (Self, Config) {
        let flow = Flow::of(load);
        let (config, handle) = ConfigBuilder::new(ProtocolName::from(NAME))
            .with_max_size(load.message_bytes.max(Messages::STAMPED).0 as usize)
            .with_handshake(HANDSHAKE.to_vec())
            .with_auto_accept_inbound(true)
            .with_async_channel_size(flow.in_flight_max)
            // The driver dials.
            .with_dialing_enabled(false)
            .build();
        let (commands, requests) = mpsc::unbounded_channel();
        let peers = Peers {
            handle,
            flow,
            commands: commands.clone(),
            inbound,
            opening: HashMap::new(),
            open: HashMap::new(),
        };
        tasks.spawn(peers.run(requests));
        (Self(commands), config)
    }

    /// Opens a notification stream to a connected peer.
    pub(super) async fn open(&self, peer: PeerId) -> Result<BoxMessenger, Error> {
        let opened = async {
            for _ in 1..TRIES {
                match self.try_open(peer).await {
                    // litep2p reports a connection to one protocol after the other, and this one may be the
                    // last.
                    Err(NotificationError::DialFailure) => sleep(RETRY_PAUSE).await,
                    opened => return opened.map_err(describe),
                }
            }
            self.try_open(peer).await.map_err(describe)
        };
        let exchange = within(OPEN_TIMEOUT, opened).await.map_err(Error::Open)?;
        Ok(Box::new(exchange))
    }

    async fn try_open(&self, peer: PeerId) -> Result<Exchange, NotificationError> {
        let (reply, opened) = oneshot::channel();
        self.0
            .send(Command::Open { peer, reply })
            .map_err(|_| NotificationError::EssentialTaskClosed)?;
        opened
            .await
            .unwrap_or(Err(NotificationError::EssentialTaskClosed))
    }
}

fn describe(error: NotificationError) -> String {
    let reason = match error {
        NotificationError::Rejected => "the peer refused notifications, or the connection was closed",
        NotificationError::NoConnection | NotificationError::DialFailure => "the connection is closed",
        NotificationError::EssentialTaskClosed => "the host is closed",
        // An earlier stream with this peer.
        NotificationError::ValidationPending | NotificationError::ChannelClogged => {
            "the peer has another notification stream"
        }
    };
    reason.to_owned()
}

/// The notification streams of a host.
///
/// litep2p has one queue for the notifications of all peers. If a peer's messenger does not take its
/// messages, those of the others wait, too: none is dropped.
struct Peers {
    handle: NotificationHandle,
    flow: Flow,
    commands: mpsc::UnboundedSender<Command>,
    inbound: mpsc::UnboundedSender<Inbound>,
    opening: HashMap<PeerId, oneshot::Sender<Result<Exchange, NotificationError>>>,
    /// Dropping one is the end of its exchange.
    open: HashMap<PeerId, Peer>,
}

/// A peer with a notification stream.
struct Peer {
    /// Where its messages go.
    arrived: mpsc::Sender<Message>,
    /// Messages that have arrived since the last credit.
    taken: usize,
    /// Room for messages to it, in a broadcast.
    room: Option<Arc<Semaphore>>,
    sink: Arc<NotificationSink>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // A messenger that waits for room notices the end.
        if let Some(room) = &self.room {
            room.close();
        }
    }
}

impl Peers {
    async fn run(mut self, mut requests: mpsc::UnboundedReceiver<Command>) {
        loop {
            tokio::select! {
                // It does not end, since `self` has a sender.
                Some(request) = requests.recv() => self.on_request(request).await,
                event = self.handle.next() => match event {
                    Some(event) => self.on_event(event).await,
                    None => return,
                },
            }
        }
    }

    async fn on_request(&mut self, request: Command) {
        match request {
            Command::Open { peer, reply } => match self.handle.open_substream(peer).await {
                Ok(()) => {
                    self.opening.insert(peer, reply);
                }
                Err(_) => {
                    let _ = reply.send(Err(NotificationError::ValidationPending));
                }
            },
            Command::Close { peer } => {
                // Not a later stream of that peer.
                if self.open.get(&peer).is_some_and(|open| open.arrived.is_closed()) {
                    self.close(peer).await;
                }
            }
        }
    }

    async fn on_event(&mut self, event: NotificationEvent) {
        match event {
            NotificationEvent::NotificationReceived { peer, notification } => {
                self.on_notification(peer, &notification).await;
            }
            NotificationEvent::ValidateSubstream { peer, .. } => {
                self.handle.send_validation_result(peer, ValidationResult::Accept);
            }
            NotificationEvent::NotificationStreamOpened { peer, direction, .. } => {
                self.on_opened(peer, direction);
            }
            NotificationEvent::NotificationStreamClosed { peer } => {
                self.open.remove(&peer);
            }
            NotificationEvent::NotificationStreamOpenFailure { peer, error } => {
                if let Some(reply) = self.opening.remove(&peer) {
                    let _ = reply.send(Err(error));
                }
            }
        }
    }

    async fn on_notification(&mut self, peer: PeerId, notification: &[u8]) {
        let Some(open) = self.open.get_mut(&peer) else {
            return;
        };
        if let (Some(messages_per_credit), Some(room)) = (self.flow.messages_per_credit, &open.room)
            && *notification == CREDIT
        {
            return room.add_permits(messages_per_credit);
        }
        let Some((message, _)) = Message::parsed(notification, notification.len()) else {
            let bytes = notification.len();
            tracing::debug!(%peer, bytes, "closed a notification stream, because a message has no number");
            return self.close(peer).await;
        };
        // An exchange that was dropped takes no more, and its `Command::Close` follows.
        let _ = open.arrived.send(message).await;
        open.taken += 1;
        if self.flow.messages_per_credit == Some(open.taken) {
            open.taken = 0;
            // Its queue has room for more credits than a peer can be due.
            let _ = open.sink.send_sync_notification(CREDIT.to_vec());
        }
    }

    /// Without a receiver, the exchange is dropped, which closes the stream.
    fn on_opened(&mut self, peer: PeerId, direction: Direction) {
        let Some(sink) = self.handle.notification_sink(peer) else {
            return;
        };
        let sink = Arc::new(sink);
        let (queue, arrived) = mpsc::channel(self.flow.in_flight_max);
        let room = self
            .flow
            .messages_per_credit
            .map(|_| Arc::new(Semaphore::new(self.flow.in_flight_max)));
        let open = Peer {
            arrived: queue,
            taken: 0,
            room: room.clone(),
            sink: Arc::clone(&sink),
        };
        self.open.insert(peer, open);
        let exchange = Exchange {
            peer,
            sink,
            room: room.map(PollSemaphore::new),
            sending: ReusableBoxFuture::new(pending()),
            pending: None,
            arrived,
            commands: self.commands.clone(),
        };
        match direction {
            Direction::Inbound => {
                let _ = self.inbound.send(Inbound::Messenger(Box::new(exchange)));
            }
            Direction::Outbound => {
                if let Some(reply) = self.opening.remove(&peer) {
                    let _ = reply.send(Ok(exchange));
                }
            }
        }
    }

    async fn close(&mut self, peer: PeerId) {
        self.open.remove(&peer);
        self.handle.close_substream(peer).await;
    }
}

/// An exchange with one peer.
struct Exchange {
    peer: PeerId,
    sink: Arc<NotificationSink>,
    /// Room for messages on their way, in a broadcast.
    room: Option<PollSemaphore>,
    /// Waits for room in litep2p's queue, with a message.
    sending: ReusableBoxFuture<'static, litep2p::Result<()>>,
    /// The message that waits. It is in the queue once `sending` has returned, not before.
    pending: Option<Message>,
    arrived: mpsc::Receiver<Message>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Messenger for Exchange {
    fn poll_send(&mut self, cx: &mut Context<'_>, message: Message) -> Poll<io::Result<bool>> {
        // The caller may have changed a message that waits, for example because it is due later.
        if self.pending != Some(message) {
            if self.pending.is_none()
                && let Some(room) = &mut self.room
            {
                ready!(room.poll_acquire(cx)).ok_or_else(closed)?.forget();
            }
            self.sending
                .set(send(Arc::clone(&self.sink), notification(message)));
            self.pending = Some(message);
        }
        let sent = ready!(self.sending.poll(cx));
        self.pending = None;
        Poll::Ready(sent.map(|()| true).map_err(|_| closed()))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // litep2p sends what it is given.
        Poll::Ready(Ok(()))
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Message>>> {
        self.arrived.poll_recv(cx).map(Ok)
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.arrived.poll_recv(cx).map(|_| ())
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.arrived.close();
        // This has no effect if the stream or the host is closed.
        let _ = self.commands.send(Command::Close { peer: self.peer });
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the notification stream is closed")
}

/// The bytes of a message. litep2p takes a vector of its own for each notification, so that this allocation
/// is part of the stack's cost.
fn notification(message: Message) -> Vec<u8> {
    let mut bytes = vec![0; message.bytes];
    message.write_head(&mut bytes.as_mut_slice());
    bytes
}

/// Waits until there is room in the queue. litep2p's other way to send closes the connection if its queue is
/// full.
async fn send(sink: Arc<NotificationSink>, notification: Vec<u8>) -> litep2p::Result<()> {
    sink.send_async_notification(notification).await
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{
        limits::{MESSAGE_MAX, MESSAGE_MIN, MESSAGE_WINDOW_MAX, RECEIVERS_MAX},
        parameters::Amount,
        quantity::ByteSize,
    };

    use super::*;

    fn load(mode: MessageMode, bytes: ByteSize, window: u32, receivers: u32) -> Messages {
        Messages {
            mode,
            message_bytes: bytes,
            amount: Amount::Count(1),
            window,
            rate: None,
            priority: false,
            receivers,
        }
    }

    #[test]
    fn a_window_fits_and_a_broadcast_has_a_limit_that_credits_renew() {
        for window in [1, MESSAGE_WINDOW_MAX] {
            let flow = Flow::of(&load(MessageMode::Stream, MESSAGE_MIN, window, 1));
            assert!(
                flow.in_flight_max > window as usize && flow.messages_per_credit.is_none(),
                "{flow:?}"
            );
        }
        for bytes in [MESSAGE_MIN, ByteSize(1000), MESSAGE_MAX] {
            for receivers in [1, 3, RECEIVERS_MAX] {
                let flow = Flow::of(&load(MessageMode::Broadcast, bytes, 1, receivers));
                assert_eq!(
                    flow.messages_per_credit.unwrap() * Flow::CREDITS,
                    flow.in_flight_max
                );
                let to_all = flow.in_flight_max * receivers as usize;
                let least = Flow::CREDITS * receivers as usize;
                assert!(to_all <= Flow::MESSAGES as usize, "{bytes}: {flow:?}");
                assert!(
                    to_all as u64 * bytes.0 <= Flow::BYTES || to_all == least,
                    "{bytes}: {flow:?}"
                );
            }
        }
    }
}
