//! The crates that the demo builds. Each takes time from everybody who tries perfrun, so their number has a
//! limit, and some must not be among them.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::{
    demo,
    shell::{self, Workspace},
    step::Outcome,
};

/// Crates that the demo builds, at most: 514 when this was set, and some for updates.
const LIMIT: usize = 520;

/// Crates that the demo must not build. Those that end with `-` stand for all crates with this prefix.
const UNWANTED: &[&str] = &[
    // WebRTC, and the OpenSSL of litep2p's.
    "libp2p-webrtc",
    "openssl-src",
    "openssl-sys",
    "str0m",
    "webrtc",
    // A stack that the demo does not measure.
    "commonware-",
    // Clusters, the operator and stores of results.
    "kube-client",
    "kube-runtime",
    "object_store",
    // C that takes two minutes of a processor.
    "tikv-jemalloc-sys",
    // Tests, benchmarks and fuzzers.
    "criterion",
    "insta",
    "jsonschema",
    "libfuzzer-sys",
    "proptest",
];

/// The advice for what the demo must not build.
const ADVICE: &str = "cut this path: put the dependency behind a feature that is among the defaults, because \
    the demo builds without them";

/// `cargo xtask test`'s step.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    let tree = |options: &[&str]| {
        let mut tree = workspace.cargo(["tree", "--locked", "--edges", "normal,build"]);
        shell::output(tree.args(demo::SELECTION).args(options))
    };
    let listed = tree(&["--prefix", "none", "--format", "{p}"])?;
    let crates = crates(&listed);
    println!("the demo builds {} crates of at most {LIMIT}", crates.len());
    let mut problems: Vec<_> = too_many(crates.len()).into_iter().collect();
    for (name, version) in crates.into_iter().filter(|(name, _)| is_unwanted(name)) {
        let path = tree(&["--invert", &format!("{name}@{version}")])?;
        problems.push(format!("the demo builds {name}; {ADVICE}:\n{path}"));
    }
    Ok(match problems.is_empty() {
        true => Outcome::Passed,
        false => Outcome::Failed(problems.join("\n")),
    })
}

/// Names and versions in what `cargo tree` prints. It repeats a crate for each of its dependents.
fn crates(listed: &str) -> BTreeSet<(&str, &str)> {
    let lines = listed.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some((name, rest.split(' ').next()?))
    });
    lines.collect()
}

fn is_unwanted(name: &str) -> bool {
    UNWANTED
        .iter()
        .any(|unwanted| name == *unwanted || (unwanted.ends_with('-') && name.starts_with(unwanted)))
}

fn too_many(count: usize) -> Option<String> {
    (count > LIMIT).then(|| {
        format!(
            "the demo builds {count} crates, and the limit is {LIMIT}: find what came with `cargo tree {}`, and \
             do without it; raise the limit in tools/xtask/src/graph.rs only with a reason",
            demo::SELECTION.join(" ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{LIMIT, crates, is_unwanted, too_many};

    #[test]
    fn a_crate_counts_once_for_each_of_its_versions() {
        let listed = "perfrun-cli v0.1.0 (/clone/crates/cli)\nsyn v2.0.1\nquote v1.0.0\nsyn v3.0.0\n\
            async-trait v0.1.9 (proc-macro)\nsyn v3.0.0 (*)\nasync-trait v0.1.9 (proc-macro) (*)\n\n\
            perfrun-node v0.1.0 (/clone/node-image/rust)\n";
        let expected = [
            ("async-trait", "0.1.9"),
            ("perfrun-cli", "0.1.0"),
            ("perfrun-node", "0.1.0"),
            ("quote", "1.0.0"),
            ("syn", "2.0.1"),
            ("syn", "3.0.0"),
        ];
        assert_eq!(crates(listed), expected.into());
    }

    #[test]
    fn unwanted_crates_are_known_by_their_whole_name_or_prefix() {
        for name in ["openssl-sys", "webrtc", "commonware-p2p", "criterion"] {
            assert!(is_unwanted(name), "{name}");
        }
        for name in ["openssl-probe", "webrtc-util", "commonware", "kube"] {
            assert!(!is_unwanted(name), "{name}");
        }
    }

    #[test]
    fn the_limit_is_the_highest_number_that_passes() {
        assert_eq!(too_many(LIMIT), None);
        let problem = too_many(LIMIT + 1).unwrap();
        assert!(
            problem.contains("-p perfrun-cli -p perfrun-node --no-default-features"),
            "{problem}"
        );
    }
}
