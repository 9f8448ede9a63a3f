//! Disks that are full, or become so. A small file system is mounted where only the test sees it, and goes
//! with it.

use std::fs;

use perfrun_contract::run::RunState;
use serde_json::json;

use crate::{
    document::{self, Document},
    perfrun::{Ended, Mode, Running, Scratch, entries, results, unshared},
};
use perfrun_test_kit::{Need, skip};

/// Runs perfrun with results in a file system of this size, together with a shell command, and copies the
/// files left at the end to `kept`. `None` if this machine cannot make such a file system.
fn with_disk(scratch: &Scratch, mode: Mode, document: &Document, bytes: u32, beside: &str) -> Option<Ended> {
    fs::create_dir(scratch.path().join("disk")).unwrap();
    fs::create_dir(scratch.path().join("kept")).unwrap();
    let mount = format!("mount -t tmpfs -o size={bytes} none disk");
    let script = format!(
        "{mount} || exit 77; {beside} \"$@\" 2>said; code=$?; wait; cat said >&2; cp -r disk/. kept; exit $code"
    );
    let perfrun = scratch.command(mode, document, &["--results", "disk/results"]);
    let ended = Running::start(unshared(&["--mount", "sh", "-c", &script, "sh"], &perfrun)).ended();
    if ended.code() == Some(77) || ended.stderr.starts_with("unshare: ") {
        skip(Need::Namespaces, "a disk of its own", ended.stderr.trim());
        return None;
    }
    Some(ended)
}

#[test]
fn a_disk_without_room_is_refused_before_the_run() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let document = document::run("large").with("iterations", json!(100));
        let Some(ended) = with_disk(&scratch, mode, &document, 1 << 20, "") else {
            return;
        };
        let ended = ended.expect(1);
        assert!(
            ended.stderr.starts_with(
                "perfrun: unable to keep results in disk/results: they may need 10MiB; make room"
            ),
            "{ended}"
        );
        assert!(ended.stderr.contains("No space left on device"), "{ended}");
        assert_eq!(ended.stdout, "");
        let left = entries(&scratch.path().join("kept"));
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_disk_that_becomes_full_fails_the_run_and_keeps_what_was_measured() {
    // Bounded, since it is nobody's child if perfrun ends otherwise than expected.
    let fill = "(for i in $(seq 600); do grep -q '^.2/10' said && break; sleep 0.1; done; \
                cat /dev/zero >disk/fill 2>/dev/null; true) &";
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let document = document::steady("crowded", 500, 10);
        let Some(ended) = with_disk(&scratch, mode, &document, 2 << 20, fill) else {
            return;
        };
        let ended = ended.expect(1);
        assert!(
            ended
                .stderr
                .contains("perfrun: perfrun/crowded failed: failed to keep the record of trial c0.i"),
            "{ended}"
        );
        assert!(ended.stderr.contains("No space left on device"), "{ended}");
        assert!(
            ended.stdout.contains("Round trips"),
            "what there is is shown: {ended}"
        );
        let runs = entries(&scratch.path().join("kept/results"));
        assert_eq!(runs.len(), 1, "{ended}");
        let kept = perfrun_cli::results_folder::read(&runs[0]).unwrap();
        assert_eq!(kept.state, RunState::Failed, "{ended}");
        assert!((2..10).contains(&kept.trials.len()), "{ended}");
        assert!(
            kept.trials.iter().all(|record| record.failure.is_none()),
            "{ended}"
        );

        // With room again, the run resumes.
        scratch
            .call(&["run", "--resume", runs[0].to_str().unwrap()])
            .expect(0);
        let done = results(&runs[0]);
        assert_eq!((done.state, done.trials.len()), (RunState::Complete, 10));
    }
}
