//! Kinds of parts, and their names.

use strum::{Display, EnumString};

use super::{RESULTS_KEY, TRIALS_KEY};

/// What a part has. Its text is in the name of the part.
#[derive(Clone, Copy, Debug, Display, EnumString, Eq, Ord, PartialEq, PartialOrd)]
#[strum(serialize_all = "lowercase")]
pub enum PartKind {
    /// Trial records.
    Trials,
    /// Results without their trials.
    Results,
}

impl PartKind {
    /// The kind of the part with this name. `None` if its end is not a [suffix](Self::suffix).
    pub fn of(name: &str) -> Option<Self> {
        name.rsplit('-').nth(1)?.parse().ok()
    }

    /// The end of the name of the part with this number, after the name and the id of the run.
    pub fn suffix(self, number: usize) -> String {
        format!("{self}-{number}")
    }

    /// The key of the part's data.
    pub fn key(self) -> &'static str {
        match self {
            Self::Trials => TRIALS_KEY,
            Self::Results => RESULTS_KEY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_distinguished_by_their_names() {
        for (run, kind) in [
            ("my-results-4a49a", PartKind::Trials),
            ("my-trials-4a49a", PartKind::Results),
        ] {
            assert_eq!(PartKind::of(&format!("{run}-{}", kind.suffix(12))), Some(kind));
        }
        assert_eq!(PartKind::of("my-4a49a-token"), None);
    }
}
