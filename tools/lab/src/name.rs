//! The name of a lab: part of paths, cgroups and host names.

use std::{fmt, str::FromStr};

use anyhow::{Error, bail};

const NAME_MAX: usize = 20;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Name(String);

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let inner = |end: Option<char>| end.is_some_and(|c| c != '-');
        if text.len() > NAME_MAX
            || !text.chars().all(allowed)
            || !inner(text.chars().next())
            || !inner(text.chars().last())
        {
            bail!(
                "unable to name a lab {text:?}: use 1 to {NAME_MAX} lower-case letters, digits and, between them, dashes"
            );
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn a_name_is_safe_in_paths() {
        for good in ["lab", "e2e-1", "7"] {
            assert_eq!(good.parse::<Name>().unwrap().to_string(), good);
        }
        for bad in ["", "-a", "a-", "a/b", "..", "Lab", "abcdefghijklmnopqrstu"] {
            let error = bad.parse::<Name>().unwrap_err().to_string();
            assert!(error.contains("lower-case"), "{bad}: {error}");
        }
    }
}
