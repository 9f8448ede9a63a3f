//! The outcome of a suite, for people.

use std::fmt::Write;

use crate::{Checked, NotPassed};

/// One line for a check, and below it what was wrong.
pub fn line(checked: &Checked) -> String {
    let Checked {
        name,
        demand,
        outcome,
        remarks,
        took,
    } = checked;
    let took = took.as_secs_f64();
    let mut text = match outcome {
        Ok(()) => format!("passed   {name}: {demand} ({took:.1} s)\n"),
        Err(NotPassed::Skipped(reason)) => format!("skipped  {name}: {reason}\n"),
        Err(NotPassed::Failed(_)) => format!("FAILED   {name}: {demand} ({took:.1} s)\n"),
    };
    let failure = match outcome {
        Err(NotPassed::Failed(message)) => message.lines(),
        _ => "".lines(),
    };
    for line in failure.chain(remarks.iter().map(String::as_str)) {
        let _ = writeln!(text, "         {line}");
    }
    text
}

/// How many checks passed, failed and were skipped, and what follows from that.
pub fn summary(all: &[Checked]) -> String {
    let count = |is: fn(&Result<(), NotPassed>) -> bool| all.iter().filter(|one| is(&one.outcome)).count();
    let passed = count(Result::is_ok);
    let failed = count(|outcome| matches!(outcome, Err(NotPassed::Failed(_))));
    let skipped = all.len() - passed - failed;
    let follows = match (failed, passed) {
        (0, 1..) => "the node may take part in runs",
        (0, 0) => "nothing was checked",
        _ => "the node must not take part in runs until every check passes",
    };
    format!("{passed} passed, {failed} failed, {skipped} skipped: {follows}\n")
}

/// Whether a node with these outcomes may take part in runs.
pub fn is_conformant(all: &[Checked]) -> bool {
    let failed = |one: &Checked| matches!(one.outcome, Err(NotPassed::Failed(_)));
    all.iter().any(|one| one.outcome.is_ok()) && !all.iter().any(failed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn checked(outcome: Result<(), NotPassed>) -> Checked {
        Checked {
            name: "calls/info".into(),
            demand: "a node says what it is".into(),
            outcome,
            remarks: vec![],
            took: Duration::from_millis(1500),
        }
    }

    #[test]
    fn one_failure_keeps_a_node_out() {
        let passed = checked(Ok(()));
        let skipped = checked(Err(NotPassed::Skipped("no relay".into())));
        let failed = checked(Err(NotPassed::Failed("expected <1>\nnot 2".into())));
        assert!(is_conformant(&[passed.clone(), skipped.clone()]));
        assert!(!is_conformant(&[passed.clone(), failed.clone()]));
        assert!(
            !is_conformant(std::slice::from_ref(&skipped)),
            "nothing was checked"
        );
        assert_eq!(
            line(&failed),
            "FAILED   calls/info: a node says what it is (1.5 s)\n         expected <1>\n         not 2\n"
        );
        assert_eq!(
            summary(&[passed, skipped, failed]),
            "1 passed, 1 failed, 1 skipped: the node must not take part in runs until every check passes\n"
        );
    }

    #[test]
    fn a_check_that_passed_at_the_second_attempt_has_a_remark() {
        let one = Checked {
            remarks: vec!["repeated".into()],
            ..checked(Ok(()))
        };
        assert_eq!(
            line(&one),
            "passed   calls/info: a node says what it is (1.5 s)\n         repeated\n"
        );
    }
}
