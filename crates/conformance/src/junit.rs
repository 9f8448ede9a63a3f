//! JUnit's XML, as systems for continuous integration read it.

use quick_junit::{NonSuccessKind, Report, TestCaseStatus, TestSuite};

pub use quick_junit::{SerializeError, TestCase};

use crate::Unmet;

/// Something that was checked.
pub fn case(class: &str, name: &str, outcome: &Result<(), Unmet>) -> TestCase {
    let mut status = match outcome {
        Ok(()) => TestCaseStatus::success(),
        Err(Unmet::Failed(_)) => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Err(Unmet::Skipped(_)) => TestCaseStatus::skipped(),
    };
    if let Err(Unmet::Failed(message) | Unmet::Skipped(message)) = outcome {
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
