//! What can be watched while a run is in progress.

use perfrun_contract::{
    compare::NotNeeded,
    parameters::Amount,
    plan::{Cell, Trial},
    record::{LinkCheck, TrialRecord},
    workload::Direction,
};

/// Receives what happens, in order. Called between steps of a trial, so it must return immediately.
pub type OnEvent<'a> = dyn Fn(Event<'_>) + Send + Sync + 'a;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// All nodes are there.
    RunStarted {
        /// Trials of the plan.
        trials: usize,
        /// Trials of these that an earlier session ended.
        ended: usize,
    },
    /// Links are set to be like this, and then measured.
    LinksChanging {
        /// The name of the network.
        network: &'a str,
    },
    /// Links were set and measured; if they are not what they should be, trials on them fail.
    LinksChecked {
        /// What was measured.
        check: &'a LinkCheck,
    },
    /// A trial begins to be prepared.
    TrialStarted {
        /// The trial.
        trial: &'a Trial,
        /// What it runs.
        cell: &'a Cell,
        /// 1, when it was tried before: a node was lost, or a trial of its pair was disturbed or is of
        /// another session.
        attempt: u32,
    },
    /// A trial is in progress; about once a second.
    TrialProgress {
        /// The trial.
        trial: &'a Trial,
        /// Payload that clients sent and received so far.
        bytes: u64,
        /// How much of it is done, from 0 to 1, where that is known.
        fraction: Option<f64>,
    },
    /// A trial ended, and its record was persisted.
    TrialEnded {
        /// What the sink was given.
        record: &'a TrialRecord,
    },
    /// An interim check of the trials so far made others unnecessary.
    NotNeeded {
        /// All that are left out so far.
        not_needed: NotNeeded,
    },
    /// Another node took the place of a lost one.
    NodeReplaced {
        /// Its name.
        name: &'a str,
    },
}

/// How much of a trial is done after these bytes at the clients, and seconds since the start.
pub(crate) fn fraction(cell: &Cell, bytes: u64, seconds: f64) -> Option<f64> {
    let time = cell.parameters.duration();
    let done = match cell.parameters.transfer() {
        Some((direction, Amount::Count(size), streams)) => {
            let directions = if direction == Direction::Both { 2.0 } else { 1.0 };
            bytes as f64 / (size as f64 * f64::from(streams) * cell.peers() as f64 * directions)
        }
        _ if !time.is_zero() => seconds / time.as_secs_f64(),
        _ => return None,
    };
    Some(done.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{
        matrix::{Protocol, Stack},
        parameters::{Bandwidth, Handshakes, Parameters},
    };
    use perfrun_test_kit::records;

    use super::*;

    #[test]
    fn the_progress_of_a_transfer_of_known_size_is_its_share_of_bytes() {
        let both = cell(Parameters::Bandwidth(Bandwidth {
            streams: 5,
            ..Bandwidth::new(Protocol::Perf, Direction::Both, Amount::Count(100))
        }));
        // 2 clients of 3 peers, 5 streams each, 100 bytes each way.
        assert_eq!(fraction(&both, 1500, 9.0), Some(0.25));
    }

    #[test]
    fn the_progress_of_a_trial_of_known_duration_is_its_share_of_time() {
        let handshakes = cell(Parameters::Handshakes(Handshakes {
            amount: Amount::Seconds(20.0),
            in_flight: 1,
        }));
        assert_eq!(
            [fraction(&handshakes, 7, 5.0), fraction(&handshakes, 7, 99.0)],
            [Some(0.25), Some(1.0)]
        );
    }

    #[test]
    fn the_progress_of_a_number_of_handshakes_is_unknown() {
        let handshakes = cell(Parameters::Handshakes(Handshakes {
            amount: Amount::Count(20),
            in_flight: 1,
        }));
        assert_eq!(fraction(&handshakes, 7, 5.0), None);
    }

    fn cell(parameters: Parameters) -> Cell {
        Cell {
            clients: vec!["client-0".into(), "client-1".into()].into(),
            peers_per_client: 3,
            ..records::cell(Stack::Raw, Stack::Raw, parameters)
        }
    }
}
