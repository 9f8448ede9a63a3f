//! `cargo xtask tutorials`: runs the commands of docs/tutorials as printed.
//!
//! Bash runs all blocks that follow a line `<!-- run -->`, in the order of the page, and stops at the first
//! command that fails. What they build is built before, or in the dev profile: functions in front of the
//! commands take the place of `cargo`, `perfrun` and `helm`, so that the commands themselves stay as printed.

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context, Result, bail};

use crate::{
    e2e,
    files::{copy, empty, read},
    install,
    node::{self, Like},
    pinned,
    shell::{self, Profile, Workspace},
    step::Outcome,
};

const FIRST_VERDICT: &str = "docs/tutorials/first-verdict.md";
const KUBERNETES: &str = "docs/tutorials/kubernetes.md";

/// The mark of a block that is run.
const RUN: &str = "<!-- run -->\n\n```sh\n";
const BLOCK: &str = "```sh\n";

/// What precedes the commands of both pages. An inconclusive verdict depends on the machine, so it counts as
/// a success, and statuses are kept for [`judged`].
const PERFRUN: &str = r#"
set -o errexit -o pipefail
mkdir -p target
perfrun() {
	local status=0
	[ "$1" != run ] || set -- "$@" --results "$PROGRAMS/results"
	"$PROGRAMS/perfrun" "$@" || status=$?
	echo "$status" >>"$PROGRAMS/statuses"
	[ "$status" -ne 4 ] || status=0
	return "$status"
}
"#;

/// The demo and the node of a release take minutes to build.
const ON_ONE_MACHINE: &str = r#"
cargo() {
	case "$*" in
	"xtask demo") ;;
	"xtask node --demo "*) "$XTASK" node --tests "${@:4}" ;;
	*) command cargo "$@" ;;
	esac
}
"#;

/// Images of the dev profile, a lab besides that of the user, and the pinned helm.
const ON_A_CLUSTER: &str = r#"
cargo() {
	case "$*" in
	"xtask image "*) "$XTASK" image "$3" --dev --tag "$VERSION" --output "$PROGRAMS/$3.tar" ;;
	"xtask lab load "*) "$XTASK" lab --name tutorial load "$PROGRAMS"/*.tar ;;
	"xtask lab "*) "$XTASK" lab --name tutorial "${@:3}" ;;
	"build --release -p perfrun-cli") ;;
	*) command cargo "$@" ;;
	esac
}
helm() { "$HELM" "$@"; }
cargo xtask lab down
trap 'cargo xtask lab down' EXIT
"#;

/// Returns the reason if the first tutorial cannot run on this machine.
pub(crate) fn obstacle(workspace: &Workspace) -> Option<&'static str> {
    let as_user: &[&str] = match shell::is_root() {
        true => &[],
        false => &["--user", "--map-root-user"],
    };
    let mut unshare = workspace.command("unshare");
    unshare.args(as_user).args(["--net", "true"]);
    (!shell::works(&mut unshare))
        .then_some("needs network namespaces; run it as root, or permit them to users")
}

/// The command.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    if let Some(obstacle) = obstacle(workspace) {
        bail!(obstacle);
    }
    install::packages(workspace, install::BUILD)?;
    workspace.build(Profile::Dev, &["perfrun"])?;
    check(workspace)?.into_exit_code()
}

/// Runs both tutorials, the second one only if a cluster can be started. `perfrun` is already built.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    let programs = workspace.scratch()?.join("tutorials");
    empty(&programs)?;
    copy(
        &workspace.program(Profile::Dev, "perfrun"),
        &programs.join("perfrun"),
    )?;
    node::build(workspace, &[], Like::Tests, &programs.join("perfrun-node"))?;

    let mut outcome = follow(workspace, &programs, FIRST_VERDICT, ON_ONE_MACHINE)?;
    if let Outcome::Passed = outcome {
        let statuses = read(&programs.join("statuses"))?;
        if let Err(reason) = judged(&statuses) {
            outcome = Outcome::Failed(reason);
        }
    }
    match e2e::obstacle() {
        None => Ok(outcome.and(follow(workspace, &programs, KUBERNETES, ON_A_CLUSTER)?)),
        Some(obstacle) => Ok(outcome.and(Outcome::Skipped(format!("{KUBERNETES}: {obstacle}")))),
    }
}

/// Runs the commands of a page.
fn follow(workspace: &Workspace, programs: &Path, page: &str, instead: &str) -> Result<Outcome> {
    let commands = commands(&read(&workspace.root.join(page))?)
        .with_context(|| format!("{page}: put `<!-- run -->` and an empty line before each block of sh"))?;
    let script = programs.join("script");
    fs::write(&script, format!("{PERFRUN}{instead}{commands}"))
        .with_context(|| format!("failed to write {}", script.display()))?;
    let mut bash = workspace.command("bash");
    bash.arg("-x").arg(&script);
    bash.env("XTASK", workspace.xtask())
        .env("PROGRAMS", programs)
        .env("VERSION", env!("CARGO_PKG_VERSION"));
    if page == KUBERNETES {
        let [helm, _] = pinned::helm(workspace)?;
        bash.env("HELM", helm);
    }
    let status = shell::status(&mut bash)?;
    Ok(match status.success() {
        true => Outcome::Passed,
        false => Outcome::Failed(format!(
            "{page}: a command failed ({status}); it is above, after `+`"
        )),
    })
}

/// All commands of a page. `None` if a block is not marked.
fn commands(page: &str) -> Option<String> {
    let marked: Vec<_> = page.split(RUN).skip(1).collect();
    let is_whole = marked.len() == page.matches(BLOCK).count();
    let blocks = marked.iter().filter_map(|rest| rest.split("```").next());
    is_whole.then(|| blocks.collect())
}

/// Whether perfrun called the harmless build harmless, and the slow one slow, as the page says.
fn judged(statuses: &str) -> Result<(), String> {
    match statuses.lines().collect::<Vec<_>>()[..] {
        ["0" | "4", "3" | "4"] => Ok(()),
        _ => Err(format!(
            "{FIRST_VERDICT}: perfrun exits with 0 for the harmless change and 3 for the other one, or with 4 on a busy \
             machine; here it exited with {}",
            statuses.trim().replace('\n', " and ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{commands, judged};

    #[test]
    fn the_commands_of_a_page_are_those_of_its_marked_blocks() {
        let page =
            "# A\n\n<!-- run -->\n\n```sh\na\nb\n```\n\n```text\nc\n```\n\n<!-- run -->\n\n```sh\nd\n```\n";
        assert_eq!(commands(page).as_deref(), Some("a\nb\nd\n"));
    }

    #[test]
    fn a_block_without_a_mark_is_found() {
        assert_eq!(commands("<!-- run -->\n\n```sh\na\n```\n\n```sh\nb\n```\n"), None);
    }

    #[test]
    fn only_a_wrong_verdict_fails_the_tutorial() {
        assert_eq!(judged("0\n3\n"), Ok(()));
        assert_eq!(judged("4\n4\n"), Ok(()));
        for wrong in ["3\n3\n", "0\n0\n", "0\n", ""] {
            assert!(judged(wrong).is_err(), "{wrong:?}");
        }
    }
}
