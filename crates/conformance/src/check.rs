//! One check, and why it did not pass.

use std::time::Duration;

use futures::future::BoxFuture;

use crate::nodes::{Error, TestNodes};

/// Why a check did not pass.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotPassed {
    /// The node did something else than the contract says. The text says what was expected and what came.
    Failed(String),
    /// The check does not apply, for this reason.
    Skipped(String),
}

impl From<String> for NotPassed {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl From<Error> for NotPassed {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// What a check does with the nodes.
type CheckBody = Box<dyn for<'a> Fn(&'a mut TestNodes) -> BoxFuture<'a, Result<(), NotPassed>> + Send>;

/// One check.
pub(crate) struct Check {
    /// `GROUP/NAME`.
    pub(crate) name: String,
    /// What the contract demands, in a sentence.
    pub(crate) demand: String,
    pub(crate) run: CheckBody,
}

/// A check that has been made.
#[derive(Clone, Debug)]
pub struct Checked {
    /// `GROUP/NAME`.
    pub name: String,
    /// What the contract demands, in a sentence.
    pub demand: String,
    /// How it went.
    pub outcome: Result<(), NotPassed>,
    /// What it took to pass, if that was not a matter of course.
    pub remarks: Vec<String>,
    /// How long it took.
    pub took: Duration,
}
