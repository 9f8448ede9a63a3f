//! JUnit's XML, as systems for continuous integration read it.

use quick_junit::{NonSuccessKind, Report, TestCaseStatus, TestSuite};

pub use quick_junit::{SerializeError, TestCase};

use crate::NotPassed;

/// Something that was checked.
pub fn case(class: &str, name: &str, outcome: &Result<(), NotPassed>) -> TestCase {
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
///
/// # Errors
///
/// If a text cannot be written as XML.
pub fn report(
    name: &str,
    suite: &str,
    cases: impl IntoIterator<Item = TestCase>,
) -> Result<String, SerializeError> {
    let mut suite = TestSuite::new(suite);
    suite.add_test_cases(cases);
    let mut report = Report::new(name);
    report.add_test_suite(suite);
    report.to_string()
}
