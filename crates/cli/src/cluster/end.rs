//! How a run ended, and the exit status: pure.

use perfrun_api::{exit_status::INCOMPLETE, spec::PerfRun};
use perfrun_contract::{compare::Verdict, run::Phase};

use super::status::{PhaseReason, StatusSummary};
use crate::exit_status;

/// The exit status of a run that has ended.
pub(super) fn exit_status(phase: Option<Phase>, verdict: Option<Verdict>) -> u8 {
    match phase {
        Some(Phase::Succeeded) => exit_status::of_run(Phase::Succeeded, verdict),
        // A run with a failed trial is `Failed`, too.
        _ => INCOMPLETE,
    }
}

/// A message about a run that did not succeed.
pub(super) fn failure_message(name: &str, run: &PerfRun) -> Option<String> {
    let status = StatusSummary::of(run);
    let outcome = match status.phase {
        Some(Phase::Succeeded) => return None,
        Some(Phase::Cancelled) => format!("was cancelled after {} trials", status.progress()),
        Some(Phase::Failed) => "failed".to_owned(),
        Some(Phase::Newer(phase)) if status.has_ended => format!("has ended as {phase}"),
        _ => format!("has not ended: {}", status.phase()),
    };
    let cause = match status.cause {
        Some(PhaseReason { reason, message }) if message.is_empty() => format!(" ({reason})"),
        Some(PhaseReason { reason, message }) => format!(": {message} ({reason})"),
        None => String::new(),
    };
    Some(format!("perfrun/{name} {outcome}{cause}"))
}

#[cfg(test)]
mod tests {
    use perfrun_api::exit_status::{FAIL, INCONCLUSIVE, SUCCESS};

    use super::{super::status::tests::run, *};

    #[test]
    fn only_a_succeeded_run_without_a_failed_verdict_has_exit_status_0() {
        assert_eq!(exit_status(Some(Phase::Succeeded), None), SUCCESS);
        for (verdict, status) in [
            (Some(Verdict::Pass), SUCCESS),
            (None, SUCCESS),
            (Some(Verdict::Fail), FAIL),
            (Some(Verdict::Inconclusive), INCONCLUSIVE),
        ] {
            assert_eq!(exit_status(Some(Phase::Succeeded), verdict), status);
        }
        for phase in [
            None,
            Some(Phase::Failed),
            Some(Phase::Cancelled),
            Some(Phase::Running),
        ] {
            assert_eq!(exit_status(phase, Some(Verdict::Fail)), INCOMPLETE);
        }
    }

    #[test]
    fn the_message_about_a_failed_run_has_its_reason() {
        let failed = run(
            Some("Failed"),
            (3, 1),
            &["Complete=True TrialsFailed 1 of 40 trials failed"],
        );
        assert_eq!(
            failure_message("tcp", &failed).as_deref(),
            Some("perfrun/tcp failed: 1 of 40 trials failed (TrialsFailed)")
        );
        let bare = run(Some("Failed"), (0, 0), &[]);
        assert_eq!(
            failure_message("tcp", &bare).as_deref(),
            Some("perfrun/tcp failed")
        );
    }

    #[test]
    fn the_message_about_a_cancelled_run_has_its_progress() {
        let cancelled = run(Some("Cancelled"), (11, 1), &["Complete=True Cancelled "]);
        assert_eq!(
            failure_message("tcp", &cancelled).as_deref(),
            Some("perfrun/tcp was cancelled after 12/40 trials (Cancelled)")
        );
        assert_eq!(
            failure_message("tcp", &run(Some("Succeeded"), (40, 0), &[])),
            None
        );
    }

    #[test]
    fn a_run_that_ended_in_a_phase_of_a_newer_version_has_ended() {
        let newer = run(
            Some("Hibernating"),
            (40, 0),
            &["Complete=True Succeeded all 40 trials were measured"],
        );
        assert_eq!(
            failure_message("tcp", &newer).as_deref(),
            Some("perfrun/tcp has ended as Hibernating: all 40 trials were measured (Succeeded)")
        );
        assert_eq!(
            failure_message(
                "tcp",
                &run(Some("Hibernating"), (3, 0), &["Complete=False InProgress "])
            )
            .as_deref(),
            Some("perfrun/tcp has not ended: Hibernating")
        );
    }
}
