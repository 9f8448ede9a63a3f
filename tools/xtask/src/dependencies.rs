//! Compiled dependencies, kept for each user, so that a fresh clone does not compile them again.
//!
//! Cargo names each unit of a dependency by a hash of what it is compiled from, in which the path of the
//! clone has no part. So units of one clone serve in another. A snapshot has the units of one whole build and
//! never those of two: rustc refuses a crate if one of its dependencies has been compiled again.
//!
//! A snapshot has a file `files`, which is written last and lists all others with their sizes. A snapshot
//! that differs from its list is not used.

mod key;
mod units;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Instant, SystemTime},
};

use anyhow::{Context, Error, Result, ensure};
use serde_json::Value;

use self::{
    key::Key,
    units::{FINGERPRINTS, FOLDERS, Files, leaves, name, units},
};
use crate::{
    files::{self, entries},
    pinned,
    shell::{self, Profile, Workspace},
    step,
};

/// Snapshots that are kept: of the main branch, of two others, and of what was there before an update.
const SNAPSHOTS: usize = 4;

/// Limit of the size of all snapshots. Files that several snapshots share count once.
const BYTES: u64 = 12 << 30;

/// The list of a snapshot's files.
const FILES: &str = "files";

/// The file of a snapshot that has its key.
const KEY: &str = "key";

/// A snapshot that is being written.
const PARTIAL: &str = "partial";

pub(crate) struct Cache {
    folder: PathBuf,
    key: Key,
    /// The folder in which cargo compiles.
    target: PathBuf,
    /// Names of the workspace's own packages.
    packages: Vec<String>,
}

impl Cache {
    /// The user's cache. `None`, with a message, if it cannot be used.
    pub(crate) fn open(workspace: &Workspace) -> Option<Self> {
        Self::of(workspace).map_err(|error| print_error(&error)).ok()
    }

    fn of(workspace: &Workspace) -> Result<Self> {
        let folder = pinned::cache_of_user().context("neither XDG_CACHE_HOME nor HOME is set")?;
        let folder = folder.join("dependencies");
        files::create_folder(&folder)?;
        let metadata = shell::output(&mut workspace.cargo([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version=1",
        ]))?;
        Ok(Self {
            folder,
            key: Key::of(workspace)?,
            target: workspace.artifacts().join(Profile::Dev.folder()),
            packages: packages(&metadata)?,
        })
    }

    /// Puts the units of a snapshot into the target folder, if cargo has built nothing there but this
    /// program.
    pub(crate) fn restore(&self) {
        let start = Instant::now();
        match self.try_restore() {
            Ok(Some((files, snapshot))) => println!(
                "==> dependencies: {} come from {}, in {}",
                files.summary(),
                snapshot.display(),
                step::short_text(start.elapsed())
            ),
            Ok(None) => {}
            Err(error) => print_error(&error),
        }
    }

    /// Keeps the units of a build, unless they are kept already. `messages` are those that cargo has printed
    /// as JSON.
    pub(crate) fn keep(&self, messages: Result<String>) {
        let start = Instant::now();
        match messages.and_then(|messages| self.try_keep(&messages)) {
            Ok(Some(files)) => println!(
                "==> dependencies: {} are kept in {}, in {}",
                files.summary(),
                self.snapshot().display(),
                step::short_text(start.elapsed())
            ),
            Ok(None) => {}
            Err(error) => print_error(&error),
        }
    }

    fn try_restore(&self) -> Result<Option<(Files, PathBuf)>> {
        let lock = self.open_lock()?;
        lock.lock_shared().context("failed to lock the cache")?;
        let _target = self.lock_target()?;
        if !self.is_fresh()? {
            return Ok(None);
        }
        let Some((snapshot, files)) = self.nearest()? else {
            return Ok(None);
        };
        self.remove_units()?;
        files.place(&snapshot, &self.target)?;
        touch(&snapshot)?;
        Ok(Some((files, snapshot)))
    }

    fn try_keep(&self, messages: &str) -> Result<Option<Files>> {
        let lock = self.open_lock()?;
        lock.lock().context("failed to lock the cache")?;
        let _target = self.lock_target()?;
        let files = Files::of_units(&self.target, &units(messages))?;
        let snapshot = self.snapshot();
        let kept = read(&snapshot).filter(|(key, _)| *key == self.key.text());
        if kept.is_some_and(|(_, kept)| files.0.keys().all(|file| kept.0.contains_key(file))) {
            touch(&snapshot)?;
            return Ok(None);
        }
        let partial = self.folder.join(PARTIAL);
        files::empty(&partial)?;
        files.place(&self.target, &partial)?;
        let write = |name, text| {
            fs::write(partial.join(name), text).with_context(|| format!("failed to write {name}"))
        };
        write(KEY, self.key.text())?;
        write(FILES, files.text())?;
        remove(&snapshot)?;
        fs::rename(&partial, &snapshot).with_context(|| format!("failed to rename {}", partial.display()))?;
        self.bound(SNAPSHOTS, BYTES)?;
        Ok(Some(files))
    }

    /// The snapshot of this key.
    fn snapshot(&self) -> PathBuf {
        self.folder.join(self.key.name())
    }

    /// The snapshot of this key, or the latest of the same toolchain: most of its units have stayed the same,
    /// and cargo ignores the others.
    fn nearest(&self) -> Result<Option<(PathBuf, Files)>> {
        let mut all = self.snapshots()?;
        let snapshot = self.snapshot();
        all.sort_by_key(|found| *found != snapshot);
        let usable = all.into_iter().find_map(|snapshot| {
            let (key, files) = read(&snapshot)?;
            key.starts_with(&self.key.toolchain).then_some((snapshot, files))
        });
        Ok(usable)
    }

    /// All snapshots, the last used first.
    fn snapshots(&self) -> Result<Vec<PathBuf>> {
        let mut snapshots = vec![];
        for path in entries(&self.folder)? {
            let used = fs::metadata(path.join(FILES)).and_then(|list| list.modified());
            if path.is_dir() {
                snapshots.push((used.unwrap_or(SystemTime::UNIX_EPOCH), path));
            }
        }
        snapshots.sort();
        Ok(snapshots.into_iter().rev().map(|(_, path)| path).collect())
    }

    /// Removes the snapshots whose last use is the longest ago until the others are within the limits.
    fn bound(&self, snapshots: usize, bytes: u64) -> Result<()> {
        let (mut seen, mut total) = (BTreeSet::new(), 0);
        for (index, snapshot) in self.snapshots()?.into_iter().enumerate() {
            for file in leaves(&snapshot)? {
                let file = fs::symlink_metadata(file).context("failed to measure the cache")?;
                if seen.insert((file.dev(), file.ino())) {
                    total += file.len();
                }
            }
            if index >= snapshots || total > bytes {
                remove(&snapshot)?;
            }
        }
        Ok(())
    }

    /// Whether cargo has built nothing of the workspace but this program.
    fn is_fresh(&self) -> Result<bool> {
        let fingerprints = self.target.join(FINGERPRINTS);
        if !fingerprints.exists() {
            return Ok(true);
        }
        let is_other = |path: PathBuf| {
            let unit = name(&path);
            let package = unit.rsplit_once('-').map_or("", |(package, _hash)| package);
            package != env!("CARGO_PKG_NAME") && self.packages.iter().any(|own| own == package)
        };
        Ok(!entries(&fingerprints)?.into_iter().any(is_other))
    }

    /// Removes the units that this program was built from. Those of the snapshot replace them.
    fn remove_units(&self) -> Result<()> {
        for folder in FOLDERS.map(|folder| self.target.join(folder)) {
            files::create_folder(&folder)?;
            for path in entries(&folder)? {
                if name(&path).starts_with(concat!(env!("CARGO_PKG_NAME"), "-")) {
                    continue;
                }
                remove(&path)?;
            }
        }
        Ok(())
    }

    fn open_lock(&self) -> Result<File> {
        open_lock(&self.folder.join("lock"))
    }

    /// Keeps cargo from building until the returned file is dropped.
    fn lock_target(&self) -> Result<File> {
        files::create_folder(&self.target)?;
        let lock = open_lock(&self.target.join(".cargo-lock"))?;
        lock.lock().context("failed to lock the target folder")?;
        Ok(lock)
    }
}

/// Names of the workspace's packages.
fn packages(metadata: &str) -> Result<Vec<String>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata printed no JSON")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let names: Vec<_> = packages
        .filter_map(|package| package["name"].as_str().map(str::to_owned))
        .collect();
    ensure!(!names.is_empty(), "cargo metadata names no package");
    Ok(names)
}

/// The key of a snapshot and its files. `None` if it is not as it was written.
fn read(snapshot: &Path) -> Option<(String, Files)> {
    let key = fs::read_to_string(snapshot.join(KEY)).ok()?;
    let files = Files::parse(&fs::read_to_string(snapshot.join(FILES)).ok()?)?;
    files.are_in(snapshot).then_some((key, files))
}

/// Removes a file or folder, if it exists.
fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.with_context(|| format!("failed to remove {}", path.display()))
}

/// Notes that a snapshot was used now.
fn touch(snapshot: &Path) -> Result<()> {
    let list = File::open(snapshot.join(FILES)).context("failed to open the list of files")?;
    list.set_modified(SystemTime::now())
        .context("failed to note a use")
}

fn open_lock(path: &Path) -> Result<File> {
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    lock.with_context(|| format!("failed to open {}", path.display()))
}

/// The cache only saves time, so that its errors fail nothing.
fn print_error(error: &Error) {
    println!("==> without the cache of dependencies: {error:#}");
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, env, process::Command, thread, time::Duration};

    use tempfile::TempDir;

    use super::*;

    const LIBC: &str = "libc-000000000000000a";
    const SERDE: &str = "serde-000000000000000b";
    const API: &str = "perfrun-api-000000000000000c";
    const XTASK: &str = "xtask-000000000000000d";

    /// A cache and the target folders of clones.
    struct Machine(TempDir);

    impl Machine {
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            fs::create_dir(machine.0.path().join("cache")).unwrap();
            machine
        }

        fn clone(&self, name: &str, lock: &str) -> Cache {
            Cache {
                folder: self.0.path().join("cache"),
                key: Key {
                    toolchain: "1.95\n".to_owned(),
                    lock: lock.to_owned(),
                },
                target: self.0.path().join(name).join("target/debug"),
                packages: ["perfrun-api", "xtask"].map(String::from).to_vec(),
            }
        }
    }

    impl Cache {
        /// Compiles units as cargo does.
        fn compile(&self, units: &[&str], content: &str) {
            for unit in units {
                let files = [
                    format!("deps/lib{unit}.rlib"),
                    format!("deps/{unit}.d"),
                    format!(".fingerprint/{unit}/lib"),
                    format!("build/{unit}/output"),
                    format!("build/{unit}/out/lib.a"),
                ];
                for file in files.map(|file| self.target.join(file)) {
                    fs::create_dir_all(file.parent().unwrap()).unwrap();
                    remove(&file).unwrap();
                    fs::write(file, content).unwrap();
                }
            }
        }

        fn read(&self, file: &str) -> Option<String> {
            fs::read_to_string(self.target.join(file)).ok()
        }

        fn library(&self, unit: &str) -> Option<String> {
            self.read(&format!("deps/lib{unit}.rlib"))
        }

        fn restored(&self) -> bool {
            self.try_restore().unwrap().is_some()
        }

        fn kept(&self, units: &[&str]) -> bool {
            self.try_keep(&messages(units)).unwrap().is_some()
        }
    }

    fn messages(units: &[&str]) -> String {
        let message = |unit: &&str| {
            let source = if unit.starts_with("perfrun") {
                "path+file:"
            } else {
                "registry+https:"
            };
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"{source}\",\"filenames\":[\"/t/deps/lib{unit}.rlib\"]}}\n"
            )
        };
        units.iter().map(message).collect()
    }

    fn modified(path: &Path) -> SystemTime {
        fs::metadata(path).unwrap().modified().unwrap()
    }

    #[test]
    fn a_fresh_clone_gets_the_dependencies_of_another_with_their_times() {
        let machine = Machine::new();
        let (first, second) = (machine.clone("first", "lock"), machine.clone("second", "lock"));
        assert!(!first.restored());
        first.compile(&[LIBC, SERDE, API], "first");
        assert!(first.kept(&[LIBC, SERDE, API]));
        thread::sleep(Duration::from_millis(20));
        // What `cargo xtask` itself needs is compiled before it can restore.
        second.compile(&[LIBC, XTASK, "other-000000000000000e"], "second");
        assert!(second.restored());
        for (unit, expected) in [
            (LIBC, Some("first")),
            (SERDE, Some("first")),
            (API, None),
            (XTASK, Some("second")),
            ("other-000000000000000e", None),
        ] {
            let fingerprint = second.read(&format!(".fingerprint/{unit}/lib"));
            assert_eq!(fingerprint.as_deref(), expected, "{unit}");
        }
        assert_eq!(second.library(SERDE).as_deref(), Some("first"));
        let [here, there] = [&first, &second].map(|clone| clone.target.as_path());
        for file in [
            format!("deps/lib{LIBC}.rlib"),
            format!(".fingerprint/{LIBC}/lib"),
            format!("build/{SERDE}/output"),
        ] {
            assert_eq!(
                modified(&here.join(&file)),
                modified(&there.join(&file)),
                "{file}"
            );
        }
    }

    #[test]
    fn a_clone_that_has_built_the_workspace_is_left_alone() {
        let machine = Machine::new();
        let (first, second) = (machine.clone("first", "lock"), machine.clone("second", "lock"));
        first.compile(&[LIBC, API], "first");
        assert!(first.kept(&[LIBC, API]));
        second.compile(&[LIBC, API], "second");
        assert!(!second.restored());
        assert_eq!(second.library(LIBC).as_deref(), Some("second"));
    }

    #[test]
    fn a_snapshot_is_written_again_only_when_it_lacks_a_unit() {
        let machine = Machine::new();
        let (first, second) = (machine.clone("first", "lock"), machine.clone("second", "lock"));
        first.compile(&[LIBC], "first");
        assert!(first.kept(&[LIBC]));
        second.compile(&[LIBC], "second");
        assert!(!second.kept(&[LIBC]));
        second.compile(&[SERDE], "second");
        assert!(second.kept(&[LIBC, SERDE]));
        // All of it is of one build.
        let third = machine.clone("third", "lock");
        assert!(third.restored());
        assert_eq!(third.library(LIBC).as_deref(), Some("second"));
    }

    #[test]
    fn writing_into_small_files_of_a_clone_does_not_change_the_snapshot() {
        let machine = Machine::new();
        let first = machine.clone("first", "lock");
        first.compile(&[LIBC], "first");
        assert!(first.kept(&[LIBC]));
        for clone in ["second", "third"] {
            let clone = machine.clone(clone, "lock");
            assert!(clone.restored());
            for file in [".fingerprint/X/lib", "build/X/output", "build/X/out/lib.a"] {
                let file = file.replace('X', LIBC);
                assert_eq!(clone.read(&file).as_deref(), Some("first"), "{file}");
                fs::write(clone.target.join(file), "in place").unwrap();
            }
        }
    }

    /// What is damaged, and how.
    type Damage = (&'static str, fn(&Path));

    #[test]
    fn a_damaged_snapshot_is_not_used_and_replaced() {
        let machine = Machine::new();
        let first = machine.clone("first", "lock");
        let damage: [Damage; 4] = [
            ("a library is cut off", |snapshot| {
                let library = snapshot.join(format!("deps/lib{LIBC}.rlib"));
                remove(&library).unwrap();
                fs::write(library, "fir").unwrap();
            }),
            ("a fingerprint is gone", |snapshot| {
                remove(&snapshot.join(FINGERPRINTS).join(LIBC)).unwrap();
            }),
            ("it has no list", |snapshot| {
                remove(&snapshot.join(FILES)).unwrap();
            }),
            ("it is of another key", |snapshot| {
                fs::write(snapshot.join(KEY), "1.94\nlock").unwrap();
            }),
        ];
        for (what, damage) in damage {
            first.compile(&[LIBC], "first");
            assert!(first.kept(&[LIBC]), "{what}");
            damage(&first.snapshot());
            let second = machine.clone(what, "lock");
            assert!(!second.restored(), "{what}");
        }
    }

    #[test]
    fn an_interrupted_write_leaves_nothing_that_is_used() {
        let machine = Machine::new();
        let clone = machine.clone("clone", "lock");
        clone.compile(&[LIBC], "clone");
        let partial = clone.folder.join(PARTIAL);
        fs::create_dir_all(partial.join("deps/left")).unwrap();
        assert!(!machine.clone("fresh", "lock").restored());
        assert!(clone.kept(&[LIBC]));
        assert!(!partial.exists());
        assert!(!clone.snapshot().join("deps/left").exists());
    }

    #[test]
    fn a_snapshot_of_another_lock_is_used_if_this_key_has_none() {
        let machine = Machine::new();
        for lock in ["older", "newer"] {
            let clone = machine.clone(lock, lock);
            clone.compile(&[LIBC], lock);
            assert!(clone.kept(&[LIBC]));
        }
        for (lock, expected) in [("older", "older"), ("newer", "newer"), ("other", "newer")] {
            // It was used last, and the snapshot of the key comes first.
            let clone = machine.clone(&format!("fresh {lock}"), lock);
            touch(&machine.clone("", "newer").snapshot()).unwrap();
            assert!(clone.restored());
            assert_eq!(clone.library(LIBC).as_deref(), Some(expected), "{lock}");
        }
        let mut clone = machine.clone("of another toolchain", "older");
        clone.key.toolchain = "1.96\n".to_owned();
        assert!(!clone.restored());
    }

    #[test]
    fn the_snapshots_used_last_stay_within_the_limits() {
        let machine = Machine::new();
        let clone = machine.clone("clone", "1");
        clone.compile(&[LIBC], "0123456789");
        let locks = ["1", "2", "3", "4"];
        let clones = locks.map(|lock| machine.clone("clone", lock));
        for clone in &clones {
            assert!(clone.kept(&[LIBC]));
        }
        touch(&clones[0].snapshot()).unwrap();
        let exist = || clones.each_ref().map(|clone| clone.snapshot().exists());
        clone.bound(3, BYTES).unwrap();
        assert_eq!(exist(), [true, false, true, true]);
        // The library is shared, and each has copies of the rest.
        let size = |lock: &Cache| {
            let files = leaves(&lock.snapshot()).unwrap().into_iter();
            files.map(|file| fs::metadata(file).unwrap().len()).sum::<u64>()
        };
        let both = size(&clones[0]) + size(&clones[3]) - 10;
        clone.bound(3, both).unwrap();
        assert_eq!(exist(), [true, false, false, true]);
        clone.bound(3, 1).unwrap();
        assert_eq!(exist(), [false; 4]);
    }

    #[test]
    fn clones_keep_and_restore_at_the_same_time() {
        let machine = Machine::new();
        let units: Vec<String> = (0..20).map(|number| format!("unit-{number:016x}")).collect();
        let units: Vec<&str> = units.iter().map(String::as_str).collect();
        thread::scope(|scope| {
            for number in 0..4 {
                let (machine, units) = (&machine, &units);
                scope.spawn(move || {
                    let name = format!("clone {number}");
                    for round in 1..=4 {
                        let clone = machine.clone(&format!("{name} {round}"), "lock");
                        if clone.restored() {
                            let libraries = units.iter().filter_map(|unit| clone.library(unit));
                            let of: BTreeSet<_> = libraries.collect();
                            assert_eq!(of.len(), 1, "{of:?}");
                        }
                        clone.compile(&units[..5 * round], &format!("{name} {round}"));
                        clone.try_keep(&messages(&units[..5 * round])).unwrap();
                    }
                });
            }
        });
        assert!(machine.clone("last", "lock").restored());
    }

    /// Cargo itself, on a small workspace. Its `xtask` is what a fresh clone compiles first.
    #[test]
    fn cargo_compiles_no_dependency_again_in_a_second_clone() {
        let machine = Machine::new();
        let [first, second] = ["first", "a second"].map(|name| {
            let clone = machine.clone(name, "lock");
            let root = machine.0.path().join(name);
            let write = |path: &str, text: &str| {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write(
                "Cargo.toml",
                "[workspace]\nmembers = [\"perfrun-api\", \"xtask\"]\nresolver = \"3\"\n",
            );
            write("Cargo.lock", include_str!("../../../Cargo.lock"));
            for (package, dependencies) in [
                (
                    "perfrun-api",
                    "anyhow = \"1\"\nlibc = \"0.2\"\nrustversion = \"1\"\n",
                ),
                (
                    "xtask",
                    "anyhow = { version = \"1\", default-features = false }\nlibc = \"0.2\"\n",
                ),
            ] {
                let manifest = format!(
                    "[package]\nname = \"{package}\"\nedition = \"2024\"\n[dependencies]\n{dependencies}"
                );
                write(&format!("{package}/Cargo.toml"), &manifest);
                write(&format!("{package}/src/main.rs"), "fn main() {}\n");
            }
            clone
        });
        cargo(&first, &["--package", "xtask"]);
        let messages = cargo(&first, &["--workspace"]) + &cargo(&first, &["--package", "xtask"]);
        let kept = first.try_keep(&messages).unwrap().unwrap();
        cargo(&second, &["--package", "xtask"]);
        assert!(second.restored());
        let again = |messages: &str| {
            let messages = messages
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap());
            let compiled = messages.filter(|message| message["fresh"] == false);
            let names: BTreeSet<_> = compiled
                .map(|message| message["target"]["name"].as_str().unwrap().to_owned())
                .collect();
            names.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(again(&cargo(&second, &["--workspace"])), ["perfrun-api", "xtask"]);
        assert_eq!(again(&cargo(&second, &["--package", "xtask"])), [] as [&str; 0]);

        // Compiling all of it again does not write into the snapshot through a link.
        let before = contents(&first.snapshot(), &kept);
        remove(&second.target.join(FINGERPRINTS)).unwrap();
        assert!(again(&cargo(&second, &["--workspace"])).contains(&"libc".to_owned()));
        let after = contents(&first.snapshot(), &kept);
        let changed: Vec<_> = after
            .iter()
            .filter(|(file, after)| before[*file] != **after)
            .map(|(file, _)| file)
            .collect();
        assert!(changed.is_empty(), "{changed:?}");
    }

    /// Builds, and returns the messages.
    fn cargo(clone: &Cache, selection: &[&str]) -> String {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args([
                "build",
                "--quiet",
                "--offline",
                "--message-format=json-render-diagnostics",
            ])
            .args(selection)
            .current_dir(clone.target.ancestors().nth(2).unwrap());
        for variable in ["CARGO_TARGET_DIR", "RUSTC_BOOTSTRAP", "RUSTC_WORKSPACE_WRAPPER"] {
            cargo.env_remove(variable);
        }
        let (messages, status) = shell::printed(&mut cargo).unwrap();
        assert!(status.success());
        messages
    }

    /// What is in each file, and its time.
    fn contents(snapshot: &Path, files: &Files) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
        let paths = files.0.keys().map(|file| snapshot.join(file));
        let content = |path: PathBuf| {
            let content = (fs::read(&path).unwrap(), modified(&path));
            (path, content)
        };
        paths.filter(|path| path.is_file()).map(content).collect()
    }
}
