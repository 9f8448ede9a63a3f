//! Links between trials: what agents can do, setting them, measuring them, and what happened to packets in a
//! trial.
//!
//! A network change is: every agent sets its links, then pairs of agents measure the links between them, so
//! that each node is measured at least once. Nothing is measured while a trial is in progress.

mod agents;
mod available;
mod counting;
mod evidence;
mod measuring;
mod node_pairs;
mod not_ready;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::future::join_all;
use perfrun_contract::{
    plan::{Iteration, Plan, Trial},
    record::{LinkCheck, TrialFailure},
};

use self::{
    agents::{Agent, Requests},
    node_pairs::NodePair,
};
pub(crate) use self::{
    counting::CountingAgents,
    not_ready::{AgentError, LinksNotReady},
};
use crate::progress::{Event, OnEvent};

/// The links of a run. Empty if the run does not impair links.
pub(crate) struct Links<'a> {
    plan: &'a Plan,
    agents: BTreeMap<String, Agent>,
    /// Median round trips of links that are not impaired.
    bases: BTreeMap<NodePair, Duration>,
    /// Networks that were not as configured the last time, although the machine had time to become quieter.
    failed_networks: BTreeSet<String>,
    current: Option<Current>,
}

/// How links are.
struct Current {
    network: String,
    /// The last request to each agent.
    requests: Requests,
    /// Why trials on them would measure something else.
    failure: Option<TrialFailure>,
    /// The iteration that they were set for.
    iteration: Iteration,
}

impl<'a> Links<'a> {
    /// The links of a plan, without any known agent.
    pub(crate) fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            agents: BTreeMap::new(),
            bases: BTreeMap::new(),
            failed_networks: BTreeSet::new(),
            current: None,
        }
    }

    /// Forgets the agent of a node that was replaced. The links of the new node are not impaired, and other
    /// nodes must set theirs to it again.
    pub(crate) fn forget_agent(&mut self, name: &str) {
        self.agents.remove(name);
        self.bases
            .retain(|pair, _| pair.client != name && pair.server != name);
        self.current = None;
    }

    /// Forgets how links are, so that they are set and measured before the next trial.
    pub(crate) fn invalidate(&mut self) {
        self.current = None;
    }

    /// Sets and measures the links for a trial, if they are not as it needs them.
    pub(crate) async fn prepare(
        &mut self,
        trial: &Trial,
        network: &str,
        on_event: &OnEvent<'_>,
    ) -> Result<Option<LinkCheck>, LinksNotReady> {
        let Some(impairments) = self.plan.network(network) else {
            return Ok(None);
        };
        let iteration = Iteration::of(trial);
        if let Some(current) = self.current.as_ref().filter(|current| current.network == network) {
            match &current.failure {
                None => return Ok(None),
                // Links that failed are set again in the next iteration, not before.
                Some(failure) if current.iteration == iteration => {
                    return Err(LinksNotReady {
                        failure: failure.clone(),
                        check: None,
                        lost: BTreeSet::new(),
                    });
                }
                Some(_) => {}
            }
        }
        self.current = None;
        on_event(Event::LinksChanging { network });
        let requests = self
            .requests(impairments)
            .map_err(|why| LinksNotReady::ineffective(why, None))?;
        let outcome = self.change(impairments, &requests).await;
        let check = match &outcome {
            Ok(check) => Some(check),
            Err(not_ready) => not_ready.check.as_deref(),
        };
        if let Some(check) = check {
            on_event(Event::LinksChecked { check });
        }
        let failure = match &outcome {
            // Not measured: the next trial retries.
            Err(not_ready) if not_ready.check.is_none() => return outcome.map(Some),
            Err(not_ready) => Some(not_ready.failure.clone()),
            Ok(_) => None,
        };
        self.current = Some(Current {
            network: network.to_owned(),
            requests,
            failure,
            iteration,
        });
        outcome.map(Some)
    }

    /// Takes over links that an earlier session has set, for a trial that it began. Returns `false` if they
    /// are not what this network needs.
    pub(crate) async fn take_over(&mut self, trial: &Trial, network: &str) -> bool {
        let Some(impairments) = self.plan.network(network) else {
            return true;
        };
        let Ok(requests) = self.requests(impairments) else {
            return false;
        };
        let are_set = join_all(self.agents.iter().map(|(name, agent)| async {
            let set = agent
                .client
                .link()
                .await
                .ok()?
                .state
                .map(|state| state.link)
                .unwrap_or_default();
            let requested = requests.get(name).map(|request| &request.link);
            Some(requested.is_some_and(|links| set == *links || !(set.impairs() || links.impairs())))
        }))
        .await;
        if are_set.iter().any(|is_set| *is_set != Some(true)) {
            return false;
        }
        self.current = Some(Current {
            network: network.to_owned(),
            requests,
            failure: None,
            iteration: Iteration::of(trial),
        });
        true
    }
}
