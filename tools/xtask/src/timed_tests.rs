//! `cargo test` that notes how long each test takes. The test programs measure it, by an unstable option that
//! a variable allows. Only test programs get this variable: cargo would compile crates that watch it again.

use std::{
    env,
    ffi::OsString,
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{
    shell::{self, Workspace},
    stand_in::{self, StandIn},
    times::{Item, Times},
};

/// The variable that names the file to which test programs add their items.
const TIMES: &str = "PERFRUN_TIMES";

/// Installs what [`command`] needs.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    stand_in::install(workspace, StandIn::Timing).map(drop)
}

/// `cargo test --workspace`, whose tests are items of the step.
pub(crate) fn command(workspace: &Workspace) -> Result<Command> {
    let runner = stand_in::path(workspace, StandIn::Timing)?;
    let runner = format!("target.'cfg(all())'.runner=['{}']", runner.display());
    let mut test = workspace.cargo(["test", "--config", &runner, "--workspace"]);
    test.env(TIMES, Times::of_step(workspace)?.path());
    Ok(test)
}

/// Starts a test program.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let (path, arguments) = arguments.split_first().context("cargo names the program first")?;
    let mut program = Command::new(path);
    program.args(arguments).env("RUSTC_BOOTSTRAP", "1");
    let (printed, status) = shell::shown(program.args(["-Z", "unstable-options", "--report-time"]))?;
    if let Some(times) = env::var_os(TIMES) {
        Times::at(times).add(items(Path::new(path), &printed))?;
    }
    match status.code() {
        Some(code) => Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)),
        None => bail!("{}: {status}", path.display()),
    }
}

/// The tests in what their program prints. Their names follow that of the program.
fn items(program: &Path, printed: &str) -> Vec<Item> {
    let file = program.file_name().unwrap_or_default().to_string_lossy();
    let program = file.rsplit_once('-').map_or(&*file, |(name, _hash)| name);
    let item = |line: &str| {
        let (test, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let (_, seconds) = result.rsplit_once('<')?;
        let seconds = seconds.strip_suffix("s>")?.parse().ok()?;
        Some(Item {
            took: Duration::try_from_secs_f64(seconds).ok()?,
            name: format!("{program} {test}"),
        })
    };
    printed.lines().filter_map(item).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        ffi::OsString,
        path::Path,
        process::{Command, ExitCode},
        time::Duration,
    };

    use super::{Item, items, run};

    #[test]
    fn tests_are_found_in_the_output_of_their_program() {
        let printed = "\nrunning 4 tests\ntest kernel::a_link ... ok <12.345s>\ntest b has been running for \
            over 60 seconds\ntest b ... FAILED <61.200s>\ntest c - should panic ... ok <0.010s>\n\
            test d ... ignored\n\ntest result: FAILED. 2 passed; 1 failed; finished in 61.21s\n";
        let item = |name: &str, millis| Item {
            took: Duration::from_millis(millis),
            name: name.to_owned(),
        };
        assert_eq!(
            items(Path::new("/target/debug/deps/links-0123456789abcdef"), printed),
            [
                item("links kernel::a_link", 12_345),
                item("links b", 61_200),
                item("links c - should panic", 10),
            ]
        );
    }

    #[test]
    fn a_test_program_prints_the_time_of_each_test() {
        let mut program = Command::new(env::current_exe().unwrap());
        program.args(["--exact", "times::tests::work_that_ends_is_an_item"]);
        program.args(["-Z", "unstable-options", "--report-time"]);
        let output = program.env("RUSTC_BOOTSTRAP", "1").output().unwrap();
        let items = items(Path::new("xtask"), &String::from_utf8(output.stdout).unwrap());
        assert_eq!(items.len(), 1, "{items:?}");
    }

    #[test]
    fn a_test_program_ends_as_it_would_alone() {
        let shell = |script: &str| run(&["sh", "-c", script].map(OsString::from));
        assert_eq!(shell("exit 101").unwrap(), ExitCode::from(101));
        let killed = shell("kill -9 $$").unwrap_err().to_string();
        assert!(killed.starts_with("sh: signal: 9"), "{killed}");
    }
}
