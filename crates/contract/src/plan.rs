//! What a run does: nodes, cells, and trials in running order.

mod least_time;

use std::{collections::BTreeMap, fmt, num::NonZeroU64, ops::Deref, sync::Arc};

use perfrun_link::UNLIMITED_BITS_PER_SECOND;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use strum::Display;

pub use self::least_time::LeastTime;
use crate::{
    capabilities::Capabilities,
    compare::{CellPair, Judging},
    matrix::{IpFamily, NodeProgramKind, Setting, Stack, StackName, StackSettings, Transport},
    network::{NONE, NetworkImpairments},
    parameters::Parameters,
    role::Role,
    support,
};

/// Linux' own default for receiving.
const TCP_WINDOW_MIN: u64 = 6 << 20;

/// The most that TCP can announce (RFC 7323: 65535 × 2^14).
const TCP_WINDOW_MAX: u64 = 65_535 << 14;

/// What a run does: its nodes, its cells, and its trials in running order.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Nodes to start.
    pub nodes: Vec<PlannedNode>,
    /// Impairments of the links. Empty if links are left as they are throughout the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkImpairments>,
    /// Cells to measure.
    pub cells: Vec<Cell>,
    /// Cells of the matrix that cannot be measured.
    pub skipped: Vec<Skipped>,
    /// Trials in running order.
    pub trials: Vec<Trial>,
    /// The seed of the order of trials. Absent if they are in the order of the document.
    pub seed: Option<u32>,
    /// When nodes restart.
    #[serde(default, skip_serializing_if = "Renew::is_never")]
    pub renew: Renew,
    /// What is compared, and what is expected.
    #[serde(default, skip_serializing_if = "Judging::is_empty")]
    pub judging: Judging,
    /// What the document says that external stacks can do, by the names of their variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub external: BTreeMap<String, Capabilities>,
}

/// A node to start.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedNode {
    /// Unique name, e.g. `client-0` or `server-0-next`.
    pub name: String,
    /// What the node does.
    pub role: Role,
    /// The stack variant whose image and environment the node has. Absent if it has the default ones.
    pub variant: Option<String>,
    /// The kind of its program.
    #[serde(default, skip_serializing_if = "NodeProgramKind::is_default")]
    pub program: NodeProgramKind,
    /// The IP family that it listens on and dials with. Absent in JSON if it is `IPv4`.
    #[serde(default, skip_serializing_if = "IpFamily::is_default")]
    pub ip_family: IpFamily,
}

/// One point of the matrix: a pair of stacks, a transport, a network, an IP family and the workload's
/// parameters.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// Unique in the plan and stable for a document, e.g. `libp2p.litep2p.tcp.upload-64Mi`, or with a network
    /// other than `none` and an IP family other than IPv4 at its end,
    /// `libp2p.litep2p.tcp.upload-64Mi.wan.IPv6`.
    pub id: String,
    /// The stack that dials, by its name in the matrix.
    pub client: StackName,
    /// The stack that listens, by its name in the matrix.
    pub server: StackName,
    /// What `client` is, or is a variant of.
    pub client_stack: Stack,
    /// What `server` is, or is a variant of.
    pub server_stack: Stack,
    /// Settings of `client`.
    #[serde(default, skip_serializing_if = "StackSettings::is_default")]
    pub client_settings: StackSettings,
    /// Settings of `server`.
    #[serde(default, skip_serializing_if = "StackSettings::is_default")]
    pub server_settings: StackSettings,
    /// What the relay is, or is a variant of. Absent if it is what `server` is.
    pub relay_stack: Option<Stack>,
    /// Settings of the relay, if it is not what `server` is.
    #[serde(default, skip_serializing_if = "StackSettings::is_default")]
    pub relay_settings: StackSettings,
    /// The transport.
    pub transport: Transport,
    /// The name of its network.
    #[serde(default = "unimpaired", skip_serializing_if = "is_unimpaired")]
    pub network: String,
    /// The IP family that its nodes speak. Absent in JSON if it is `IPv4`.
    #[serde(default, skip_serializing_if = "IpFamily::is_default")]
    pub ip_family: IpFamily,
    /// What is done.
    pub parameters: Parameters,
    /// Names of the client nodes.
    pub clients: Names,
    /// Names of the server nodes. Empty if each client node is its own server.
    pub servers: Names,
    /// Names of the relay nodes. Empty unless clients reach servers through one.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub relays: Names,
    /// Peers in each client node.
    pub peers_per_client: u32,
}

impl Cell {
    /// What tells it from other cells.
    pub fn key(&self) -> CellKey<'_> {
        CellKey {
            client: &self.client.0,
            server: &self.server.0,
            transport: self.transport,
            parameters: &self.parameters,
            network: &self.network,
            ip_family: self.ip_family,
        }
    }

    /// The stack that dials and the stack that listens.
    pub fn stack_pair(&self) -> StackPair<'_> {
        StackPair {
            client: &self.client.0,
            server: &self.server.0,
            is_raw: self.is_raw(),
        }
    }

    /// Whether client, server and relay have the same stacks as those of another cell. False for
    /// external stacks, of which it is unknown.
    pub fn has_stacks_of(&self, other: &Self) -> bool {
        let stacks =
            |cell: &Self| [Role::Client, Role::Server, Role::Relay].map(|role| cell.stack_of(role).0);
        self.id == other.id || (stacks(self) == stacks(other) && !stacks(self).contains(&Stack::External))
    }

    /// Whether neither end has a peer-to-peer stack.
    pub fn is_raw(&self) -> bool {
        self.client_stack == Stack::Raw && self.server_stack == Stack::Raw
    }

    /// Whether other cells are compared with this one: plain connections, of no variant.
    pub fn is_raw_reference(&self) -> bool {
        self.stack_pair().is_raw_reference()
    }

    /// Whether this measures the stream layer of commonware, below commonware-p2p.
    pub fn is_stream_layer(&self) -> bool {
        support::is_stream_layer(self.client_stack, &self.parameters)
    }

    /// The stack of a role's nodes, and its settings.
    pub fn stack_of(&self, role: Role) -> (Stack, &StackSettings) {
        match role {
            Role::Client => (self.client_stack, &self.client_settings),
            Role::Server => (self.server_stack, &self.server_settings),
            Role::Relay => match self.relay_stack {
                Some(stack) => (stack, &self.relay_settings),
                None => (self.server_stack, &self.server_settings),
            },
        }
    }

    /// Whether nodes of this role are processes of their own, with CPU time and memory of their own. A server
    /// in memory is in its client's.
    pub fn has_process(&self, role: Role) -> bool {
        !(self.is_in_process() && role == Role::Server)
    }

    /// Whether each client node is its own server.
    pub fn is_in_process(&self) -> bool {
        self.parameters.is_in_process_on(self.transport)
    }

    /// Peers in all client nodes.
    pub fn peers(&self) -> u64 {
        u64::from(self.peers_per_client) * self.clients.len() as u64
    }

    /// Peers in each server node, where clients reach them through a relay; otherwise a server node is one
    /// peer.
    pub fn sources_per_server(&self) -> u32 {
        let servers = self.servers.len().max(1) as u32;
        self.parameters
            .sinks_and_sources()
            .map_or(1, |(_, sources)| sources / servers)
    }

    /// Whether as many peers are on a link of the same network, with the same IP family.
    fn is_beside(&self, other: &Self) -> bool {
        let nodes = |cell: &Self| (cell.clients.len(), cell.servers.len(), cell.peers_per_client);
        self.network == other.network && self.ip_family == other.ip_family && nodes(self) == nodes(other)
    }

    /// Names of its nodes, by role, in the order in which they are prepared.
    pub fn nodes_by_role(&self) -> [(Role, &Names); 3] {
        [
            (Role::Relay, &self.relays),
            (Role::Server, &self.servers),
            (Role::Client, &self.clients),
        ]
    }

    /// Names of all its nodes, in the same order.
    pub fn nodes(&self) -> impl Iterator<Item = &String> {
        let by_role = self.nodes_by_role().into_iter();
        by_role.flat_map(|(_, names)| names.iter())
    }
}

/// A pair of stacks, by their names in the matrix. Its text is that of tables: `libp2p → litep2p`, or `raw`
/// for the raw reference.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StackPair<'a> {
    /// The stack that dials.
    pub client: &'a str,
    /// The stack that listens.
    pub server: &'a str,
    /// Whether neither end has a peer-to-peer stack.
    pub is_raw: bool,
}

impl StackPair<'_> {
    /// Whether it is that of the raw reference: plain connections, of no variant.
    pub fn is_raw_reference(self) -> bool {
        let raw: &str = Stack::Raw.into();
        self.is_raw && self.client == raw && self.server == raw
    }
}

impl fmt::Display for StackPair<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_raw_reference() {
            f.write_str(self.client)
        } else {
            write!(f, "{} → {}", self.client, self.server)
        }
    }
}

impl Plan {
    /// The node with this name.
    pub fn node(&self, name: &str) -> Option<&PlannedNode> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The network with this name.
    pub fn network(&self, name: &str) -> Option<&NetworkImpairments> {
        self.networks.iter().find(|network| network.name == name)
    }

    /// The cell with this id.
    pub fn cell(&self, id: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.id == id)
    }

    /// The baseline and the candidate of a pair of cells.
    pub fn compared(&self, cell_pair: CellPair) -> Option<(&Cell, &Cell)> {
        let cell = |index: usize| self.cells.get(index);
        cell(cell_pair.baseline).zip(cell(cell_pair.candidate))
    }

    /// The variant that a pair of cells compares with, and the one in its place.
    pub fn compared_variants(&self, cell_pair: CellPair) -> Option<(&StackName, &StackName)> {
        let (baseline, candidate) = self.compared(cell_pair)?;
        let ends = [
            (&baseline.client, &candidate.client),
            (&baseline.server, &candidate.server),
        ];
        ends.into_iter()
            .find(|(baseline, candidate)| baseline != candidate)
    }

    /// Whether the baseline and the candidate of a comparison have different stacks.
    pub fn compares_stacks(&self) -> bool {
        let cell_pairs = self.judging.cell_pairs.iter();
        let mut compared = cell_pairs.filter_map(|cell_pair| self.compared(*cell_pair));
        compared.any(|(baseline, candidate)| !candidate.has_stacks_of(baseline))
    }

    /// The index of the raw cell that a cell is compared with. `None` for raw cells, and for a cell whose
    /// variant chooses the congestion control: a share would compare controllers.
    pub fn raw_of(&self, cell: &Cell) -> Option<usize> {
        let controls_congestion = |settings: &StackSettings| {
            let mut set = settings.effective_on(cell.transport);
            set.any(|setting| matches!(setting, Setting::TcpCongestion | Setting::QuicCongestion))
        };
        let settings = [&cell.client_settings, &cell.server_settings];
        if cell.is_raw() || settings.into_iter().any(controls_congestion) {
            return None;
        }
        let transport = cell.transport.raw();
        // The cheap comparisons first: there is one for each pair of cells.
        self.cells.iter().position(|other| {
            other.is_raw_reference()
                && other.transport == transport
                && other.is_beside(cell)
                && other.parameters == cell.parameters
        })
    }

    /// The variants of stacks with settings.
    pub fn settings(&self) -> BTreeMap<&str, &StackSettings> {
        let variant = |node: &String| self.node(node)?.variant.as_deref();
        let all = self.cells.iter().flat_map(|cell| {
            [
                Some((cell.client.0.as_str(), &cell.client_settings)),
                Some((cell.server.0.as_str(), &cell.server_settings)),
                (cell.relays.first().and_then(variant)).map(|relay| (relay, cell.stack_of(Role::Relay).1)),
            ]
        });
        let all = all.flatten();
        all.filter(|(_, settings)| !settings.is_default()).collect()
    }

    /// The largest TCP window that its networks call for, in bytes. `None` if links are left as they are.
    /// Twice the bandwidth-delay product, of 10 Gbit/s where a network has no rate: the kernel counts
    /// headers, too.
    pub fn tcp_window_bytes(&self) -> Option<u64> {
        let bytes = |network: &NetworkImpairments| {
            let rate = network
                .all()
                .map(|impairment| {
                    impairment
                        .rate_bits_per_second
                        .map_or(UNLIMITED_BITS_PER_SECOND, NonZeroU64::get)
                })
                .fold(0, u64::max);
            let product = rate as f64 / 8.0 * network.round_trip().as_secs_f64();
            ((2.0 * product) as u64).clamp(TCP_WINDOW_MIN, TCP_WINDOW_MAX)
        };
        self.networks.iter().map(bytes).max()
    }
}

/// The settings of the kernel, by their names, with which TCP windows grow up to this number of bytes. The
/// least and the initial size keep the defaults of the kernel.
pub fn tcp_window_settings(most: u64) -> [(&'static str, String); 2] {
    let settings = [("net.ipv4.tcp_rmem", 131_072), ("net.ipv4.tcp_wmem", 16_384)];
    settings.map(|(name, initial)| (name, format!("4096 {initial} {most}")))
}

fn unimpaired() -> String {
    NONE.to_owned()
}

fn is_unimpaired(network: &String) -> bool {
    network == NONE
}

/// A cell that cannot be measured, and why.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    /// What the cell would have been called.
    pub id: String,
    /// The stack that would dial. Absent in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<StackName>,
    /// The stack that would listen. Absent in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<StackName>,
    /// Why it cannot be measured.
    pub reason: String,
}

/// One measurement of a cell, in one iteration.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// Unique in the run, e.g. `c3.w0` or `c3.i7`.
    pub id: String,
    /// Index of the cell in the plan.
    pub cell: usize,
    /// Number of the iteration, from 0.
    pub iteration: u32,
    /// Recorded, but left out of all statistics.
    pub warmup: bool,
}

/// An iteration of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Iteration {
    /// Whether its trials are warm-up.
    pub warmup: bool,
    /// Its number, from 0. Those of warm-up are numbered separately.
    pub number: u32,
}

impl Iteration {
    /// The iteration of a trial.
    pub fn of(trial: &Trial) -> Self {
        Self {
            warmup: trial.warmup,
            number: trial.iteration,
        }
    }
}

/// Which CPUs nodes may use.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cpus {
    /// All of them.
    #[default]
    Shared,
    /// Those of their role: servers, clients and relays share none.
    Split,
}

/// When nodes restart.
#[derive(Clone, Copy, Debug, Default, Deserialize, Display, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Renew {
    /// Only if they are lost.
    #[default]
    Never,
    /// Before each iteration, so that no comparison depends on one process: processes of one program differ,
    /// by where they lie in memory for example.
    Iteration,
}

impl Renew {
    /// Whether nodes are kept for the whole run.
    pub fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

/// Running order of the trials.
#[derive(Clone, Copy, Debug, Default, Deserialize, Display, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Order {
    /// One iteration of every cell, in random order, then the next.
    #[default]
    Interleaved,
    /// All iterations of a cell, then the next cell.
    Sequential,
}

/// Names of nodes. Copies share them.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq)]
#[schemars(inline)]
#[serde(from = "Vec<String>")]
pub struct Names(Arc<[String]>);

impl Deref for Names {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl From<Vec<String>> for Names {
    fn from(names: Vec<String>) -> Self {
        Self(names.into())
    }
}

impl FromIterator<String> for Names {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self(names.into_iter().collect())
    }
}

impl Serialize for Names {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

/// What tells a cell from the others of its plan.
#[derive(Clone, Copy, Debug)]
pub struct CellKey<'a> {
    /// The stack that dials, by its name in the matrix.
    pub client: &'a str,
    /// The stack that listens, by its name in the matrix.
    pub server: &'a str,
    /// The transport.
    pub transport: Transport,
    /// What is done.
    pub parameters: &'a Parameters,
    /// The name of its network.
    pub network: &'a str,
    /// The IP family that its nodes speak.
    pub ip_family: IpFamily,
}

impl CellKey<'_> {
    /// The id of the cell.
    pub fn id(&self) -> String {
        let Self {
            client,
            server,
            transport,
            parameters,
            network,
            ip_family,
        } = self;
        let mut id = format!("{client}.{server}.{transport}.{parameters}");
        // Names of networks are in lower case: no network looks like an IP family.
        let ends = [
            (*network != NONE).then_some(*network),
            (!ip_family.is_default()).then_some(ip_family.as_ref()),
        ];
        for end in ends.into_iter().flatten() {
            id.push('.');
            id.push_str(end);
        }
        id
    }
}
