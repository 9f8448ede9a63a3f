//! Whether the bytes that one end sent are those that the other received.

use std::collections::BTreeMap;

use super::{
    echo,
    ends::{Ends, sum},
};
use crate::{
    parameters::{Amount, Parameters},
    plan::Cell,
    record::NodeRecord,
    workload::Direction,
};

/// What is wrong with the bytes of a completed trial, if anything. Something must have arrived, and sender
/// and receiver must agree, unless the receiver cut the transfer off.
pub fn count_mismatch(cell: &Cell, nodes: &BTreeMap<String, NodeRecord>) -> Option<String> {
    let ends = Ends::new(cell, nodes);
    let up = (
        sum(&ends.clients, |client| client.bytes_sent),
        sum(&ends.servers, |server| server.bytes_received),
    );
    let down = (
        sum(&ends.servers, |server| server.bytes_sent),
        sum(&ends.clients, |client| client.bytes_received),
    );
    let Some((direction, amount, streams)) = cell.parameters.transfer() else {
        // It is unknown how much a stream had sent when it failed.
        return match cell.parameters {
            Parameters::Echo(_) if nodes.values().all(|node| node.measured.failures == 0) => {
                echo::mismatch(&ends)
            }
            // At a server, only ends of streams fail in a trial that continues.
            Parameters::Ping { .. } | Parameters::Handshakes { .. } if ends.failures() == 0.0 => {
                let lost = |what: &str, (sent, received): (u64, u64)| {
                    (sent != received).then(|| format!("{what}: {sent} bytes were sent, {received} received"))
                };
                lost("pings", up).or_else(|| lost("answers to pings", down))
            }
            _ => None,
        };
    };
    let due = match amount {
        Amount::Count(bytes) => {
            let transfers = u64::from(streams) * u64::from(cell.peers_per_client) * cell.clients.len() as u64;
            Some(bytes.saturating_mul(transfers))
        }
        Amount::Seconds(_) => None,
    };
    let mismatch = |way: &str, (sent, received): (u64, u64)| {
        if due.is_none() && received == 0 {
            return Some(format!(
                "{way}: nothing arrived in the time given, of {sent} bytes that were sent"
            ));
        }
        let complete = sent == received && due.is_none_or(|due| due == received);
        // A timed download ends when the receiver resets the stream, which loses the bytes in transit by
        // design.
        let cut_off = way == "download" && due.is_none() && sent >= received;
        (!complete && !cut_off).then(|| {
            let due = due.map(|due| format!(" of {due} due")).unwrap_or_default();
            format!("{way}: {sent} bytes were sent, {received} received{due}")
        })
    };
    match direction {
        Direction::Upload => mismatch("upload", up),
        Direction::Download => mismatch("download", down),
        Direction::Both => mismatch("upload", up).or_else(|| mismatch("download", down)),
    }
}
