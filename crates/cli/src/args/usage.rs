//! Command lines whose parts are valid, but not together.

use thiserror::Error;

/// A command line that is refused after it was parsed. perfrun exits with the status of one that cannot be
/// parsed.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct InvalidCommandLine(pub String);
