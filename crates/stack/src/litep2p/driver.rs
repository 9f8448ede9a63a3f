//! The task that drives litep2p's transports and dials.

use std::collections::{HashMap, hash_map::Entry};

use litep2p::{Litep2p, Litep2pEvent, PeerId, types::multiaddr::Multiaddr};
use tokio::sync::{mpsc, oneshot};

use crate::error::describe;

/// A dial. The protocol sees the connection and reports success; this task reports failures.
pub(super) struct Dial {
    pub(super) address: Multiaddr,
    pub(super) peer: PeerId,
    pub(super) failed: oneshot::Sender<String>,
}

/// Polls litep2p until the host ends.
///
/// Dials pass through here and not through the protocol, to which litep2p reports neither why a dial failed
/// nor that it was refused.
pub(super) async fn run(mut litep2p: Litep2p, mut dials: mpsc::UnboundedReceiver<Dial>) {
    let mut dialling: HashMap<PeerId, oneshot::Sender<String>> = HashMap::new();
    loop {
        tokio::select! {
            dial = dials.recv() => {
                let Some(Dial { address, peer, failed }) = dial else { return };
                dialling.retain(|_, failed| !failed.is_closed());
                match dialling.entry(peer) {
                    // litep2p would accept both dials and report only one of them.
                    Entry::Occupied(_) => {
                        let _ = failed.send("a dial to this peer is already in progress".to_owned());
                    }
                    Entry::Vacant(vacant) => match litep2p.dial_address(address).await {
                        Ok(()) => {
                            vacant.insert(failed);
                        }
                        Err(error) => {
                            let _ = failed.send(describe(&error));
                        }
                    },
                }
            }
            event = litep2p.next_event() => match event {
                Some(Litep2pEvent::DialFailure { address, error }) => {
                    fail(&mut dialling, &address, describe(&error));
                }
                Some(Litep2pEvent::ListDialFailures { errors }) => {
                    for (address, error) in errors {
                        fail(&mut dialling, &address, describe(&error));
                    }
                }
                Some(Litep2pEvent::ConnectionEstablished { .. } | Litep2pEvent::ConnectionClosed { .. }) => {}
                None => return,
            },
        }
    }
}

fn fail(dialling: &mut HashMap<PeerId, oneshot::Sender<String>>, address: &Multiaddr, reason: String) {
    if let Some(failed) = PeerId::try_from_multiaddr(address).and_then(|peer| dialling.remove(&peer)) {
        let _ = failed.send(reason);
    }
}
