//! The agents of a run's nodes: what they can do, and what they are to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::IpAddr,
};

use futures::future::join_all;
use perfrun_contract::{
    matrix::IpFamily,
    network::NetworkImpairments,
    node::{LinkRequest, LinkStatus},
    role::Role,
};
use perfrun_link::{OutgoingLinks, Prefix, Route};
use strum::IntoEnumIterator;

use super::{
    Links,
    node_pairs::{NodePair, TALKING_ROLES, covering_pairs},
    not_ready::{AgentError, LinksNotReady, all_or_first_failure, why_unsupported},
};
use crate::{attempt::Node, client::AgentClient};

/// A node's agent.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    pub(super) client: AgentClient,
    pub(super) role: Role,
    pub(super) ip: IpAddr,
    /// The instance of its process in the last answer; another instance has not been measured.
    pub(super) instance: u64,
    pub(super) probe_port: u16,
}

/// What agents are to do, by node.
pub(super) type Requests = BTreeMap<String, LinkRequest>;

impl Links<'_> {
    /// Connects to the agents of new nodes, and checks whether they can do what the plan requests. The error
    /// says which cannot, why, and what to do.
    pub(crate) async fn connect_agents(&mut self, nodes: &BTreeMap<String, Node>) -> Result<(), AgentError> {
        if self.plan.networks.is_empty() {
            return Ok(());
        }
        // Whether the other agents still answer shows when they are needed.
        let new = nodes.iter().filter(|(name, _)| !self.agents.contains_key(*name));
        let connected = join_all(new.map(|(name, node)| async move {
            let Some(client) = &node.agent else {
                return Err(AgentError::Unsupported(format!(
                    "{name} has no link agent, which is a fault of this program: report it, with the document"
                )));
            };
            let status = client.link().await.map_err(|error| {
                AgentError::Unreachable(format!("the link agent of {name}: {}", error.describe()))
            })?;
            Ok((name, client.clone(), node.info.listen_ip, status))
        }))
        .await;
        for answer in connected {
            let (name, client, ip, status) = answer?;
            for impairments in self.plan.networks.iter().filter(|network| !network.is_none()) {
                why_unsupported(name, impairments, &status.capabilities).map_or(Ok(()), Err)?;
            }
            // The plan has no links for other nodes.
            let Some(planned) = self.plan.node(name) else {
                continue;
            };
            let agent = Agent {
                client,
                role: planned.role,
                ip,
                instance: status.instance,
                probe_port: status.probe_port,
            };
            self.agents.insert(name.clone(), agent);
        }
        Ok(())
    }

    /// Updates where all agents answer probes.
    pub(super) async fn refresh(&mut self) -> Result<(), LinksNotReady> {
        let answers = join_all(self.agents.iter().map(|(name, agent)| async move {
            let status = agent.client.link().await;
            let status =
                status.map_err(|error| LinksNotReady::of_call(name, "say what its links are", &error))?;
            Ok((name.clone(), status))
        }))
        .await;
        for (name, status) in answers.into_iter().collect::<Result<Vec<_>, _>>()? {
            self.update_agent(&name, &status);
        }
        Ok(())
    }

    /// Updates what is known of an agent. Returns whether the agent is another process than before, which
    /// answers probes elsewhere.
    pub(super) fn update_agent(&mut self, name: &str, status: &LinkStatus) -> bool {
        let Some(agent) = self.agents.get_mut(name) else {
            return false;
        };
        agent.probe_port = status.probe_port;
        mem::replace(&mut agent.instance, status.instance) != status.instance
    }

    /// The pairs of nodes between which links are measured.
    pub(super) fn node_pairs(&self) -> Vec<NodePair> {
        // Nodes reach only peers with an address of the same IP family.
        let all = IpFamily::iter().flat_map(|ip_family| {
            let of = |role| {
                let agents = self.agents.iter();
                let agents = agents
                    .filter(move |(_, agent)| agent.role == role && IpFamily::from(agent.ip) == ip_family);
                agents.map(|(name, _)| name.clone()).collect::<Vec<_>>()
            };
            TALKING_ROLES.map(|(client, server)| covering_pairs(&of(client), &of(server)))
        });
        all.flatten().collect()
    }

    /// What agents are to do to what their nodes send.
    pub(super) fn requests(&self, impairments: &NetworkImpairments) -> Result<Requests, String> {
        let request = |(name, agent): (&String, &Agent)| {
            let links = self.outgoing_links(agent.role, impairments);
            let links = links.map_err(|why| format!("network {} at {name}: {why}", impairments.name))?;
            Ok((
                name.clone(),
                LinkRequest {
                    link: links,
                    backend: impairments.backend,
                    seed: None,
                },
            ))
        };
        self.agents.iter().map(request).collect()
    }

    /// What happens to what a node of this role sends. Peers to whom the same happens share a link.
    fn outgoing_links(&self, role: Role, impairments: &NetworkImpairments) -> Result<OutgoingLinks, String> {
        let ips: BTreeSet<(IpAddr, Role)> = self.agents.values().map(|peer| (peer.ip, peer.role)).collect();
        let mut routes: Vec<Route> = vec![];
        for (ip, peer) in ips {
            let Some(impairment) = impairments
                .between(role, peer)
                .filter(|impairment| !impairment.is_none())
            else {
                continue;
            };
            let peer = Prefix::try_from(ip).map_err(|bad| bad.to_string())?;
            match routes.iter_mut().find(|route| route.impairment == *impairment) {
                Some(route) => route.peers.push(peer),
                None => routes.push(Route {
                    peers: vec![peer],
                    impairment: impairment.clone(),
                }),
            }
        }
        OutgoingLinks::new(routes).map_err(|bad| bad.to_string())
    }

    pub(super) async fn set(&self, requests: &Requests) -> Result<(), LinksNotReady> {
        let set = requests
            .iter()
            .filter_map(|(name, request)| Some((name, self.agents.get(name)?, request)));
        let answers = join_all(set.map(|(name, agent, request)| async move {
            let set = agent.client.impair(request).await;
            set.map_err(|error| LinksNotReady::of_call(name, "set its links", &error))
        }))
        .await;
        all_or_first_failure(answers).map(drop)
    }
}
