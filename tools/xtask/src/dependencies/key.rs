//! What compiled dependencies depend on.

use std::{
    collections::BTreeSet,
    env,
    hash::{DefaultHasher, Hasher},
};

use anyhow::Result;

use crate::{
    files,
    shell::{self, Workspace},
};

/// What the units depend on.
pub(super) struct Key {
    /// Compiler, its flags, and profiles.
    pub(super) toolchain: String,
    pub(super) lock: String,
}

impl Key {
    pub(super) fn of(workspace: &Workspace) -> Result<Self> {
        let read = |name| files::read(&workspace.root.join(name));
        let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let compiler = shell::output(workspace.command(compiler).arg("-vV"))?;
        let flags: BTreeSet<String> = env::vars_os()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .filter(|variable| {
                ["RUSTFLAGS=", "CARGO_ENCODED_RUSTFLAGS=", "CARGO_PROFILE_"]
                    .iter()
                    .any(|name| variable.starts_with(name))
            })
            .collect();
        let flags: String = flags.into_iter().map(|flag| flag + "\n").collect();
        Ok(Self {
            toolchain: format!("{compiler}\n{flags}{}\n", profiles(&read("Cargo.toml")?)),
            lock: read("Cargo.lock")?,
        })
    }

    pub(super) fn text(&self) -> String {
        format!("{}{}", self.toolchain, self.lock)
    }

    /// The name of the snapshot. The file [`KEY`](super::KEY) tells keys apart whose names are the same.
    pub(super) fn name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.text().as_bytes());
        format!("{:016x}", hasher.finish())
    }
}

/// The tables of profiles in a Cargo.toml.
fn profiles(manifest: &str) -> String {
    let mut is_profile = false;
    let lines = manifest.lines().filter(|line| {
        if line.starts_with('[') {
            is_profile = line.starts_with("[profile");
        }
        is_profile && !line.is_empty()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Key, profiles};

    #[test]
    fn profiles_are_taken_out_of_a_manifest() {
        let manifest = "[workspace]\nmembers = []\n\n[profile.dev]\ndebug = false\n\n[profile.dev.package.\"*\"]\n\
            opt-level = 1\n\n[workspace.lints.rust]\nunsafe_code = \"deny\"\n";
        assert_eq!(
            profiles(manifest),
            "[profile.dev]\ndebug = false\n[profile.dev.package.\"*\"]\nopt-level = 1"
        );
    }

    #[test]
    fn each_part_of_a_key_changes_its_name() {
        let name = |toolchain: &str, lock: &str| {
            let key = Key {
                toolchain: toolchain.to_owned(),
                lock: lock.to_owned(),
            };
            key.name()
        };
        assert_eq!(name("1.95\n", "serde"), name("1.95\n", "serde"));
        assert_ne!(name("1.95\n", "serde"), name("1.96\n", "serde"));
        assert_ne!(name("1.95\n", "serde"), name("1.95\n", "syn"));
    }
}
