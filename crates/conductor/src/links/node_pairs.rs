//! Which links are measured, and which of them at the same time.

use std::collections::BTreeSet;

use perfrun_contract::role::Role;

/// Roles whose nodes talk to each other. The first one is the client when their links are measured.
pub(super) const TALKING_ROLES: [(Role, Role); 3] = [
    (Role::Client, Role::Server),
    (Role::Client, Role::Relay),
    (Role::Relay, Role::Server),
];

/// Two nodes between which links are measured, by their part in that: a relay is the server of clients, and
/// the client of servers.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct NodePair {
    pub client: String,
    pub server: String,
}

/// The fewest pairs that cover every node. That is enough, because what a node sends is impaired alike
/// towards all of its peers.
pub(super) fn covering_pairs(clients: &[String], servers: &[String]) -> Vec<NodePair> {
    if clients.is_empty() || servers.is_empty() {
        return vec![];
    }
    (0..clients.len().max(servers.len()))
        .map(|i| NodePair {
            client: clients[i % clients.len()].clone(),
            server: servers[i % servers.len()].clone(),
        })
        .collect()
}

/// The pairs in rounds. A node is only once in a round, since two measurements would share its links.
pub(super) fn rounds(pairs: &[NodePair]) -> Vec<Vec<NodePair>> {
    let mut left: Vec<NodePair> = pairs.to_vec();
    let mut rounds = vec![];
    while !left.is_empty() {
        let mut busy = BTreeSet::new();
        let (round, later) = left.into_iter().partition(|pair| {
            let free = !busy.contains(&pair.client) && !busy.contains(&pair.server);
            if free {
                busy.extend([pair.client.clone(), pair.server.clone()]);
            }
            free
        });
        rounds.push(round);
        left = later;
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(role: &str, count: usize) -> Vec<String> {
        (0..count).map(|i| format!("{role}-{i}")).collect()
    }

    #[test]
    fn every_node_is_in_a_pair() {
        for (clients, servers) in [(1, 1), (3, 1), (1, 3), (5, 2)] {
            let pairs = covering_pairs(&names("client", clients), &names("server", servers));
            assert_eq!(pairs.len(), clients.max(servers));
            let nodes: BTreeSet<_> = pairs
                .iter()
                .flat_map(|pair| [&pair.client, &pair.server])
                .collect();
            assert_eq!(nodes.len(), clients + servers);
        }
        assert_eq!(covering_pairs(&[], &names("server", 1)), []);
    }

    #[test]
    fn a_node_is_only_once_in_a_round() {
        let pairs = covering_pairs(&names("client", 5), &names("server", 2));
        let rounds = rounds(&pairs);
        assert_eq!(rounds.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        assert_eq!(rounds.concat().len(), pairs.len());
        for round in rounds {
            let nodes: BTreeSet<_> = round
                .iter()
                .flat_map(|pair| [&pair.client, &pair.server])
                .collect();
            assert_eq!(nodes.len(), 2 * round.len());
        }
    }
}
