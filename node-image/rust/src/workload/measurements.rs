//! What a side of a trial measured, besides what its observer counted.

use std::{collections::BTreeMap, time::Duration};

use perfrun_contract::{
    distribution::Distribution,
    histogram::{Recorder, record, recorder},
    node::{Plateau, Transfer},
};
use perfrun_stack::{self as stack, DialPhases};

/// What a side of a trial measured. It outlives a side that is cut short.
#[derive(Debug, Default)]
pub(crate) struct Measurements {
    /// The transfer from client to server.
    pub(crate) upload: Option<Transfer>,
    /// The transfer from server to client.
    pub(crate) download: Option<Transfer>,
    /// The time in which all streams were open.
    pub(crate) plateau: Option<Plateau>,
    /// Distributions, in nanoseconds.
    pub(crate) recorders: BTreeMap<Distribution, Recorder>,
    /// Number of refusals by a relay or by the stack, by their text.
    pub(crate) refused: BTreeMap<String, u64>,
    /// Most circuits at the same time.
    pub(crate) most_circuits: u64,
}

impl Measurements {
    /// Counts a refusal by a relay.
    pub(super) fn count_refusal(&mut self, what: &str, status: &str) {
        self.count_refusals(what, status, 1);
    }

    /// Counts refusals.
    pub(super) fn count_refusals(&mut self, what: &str, status: &str, times: u64) {
        *self.refused.entry(format!("{what}: {status}")).or_default() += times;
    }

    /// Counts an error if it is a refusal by a relay.
    pub(super) fn count_if_refused(&mut self, error: &stack::Error) {
        if let stack::Error::Refused { what, status, .. } = error {
            self.count_refusal(what, status);
        }
    }

    pub(super) fn record(&mut self, distribution: Distribution, time: Duration) {
        record(self.recorders.entry(distribution).or_insert_with(recorder), time);
    }

    pub(super) fn record_dial(&mut self, phases: DialPhases) {
        self.record(Distribution::HandshakeEstablished, phases.established);
        if let Some(transport) = phases.transport {
            self.record(Distribution::HandshakeTransport, transport);
        }
        if let Some(relay) = phases.relay {
            self.record(Distribution::RelayConnected, relay);
        }
    }

    /// Adds the values of another recorder.
    pub(super) fn add(&mut self, distribution: Distribution, recorded: &Recorder) {
        let all = self.recorders.entry(distribution).or_insert_with(recorder);
        all.add(recorded)
            .expect("a recorder that resizes takes every value");
    }

    /// Adds the distributions and relay counts of other measurements.
    pub(super) fn merge(&mut self, others: Self) {
        for (distribution, recorded) in &others.recorders {
            self.add(*distribution, recorded);
        }
        for (what, count) in others.refused {
            *self.refused.entry(what).or_default() += count;
        }
        self.most_circuits += others.most_circuits;
    }
}
