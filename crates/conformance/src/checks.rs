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

use futures::{FutureExt, future::BoxFuture};
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
    let simplest = simplest_trial(info);
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

/// A check with what it needs, or with the reason why it is skipped.
fn check_with<T: Clone + Send + 'static>(
    name: impl Into<String>,
    demand: &str,
    needs: Result<T, String>,
    run: fn(&mut TestNodes, T) -> BoxFuture<'_, Result<(), NotPassed>>,
) -> Check {
    Check {
        name: name.into(),
        demand: demand.to_owned(),
        run: Box::new(move |nodes| match needs.clone() {
            Ok(needs) => run(nodes, needs),
            Err(reason) => async move { Err(NotPassed::Skipped(reason)) }.boxed(),
        }),
    }
}

/// The simplest trial that the node can run, under the id `a`, for checks that are not about what is
/// exchanged. The error says why there is none.
fn simplest_trial(info: &Info) -> Result<Trial, String> {
    let found = info.capabilities.iter().find_map(|(stack, capabilities)| {
        let transport = Transport::iter().find(|transport| can_ping(capabilities, *transport))?;
        Some(Trial {
            id: "a".to_owned(),
            transport,
            parameters: ping(3),
            stacks: [stack.clone(), stack.clone()],
        })
    });
    found.ok_or_else(|| "the node has no stack with the workload ping".to_owned())
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
