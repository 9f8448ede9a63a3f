//! Kinds of parts, and their names.

use strum::{Display, EnumString};

use super::{RESULTS_KEY, TRIALS_KEY, object_name};

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

    /// The name of the part of a run with this number.
    pub fn name(self, run: &str, uid: &str, number: usize) -> String {
        object_name(run, uid, &self.suffix(number))
    }

    /// The number of the part of a run with this name. `None` if the name is not of this kind.
    pub fn number(self, run: &str, uid: &str, name: &str) -> Option<usize> {
        let number = name.rsplit('-').next()?.parse().ok()?;
        (self.name(run, uid, number) == name).then_some(number)
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
    fn parts_are_numbered() {
        let name = PartKind::Trials.name("tcp", "uid-1", 12);
        assert_eq!(name, "tcp-4a49a-trials-12");
        assert_eq!(PartKind::Trials.number("tcp", "uid-1", &name), Some(12));
        assert_eq!(PartKind::Results.number("tcp", "uid-1", &name), None);
        assert_eq!(PartKind::Trials.number("tcp", "uid-2", &name), None);
    }

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
