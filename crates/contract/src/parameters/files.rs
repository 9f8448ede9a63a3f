//! Identities and open files that a trial needs.

use super::Parameters;

/// Open files that a node needs besides those of the load.
const FILES_BESIDES: u64 = 64;

/// Open files of a host, with room for those of its dials.
const FILES_OF_HOST: u64 = 4;

impl Parameters {
    /// Identities that a client with `peers` peers uses at the same time.
    pub fn hosts(&self, peers: u32) -> u64 {
        let each = match self {
            Self::Handshakes { in_flight, .. } => *in_flight,
            // Each connection is a peer.
            Self::Echo(load) => load.connections,
            _ => 1,
        };
        u64::from(peers) * u64::from(each)
    }

    /// Open files that a client with `hosts` hosts needs. With `stream_is_connection`, each stream takes a
    /// socket.
    pub fn client_files(&self, hosts: u64, stream_is_connection: bool) -> u64 {
        match self {
            Self::Echo(load) if stream_is_connection => load.streams() + FILES_BESIDES,
            Self::RelayStress { .. } => hosts + FILES_BESIDES,
            Self::Messages(load) => FILES_OF_HOST * hosts * u64::from(load.receivers) + FILES_BESIDES,
            _ if stream_is_connection => hosts * u64::from(self.streams()) + FILES_BESIDES,
            _ => FILES_OF_HOST * hosts,
        }
    }

    /// Open files that a server needs: with `sources`, for that number of hosts behind a relay, otherwise for
    /// one that peers dial. With `stream_is_connection`, each stream takes a socket.
    pub fn server_files(&self, sources: Option<u32>, stream_is_connection: bool) -> u64 {
        let hosts = match sources.map(u64::from) {
            None if matches!(self, Self::Echo(_)) => self.hosts(1),
            None => 1,
            // A listener, and a connection with the relay for each sink, or one for all.
            Some(sources) if stream_is_connection => sources * (1 + u64::from(self.streams())),
            Some(sources) => sources * 2,
        };
        self.client_files(hosts, stream_is_connection)
    }

    /// Open files that a relay needs. With `stream_is_connection`, it has a connection with a source for each
    /// sink.
    pub fn relay_files(&self, stream_is_connection: bool) -> u64 {
        match self {
            Self::RelayStress { sinks, sources, .. } => {
                let onward = if stream_is_connection { sinks } else { sources };
                u64::from(*sinks) + u64::from(*onward) + FILES_BESIDES
            }
            _ => FILES_BESIDES,
        }
    }
}
