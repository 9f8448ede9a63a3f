//! What a relay reports of its circuits, and why it refuses them.

use std::{collections::HashMap, error::Error};

use libp2p::{
    PeerId,
    relay::{
        self, StatusCode,
        outbound::hop::{ConnectError, ReserveError},
    },
};

use crate::RelayEvent;

/// The open circuits of a relay, by their two peers.
#[derive(Debug, Default)]
pub(super) struct Circuits(HashMap<(PeerId, PeerId), u32>);

impl Circuits {
    /// What an event of libp2p means; `None` if nothing. libp2p reports the end of a circuit twice if the
    /// connection of its source ends at the same time.
    pub(super) fn event(&mut self, event: relay::Event) -> Option<RelayEvent> {
        let refused = |what, status| RelayEvent::Refused {
            what,
            status: status_text(status),
        };
        Some(match event {
            relay::Event::CircuitReqAccepted {
                src_peer_id,
                dst_peer_id,
            } => {
                *self.0.entry((src_peer_id, dst_peer_id)).or_default() += 1;
                RelayEvent::CircuitOpened
            }
            relay::Event::CircuitClosed {
                src_peer_id,
                dst_peer_id,
                ..
            } => {
                let between = (src_peer_id, dst_peer_id);
                let others = self.0.remove(&between)? - 1;
                if others > 0 {
                    self.0.insert(between, others);
                }
                RelayEvent::CircuitClosed
            }
            relay::Event::CircuitReqDenied { status, .. } => refused("circuit", status),
            relay::Event::ReservationReqDenied { status, .. } => refused("reservation", status),
            _ => return None,
        })
    }
}

/// The status of a relay's refusal. `None` for other errors.
pub(super) fn status(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(refused) = error.downcast_ref::<ConnectError>() {
        return match refused {
            ConnectError::ResourceLimitExceeded => Some(status_text(StatusCode::ResourceLimitExceeded)),
            ConnectError::ConnectionFailed => Some(status_text(StatusCode::ConnectionFailed)),
            ConnectError::NoReservation => Some(status_text(StatusCode::NoReservation)),
            ConnectError::PermissionDenied => Some(status_text(StatusCode::PermissionDenied)),
            _ => None,
        };
    }
    match error.downcast_ref::<ReserveError>()? {
        ReserveError::Refused => Some(status_text(StatusCode::ReservationRefused)),
        ReserveError::ResourceLimitExceeded => Some(status_text(StatusCode::ResourceLimitExceeded)),
        _ => None,
    }
}

/// A status as the specification writes it.
fn status_text(status: StatusCode) -> &'static str {
    match status {
        StatusCode::OK => "OK (100)",
        StatusCode::ReservationRefused => "RESERVATION_REFUSED (200)",
        StatusCode::ResourceLimitExceeded => "RESOURCE_LIMIT_EXCEEDED (201)",
        StatusCode::PermissionDenied => "PERMISSION_DENIED (202)",
        StatusCode::ConnectionFailed => "CONNECTION_FAILED (203)",
        StatusCode::NoReservation => "NO_RESERVATION (204)",
        StatusCode::MalformedMessage => "MALFORMED_MESSAGE (400)",
        StatusCode::UnexpectedMessage => "UNEXPECTED_MESSAGE (401)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_their_kind_and_status() {
        let (src_peer_id, dst_peer_id) = (PeerId::random(), PeerId::random());
        let mut circuits = Circuits::default();
        let mut refused = |event| match circuits.event(event) {
            Some(RelayEvent::Refused { what, status }) => format!("{what}: {status}"),
            other => format!("{other:?}"),
        };
        let reservation = refused(relay::Event::ReservationReqDenied {
            src_peer_id,
            status: StatusCode::ResourceLimitExceeded,
        });
        let circuit = refused(relay::Event::CircuitReqDenied {
            src_peer_id,
            dst_peer_id,
            status: StatusCode::ResourceLimitExceeded,
        });
        assert_eq!(reservation, "reservation: RESOURCE_LIMIT_EXCEEDED (201)");
        assert_eq!(circuit, "circuit: RESOURCE_LIMIT_EXCEEDED (201)");
    }

    #[test]
    fn a_circuit_ends_once_however_often_its_end_is_reported() {
        let (src_peer_id, dst_peer_id) = (PeerId::random(), PeerId::random());
        let accepted = || relay::Event::CircuitReqAccepted {
            src_peer_id,
            dst_peer_id,
        };
        let closed = || relay::Event::CircuitClosed {
            src_peer_id,
            dst_peer_id,
            error: None,
        };
        let mut circuits = Circuits::default();
        for event in [accepted(), accepted(), closed(), closed()] {
            assert!(circuits.event(event).is_some());
        }
        assert!(circuits.event(closed()).is_none());
        assert!(circuits.0.is_empty());
    }
}
