//! What became of a run, and the exit status: pure.

use perfrun_api::spec::PerfRun;
use perfrun_contract::run::Phase;

use super::stage::{Stage, Why};
use crate::run::INCOMPLETE;

/// The exit status of a run that has ended.
pub fn exit_status(phase: Option<Phase>) -> u8 {
    match phase {
        Some(Phase::Succeeded) => 0,
        // Also a run with a failed trial is `Failed`.
        _ => INCOMPLETE,
    }
}

/// What to say about a run that did not succeed.
pub fn complaint(name: &str, run: &PerfRun) -> Option<String> {
    let stage = Stage::of(run);
    let outcome = match stage.phase {
        Some(Phase::Succeeded) => return None,
        Some(Phase::Cancelled) => format!("was cancelled after {} trials", stage.progress()),
        Some(Phase::Failed) => "failed".to_owned(),
        _ => format!("has not ended: {}", stage.phase()),
    };
    let why = match stage.why {
        Some(Why { reason, message }) if message.is_empty() => format!(" ({reason})"),
        Some(Why { reason, message }) => format!(": {message} ({reason})"),
        None => String::new(),
    };
    Some(format!("perfrun/{name} {outcome}{why}"))
}

#[cfg(test)]
mod tests {
    use super::{super::stage::tests::run, *};

    #[test]
    fn only_success_is_zero() {
        assert_eq!(exit_status(Some(Phase::Succeeded)), 0);
        for phase in [
            None,
            Some(Phase::Failed),
            Some(Phase::Cancelled),
            Some(Phase::Running),
        ] {
            assert_eq!(exit_status(phase), INCOMPLETE);
        }
    }

    #[test]
    fn a_failed_run_says_why() {
        let failed = run(
            Some("Failed"),
            (3, 1),
            &["Complete=True TrialsFailed 1 of 40 trials failed"],
        );
        assert_eq!(
            complaint("tcp", &failed).as_deref(),
            Some("perfrun/tcp failed: 1 of 40 trials failed (TrialsFailed)")
        );
        let bare = run(Some("Failed"), (0, 0), &[]);
        assert_eq!(complaint("tcp", &bare).as_deref(), Some("perfrun/tcp failed"));
    }

    #[test]
    fn a_cancelled_run_says_how_far_it_came() {
        let cancelled = run(Some("Cancelled"), (11, 1), &["Complete=True Cancelled "]);
        assert_eq!(
            complaint("tcp", &cancelled).as_deref(),
            Some("perfrun/tcp was cancelled after 12/40 trials (Cancelled)")
        );
        assert_eq!(complaint("tcp", &run(Some("Succeeded"), (40, 0), &[])), None);
    }
}
