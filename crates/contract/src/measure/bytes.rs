//! Whether the bytes that one end sent are those that the other received.

use std::collections::BTreeMap;

use super::{ends::Ends, measure};
use crate::{parameters::Amount, plan::Cell, record::NodeRecord, workload::Direction};

/// What is wrong with the bytes of a completed trial, if anything. Enough must have arrived, and sender and
/// receiver must agree, unless the receiver cut the transfer off.
pub fn count_mismatch(cell: &Cell, nodes: &BTreeMap<String, NodeRecord>) -> Option<String> {
    let ends = Ends::new(cell, nodes);
    let of_workload = || measure(&cell.parameters).mismatch(&ends);
    let Some((direction, amount, streams)) = cell.parameters.transfer() else {
        return of_workload();
    };
    let (up, down) = (ends.up(), ends.down());
    let due = match amount {
        Amount::Count(bytes) => Some(bytes.saturating_mul(u64::from(streams) * ends.peers)),
        Amount::Seconds(_) => None,
    };
    let mismatch = |direction: Direction, (sent, received): (u64, u64)| {
        if due.is_none() && received == 0 {
            return Some(format!(
                "{direction}: nothing arrived within `duration`, of {sent} bytes that were sent: use a longer duration"
            ));
        }
        let complete = sent == received && due.is_none_or(|due| due == received);
        // A timed download ends when the receiver resets the stream, which loses the bytes in transit by
        // design.
        let cut_off = direction == Direction::Download && due.is_none() && sent >= received;
        (!complete && !cut_off).then(|| {
            let due = due.map(|due| format!(" of {due} due")).unwrap_or_default();
            format!("{direction}: {sent} bytes were sent, {received} received{due}")
        })
    };
    let of_transfer = match direction {
        Direction::Upload => mismatch(direction, up),
        Direction::Download => mismatch(direction, down),
        Direction::Both => mismatch(Direction::Upload, up).or_else(|| mismatch(Direction::Download, down)),
    };
    of_transfer.or_else(of_workload)
}
