//! What docs/architecture says of the crates and their files must be so.

#![expect(clippy::unwrap_used, reason = "helpers of a test fail the test")]

mod clocks;
mod imports;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

const PICTURE: &str = "An arrow means \"depends on\"";
/// Starts the line of dependencies that only tests have.
const TESTS: &str = "only in tests:";

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The crates of the workspace.
struct Crates {
    normal: Arrows,
    /// Only those of tests.
    dev: Arrows,
    /// All normal dependencies, those outside the workspace included.
    all: Arrows,
}

fn metadata() -> Value {
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The folder of the workspace.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// The root files of all targets: libraries, programs, tests and others.
fn roots() -> Vec<PathBuf> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let targets = packages.flat_map(|package| package["targets"].as_array().unwrap());
    targets.map(|target| text(&target["src_path"]).into()).collect()
}

impl Crates {
    fn read() -> Self {
        let metadata = metadata();
        let packages = metadata["packages"].as_array().unwrap();
        let names: BTreeSet<_> = packages.iter().map(|package| text(&package["name"])).collect();
        let arrows = |kind: &Value, of_workspace: bool| -> Arrows {
            let dependencies = |package: &Value| {
                package["dependencies"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|dependency| dependency["kind"] == *kind)
                    .map(|dependency| text(&dependency["name"]))
                    .filter(|name| !of_workspace || names.contains(name))
                    .map(|name| short(&name))
                    .collect()
            };
            packages
                .iter()
                .map(|package| (short(&text(&package["name"])), dependencies(package)))
                .collect()
        };
        let normal = arrows(&Value::Null, true);
        let mut dev = arrows(&Value::from("dev"), true);
        for (name, tests) in &mut dev {
            tests.retain(|dependency| !normal[name].contains(dependency) && dependency != name);
        }
        Self {
            all: arrows(&Value::Null, false),
            normal,
            dev,
        }
    }

    /// Whether a crate has a dependency, perhaps through others of the workspace.
    fn reaches(&self, name: &str, dependency: &str) -> bool {
        self.all[name].contains(dependency)
            || self.normal[name]
                .iter()
                .any(|below| self.reaches(below, dependency))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn short(name: &str) -> String {
    name.strip_prefix("perfrun-").unwrap_or(name).to_owned()
}

/// The two lists of arrows in the document: those of programs and libraries, and those of tests.
fn documented(document: &str) -> (Arrows, Arrows) {
    let (_, rest) = document.split_once(PICTURE).unwrap();
    let block = rest.split("```").nth(1).unwrap();
    let (mut normal, mut dev) = (Arrows::new(), Arrows::new());
    for line in block.lines().filter(|line| line.contains('►')) {
        let (from, to) = line.split_once('►').unwrap();
        let (arrows, from) = match from.trim().strip_prefix(TESTS) {
            Some(from) => (&mut dev, from),
            None => (&mut normal, from),
        };
        let to: BTreeSet<_> = list(to).filter(|name| name != "none").collect();
        for name in list(from) {
            let before = arrows.insert(name.clone(), to.clone());
            assert_eq!(before, None, "{name} has two lines");
        }
    }
    (normal, dev)
}

fn list(names: &str) -> impl Iterator<Item = String> {
    names
        .trim_end_matches([' ', '─'])
        .split(',')
        .map(|name| name.trim().to_owned())
}

#[test]
fn the_documented_graph_of_crates_matches_the_manifests() {
    let file = workspace().join("docs/architecture/README.md");
    let (normal, dev) = documented(&fs::read_to_string(file).unwrap());
    let crates = Crates::read();
    assert_eq!(
        normal, crates.normal,
        "left: docs/architecture/README.md, right: Cargo.toml"
    );
    let with_tests = crates.dev.into_iter().filter(|(_, tests)| !tests.is_empty());
    assert_eq!(
        dev,
        with_tests.collect(),
        "left: docs/architecture/README.md, right: Cargo.toml"
    );
}

#[test]
fn crates_that_measure_do_not_depend_on_kubernetes() {
    let crates = Crates::read();
    for name in ["contract", "conductor", "report", "node", "local"] {
        for kubernetes in ["kube", "k8s-openapi"] {
            assert!(
                !crates.reaches(name, kubernetes),
                "{name} depends on {kubernetes}"
            );
        }
    }
    // The check itself must see what is there.
    assert!(crates.reaches("operator", "kube"));
}

#[test]
fn a_node_does_not_know_who_drives_it() {
    assert!(!Crates::read().reaches("node", "conductor"));
}

#[test]
fn xtask_builds_alone() {
    let crates = Crates::read();
    assert_eq!(crates.normal["xtask"], BTreeSet::new());
    assert_eq!(crates.dev["xtask"], BTreeSet::new());
}
