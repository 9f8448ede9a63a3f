//! All checks, a module for each group.

mod calls;
mod counts;
mod faults;
mod hostile;
mod loads;
mod relays;
mod states;
mod support;
mod workloads;

use futures::future::BoxFuture;
use perfrun_contract::{
    capabilities::Capabilities,
    matrix::{Negotiation, Transport},
    node::Info,
    parameters::{Parameters, Ping},
};
use strum::IntoEnumIterator;

use crate::{Check, NotPassed, nodes::TestNodes, trial::Trial};

/// The checks of a node that says this of itself.
pub(crate) fn all(info: &Info) -> Vec<Check> {
    let mut all = calls::checks();
    all.extend(hostile::checks());
    let simplest = SimplestTrial::of(info);
    all.extend(states::checks(&simplest));
    all.extend(workloads::checks(info));
    all.extend(faults::checks(&simplest));
    all
}

type CheckFn = for<'a> fn(&'a mut TestNodes) -> BoxFuture<'a, Result<(), NotPassed>>;

/// A check without parameters.
fn check(name: &str, demand: &str, run: CheckFn) -> Check {
    Check {
        name: name.to_owned(),
        demand: demand.to_owned(),
        run: Box::new(run),
    }
}

/// The simplest trial that the node can run, for checks that are not about what is exchanged.
#[derive(Clone, Debug)]
struct SimplestTrial(Result<Trial, String>);

impl SimplestTrial {
    fn of(info: &Info) -> Self {
        let found = info.capabilities.iter().find_map(|(stack, capabilities)| {
            let transport = Transport::iter().find(|transport| can_ping(capabilities, *transport))?;
            Some(Trial {
                id: String::new(),
                transport,
                parameters: ping(3),
                stacks: [stack.clone(), stack.clone()],
            })
        });
        Self(found.ok_or_else(|| "the node has no stack with the workload ping".to_owned()))
    }

    /// A check with the trial.
    fn check(
        &self,
        name: &str,
        demand: &str,
        run: fn(&mut TestNodes, Self) -> BoxFuture<'_, Result<(), NotPassed>>,
    ) -> Check {
        let simplest = self.clone();
        Check {
            name: name.to_owned(),
            demand: demand.to_owned(),
            run: Box::new(move |nodes| run(nodes, simplest.clone())),
        }
    }

    /// The trial under an id.
    fn trial(&self, id: &str) -> Result<Trial, NotPassed> {
        let trial = self.0.clone().map_err(NotPassed::Skipped)?;
        Ok(Trial {
            id: id.to_owned(),
            ..trial
        })
    }
}

fn can_ping(capabilities: &Capabilities, transport: Transport) -> bool {
    capabilities.workloads.contains("ping")
        && capabilities.transports.contains_key(transport.as_ref())
        && !transport.is_in_process()
}

fn ping(count: u32) -> Parameters {
    Parameters::Ping(Ping {
        count,
        interval_seconds: 0.0,
    })
}

/// Every way to negotiate that a stack names; one if it names none, since the parameters need a word.
fn negotiations(capabilities: &Capabilities) -> Vec<Negotiation> {
    let all = [Negotiation::V1, Negotiation::V1Lazy];
    let named: Vec<_> = all
        .into_iter()
        .filter(|negotiation| capabilities.negotiation.contains(negotiation.as_ref()))
        .collect();
    if named.is_empty() {
        vec![Negotiation::V1]
    } else {
        named
    }
}
