//! Every workload that the node claims, on every transport, in both roles, by the counts of both ends.

use futures::FutureExt;
use perfrun_contract::{
    distribution::Distribution,
    matrix::Transport,
    node::{Info, Reason},
    parameters::Parameters,
    role::Role,
    workload::MessageMode,
};
use strum::IntoEnumIterator;

use super::{
    check_with,
    counts::{check_equal, check_streams_ended, check_value_count},
    loads::{Load, MESSAGE_BYTES, MESSAGES, check_counts, loads, longer, messages},
    relays,
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

/// A pair of nodes: the client and the server, each with its stack.
#[derive(Clone, Debug)]
struct NodePair {
    name: String,
    ends: [(Participant, String); 2],
}

pub(super) fn checks(info: &Info) -> Vec<Check> {
    let mut all = vec![];
    for (name, capabilities) in &info.capabilities {
        let is_claimed = |transport: &Transport| capabilities.transports.contains_key(transport.as_ref());
        for transport in Transport::iter().filter(is_claimed) {
            let tested = TestedStack {
                name,
                capabilities,
                transport,
            };
            for pair in pairs(tested) {
                let loads = loads(capabilities).into_iter();
                all.extend(loads.map(|load| exchange(tested, &pair, load)));
            }
            all.extend(in_process(tested));
            all.extend(relays::checks(tested));
        }
        let known = Transport::iter().map(Into::into).collect::<Vec<&str>>();
        for transport in capabilities
            .transports
            .keys()
            .filter(|name| !known.contains(&name.as_str()))
        {
            all.push(skipped(
                format!("workloads/{name}.{transport}"),
                "this perfrun does not know the transport",
            ));
        }
    }
    all
}

/// A check with both peers in one process, of a stack that claims messages.
fn in_process(tested: TestedStack<'_>) -> Option<Check> {
    let TestedStack {
        name: stack,
        capabilities,
        transport,
    } = tested;
    let parameters = messages(MessageMode::Serial, 1);
    if !capabilities.workloads.contains(parameters.workload()) {
        return None;
    }
    let roles = [Role::Client, Role::Server].map(|role| (Tested, stack, role));
    let reason = match transport.is_in_process() {
        true => None,
        false => tested.why_skipped(&roles, &parameters),
    };
    let trial = Trial {
        id: "serial".to_owned(),
        transport,
        parameters,
        stacks: [stack, stack].map(str::to_owned),
    };
    Some(check_with(
        format!("workloads/{tested}.in-process.messages.serial"),
        "one process has both ends, and reports both",
        reason.map_or(Ok(trial), Err),
        |nodes, trial| run_in_process(nodes, trial).boxed(),
    ))
}

async fn run_in_process(nodes: &mut TestNodes, trial: Trial) -> Result<(), NotPassed> {
    let outcome = trial.run_both(nodes.node(Tested).await?).await?;
    if let Some(failure) = outcome.failure {
        return Err(format!("it failed: {}: {}", failure.reason, failure.message).into());
    }
    let served = outcome.served.ok_or_else(|| "served is missing".to_owned())?;
    check_equal(
        "bytes to the server (measured.bytesSent, served.bytesReceived)",
        outcome.measured.bytes_sent,
        served.bytes_received,
    )?;
    check_equal(
        "bytes sent",
        outcome.measured.bytes_sent,
        MESSAGES * MESSAGE_BYTES,
    )?;
    Ok(check_value_count(
        &outcome.measured,
        Distribution::OneWay,
        MESSAGES,
    )?)
}

fn skipped(name: String, reason: &'static str) -> Check {
    Check {
        name,
        demand: String::new(),
        run: Box::new(move |_| async move { Err(NotPassed::Skipped(reason.to_owned())) }.boxed()),
    }
}

/// The node with itself, and in both roles with the stack of perfrun's node that speaks its wire.
fn pairs(tested: TestedStack<'_>) -> Vec<NodePair> {
    let stack = tested.name;
    let pair = |name: &str, client: (Participant, &str), server: (Participant, &str)| NodePair {
        name: name.to_owned(),
        ends: [client, server].map(|(who, stack)| (who, stack.to_owned())),
    };
    let mut pairs = vec![pair("with-itself", (Tested, stack), (Second, stack))];
    if let Some(reference) = tested.reference() {
        let reference: &str = reference.into();
        pairs.push(pair("as-client", (Tested, stack), (Reference, reference)));
        pairs.push(pair("as-server", (Reference, reference), (Tested, stack)));
    }
    pairs
}

fn exchange(tested: TestedStack<'_>, pair: &NodePair, load: Load) -> Check {
    let [(client, of_client), (server, of_server)] = &pair.ends;
    let roles = [
        (*client, of_client.as_str(), Role::Client),
        (*server, of_server.as_str(), Role::Server),
    ];
    let mut all = load.parameters.iter();
    let reason = all.find_map(|parameters| tested.why_skipped(&roles, parameters));
    check_with(
        format!("workloads/{tested}.{}.{}", pair.name, load.name),
        "both ends complete, and agree on what was exchanged",
        reason.map_or(Ok((tested.transport, pair.clone(), load)), Err),
        |nodes, (transport, pair, load)| run(nodes, transport, pair, load).boxed(),
    )
}

async fn run(
    nodes: &mut TestNodes,
    transport: Transport,
    pair: NodePair,
    load: Load,
) -> Result<(), NotPassed> {
    let [(client, client_stack), (server, server_stack)] = &pair.ends;
    let [client, server] = nodes.several([*client, *server]).await?;
    let trial = |id: String, parameters: &Parameters| Trial {
        id,
        transport,
        parameters: parameters.clone(),
        stacks: [client_stack.clone(), server_stack.clone()],
    };
    let mut repeated = vec![];
    for (i, parameters) in load.parameters.iter().enumerate() {
        let mut parameters = parameters.clone();
        let id = format!("{}-{i}", load.name);
        let mut outcomes = trial(id.clone(), &parameters).run(client, server).await;
        if let (Ok(short), Some(longer)) = (&outcomes, longer(&parameters))
            && (has_timed_out(short) || has_moved_nothing(short))
        {
            repeated.push(format!(
                "{parameters} did not get far enough and was repeated with ten times its duration"
            ));
            parameters = longer;
            outcomes = trial(id + "-longer", &parameters).run(client, server).await;
        }
        let wrong = outcomes.and_then(|outcomes| {
            // A lost dial on webrtc-direct is repeated, and counted (webrtc-rs issue 821).
            if transport != Transport::WebrtcDirect {
                check_equal("failures of the client", outcomes.client.measured.failures, 0)?;
            }
            check_streams_ended(transport, &parameters, &outcomes)?;
            check_counts(&parameters, &outcomes)
        });
        wrong.map_err(|why| format!("{parameters} on {transport}: {why}"))?;
    }
    for remark in repeated {
        nodes.remark(remark);
    }
    Ok(())
}

fn has_timed_out(outcomes: &TrialOutcomes) -> bool {
    (outcomes.client.failure.as_ref()).is_some_and(|failure| failure.reason == Reason::Timeout)
}

fn has_moved_nothing(outcomes: &TrialOutcomes) -> bool {
    outcomes.client.measured.bytes_sent + outcomes.client.measured.bytes_received == 0
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{matrix::Stack, support};

    use super::*;

    #[test]
    fn every_workload_that_a_built_in_stack_claims_has_a_load() {
        for stack in Stack::built_in() {
            let claimed = support::capabilities(stack).unwrap();
            let relayed = relays::checks(TestedStack {
                name: "a",
                capabilities: &claimed,
                transport: Transport::Tcp,
            });
            let names = loads(&claimed).into_iter().map(|load| load.name);
            let names: Vec<_> = names.chain(relayed.into_iter().map(|check| check.name)).collect();
            for workload in &claimed.workloads {
                let is_about = |name: &String| name.split('.').any(|part| part == workload);
                assert!(names.iter().any(is_about), "{stack}: {workload}");
            }
        }
    }
}
