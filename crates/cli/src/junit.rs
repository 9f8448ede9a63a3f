//! JUnit's XML, as systems for continuous integration read it.

use anyhow::Context;
use perfrun_conformance::{Checked, NotPassed};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

/// Something that was checked.
pub(crate) fn case(class: &str, name: &str, outcome: &Result<(), NotPassed>) -> TestCase {
    let mut status = match outcome {
        Ok(()) => TestCaseStatus::success(),
        Err(NotPassed::Failed(_)) => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Err(NotPassed::Skipped(_)) => TestCaseStatus::skipped(),
    };
    if let Err(NotPassed::Failed(message) | NotPassed::Skipped(message)) = outcome {
        status.set_message(message.as_str());
    }
    let mut case = TestCase::new(name, status);
    case.set_classname(class);
    case
}

/// A report with one suite of these cases.
pub(crate) fn report(
    name: &str,
    suite: &str,
    cases: impl IntoIterator<Item = TestCase>,
) -> anyhow::Result<String> {
    let mut suite = TestSuite::new(suite);
    suite.add_test_cases(cases);
    let mut report = Report::new(name);
    report.add_test_suite(suite);
    report.to_string().context("failed to write JUnit's XML")
}

/// A report of the checks of a node.
pub(crate) fn conformance(all: &[Checked]) -> anyhow::Result<String> {
    let case = |one: &Checked| {
        let mut case = case("perfrun.conformance", &one.name, &one.outcome);
        case.set_time(one.took);
        if !one.remarks.is_empty() {
            case.set_system_out(one.remarks.join("\n"));
        }
        case
    };
    report("perfrun conformance", "node contract", all.iter().map(case))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_case_has_what_was_found_and_what_it_took() {
        let checked = |outcome, remarks: &[&str]| Checked {
            name: "calls/info".into(),
            demand: "a node says what it is".into(),
            outcome,
            remarks: remarks.iter().map(|remark| (*remark).into()).collect(),
            took: Duration::from_millis(1500),
        };
        let xml = conformance(&[
            checked(Ok(()), &["repeated"]),
            checked(Err(NotPassed::Skipped("no relay".into())), &[]),
            checked(Err(NotPassed::Failed("expected <1>\nnot 2".into())), &[]),
        ])
        .unwrap();
        for part in ["repeated", "<skipped", "expected &lt;1&gt;"] {
            assert!(xml.contains(part), "{part}: {xml}");
        }
    }
}
