//! What a stack in a node program can do, as the program itself or a document says.
//!
//! All words are strings, so that a program may have transports and workloads that this version of perfrun
//! does not know.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    matrix::{StackSettings, Transport},
    parameters::{Pace, Parameters},
    role::Role,
};

/// What a stack in a node program can do.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "StackCapabilities")]
pub struct Capabilities {
    /// What it speaks with its peers. Stacks with the same wire can be paired: `libp2p`, `commonware`, `raw`,
    /// or a name of its own.
    #[schemars(length(min = 1, max = 63))]
    pub wire: String,
    /// Its transports, with their limits.
    #[schemars(extend("maxProperties" = 16))]
    pub transports: BTreeMap<String, TransportLimits>,
    /// Its workloads, by the names that documents use, for example `bandwidth`.
    #[schemars(length(max = 32), inner(length(max = 63)))]
    pub workloads: BTreeSet<String>,
    /// Protocols on its streams, for example `/perf/1.0.0`.
    #[schemars(length(max = 32), inner(length(max = 63)))]
    pub protocols: BTreeSet<String>,
    /// What it can be in a run: `server`, `client`, `relay`.
    #[schemars(length(max = 8), inner(length(max = 63)))]
    pub roles: BTreeSet<String>,
    /// How it negotiates protocols as a client: `v1`, `v1lazy`. Empty if it negotiates nothing.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 63)))]
    pub negotiation: BTreeSet<String>,
    /// The keys of its peers: `ed25519`, `rsa2048`. Empty if peers have no keys.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 63)))]
    pub identities: BTreeSet<String>,
    /// When it sends the next line of an echo: `pause`, `period`. Every stack with echoes knows `pause`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 63)))]
    pub paces: BTreeSet<String>,
    /// Settings that it applies: `tcpCongestion`, `quicCongestion`, `yamuxWindow`. A run that has another one
    /// of these, where it has an effect, does not use the node.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 63)))]
    pub settings: BTreeSet<String>,
}

/// What limits streams on a transport.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TransportLimits {
    /// Streams that a server takes on one connection.
    #[schemars(range(min = 1, max = 65536))]
    pub max_streams: Option<u32>,
    /// Streams that a client may open on a connection with a server at the same moment.
    #[schemars(range(min = 1, max = 65536))]
    pub stream_burst: Option<u32>,
}

impl Capabilities {
    /// Why a node of the stack `name` cannot play a role in a trial. `None` if it can.
    pub fn why_role_unsupported(
        &self,
        name: &str,
        role: Role,
        transport: Transport,
        parameters: &Parameters,
    ) -> Option<String> {
        let lacks = |kind: &str, has: &BTreeSet<String>, wanted: &str| {
            (!has.contains(wanted)).then(|| format!("{name} has no {kind} {wanted}, it has {}", words(has)))
        };
        let role_word = role.to_string();
        lacks("workload", &self.workloads, parameters.workload())
            .or_else(|| lacks("role", &self.roles, &role_word))
            .or_else(|| lacks("protocol", &self.protocols, parameters.protocol().as_ref()))
            .or_else(|| {
                let negotiates = role == Role::Client && !self.negotiation.is_empty();
                let wanted = parameters.negotiation();
                negotiates.then(|| lacks("negotiation", &self.negotiation, wanted.as_ref()))?
            })
            .or_else(|| {
                let has_keys = !self.identities.is_empty();
                has_keys.then(|| lacks("keys", &self.identities, parameters.identity().as_ref()))?
            })
            .or_else(|| {
                let is_unknown = parameters.pace().is_some_and(|pace| !self.knows_pace(pace));
                is_unknown.then(|| {
                    format!("{name} does not know the period of an echo: set pause instead of period")
                })
            })
            .or_else(|| self.why_streams_unsupported(name, role, transport, parameters))
    }

    /// Whether the stack can send lines of an echo at a pace.
    pub fn knows_pace(&self, pace: Pace) -> bool {
        matches!(pace, Pace::Pause(_)) || self.paces.contains(pace.as_ref())
    }

    /// Why a node of the stack `name` cannot apply the settings that have an effect on a transport. `None` if
    /// it can.
    pub fn why_settings_unsupported(
        &self,
        name: &str,
        settings: &StackSettings,
        transport: Transport,
    ) -> Option<String> {
        let mut wanted = settings.effective_on(transport);
        let lacking = wanted.find(|setting| !self.settings.contains(setting.as_ref()))?;
        Some(format!(
            "{name} has no setting {lacking}, it has {}",
            words(&self.settings)
        ))
    }

    fn why_streams_unsupported(
        &self,
        name: &str,
        role: Role,
        transport: Transport,
        parameters: &Parameters,
    ) -> Option<String> {
        let Some(limits) = self.transports.get(transport.as_ref()) else {
            let has = self.transports.keys().cloned().collect();
            return Some(format!(
                "{name} has no transport {transport}, it has {}",
                words(&has)
            ));
        };
        if role != Role::Server {
            return None;
        }
        if let Some(most) = limits.max_streams.filter(|most| parameters.streams() > *most) {
            return Some(format!(
                "{name} as a server allows {most} streams on a {transport} connection"
            ));
        }
        let most = limits.stream_burst.filter(|most| parameters.burst() > *most)?;
        Some(format!(
            "{name} as a server on {transport} loses streams if more than {most} are opened at the same time"
        ))
    }
}

fn words(words: &BTreeSet<String>) -> String {
    match words.len() {
        0 => "none".to_owned(),
        _ => words.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
    }
}
