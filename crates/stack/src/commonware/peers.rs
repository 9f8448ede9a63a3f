//! The peers whom a host accepts or dials.

use std::{collections::BTreeMap, net::SocketAddr};

use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::{Address, AddressableManager, AddressableTrackedPeers, authenticated::lookup::Oracle};
use commonware_utils::ordered::Map;

/// Identifies one of the times that a peer was added.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Registration(u64);

/// How a peer came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    /// This host dials it.
    Dialled,
    /// It introduced itself. This host accepts its connections, and dials none.
    Introduced,
}

/// Why a peer was not added.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refused {
    /// The host has as many peers as it can have.
    Full,
    /// The peer has the host's own key.
    Own,
}

pub(super) struct Peers {
    oracle: Oracle<PublicKey>,
    own: PublicKey,
    most: usize,
    known: BTreeMap<PublicKey, Peer>,
    registrations: u64,
    /// Peer sets that commonware was given.
    sets: u64,
}

struct Peer {
    address: SocketAddr,
    dialled: Option<Registration>,
    introduced: Option<Introduced>,
}

struct Introduced {
    registration: Registration,
    /// Whether messages of it have arrived.
    is_connected: bool,
}

impl Peers {
    /// `most` are the peers that a set of `oracle` can have.
    pub(super) fn new(oracle: Oracle<PublicKey>, own: PublicKey, most: usize) -> Self {
        Self {
            oracle,
            own,
            most,
            known: BTreeMap::new(),
            registrations: 0,
            sets: 0,
        }
    }

    /// Adds a peer, or another registration of a peer, which ends its last one of the same origin.
    pub(super) fn add(
        &mut self,
        key: PublicKey,
        address: SocketAddr,
        origin: Origin,
    ) -> Result<Registration, Refused> {
        if key == self.own {
            return Err(Refused::Own);
        }
        if self.known.len() >= self.most && !self.known.contains_key(&key) {
            return Err(Refused::Full);
        }
        let registration = Registration(self.registrations);
        let peer = self.known.entry(key).or_insert(Peer {
            address,
            dialled: None,
            introduced: None,
        });
        // A change ends the peer's connection, and an introduction knows less than a dial.
        if origin == Origin::Dialled || peer.dialled.is_none() {
            peer.address = address;
        }
        match origin {
            Origin::Dialled => peer.dialled = Some(registration),
            Origin::Introduced => {
                peer.introduced = Some(Introduced {
                    registration,
                    is_connected: false,
                });
            }
        }
        self.registrations += 1;
        self.track();
        Ok(registration)
    }

    /// Ends a registration. A peer without registrations loses its connection.
    pub(super) fn remove(&mut self, key: &PublicKey, registration: Registration) {
        let Some(peer) = self.known.get_mut(key) else {
            return;
        };
        peer.dialled.take_if(|of| *of == registration);
        peer.introduced
            .take_if(|introduced| introduced.registration == registration);
        if peer.dialled.is_none() && peer.introduced.is_none() {
            self.known.remove(key);
        }
        self.track();
    }

    /// Notes that a peer that introduced itself is connected. Returns its registration the first time.
    pub(super) fn connect(&mut self, key: &PublicKey) -> Option<Registration> {
        let introduced = self.known.get_mut(key)?.introduced.as_mut()?;
        let is_first = !introduced.is_connected;
        introduced.is_connected = true;
        is_first.then_some(introduced.registration)
    }

    /// Gives commonware the peers as a set of their own. It keeps connections with peers that were in the
    /// last set, and dials only primary ones.
    fn track(&mut self) {
        let of = |is_dialled: bool| {
            let peers = self.known.iter();
            Map::from_iter_dedup(
                peers
                    .filter(|(_, peer)| peer.dialled.is_some() == is_dialled)
                    .map(|(key, peer)| (key.clone(), Address::from(peer.address))),
            )
        };
        let peers = AddressableTrackedPeers::new(of(true), of(false));
        if !self.oracle.track(self.sets, peers).accepted() {
            tracing::debug!("the network has stopped");
        }
        self.sets += 1;
    }
}
