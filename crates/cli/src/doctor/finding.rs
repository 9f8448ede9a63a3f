//! What a check finds.

/// What a check finds, and what mends it: a command where there is one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Finding {
    /// All is well.
    Good(String),
    /// It works, and numbers would be less certain.
    Hint { found: String, mend: String },
    /// It does not work here.
    Missing { found: String, mend: String },
}

impl Finding {
    pub(super) fn good(found: impl Into<String>) -> Self {
        Self::Good(found.into())
    }

    pub(super) fn hint(found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::Hint {
            found: found.into(),
            mend: mend.into(),
        }
    }

    pub(super) fn missing(found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::Missing {
            found: found.into(),
            mend: mend.into(),
        }
    }

    /// What was found.
    pub(super) fn found(&self) -> &str {
        match self {
            Self::Good(found) | Self::Hint { found, .. } | Self::Missing { found, .. } => found,
        }
    }

    /// What mends it. `None` if all is well.
    pub(super) fn mend(&self) -> Option<&str> {
        match self {
            Self::Good(_) => None,
            Self::Hint { mend, .. } | Self::Missing { mend, .. } => Some(mend),
        }
    }
}
