//! A pause before the first message of a WebRTC connection.
//!
//! litep2p sends this message together with the COOKIE ACK that opens the SCTP association. libp2p loses a
//! dial whose first message it handles before it has opened its channel (webrtc-rs issue 821): on a quiet
//! machine with two cores these are most of its dials to litep2p. litep2p has no setting for this. It reports
//! what it does as trace events before it does it, so a subscriber that sleeps makes it wait.

use std::{
    fmt,
    sync::atomic::{AtomicU8, Ordering},
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber, dispatcher,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
    subscriber::Interest,
};

/// Longer than libp2p takes to open its channel after the COOKIE ACK.
const PAUSE: Duration = Duration::from_millis(1);

/// The module of litep2p that opens connections.
const OPENING_MODULE: &str = "litep2p::transport::webrtc::opening";

/// Lets the task that drives litep2p pause, and passes all events on.
pub(super) struct Pausing {
    next: Dispatch,
    /// Datagrams to send until the pause is over.
    left: AtomicU8,
}

impl Pausing {
    /// Passes events on to the subscriber of the current task.
    pub(super) fn new() -> Self {
        Self {
            next: dispatcher::get_default(Dispatch::clone),
            left: AtomicU8::new(0),
        }
    }

    /// Follows the opening of a connection. Between the two kinds of events, litep2p does not turn to another
    /// connection.
    fn follow(&self, event: &Event<'_>) {
        let mut message = EventMessage::default();
        event.record(&mut message);
        match &*message.0 {
            // The COOKIE ACK still waits to be sent.
            "send initial noise handshake" => self.left.store(2, Ordering::Relaxed),
            "transmit data" => {
                let left = self.left.load(Ordering::Relaxed);
                self.left.store(left.saturating_sub(1), Ordering::Relaxed);
                if left == 1 {
                    pause();
                }
            }
            _ => {}
        }
    }
}

/// Sleeps. Other tasks of this thread, possibly those of the client, continue on another thread.
fn pause() {
    // Only tests have one thread. Their clients use it, too, and lose no dial: they handle one packet after
    // the other.
    if Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread {
        block_in_place(|| thread::sleep(PAUSE));
    }
}

fn is_followed(metadata: &Metadata<'_>) -> bool {
    *metadata.level() == Level::TRACE && metadata.module_path() == Some(OPENING_MODULE)
}

impl Subscriber for Pausing {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match is_followed(metadata) {
            true => Interest::always(),
            false => self.next.register_callsite(metadata),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_followed(metadata) || self.next.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn event(&self, event: &Event<'_>) {
        if is_followed(event.metadata()) {
            self.follow(event);
        }
        if self.next.enabled(event.metadata()) {
            self.next.event(event);
        }
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        self.next.new_span(attributes)
    }

    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        self.next.record(span, values);
    }

    fn record_follows_from(&self, span: &span::Id, follows: &span::Id) {
        self.next.record_follows_from(span, follows);
    }

    fn enter(&self, span: &span::Id) {
        self.next.enter(span);
    }

    fn exit(&self, span: &span::Id) {
        self.next.exit(span);
    }

    fn clone_span(&self, span: &span::Id) -> span::Id {
        self.next.clone_span(span)
    }

    fn try_close(&self, span: span::Id) -> bool {
        self.next.try_close(span)
    }
}

/// The message of an event.
#[derive(Default)]
struct EventMessage(String);

impl Visit for EventMessage {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
