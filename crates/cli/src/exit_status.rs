//! The exit status of runs that have ended.

use perfrun_api::exit_status::{FAIL, INCOMPLETE, INCONCLUSIVE, INTERRUPTED, SUCCESS};
use perfrun_contract::{compare::Verdict, run::Phase};

/// The exit status of a run that ended in this phase, with these findings.
pub(crate) fn of_run(phase: Phase, verdict: Option<Verdict>) -> u8 {
    match (phase, verdict) {
        (Phase::Cancelled, _) => INTERRUPTED,
        (Phase::Succeeded, Some(Verdict::Fail)) => FAIL,
        (Phase::Succeeded, Some(Verdict::Inconclusive | Verdict::Newer(_))) => INCONCLUSIVE,
        (Phase::Succeeded, Some(Verdict::Pass) | None) => SUCCESS,
        _ => INCOMPLETE,
    }
}

/// The exit status of two runs: an error outweighs a finding.
pub(crate) fn worse(a: u8, b: u8) -> u8 {
    let weight = |status| {
        [SUCCESS, INCONCLUSIVE, FAIL, INCOMPLETE, INTERRUPTED]
            .iter()
            .position(|known| *known == status)
    };
    if weight(b) > weight(a) { b } else { a }
}
