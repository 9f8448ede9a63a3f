//! Counting what happens to the packets of a trial.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use futures::future::join_all;
use perfrun_contract::{node::LinkRequest, plan::Trial, record::TrialRecord, role::Role};
use rand::{Rng as _, SeedableRng as _, rngs::Xoshiro256PlusPlus};

use super::{
    Links,
    agents::Agent,
    evidence::{add_evidence, set_failure},
    not_ready::{LinksNotReady, all_or_first_failure},
};

/// Agents that count what happens to a trial's packets, by node, with their instances. `None` for those that
/// began in an earlier session.
#[derive(Debug, Default)]
pub(crate) struct CountingAgents(BTreeMap<String, Option<u64>>);

impl CountingAgents {
    /// Of agents that began to count in an earlier session.
    pub(crate) fn taken_over(names: &[&String]) -> Self {
        Self(names.iter().map(|name| ((*name).clone(), None)).collect())
    }
}

impl Links<'_> {
    /// Begins to count what happens to a trial's packets. `None` if links must be prepared once more: they
    /// were measured with an agent that has restarted since.
    pub(crate) async fn count(
        &mut self,
        trial: &Trial,
        names: &[&String],
    ) -> Result<Option<CountingAgents>, LinksNotReady> {
        let seeded = self.current_of(names).map(|(name, agent, request)| {
            let index = names.iter().position(|other| *other == name);
            let seed = index.and_then(|index| self.seed(trial, index));
            (
                name,
                agent,
                LinkRequest {
                    seed,
                    ..request.clone()
                },
            )
        });
        let answers = join_all(seeded.map(|(name, agent, request)| async move {
            // The same request again changes nothing else.
            let counted = match agent.client.impair(&request).await {
                Ok(()) => agent.client.link().await,
                Err(error) => Err(error),
            };
            let status = counted
                .map_err(|error| LinksNotReady::of_call(name, "count packets on its links", &error))?;
            Ok((name.clone(), status))
        }))
        .await;
        let statuses = all_or_first_failure(answers)?;
        let (mut counting, mut restarted) = (CountingAgents::default(), false);
        for (name, status) in statuses {
            restarted |= self.update_agent(&name, &status);
            counting.0.insert(name, Some(status.instance));
        }
        if restarted {
            self.current = None;
            return Ok(None);
        }
        Ok(Some(counting))
    }

    /// Adds to a trial's record what happened to its packets, and the flags that follow from it. Returns
    /// nodes whose agents do not answer any more.
    pub(crate) async fn add_packet_counts(
        &mut self,
        record: &mut TrialRecord,
        counting: &CountingAgents,
    ) -> BTreeSet<String> {
        let names: Vec<&String> = counting.0.keys().collect();
        let answers = join_all(self.current_of(&names).map(|(name, agent, request)| async move {
            (name.clone(), request.clone(), agent.client.link().await)
        }))
        .await;
        let mut lost = BTreeSet::new();
        for (name, request, answer) in answers {
            match answer {
                Ok(status) => {
                    if self.update_agent(&name, &status) {
                        // What it does now has not been measured.
                        self.current = None;
                    }
                    let before = counting.0.get(&name).copied().flatten();
                    let peers = self.peers(&name, &names);
                    add_evidence(record, &name, before, &request.link, &peers, status);
                }
                Err(error) => {
                    let not_ready = LinksNotReady::of_call(&name, "report what happened to packets", &error);
                    set_failure(record, not_ready.failure);
                    lost.extend(not_ready.lost);
                }
            }
        }
        lost
    }

    /// The seed of what a link does by chance in a trial. Trials of one iteration over one network have the
    /// same seeds, so that chance favours neither of two trials that are compared.
    fn seed(&self, trial: &Trial, index: usize) -> Option<u64> {
        let seed = self.plan.seed?;
        let network = &self.plan.cells.get(trial.cell)?.network;
        let network = self
            .plan
            .networks
            .iter()
            .position(|other| other.name == *network)?;
        let parts = [
            network as u64,
            trial.warmup.into(),
            trial.iteration.into(),
            index as u64,
        ];
        let mix = |state, part| Xoshiro256PlusPlus::seed_from_u64(state ^ part).next_u64();
        Some(parts.into_iter().fold(seed.into(), mix))
    }

    /// Addresses of those of these nodes that a node talks to: where there is a relay, clients and servers
    /// talk to it alone.
    fn peers(&self, name: &str, names: &[&String]) -> Vec<IpAddr> {
        let role = |name: &str| self.agents.get(name).map(|agent| agent.role);
        let is_relay = |role| role == Some(Role::Relay);
        let has_relay = names.iter().any(|name| is_relay(role(name)));
        let own = role(name);
        let others = names.iter().filter_map(|name| self.agents.get(*name));
        let talks = |other: &&Agent| {
            let other = Some(other.role);
            other != own && (!has_relay || is_relay(own) || is_relay(other))
        };
        others.filter(talks).map(|agent| agent.ip).collect()
    }

    /// Agents of these nodes, and the last request to each.
    fn current_of<'b>(
        &'b self,
        names: &'b [&String],
    ) -> impl Iterator<Item = (&'b String, &'b Agent, &'b LinkRequest)> {
        let requests = self.current.iter().flat_map(|current| &current.requests);
        let of_these = requests.filter(|(name, _)| names.contains(name));
        of_these.filter_map(|(name, request)| Some((name, self.agents.get(name)?, request)))
    }
}
