//! What a trial's driver decides, as functions of values.

use std::time::Duration;

use perfrun_contract::node::TrialState;

use super::report::Report;

/// The start is at least this far ahead.
const LEAD: Duration = Duration::from_millis(3);

/// Each client adds what its request costs the conductor and the client itself: all clients may share few
/// CPUs, and one that is late starts late.
const LEAD_PER_CLIENT: Duration = Duration::from_micros(500);

/// How far ahead the common start is: late enough that all clients know it by then.
pub(super) fn lead(clients: usize, worst_round_trip: Duration) -> Duration {
    let clients = u32::try_from(clients).unwrap_or(u32::MAX);
    (LEAD + LEAD_PER_CLIENT.saturating_mul(clients)).max(worst_round_trip.saturating_mul(4))
}

/// The servers, at most `most` of them, in the order in which a client gets them. Its peers take them in
/// turn, so each client begins where the peers of the clients before it ended: all servers get the same
/// number of peers, give or take one.
pub(super) fn servers_for<T: Clone>(client: usize, peers: u32, most: usize, servers: &[T]) -> Vec<T> {
    let before = client as u64 * u64::from(peers);
    let begin = before.checked_rem(servers.len() as u64).unwrap_or(0);
    let (last, first) = servers.split_at(usize::try_from(begin).unwrap_or(0));
    first.iter().chain(last).take(most).cloned().collect()
}

/// What to do with a trial that nodes already know, because an earlier session began it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ResumeDecision {
    /// It was started on all clients: wait for its end, and take the results.
    TakeOver,
    /// It was not started on all of them, or it failed, perhaps without a conductor: restart it.
    StartOver,
}

/// Decides by what each relay and server, and each client knows. `None` for a node that does not know the
/// trial.
pub(super) fn decide_known_trial(listeners: &[Option<Report>], clients: &[Option<Report>]) -> ResumeDecision {
    let failed = |report: &Report| {
        let outcome = report.outcome.as_ref();
        outcome.is_some_and(|outcome| outcome.failure.is_some())
    };
    let at_least = |state: TrialState| {
        move |report: &Option<Report>| {
            let report = report.as_ref();
            report.is_some_and(|report| report.status.state >= state && !failed(report))
        }
    };
    if listeners.iter().all(at_least(TrialState::Ready)) && clients.iter().all(at_least(TrialState::Running))
    {
        ResumeDecision::TakeOver
    } else {
        ResumeDecision::StartOver
    }
}

#[cfg(test)]
mod tests {
    use perfrun_contract::node::{Failure, Measured, Outcome, Reason};

    use super::*;
    use crate::{client::OutcomePermit, trial::report::BriefStatus};

    #[test]
    fn the_lead_covers_slow_control_links_and_many_clients() {
        let ms = Duration::from_millis;
        assert_eq!(lead(1, Duration::from_micros(200)), Duration::from_micros(3500));
        assert_eq!(lead(100, Duration::from_micros(200)), ms(53));
        assert_eq!(lead(1, ms(25)), ms(100));
    }

    #[test]
    fn clients_are_spread_evenly_over_servers() {
        let servers = ["a", "b", "c"].map(str::to_owned);
        let of = |client, peers| servers_for(client, peers, usize::MAX, &servers).concat();
        assert_eq!(
            [of(0, 1), of(1, 1), of(2, 1), of(3, 1)],
            ["abc", "bca", "cab", "abc"]
        );
        assert_eq!(
            [of(0, 2), of(1, 2), of(2, 2)],
            ["abc", "cab", "bca"],
            "two peers each: ab, ca, bc"
        );
        assert_eq!(servers_for::<&str>(7, 1, usize::MAX, &[]), [""; 0]);
    }

    #[test]
    fn a_client_of_a_stress_test_gets_the_addresses_that_it_dials() {
        let sources: Vec<u32> = (0..10_000).collect();
        let of = |client| servers_for(client, 50, 50, &sources);
        assert_eq!(of(0), sources[..50]);
        assert_eq!(of(199), sources[9_950..]);
        assert_eq!(of(200), sources[..50]);
        assert_eq!(
            servers_for(1, 4, 4, &[0, 1, 2]),
            [1, 2, 0],
            "fewer sources than sinks"
        );
    }

    #[test]
    fn a_trial_that_was_started_everywhere_is_taken_over() {
        let running = || known(TrialState::Running, None);
        let finished = || known(TrialState::Finished, None);
        let ready = || known(TrialState::Ready, None);
        assert_eq!(
            decide_known_trial(&[ready()], &[finished(), running()]),
            ResumeDecision::TakeOver
        );
        assert_eq!(
            decide_known_trial(&[finished()], &[finished()]),
            ResumeDecision::TakeOver
        );
    }

    #[test]
    fn a_trial_that_was_not_started_everywhere_is_restarted() {
        let running = || known(TrialState::Running, None);
        let ready = || known(TrialState::Ready, None);
        let started_by_half = decide_known_trial(&[ready()], &[running(), ready()]);
        assert_eq!(started_by_half, ResumeDecision::StartOver);
        assert_eq!(decide_known_trial(&[ready()], &[None]), ResumeDecision::StartOver);
        assert_eq!(
            decide_known_trial(&[None], &[running()]),
            ResumeDecision::StartOver
        );
    }

    #[test]
    fn a_failed_trial_of_an_earlier_session_is_restarted() {
        let finished = known(TrialState::Finished, None);
        let timed_out = known(TrialState::Finished, Some(Reason::Timeout));
        assert_eq!(
            decide_known_trial(&[timed_out], &[finished]),
            ResumeDecision::StartOver
        );
    }

    fn known(state: TrialState, reason: Option<Reason>) -> Option<Report> {
        let outcome = (state == TrialState::Finished).then(|| Outcome {
            failure: reason.map(|reason| Failure {
                reason,
                message: String::new(),
            }),
            measured: Measured::default(),
            served: None,
        });
        Some(Report {
            status: BriefStatus {
                state,
                bytes: 0,
                addresses: vec![],
            },
            outcome,
            permit: OutcomePermit::default(),
            merged_samples: None,
        })
    }
}
