//! Units of dependencies: what cargo says about them, and their files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::files::entries;

/// The folder of units' fingerprints, below the folder of the profile. Every unit has one.
pub(super) const FINGERPRINTS: &str = ".fingerprint";

/// All folders in which cargo keeps units.
pub(super) const FOLDERS: [&str; 3] = [FINGERPRINTS, "build", "deps"];

/// Hashes of the units of dependencies, compiled or not, that a build has used.
pub(super) fn units(messages: &str) -> BTreeSet<String> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let units = messages.flat_map(|message: Value| {
        let of_path = |path: &Value| {
            let path = Path::new(path.as_str()?);
            let folder = path.parent()?;
            // deps/libNAME-HASH.rlib, build/NAME-HASH/build-script-build or build/NAME-HASH/out
            let unit = if name(folder) == "deps" { path } else { folder };
            hash(&name(unit)).map(str::to_owned)
        };
        let is_own = message["package_id"]
            .as_str()
            .is_none_or(|id| id.starts_with("path+"));
        let paths = match message["reason"].as_str() {
            _ if is_own => vec![],
            Some("compiler-artifact") => message["filenames"].as_array().cloned().unwrap_or_default(),
            Some("build-script-executed") => vec![message["out_dir"].clone()],
            _ => vec![],
        };
        paths.iter().filter_map(of_path).collect::<Vec<_>>()
    });
    units.collect()
}

/// The hash in the name of a unit's file or folder.
fn hash(name: &str) -> Option<&str> {
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    let (_, hash) = stem.rsplit_once('-')?;
    (hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(hash)
}

/// Files, links and empty folders, relative to the target folder or to a snapshot, with their sizes.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Files(pub(super) BTreeMap<PathBuf, u64>);

impl Files {
    /// The files of units in a target folder.
    pub(super) fn of_units(target: &Path, units: &BTreeSet<String>) -> Result<Self> {
        let mut files = BTreeMap::new();
        for folder in FOLDERS {
            for path in entries(&target.join(folder))? {
                let name = name(&path);
                let is_wanted = hash(&name).is_some_and(|hash| units.contains(hash));
                // Cargo reads lists of sources after it has compiled, and never again.
                if !is_wanted || name.ends_with(".d") {
                    continue;
                }
                for leaf in leaves(&path)? {
                    let within = leaf.strip_prefix(target).expect("it was found there");
                    files.insert(within.to_owned(), size(&leaf)?);
                }
            }
        }
        ensure!(
            !files.is_empty(),
            "cargo named no unit that is in {}",
            target.display()
        );
        Ok(Self(files))
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let parsed = text.lines().map(|line| {
            let (size, path) = line.split_once(' ')?;
            Some((path.into(), size.parse().ok()?))
        });
        parsed.collect::<Option<_>>().map(Self)
    }

    pub(super) fn text(&self) -> String {
        let lines = self
            .0
            .iter()
            .map(|(path, size)| format!("{size} {}\n", path.display()));
        lines.collect()
    }

    pub(super) fn are_in(&self, folder: &Path) -> bool {
        let mut files = self.0.iter();
        files.all(|(path, expected)| size(&folder.join(path)).is_ok_and(|size| size == *expected))
    }

    /// Puts them from one folder into another, where they do not exist.
    pub(super) fn place(&self, from: &Path, to: &Path) -> Result<()> {
        for path in self.0.keys() {
            place(path, from, to).with_context(|| format!("failed to place {}", to.join(path).display()))?;
        }
        Ok(())
    }

    pub(super) fn summary(&self) -> String {
        let units = self
            .0
            .keys()
            .filter_map(|path| path.strip_prefix(FINGERPRINTS).ok()?.parent());
        let units: BTreeSet<_> = units.collect();
        let bytes: u64 = self.0.values().sum();
        format!(
            "{} units, {:.1} GiB,",
            units.len(),
            bytes as f64 / f64::from(1 << 30)
        )
    }
}

/// Links a file where its content never changes in place, or copies it, with its time: cargo compares times.
fn place(path: &Path, from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (from.join(path), to.join(path));
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    let metadata = fs::symlink_metadata(&from)?;
    if metadata.is_dir() {
        return fs::create_dir_all(to);
    }
    if metadata.is_symlink() {
        return symlink(fs::read_link(&from)?, to);
    }
    // In another file system there are no links to this one.
    if is_replaced(path) && fs::hard_link(&from, &to).is_ok() {
        return Ok(());
    }
    fs::copy(from, &to)?;
    File::open(to)?.set_modified(metadata.modified()?)
}

/// Whether compilers replace this file and never write into it: libraries, and programs of build scripts.
/// Compilers write into lists of sources, cargo into fingerprints, and build scripts into their output.
fn is_replaced(path: &Path) -> bool {
    if path.extension().is_some_and(|end| end == "d") {
        return false;
    }
    let mut folders = path.components().map(|part| part.as_os_str().to_string_lossy());
    match folders.next().as_deref() {
        Some("deps") => true,
        Some("build") => folders
            .nth(1)
            .is_some_and(|name| name.starts_with("build-script-") || name.starts_with("build_script_")),
        _ => false,
    }
}

/// Files, links and empty folders below a path, or the path itself.
pub(super) fn leaves(path: &Path) -> Result<Vec<PathBuf>> {
    let (mut leaves, mut open) = (vec![], vec![path.to_owned()]);
    while let Some(current) = open.pop() {
        let kind = fs::symlink_metadata(&current)
            .with_context(|| format!("failed to read {}", current.display()))?;
        let inner = if kind.is_dir() { entries(&current)? } else { vec![] };
        if inner.is_empty() {
            leaves.push(current);
        }
        open.extend(inner);
    }
    Ok(leaves)
}

/// The size that a list of files has: folders and links have none.
fn size(path: &Path) -> Result<u64> {
    let metadata =
        fs::symlink_metadata(path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(if metadata.is_file() { metadata.len() } else { 0 })
}

pub(super) fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::Path};

    use super::{Files, hash, is_replaced, units};

    #[test]
    fn a_hash_ends_the_name_of_a_unit() {
        for (name, expected) in [
            ("libserde_core-916099a944793c1c.rlib", Some("916099a944793c1c")),
            ("serde_core-916099a944793c1c", Some("916099a944793c1c")),
            ("x-y-916099a944793c1c.d", Some("916099a944793c1c")),
            ("serde_core", None),
            ("serde-core", None),
            ("serde-916099a944793c1g", None),
            ("rmetaLYhLMW", None),
        ] {
            assert_eq!(hash(name), expected, "{name}");
        }
    }

    #[test]
    fn units_of_dependencies_are_found_in_messages_of_cargo() {
        let messages = r#"
{"reason":"compiler-artifact","package_id":"registry+https://example.org/index#libc@0.2.1","filenames":["/t/debug/build/libc-0000000000000001/build-script-build"]}
{"reason":"build-script-executed","package_id":"registry+https://example.org/index#libc@0.2.1","out_dir":"/t/debug/build/libc-0000000000000002/out"}
{"reason":"compiler-artifact","package_id":"registry+https://example.org/index#libc@0.2.1","filenames":["/t/debug/deps/liblibc-0000000000000003.rlib","/t/debug/deps/liblibc-0000000000000003.rmeta"]}
{"reason":"compiler-artifact","package_id":"git+https://example.org/x#0.1.0","filenames":["/t/debug/deps/libx-0000000000000004.so"]}
{"reason":"compiler-artifact","package_id":"path+file:///clone/crates/api#0.1.0","filenames":["/t/debug/deps/libapi-0000000000000005.rlib"]}
{"reason":"compiler-artifact","package_id":"registry+https://example.org/index#tool@0.2.1","filenames":["/t/debug/tool"]}
{"reason":"build-finished","success":true}
not a message"#;
        let expected = [1, 2, 3, 4].map(|number| format!("{number:016}"));
        assert_eq!(units(messages), expected.into());
    }

    #[test]
    fn only_libraries_and_build_scripts_count_as_replaced() {
        for (path, expected) in [
            ("deps/libc-1.rlib", true),
            ("build/libc-1/build-script-build", true),
            ("build/libc-1/build_script_main-1", true),
            ("build/libc-1/build_script_main-1.d", false),
            ("build/libc-1/output", false),
            ("build/libc-1/out/build-script-build", false),
            (".fingerprint/libc-1/lib-libc", false),
        ] {
            assert_eq!(is_replaced(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_list_of_files_is_read_as_it_was_written() {
        let files = [("build/a-1/out/a file", 7), ("deps/liba-1.rlib", 0)];
        let files = Files(BTreeMap::from(files.map(|(path, size)| (path.into(), size))));
        assert_eq!(files.text(), "7 build/a-1/out/a file\n0 deps/liba-1.rlib\n");
        assert_eq!(Files::parse(&files.text()), Some(files));
        for broken in ["7", "x deps/a", "\n"] {
            assert_eq!(Files::parse(broken), None, "{broken:?}");
        }
    }
}
