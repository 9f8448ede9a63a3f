//! Impairments of the links between nodes, all defaults filled in.

use std::{fmt, time::Duration};

use perfrun_link::{Backend, Impairment};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::role::Role;

/// The network on which nothing is impaired.
pub const NONE: &str = "none";

/// What a network does to packets in each direction, all defaults filled in.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkImpairments {
    /// Its name.
    pub name: String,
    /// What happens to packets that clients send.
    pub to_server: Impairment,
    /// What happens to packets that servers send.
    pub to_client: Impairment,
    /// What happens between clients and a relay, if it differs from `to_server` and `to_client`.
    pub client_relay: Option<Impairment>,
    /// What happens between servers and a relay, if it differs from `to_server` and `to_client`.
    pub server_relay: Option<Impairment>,
    /// The backend that impairs packets.
    pub backend: Backend,
}

impl NetworkImpairments {
    /// What happens to packets from a node of one role to one of another; nodes of one role do not talk to
    /// each other.
    pub fn between(&self, from: Role, to: Role) -> Option<&Impairment> {
        use Role::{Client, Relay, Server};
        match (from, to) {
            (Client, Server) => Some(&self.to_server),
            (Server, Client) => Some(&self.to_client),
            (Client, Relay) => Some(self.client_relay.as_ref().unwrap_or(&self.to_server)),
            (Relay, Client) => Some(self.client_relay.as_ref().unwrap_or(&self.to_client)),
            (Relay, Server) => Some(self.server_relay.as_ref().unwrap_or(&self.to_server)),
            (Server, Relay) => Some(self.server_relay.as_ref().unwrap_or(&self.to_client)),
            (Client, Client) | (Server, Server) | (Relay, Relay) => None,
        }
    }

    /// All of its impairments.
    pub fn all(&self) -> impl Iterator<Item = &Impairment> {
        let own = [&self.to_server, &self.to_client];
        own.into_iter()
            .chain(&self.client_relay)
            .chain(&self.server_relay)
    }

    /// Whether packets pass as they are.
    pub fn is_none(&self) -> bool {
        self.all().all(Impairment::is_none)
    }

    /// The higher rate of both directions, in bit/s. `None` if one of them has no limit.
    pub fn rate(&self) -> Option<f64> {
        let rates = [&self.to_server, &self.to_client].map(|impairment| impairment.rate_bits_per_second);
        let [to_server, to_client] = rates.map(|rate| rate.map(|rate| rate.get() as f64));
        Some(to_server?.max(to_client?))
    }

    /// What a round trip takes longer than without them, on the longest link; jitter left out.
    pub fn round_trip(&self) -> Duration {
        let of_relay = self.client_relay.iter().chain(&self.server_relay);
        let both_ways = of_relay.map(|link| 2 * link.delay);
        both_ways.fold(self.to_server.delay + self.to_client.delay, Duration::max)
    }
}

impl fmt::Display for NetworkImpairments {
    /// What happens to packets; of both directions, where they differ.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            to_server, to_client, ..
        } = self;
        match (to_server.is_none(), to_client.is_none()) {
            (true, true) => f.write_str("none"),
            _ if to_server == to_client => write!(f, "each way: {to_server}"),
            (false, true) => write!(f, "to server: {to_server}"),
            (true, false) => write!(f, "to client: {to_client}"),
            (false, false) => write!(f, "to server: {to_server}; to client: {to_client}"),
        }?;
        for (ends, link) in [("client", &self.client_relay), ("server", &self.server_relay)] {
            if let Some(link) = link {
                write!(f, "; {ends} and relay: {link}")?;
            }
        }
        Ok(())
    }
}
