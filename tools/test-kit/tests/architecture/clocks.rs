//! The clocks that crates read.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::workspace;

#[test]
fn nothing_that_measures_reads_a_wall_clock() {
    for sources in ["node-image/rust/src", "crates/conductor/src", "crates/stack/src"] {
        let files = rust_files(&workspace().join(sources));
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
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.is_dir());
    let below = folders.iter().flat_map(|folder| rust_files(folder));
    files
        .into_iter()
        .chain(below)
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}
