//! Transfers through a relay: the node in each of the three roles, and perfrun's node in one of the others.

use futures::FutureExt;
use perfrun_contract::{
    distribution::Distribution, matrix::Transport, node::Outcome, parameters::Parameters, role::Role,
    workload::RelayPath,
};

use super::{
    check_with,
    counts::{check_streams_ended, check_value_count},
    loads::{check_counts, stress, transfer},
    support::TestedStack,
};
use crate::{
    Check, NotPassed,
    nodes::{
        Participant::{self, Reference, Second, Tested},
        TestNodes,
    },
    trial::{Trial, TrialOutcomes},
};

/// The nodes of a trial, the stack of each, and what the node under test is in it.
#[derive(Clone, Debug)]
struct RelayTrial {
    name: &'static str,
    client: (Participant, String),
    source: (Participant, String),
    relay: (Participant, String),
}

pub(super) fn checks(tested: TestedStack<'_>) -> Vec<Check> {
    let stack = tested.name;
    let other = tested
        .reference()
        .map_or_else(|| stack.to_owned(), |other| other.to_string());
    let trial = |name, client, source, relay| {
        let of = |who: Participant| match who {
            Reference => (who, other.clone()),
            Tested | Second => (who, stack.to_owned()),
        };
        RelayTrial {
            name,
            client: of(client),
            source: of(source),
            relay: of(relay),
        }
    };
    let trials = [
        trial("as-relay", Second, Reference, Tested),
        trial("as-source", Reference, Tested, Second),
        trial("as-sink", Tested, Second, Reference),
    ];
    let mut all = vec![];
    for parameters in [transfer(RelayPath::Relayed), stress()] {
        if !tested.capabilities.workloads.contains(parameters.workload()) {
            continue;
        }
        for trial in &trials {
            all.push(relayed(tested, trial, &parameters));
        }
    }
    all
}

fn relayed(tested: TestedStack<'_>, trial: &RelayTrial, parameters: &Parameters) -> Check {
    let roles = [
        (trial.client.0, trial.client.1.as_str(), Role::Client),
        (trial.source.0, trial.source.1.as_str(), Role::Server),
        (trial.relay.0, trial.relay.1.as_str(), Role::Relay),
    ];
    let reason = tested.why_skipped(&roles, parameters);
    check_with(
        format!("relays/{tested}.{}.{}", trial.name, parameters.workload()),
        "all three complete, and agree on what was relayed",
        reason.map_or(Ok((tested.transport, trial.clone(), parameters.clone())), Err),
        |nodes, (transport, trial, parameters)| run(nodes, transport, trial, parameters).boxed(),
    )
}

async fn run(
    nodes: &mut TestNodes,
    transport: Transport,
    planned: RelayTrial,
    parameters: Parameters,
) -> Result<(), NotPassed> {
    let nodes = nodes
        .several([planned.client.0, planned.source.0, planned.relay.0])
        .await?;
    let trial = Trial {
        id: format!("{}-{}", planned.name, parameters.workload()),
        transport,
        parameters,
        stacks: [planned.client.1.clone(), planned.source.1.clone()],
    };
    let (outcomes, relay) = trial.run_relayed(nodes, &planned.relay.1).await?;
    check_streams_ended(transport, &trial.parameters, &outcomes)?;
    Ok(check_agreement(&trial.parameters, &outcomes, &relay)?)
}

fn check_agreement(parameters: &Parameters, outcomes: &TrialOutcomes, relay: &Outcome) -> Result<(), String> {
    if let Some(failure) = &relay.failure {
        return Err(format!(
            "the relay failed: {}: {}",
            failure.reason, failure.message
        ));
    }
    check_counts(parameters, outcomes)?;
    if outcomes.client.measured.bytes_received == 0 {
        return Err("nothing arrived".to_owned());
    }
    check_value_count(&outcomes.client.measured, Distribution::RelayConnected, 1)?;
    let relay = &relay.measured;
    // Where each transfer has a connection of its own, sinks that repeat it need more than one circuit.
    let most = match parameters.sinks_and_sources() {
        Some(_) => u64::MAX,
        None => 1,
    };
    for (what, circuits) in [("streams", relay.streams), ("mostCircuits", relay.most_circuits)] {
        if circuits < 1 || circuits > most {
            return Err(format!(
                "{what} of the relay must count its circuits, not {circuits}"
            ));
        }
    }
    Ok(())
}
