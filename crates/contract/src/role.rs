//! The roles of nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

/// What a node does in a run.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize, Display,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    /// Listens.
    Server,
    /// Dials.
    Client,
    /// Relays what servers and clients send each other.
    Relay,
}
