//! A clock that is stepped during a run changes nothing: nothing that measures looks at a wall clock.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;

use crate::{
    document,
    perfrun::{Mode, Scratch, entries, node_program, results},
};
use perfrun_test_kit::{Need, skip};

#[test]
fn nothing_that_measures_reads_a_wall_clock() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    for sources in ["node-image/rust/src", "crates/conductor/src", "crates/stack/src"] {
        let files = rust_files(&workspace.join(sources));
        assert!(files.len() > 5, "{sources} has {files:?}");
        // commonware's handshake needs wall clocks that agree. This file compares them so that a failed
        // dial can name them as its reason, and measures nothing.
        let compares = |file: &PathBuf| file.ends_with("commonware/introduction.rs");
        for file in files.into_iter().filter(|file| !compares(file)) {
            let text = fs::read_to_string(&file).unwrap();
            for wall_clock in [
                "SystemTime",
                "Timestamp::now",
                "UNIX_EPOCH",
                "CLOCK_REALTIME",
                "Utc::now",
            ] {
                assert!(
                    !text.contains(wall_clock),
                    "{} uses {wall_clock}: times are of monotonic clocks only, wall clocks step",
                    file.display()
                );
            }
        }
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let (folders, files): (Vec<_>, Vec<_>) = entries(folder).into_iter().partition(|entry| entry.is_dir());
    let below = folders.iter().flat_map(|folder| rust_files(folder));
    files
        .into_iter()
        .chain(below)
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

#[test]
fn a_node_whose_clock_is_an_hour_ahead_starts_with_the_others() {
    let unshare = ["--time", "--monotonic", "3600", "--fork", "--kill-child"];
    let possible = Command::new("unshare").args(unshare).arg("true").output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return skip(
            Need::Namespaces,
            "a monotonic clock of its own",
            "time namespaces cannot be had",
        );
    }
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let script = format!(
            "exec unshare {} {} \"$@\"",
            unshare.join(" "),
            node_program().display()
        );
        let ahead = scratch.script("ahead", &script);
        let document = document::run("hours")
            .with("stacks", json!([{ "name": "ahead", "stack": "raw" }]))
            .with(
                "matrix",
                json!({ "clients": ["ahead"], "servers": ["raw"], "transports": ["tcp"], "rawReference": false }),
            )
            .with("topology", json!({ "clients": 3 }))
            .with("iterations", json!(2));
        let program = format!("ahead={}", ahead.display());
        scratch.run(mode, &document, &["--node", &program]).expect(0);
        for record in results(&scratch.only_run()).trials {
            let (skew, lateness) = (
                record.start_skew_seconds.unwrap(),
                record.start_lateness_seconds.unwrap(),
            );
            assert!(
                (0.0..10.0).contains(&skew),
                "{skew} s between the first client and the last"
            );
            assert!((-0.001..10.0).contains(&lateness), "{lateness} s late");
        }
    }
}
