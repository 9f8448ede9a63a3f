//! The workflows in .github: actionlint checks that they work, zizmor that they give nothing away. Neither
//! uses the network.

use anyhow::Result;

use crate::{
    pinned,
    shell::Workspace,
    step::{self, Outcome},
    times::Times,
};

/// `cargo xtask test`'s step.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    let times = Times::of_step(workspace)?;
    let mut actionlint = workspace.command(pinned::ACTIONLINT.install(workspace)?);
    // It would start these if they were installed, and the result would depend on the machine.
    actionlint.args(["-shellcheck=", "-pyflakes="]);
    let works = times.timed("actionlint", || {
        step::check(&mut actionlint, "correct the workflow")
    })?;
    let mut zizmor = workspace.command(pinned::ZIZMOR.install(workspace)?);
    zizmor.args(["--offline", "--no-progress", "--quiet", ".github"]);
    let is_safe = times.timed("zizmor", || {
        step::check(&mut zizmor, "correct the workflow as the finding describes")
    })?;
    Ok(works.and(is_safe))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    #[test]
    fn dependabot_updates_every_module_of_go() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let listed = fs::read_to_string(root.join(".github/dependabot.yml")).unwrap();
        let mut modules = 0;
        for parent in ["node-image", "tools/xtask"] {
            for entry in fs::read_dir(root.join(parent)).unwrap().flatten() {
                if !entry.path().join("go.mod").is_file() {
                    continue;
                }
                modules += 1;
                let folder = format!("/{parent}/{}", entry.file_name().to_string_lossy());
                assert!(listed.split_whitespace().any(|word| word == folder), "{folder}");
            }
        }
        assert_eq!(modules, 4, "as many as there are");
    }
}
