//! Which combinations of stacks, transports, networks and IP families a run measures.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a copy of each type, which no one else reaches"
)]

use kube::{KubeSchema, core::Rule};
use perfrun_contract::{
    matrix::{IpFamily, StackName, Transport},
    network::NONE,
    plan::Cell,
};
use serde::{Deserialize, Serialize};

use crate::{rule, structural::default_true};

/// The cross product of client stacks, server stacks, transports, networks and IP families, refined by
/// `include` and `exclude`.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matrix {
    /// Stacks that dial: `libp2p`, `litep2p`, `go-libp2p`, `commonware`, `raw`, or names from `stacks`.
    #[serde(default = "default_stacks")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = rule::not_empty("stack"))]
    pub clients: Vec<StackName>,
    /// Stacks that listen: `libp2p`, `litep2p`, `go-libp2p`, `commonware`, `raw`, or names from `stacks`.
    #[serde(default = "default_stacks")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = rule::not_empty("stack"))]
    pub servers: Vec<StackName>,
    /// Transports: `tcp` (TCP, Noise, yamux), `tcp-tls` (TCP, TLS 1.3, yamux), `quic-v1`, `ws` (WebSocket
    /// over TCP, Noise, yamux), `webrtc-direct` (WebRTC data channels), `webtransport` (HTTP/3 over QUIC,
    /// Noise; go-libp2p only), `memory` (channels within one process, Noise, yamux; each client node is its
    /// own server). Combinations that a pair of stacks does
    /// not support are skipped, with the reason.
    #[serde(default = "default_transports")]
    #[schemars(length(max = 8))]
    #[x_kube(validation = rule::not_empty("transport"))]
    pub transports: Vec<Transport>,
    /// Conditions of the links between servers and clients: names from `networks`, or presets. `none` leaves
    /// links unchanged. `lan`, `wan`, `transatlantic`, `transpacific`, `dsl`, `mobile4g`, `mobile3g`, `leo`
    /// and `satellite` resemble what they are named after. `lat10` and `loss1` are those of the published
    /// benchmark. docs/reference/networks.md lists their figures. Only traffic between the nodes of the run
    /// is impaired.
    #[serde(default = "default_networks")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rule::not_empty("network"))]
    pub networks: Vec<String>,
    /// IP families of the addresses at which nodes reach each other: `IPv4`, `IPv6` or both. Each has nodes
    /// of its own. On a cluster, pods need an address of each.
    #[serde(default = "default_ip_families")]
    #[schemars(length(max = 2))]
    #[x_kube(validation = rule::not_empty("IP family"))]
    pub ip_families: Vec<IpFamily>,
    /// Combinations to add to the cross product.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub include: Vec<Combination>,
    /// Combinations to remove: each entry removes every cell that matches all of its fields.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub exclude: Vec<Selector>,
    /// Also measure plain TCP and plain QUIC, once per kind of transport, network and IP family: the best
    /// that the link and the kernel can do. Substreams have no raw reference.
    #[serde(default = "default_true")]
    pub raw_reference: bool,
}

/// One combination of the matrix.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Combination {
    /// The stack that dials.
    pub client: StackName,
    /// The stack that listens.
    pub server: StackName,
    /// The transport.
    pub transport: Transport,
    /// The network. Default: each of `matrix.networks`.
    #[schemars(length(max = 63))]
    pub network: Option<String>,
    /// The IP family. Default: each of `matrix.ipFamilies`.
    pub ip_family: Option<IpFamily>,
}

/// Selects cells of the matrix. A field that is not set matches all of them.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = selects_something())]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// The stack that dials.
    pub client: Option<StackName>,
    /// The stack that listens.
    pub server: Option<StackName>,
    /// The transport.
    pub transport: Option<Transport>,
    /// The network.
    #[schemars(length(max = 63))]
    pub network: Option<String>,
    /// The IP family.
    pub ip_family: Option<IpFamily>,
}

impl Selector {
    /// Whether it selects a cell.
    pub fn selects(&self, cell: &Cell) -> bool {
        let stacks = [cell.client.0.as_str(), &cell.server.0];
        self.matches(stacks, cell.transport, &cell.network, cell.ip_family)
    }

    /// Whether it selects what these names, this transport and this IP family make.
    pub(crate) fn matches(
        &self,
        [client, server]: [&str; 2],
        transport: Transport,
        network: &str,
        ip_family: IpFamily,
    ) -> bool {
        self.client.as_ref().is_none_or(|named| named.0 == client)
            && self.server.as_ref().is_none_or(|named| named.0 == server)
            && self.transport.is_none_or(|named| named == transport)
            && self.network.as_ref().is_none_or(|named| named == network)
            && self.ip_family.is_none_or(|named| named == ip_family)
    }
}

impl Default for Matrix {
    fn default() -> Self {
        Self {
            clients: default_stacks(),
            servers: default_stacks(),
            transports: default_transports(),
            networks: default_networks(),
            ip_families: default_ip_families(),
            include: vec![],
            exclude: vec![],
            raw_reference: true,
        }
    }
}

fn default_stacks() -> Vec<StackName> {
    ["libp2p", "litep2p"]
        .map(|name| StackName(name.to_owned()))
        .to_vec()
}

fn default_transports() -> Vec<Transport> {
    vec![Transport::Tcp]
}

fn default_networks() -> Vec<String> {
    vec![NONE.to_owned()]
}

fn default_ip_families() -> Vec<IpFamily> {
    vec![IpFamily::default()]
}

/// A selector without a field would match every cell.
fn selects_something() -> Rule {
    Rule::new(
        "has(self.client) || has(self.server) || has(self.transport) || has(self.network) || has(self.ipFamily)",
    )
    .message("must set at least one of client, server, transport, network and ipFamily")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rule::evaluation::judges;

    #[test]
    fn a_selector_names_something() {
        judges(
            &selects_something(),
            &json!({"network": "wan"}),
            &json!({}),
            "must set at least one of client, server, transport, network and ipFamily",
        );
    }
}
