//! What `perfrun --version` prints.

use std::sync::LazyLock;

/// The version of this program, and the commit of a release build of `cargo xtask`.
pub(super) static VERSION: LazyLock<String> =
    LazyLock::new(|| with_commit(env!("CARGO_PKG_VERSION"), option_env!("PERFRUN_COMMIT")));

fn with_commit(version: &str, commit: Option<&str>) -> String {
    match commit {
        Some(commit) => format!("{version} (commit {commit})"),
        None => version.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_the_commit_of_a_release() {
        assert_eq!(with_commit("0.1.0", Some("0ec5fad")), "0.1.0 (commit 0ec5fad)");
        assert_eq!(with_commit("0.1.0", None), "0.1.0");
    }
}
