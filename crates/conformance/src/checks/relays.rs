//! Transfers through a relay: the node in each of the three roles, and perfrun's node in one of the others.

use futures::FutureExt;
use perfrun_contract::{
    capabilities::Capabilities,
    distribution::Distribution,
    matrix::Transport,
    node::Outcome,
    parameters::{Parameters, Relay, RelayStress},
    quantity::ByteSize,
    role::Role,
    workload::{RelayLimits, RelayPath},
};

use super::{
    counts::{has, judge, streams_ended},
    support::{reference, why_skipped},
};
use crate::{
    Check, Unmet,
    bench::{Bench, Who},
    pair::{Ended, Trial},
};

/// Bytes of a transfer.
const BYTES: u64 = 300_001;

/// The nodes of a trial, the stack of each, and what the node under test is in it.
#[derive(Clone, Debug)]
struct Cast {
    name: &'static str,
    client: (Who, String),
    source: (Who, String),
    relay: (Who, String),
}

pub(super) fn checks(stack: &str, capabilities: &Capabilities, transport: Transport) -> Vec<Check> {
    let other = reference(capabilities).map_or_else(|| stack.to_owned(), |other| other.to_string());
    let cast = |name, client, source, relay| {
        let of = |who: Who| match who {
            Who::Reference => (who, other.clone()),
            Who::Tested | Who::Second => (who, stack.to_owned()),
        };
        Cast {
            name,
            client: of(client),
            source: of(source),
            relay: of(relay),
        }
    };
    let casts = [
        cast("as-relay", Who::Second, Who::Reference, Who::Tested),
        cast("as-source", Who::Reference, Who::Tested, Who::Second),
        cast("as-sink", Who::Tested, Who::Second, Who::Reference),
    ];
    let mut all = vec![];
    for parameters in [transfer(RelayPath::Relayed), stress()] {
        if !capabilities.workloads.contains(parameters.workload()) {
            continue;
        }
        for cast in &casts {
            all.push(relayed(stack, capabilities, transport, cast, &parameters));
        }
    }
    all
}

pub(super) fn transfer(path: RelayPath) -> Parameters {
    Parameters::Relay(Relay {
        path,
        bytes: BYTES,
        chunk_bytes: ByteSize(1024),
        pings: 2,
        limits: RelayLimits::default(),
    })
}

fn stress() -> Parameters {
    Parameters::RelayStress(RelayStress {
        sinks: 1,
        sources: 1,
        start_interval_seconds: 0.01,
        ramp_seconds: 0.01,
        // Long enough for a busy machine to set a circuit up, too.
        plateau_seconds: 1.5,
        bytes: BYTES,
        chunk_bytes: ByteSize(1024),
        limits: RelayLimits::default(),
    })
}

fn relayed(
    stack: &str,
    capabilities: &Capabilities,
    transport: Transport,
    cast: &Cast,
    parameters: &Parameters,
) -> Check {
    let roles = [
        (cast.client.0, cast.client.1.as_str(), Role::Client),
        (cast.source.0, cast.source.1.as_str(), Role::Server),
        (cast.relay.0, cast.relay.1.as_str(), Role::Relay),
    ];
    let reason = why_skipped(stack, capabilities, transport, &roles, parameters);
    let (cast, parameters) = (cast.clone(), parameters.clone());
    Check {
        name: format!(
            "relays/{stack}.{transport}.{}.{}",
            cast.name,
            parameters.workload()
        ),
        demand: "all three complete, and agree on what was relayed".to_owned(),
        run: Box::new(move |bench| {
            let (reason, cast, parameters) = (reason.clone(), cast.clone(), parameters.clone());
            async move {
                match reason {
                    Some(reason) => Err(Unmet::Skipped(reason)),
                    None => run(bench, transport, &cast, parameters).await,
                }
            }
            .boxed()
        }),
    }
}

async fn run(
    bench: &mut Bench,
    transport: Transport,
    cast: &Cast,
    parameters: Parameters,
) -> Result<(), Unmet> {
    let nodes = bench.nodes([cast.client.0, cast.source.0, cast.relay.0]).await?;
    let trial = Trial {
        id: format!("{}-{}", cast.name, parameters.workload()),
        transport,
        parameters,
        stacks: [cast.client.1.clone(), cast.source.1.clone()],
    };
    let (ended, relay) = trial.run_relayed(nodes, &cast.relay.1).await?;
    streams_ended(transport, &trial.parameters, &ended)?;
    Ok(agree(&trial.parameters, &ended, &relay)?)
}

fn agree(parameters: &Parameters, ended: &Ended, relay: &Outcome) -> Result<(), String> {
    if let Some(failure) = &relay.failure {
        return Err(format!(
            "the relay failed: {}: {}",
            failure.reason, failure.message
        ));
    }
    judge(parameters, ended)?;
    if ended.client.measured.bytes_received == 0 {
        return Err("nothing arrived".to_owned());
    }
    has(&ended.client.measured, Distribution::RelayConnected, 1)?;
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
