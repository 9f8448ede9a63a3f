//! Turns an agent's packet counts into flags and failures of a trial. Pure.

use std::net::IpAddr;

use perfrun_contract::{
    node::{LinkStatus, Reason},
    record::{Flag, LinkRecord, TrialFailure, TrialRecord},
};
use perfrun_link::{
    LinkState, OutgoingLinks, Prefix,
    state::{Concern, Traffic},
};

use super::not_ready::failure;

/// Adds what an agent says of the packets of a trial, in which its node talks to these peers.
pub(super) fn add_evidence(
    record: &mut TrialRecord,
    name: &str,
    instance_before: Option<u64>,
    requested: &OutgoingLinks,
    peers: &[IpAddr],
    status: LinkStatus,
) {
    if instance_before.is_some_and(|instance| instance != status.instance) {
        // In the meantime the links of the node were closed or not impaired. The trial is worth another
        // attempt, as if the node had been lost.
        let restarted = TrialFailure {
            node: Some(name.to_owned()),
            reason: Reason::NodeLost,
            message: format!(
                "the link agent of {name}, or what impairs in it, was started again during the trial: its log says why"
            ),
            other_limit: false,
        };
        return set_failure(record, restarted);
    }
    let Some(state) = status.state else {
        if requested.impairs() {
            let message = format!(
                "the links of {name} were not impaired any more after the trial: did somebody else change its interface?"
            );
            set_failure(record, failure(Some(name), message));
        }
        return;
    };
    add_flags(record, &state);
    let node = record.nodes.get(name).map(|node| &node.measured);
    if is_impaired(requested, peers)
        && !has_passed_packets(&state)
        && node.is_some_and(|measured| measured.bytes_sent + measured.bytes_received > 0)
    {
        let message = format!(
            "no packet that {name} sent in the trial passed its impaired link: do its peers see it at another address, or is \
             another interface on their way?"
        );
        return set_failure(record, failure(Some(name), message));
    }
    let LinkState {
        backend,
        mode,
        traffic,
        worker,
        ..
    } = state;
    if let Some(node) = record.nodes.get_mut(name) {
        node.link = Some(LinkRecord {
            backend,
            mode,
            traffic,
            worker,
        });
    }
}

fn add_flags(record: &mut TrialRecord, state: &LinkState) {
    for concern in state.concerns() {
        let flag = match concern {
            Concern::Late { .. } => Flag::ImpairmentLate,
            Concern::Overflowed(_) | Concern::OverLimit(_) | Concern::Refused(_) => Flag::ImpairmentDrops,
        };
        if !record.flags.contains(&flag) {
            record.flags.push(flag);
        }
    }
}

/// Whether one of these links impairs packets to one of these peers.
fn is_impaired(links: &OutgoingLinks, peers: &[IpAddr]) -> bool {
    let mut routes = links.routes().iter().filter(|route| !route.impairment.is_none());
    let is_peer = |prefix: &Prefix| peers.iter().any(|peer| prefix.contains(*peer));
    routes.any(|route| route.peers.iter().any(is_peer))
}

/// Whether a packet came to the links of a node.
fn has_passed_packets(state: &LinkState) -> bool {
    state.traffic.iter().any(|traffic| match traffic {
        Traffic::Userspace(counts) => counts.packets_in > 0,
        Traffic::Kernel {
            packets_out,
            dropped,
            held,
            ..
        } => *packets_out > 0 || *dropped > 0 || *held > 0,
    })
}

/// Sets the failure of a trial, unless the trial has one that is closer to the cause: a link whose agent is
/// gone lets nothing pass, for example, which fails streams.
pub(super) fn set_failure(record: &mut TrialRecord, failure: TrialFailure) {
    let is_closer = |known: &TrialFailure| failure.reason.remoteness() < known.reason.remoteness();
    if record.failure.as_ref().is_none_or(is_closer) {
        record.metrics.clear();
        record.failure = Some(failure);
    }
}
