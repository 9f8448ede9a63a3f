//! Named variants of stacks.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a copy of each type, which no one else reaches"
)]

mod rules;

use std::collections::BTreeMap;

use kube::KubeSchema;
use perfrun_contract::{
    capabilities::Capabilities,
    matrix::{Stack, StackSettings},
};
use serde::{Deserialize, Serialize};

/// A named variant of a stack, from another image or with other settings.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = rules::cups_of_its_stack())]
#[x_kube(validation = rules::messaging_of_its_stack())]
#[x_kube(validation = rules::tcp_congestion_by_its_name())]
#[x_kube(validation = rules::yamux_window())]
#[x_kube(validation = rules::capabilities_of_external())]
#[serde(rename_all = "camelCase")]
pub struct StackVariant {
    /// The name for `matrix` and the results.
    #[schemars(length(max = 63))]
    #[x_kube(validation = rules::variant_name())]
    pub name: String,
    /// The stack that this is a variant of.
    pub stack: Stack,
    /// Container image with another build of the node, or with another node, for pods of a cluster.
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// The node's program and its first arguments, for local runs. `perfrun run --node NAME=PATH` replaces
    /// it. Relative paths start in the folder that `perfrun` runs in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// Environment variables of the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = rules::no_reserved_variable())]
    #[x_kube(validation = rules::variable_names())]
    pub env: BTreeMap<String, String>,
    /// Settings of the stack.
    #[serde(default, skip_serializing_if = "StackSettings::is_default")]
    pub settings: StackSettings,
    /// What the stack can do, for `stack: external`: `perfrun describe` prints it. Cells that need more are
    /// skipped, with the reason.
    pub capabilities: Option<Capabilities>,
}
