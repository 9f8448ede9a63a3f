//! Without root: everything works, and files belong to the user.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;

use crate::{
    document,
    perfrun::{NO_NAMESPACES, PERFRUN, Running, Scratch, entries, node_program, results},
};
use perfrun_test_kit::{Need, skip};

/// `nobody`, on every distribution.
pub(crate) const NOBODY: u32 = 65534;

#[test]
fn an_ordinary_user_gets_namespaces_and_owns_the_results() {
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, "as another user", "only root can become nobody");
    }
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Those that were built may be in a folder that only root can enter.
    let perfrun = scratch.path().join("perfrun");
    fs::copy(PERFRUN, &perfrun).unwrap();
    fs::copy(node_program(), scratch.path().join("perfrun-node")).unwrap();
    let home = scratch.path().join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let document = document::run("theirs")
        .default_stacks()
        .with("workload", json!({ "bandwidth": { "sizes": ["64Ki"] } }));
    fs::write(home.join("document.yaml"), document.text()).unwrap();

    let run = |args: &[&str]| {
        let mut command = Command::new(&perfrun);
        command.args(["run", "document.yaml"]).args(args);
        command.current_dir(&home).uid(NOBODY).gid(NOBODY);
        Running::start(command).ended()
    };
    let refused = run(&["--loopback", "--results", ".."]).expect(1);
    assert!(
        refused
            .stderr
            .contains("unable to keep results in ..: make it writable"),
        "{refused}"
    );
    assert_eq!(entries(scratch.path()).len(), 3, "nothing was made");

    let ended = run(&[]);
    if ended.stderr.contains(NO_NAMESPACES) {
        return skip(Need::Namespaces, "as nobody", ended.stderr.trim());
    }
    let ended = ended.expect(0);
    let runs = entries(&home.join("results"));
    assert_eq!(runs.len(), 1, "{ended}");
    let results = results(&runs[0]);
    assert_eq!(results.trials.len(), 22);
    assert!(
        results.trials.iter().all(|record| record.failure.is_none()),
        "{ended}"
    );
    for file in below(&home.join("results")) {
        let owner = fs::metadata(&file).unwrap();
        assert_eq!([owner.uid(), owner.gid()], [NOBODY; 2], "{}", file.display());
    }
}

fn below(path: &Path) -> Vec<PathBuf> {
    let inside = entries(path);
    let deeper = inside.iter().flat_map(|path| below(path));
    [path.to_owned()].into_iter().chain(deeper).collect()
}
