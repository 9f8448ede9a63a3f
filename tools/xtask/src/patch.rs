//! Other versions of dependencies: a copy of this workspace with a `[patch]` section.
//!
//! Cargo writes resolved versions to Cargo.lock, and a patch must not change the committed file. So the
//! patched workspace is a folder of links into this one, with its own manifest and lock file.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{self, Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
};

use anyhow::{Context, Result, anyhow, bail};

use crate::{
    files::{empty, read},
    shell::{self, Workspace},
};

/// `CRATE=PATH` or `CRATE=GIT`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Patch {
    name: String,
    source: Source,
}

#[derive(Clone, Debug, PartialEq)]
enum Source {
    Folder(PathBuf),
    Git {
        url: String,
        /// The kind of Git reference (`branch`, `tag` or `rev`) and its name.
        at: Option<(String, String)>,
    },
}

impl FromStr for Patch {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, source) = text
            .split_once('=')
            .filter(|(name, source)| !name.is_empty() && !source.is_empty())
            .context("a patch is CRATE=PATH or CRATE=GIT, for example litep2p=../litep2p")?;
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        if !name.chars().all(is_part) {
            bail!("{name:?} is not the name of a crate");
        }
        let is_git = source.contains("://") || source.starts_with("git@");
        let source = if is_git {
            let (url, query) = source.split_once('?').unwrap_or((source, ""));
            let at = match query.split_once('=') {
                Some((kind @ ("branch" | "tag" | "rev"), what)) if !what.is_empty() => {
                    Some((kind.to_owned(), what.to_owned()))
                }
                None if query.is_empty() => None,
                _ => bail!("what to check out is ?branch=NAME, ?tag=NAME or ?rev=COMMIT, not ?{query}"),
            };
            Source::Git {
                url: url.to_owned(),
                at,
            }
        } else {
            Source::Folder(source.into())
        };
        Ok(Self {
            name: name.to_owned(),
            source,
        })
    }
}

impl Patch {
    /// Crate and version, in characters that a tag may contain.
    pub(crate) fn label(&self) -> String {
        let version = match &self.source {
            Source::Folder(folder) => folder.file_name().map(|name| name.to_string_lossy().into_owned()),
            Source::Git { at, .. } => at.as_ref().map(|(_, what)| what.clone()),
        };
        let version = version.filter(|version| *version != self.name);
        let label = format!("{}-{}", self.name, version.as_deref().unwrap_or("patched"));
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '-');
        label.replace(|letter| !is_part(letter), "-")
    }

    /// The line of the `[patch]` section.
    fn line(&self) -> Result<String> {
        let source = match &self.source {
            Source::Folder(folder) => {
                let absolute = path::absolute(folder).context("failed to find the current folder")?;
                if !absolute.join("Cargo.toml").is_file() {
                    bail!(
                        "unable to patch {}: {} has no Cargo.toml; name the folder of the crate itself",
                        self.name,
                        absolute.display()
                    );
                }
                let path = absolute.to_str().context("cargo wants paths in UTF-8")?;
                format!("path = {path:?}")
            }
            Source::Git { url, at: None } => format!("git = {url:?}"),
            Source::Git {
                url,
                at: Some((kind, what)),
            } => format!("git = {url:?}, {kind} = {what:?}"),
        };
        Ok(format!("{} = {{ {source} }}\n", self.name))
    }
}

/// Runs a command of cargo that builds a program, with patches, and returns the target folder. Cargo keeps
/// variants of a program apart except for the last step, which puts the program into the target folder under
/// its name. So this build uses another target folder, of this name, over the same intermediate files.
pub(crate) fn build_apart(
    original: &Workspace,
    cargo: &mut Command,
    name: &str,
    patches: &[Patch],
) -> Result<PathBuf> {
    let folder = original.scratch()?.join(name);
    cargo.env("CARGO_BUILD_BUILD_DIR", original.artifacts());
    cargo.env("CARGO_TARGET_DIR", &folder);
    if !patches.is_empty() {
        cargo.current_dir(workspace(original, patches)?);
    }
    shell::succeed(cargo)?;
    Ok(folder)
}

/// Creates the patched workspace, lets cargo resolve it, and returns its folder.
fn workspace(original: &Workspace, patches: &[Patch]) -> Result<PathBuf> {
    let folder = original.scratch()?.join("patched");
    let manifest = read(&original.root.join("Cargo.toml"))?;
    let lines = patches.iter().map(Patch::line).collect::<Result<String>>()?;
    create(&original.root, &folder)
        .and_then(|()| {
            Ok(fs::write(
                folder.join("Cargo.toml"),
                format!("{manifest}\n[patch.crates-io]\n{lines}"),
            )?)
        })
        .with_context(|| format!("failed to write to {}", folder.display()))?;

    let mut resolve = original.cargo(["metadata", "--format-version=1", "--quiet"]);
    resolve.current_dir(&folder).stdout(Stdio::null());
    if !shell::status(&mut resolve)?.success() {
        bail!(unresolved(patches));
    }
    let lock = read(&folder.join("Cargo.lock"))?;
    match unused(&lock).next() {
        None => Ok(folder),
        Some((name, version)) => Err(anyhow!(
            "unable to use {name} {version}: nothing here asks for that version; let `{name}` in the root Cargo.toml \
             ask for it, or patch with a version that suits what it asks for now"
        )),
    }
}

fn unresolved(patches: &[Patch]) -> String {
    let git = patches
        .iter()
        .any(|patch| matches!(patch.source, Source::Git { .. }));
    let advice = match git {
        true => {
            "what cargo printed above says why. If the repository cannot be reached from here, clone it where it \
             can and pass the folder instead: CRATE=PATH"
        }
        false => "what cargo printed above says why",
    };
    format!("unable to resolve the dependencies with the patch; {advice}")
}

fn create(original: &Path, folder: &Path) -> Result<()> {
    empty(folder)?; // removes links, not what they lead to
    for entry in fs::read_dir(original)? {
        let name = entry?.file_name();
        match name.to_str() {
            Some("Cargo.toml" | "target" | "results" | ".git") => (),
            Some("Cargo.lock") => _ = fs::copy(original.join(&name), folder.join(&name))?,
            _ => symlink(original.join(&name), folder.join(&name))?,
        }
    }
    Ok(())
}

/// Names and versions of patches that a lock file marks as unused.
fn unused(lock: &str) -> impl Iterator<Item = (&str, &str)> {
    lock.split("[[patch.unused]]").skip(1).map(|entry| {
        let field = |key: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(key));
            line.map_or("", |value| value.trim_matches([' ', '=', '"']))
        };
        (field("name"), field("version"))
    })
}

#[cfg(test)]
mod tests {
    use super::{Patch, unused};

    fn line(text: &str) -> String {
        text.parse::<Patch>().unwrap().line().unwrap()
    }

    #[test]
    fn folders_and_repositories_become_lines_of_a_manifest() {
        let here = env!("CARGO_MANIFEST_DIR");
        assert_eq!(line(&format!("a={here}")), format!("a = {{ path = {here:?} }}\n"));
        let git = "https://example.org/a.git";
        assert_eq!(line(&format!("a={git}")), format!("a = {{ git = {git:?} }}\n"));
        assert_eq!(
            line(&format!("a={git}?branch=b/c")),
            format!("a = {{ git = {git:?}, branch = \"b/c\" }}\n")
        );
    }

    #[test]
    fn text_that_is_not_a_patch_is_refused() {
        for text in [
            "a",
            "=b",
            "a=",
            "a b=c",
            "a=https://example.org/a?b",
            "a=https://example.org/a?rev=",
        ] {
            assert!(text.parse::<Patch>().is_err(), "{text}");
        }
        let nowhere: Patch = "a=/nowhere".parse().unwrap();
        let error = nowhere.line().unwrap_err().to_string();
        assert!(error.contains("/nowhere has no Cargo.toml"), "{error}");
    }

    #[test]
    fn a_label_never_repeats_the_crate() {
        let label = |text: &str| text.parse::<Patch>().unwrap().label();
        assert_eq!(label("litep2p=../litep2p"), "litep2p-patched");
        assert_eq!(label("litep2p=../fast"), "litep2p-fast");
        assert_eq!(label("litep2p=https://example.org/x?rev=0a1b"), "litep2p-0a1b");
    }

    #[test]
    fn a_patch_that_no_crate_depends_on_is_found() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\n\n[[patch.unused]]\nname = \"b\"\nversion = \"0.17.0\"\n";
        assert_eq!(unused(lock).collect::<Vec<_>>(), [("b", "0.17.0")]);
        assert_eq!(unused("version = 4\n").count(), 0);
    }
}
