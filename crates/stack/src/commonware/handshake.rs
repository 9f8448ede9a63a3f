//! The handshake between peers (SAKE), and how what they send afterwards is sealed (CUPS).

use std::time::Duration;

use commonware_cryptography::{ChaCha20Poly1305, ed25519::PrivateKey};
use commonware_stream::{
    cups,
    sake::{self, Sake},
};
use perfrun_contract::matrix::Cups;

/// How far the clocks of two machines may differ. The handshake's 5 s are too few for a benchmark that needs
/// no wall clock.
pub const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(600);

/// The namespace of handshakes: only nodes of perfrun connect.
pub(super) const NAMESPACE: &[u8] = b"perfrun";

/// Makes encrypted connections of plain ones.
pub(super) type Upgrader = cups::Cups<Sake<PrivateKey>, ChaCha20Poly1305>;

/// The upgrader of a host with this key, for peers with the same version of CUPS whose clocks differ by less
/// than `clocks`.
pub(super) fn upgrader(key: PrivateKey, version: Cups, clocks: Duration) -> Upgrader {
    let handshake = Sake {
        signer: key,
        synchrony_bound: clocks,
        max_handshake_age: clocks,
        version: sake::Version::V1,
    };
    let version = match version {
        Cups::V0 => cups::Version::V0,
        Cups::V1 => cups::Version::V1,
    };
    cups::Cups::new(handshake, version)
}
