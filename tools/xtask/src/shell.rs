//! Paths of the workspace, and starting programs. This module does not know the purpose of a program.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
};

use anyhow::{Context, Result, anyhow, bail};

use crate::{
    children::{self, NESTED, Started},
    files::create_folder,
};

/// The variable that names the commit for programs to record.
const COMMIT: &str = "PERFRUN_COMMIT";

/// Options of cargo that select everything, with default features.
pub(crate) const WORKSPACE: &[&str] = &["--workspace"];

/// A small test target.
const TEST: &str = "api";

/// The clone that this program was built from, and the folder in which cargo builds it.
#[derive(Clone)]
pub(crate) struct Workspace {
    pub root: PathBuf,
    /// The folder of cargo's profiles: `target/`, or what `CARGO_TARGET_DIR` or the configuration sets.
    artifacts: PathBuf,
    /// The path of this program.
    xtask: PathBuf,
    /// The program that compiles the workspace's own crates. `None` for rustc.
    compiler: Option<PathBuf>,
    /// The file to which commands print. `None` for the output of this program.
    log: Option<PathBuf>,
}

impl Workspace {
    /// Finds the workspace. Cargo has put this program into `<artifacts>/debug`, however the target folder is
    /// configured.
    pub(crate) fn locate() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .context("xtask is not in a workspace")?;
        let program = env::current_exe().context("failed to find the path of xtask itself")?;
        let artifacts = program.ancestors().nth(2).with_context(|| {
            format!(
                "{} is not in a target folder; start it as `cargo xtask`",
                program.display()
            )
        })?;
        Ok(Self {
            root: root.to_owned(),
            artifacts: artifacts.to_owned(),
            xtask: program.clone(),
            compiler: None,
            log: None,
        })
    }

    /// Sets the program that compiles the workspace's own crates. Cargo keeps the results of both compilers
    /// apart and shares dependencies between them.
    pub(crate) fn compile_with(&mut self, compiler: PathBuf) {
        self.compiler = Some(compiler);
    }

    /// Returns this workspace with commands that print to a new file.
    pub(crate) fn printing_to(&self, log: &Path) -> Result<Self> {
        File::create(log).with_context(|| format!("failed to create {}", log.display()))?;
        Ok(Self {
            log: Some(log.to_owned()),
            ..self.clone()
        })
    }

    /// The path of this program when it started. Cargo may have replaced the file since, and the system would
    /// then report the path of a deleted file.
    pub(crate) fn xtask(&self) -> &Path {
        &self.xtask
    }

    /// The folder of cargo's profiles.
    pub(crate) fn artifacts(&self) -> &Path {
        &self.artifacts
    }

    /// The folder for container images.
    pub(crate) fn images(&self) -> Result<PathBuf> {
        let folder = self.artifacts.join("images");
        create_folder(&folder)?;
        Ok(folder)
    }

    /// A folder for xtask's own files.
    pub(crate) fn scratch(&self) -> Result<PathBuf> {
        let folder = self.artifacts.join("xtask");
        create_folder(&folder)?;
        Ok(folder)
    }

    /// The path of a built program.
    pub(crate) fn program(&self, profile: Profile, name: &str) -> PathBuf {
        self.artifacts.join(profile.folder()).join(name)
    }

    /// A command that starts `program` in the root of the workspace, with nothing on stdin, so that no step
    /// can wait for an answer.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .env(NESTED, "1");
        for name in variables_of_this_package(env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
        {
            command.env_remove(name);
        }
        if let Some(log) = &self.log {
            // If the log cannot be opened, the output goes to this program's output.
            let output = || {
                File::options()
                    .append(true)
                    .open(log)
                    .map_or_else(|_| Stdio::inherit(), Stdio::from)
            };
            command.stdout(output()).stderr(output());
        }
        command
    }

    /// A command of the cargo that started xtask.
    pub(crate) fn cargo<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        if let Some(compiler) = &self.compiler {
            command.env("RUSTC_WORKSPACE_WRAPPER", compiler);
        }
        command.args(args);
        command
    }

    /// Builds programs of any member. `--workspace` only selects the features: with `--package`, a shared
    /// dependency would be built again for every other selection of packages. In the dev profile the test
    /// target makes the features of tests count, as in `cargo build --all-targets`.
    pub(crate) fn build(&self, profile: Profile, programs: &[&str]) -> Result<()> {
        self.build_selected(profile, programs, WORKSPACE)
    }

    /// Builds programs of selected packages, with selected features.
    pub(crate) fn build_selected(
        &self,
        profile: Profile,
        programs: &[&str],
        selection: &[&str],
    ) -> Result<()> {
        succeed(&mut self.building(profile, programs, selection))
    }

    /// The command that builds programs of selected packages.
    pub(crate) fn building(&self, profile: Profile, programs: &[&str], selection: &[&str]) -> Command {
        let mut cargo = self.cargo(["build", "--profile", profile.name()]);
        cargo.args(selection);
        cargo.args(programs.iter().flat_map(|program| ["--bin", program]));
        match profile {
            Profile::Dev => cargo.args(["--test", TEST]),
            Profile::Release => cargo.envs(self.commit().map(|commit| (COMMIT, commit))),
        };
        cargo
    }

    /// The commit that nodes built here record: what the variable names, or the short name of that of git.
    /// `None` without either.
    pub(crate) fn commit(&self) -> Option<String> {
        match env::var_os(COMMIT) {
            Some(named) => named.into_string().ok(),
            None => self.revision(&["--short"]),
        }
    }

    /// The commit of git, with `-dirty` if anything but documents differs from it. `None` outside of a clone.
    pub(crate) fn revision(&self, options: &[&str]) -> Option<String> {
        if !self.root.join(".git").exists() {
            return None;
        }
        let git = |args: &[&str]| {
            let mut git = self.command("git");
            git.args(args);
            git
        };
        let commit = output(git(&["rev-parse"]).args(options).arg("HEAD")).ok()?;
        let is_clean = works(&mut git(&[
            "diff", "--quiet", "HEAD", "--", ".", ":!docs", ":!*.md",
        ]));
        Some(if is_clean { commit } else { commit + "-dirty" })
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Profile {
    Dev,
    Release,
}

impl Profile {
    /// The name of the profile in Cargo.toml.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
        }
    }

    /// The folder of the profile's programs, below the target folder.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }
}

/// Variables with which `cargo run` describes xtask's own package. Build scripts that watch these variables
/// would run again, and their dependents with them, whenever a command alternates between xtask and the
/// shell.
fn variables_of_this_package(names: impl IntoIterator<Item = String>) -> impl Iterator<Item = String> {
    names.into_iter().filter(|name| {
        name.starts_with("CARGO_PKG_") || matches!(&name[..], "CARGO_MANIFEST_DIR" | "CARGO_MANIFEST_PATH")
    })
}

/// Starts a command that this program waits for.
pub(crate) fn start(command: &mut Command) -> Result<Started<'static>> {
    children::start(command).map_err(|error| not_started(command, error))
}

pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    start(command)?
        .end(|mut child| child.wait())
        .with_context(|| format!("failed to wait for `{}`", line(command)))
}

pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    must_succeed(command, status)
}

/// Like [`succeed`], for a command that removes what others have left. It also runs after Ctrl-C, which does
/// not stop it.
pub(crate) fn clean_up(command: &mut Command) -> Result<()> {
    let ended = command.process_group(0).status();
    let status = ended.map_err(|error| not_started(command, error))?;
    must_succeed(command, status)
}

pub(crate) fn must_succeed(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{}` failed ({status}); its output is above", line(command));
    }
    Ok(())
}

/// Returns what a command printed. Fails if the command fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let (printed, status) = printed(command)?;
    must_succeed(command, status)?;
    Ok(printed.trim().to_owned())
}

/// Returns what a command printed, and how it ended.
pub(crate) fn printed(command: &mut Command) -> Result<(String, ExitStatus)> {
    let output = read(command.stdout(Stdio::piped()))?;
    let text = String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` printed something that is not text", line(command)))?;
    Ok((text, output.status))
}

/// Returns what a command printed, errors too, and how it ended.
pub(crate) fn printed_with_errors(command: &mut Command) -> Result<Output> {
    read(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Reads from the pipes of a command until it has ended.
fn read(command: &mut Command) -> Result<Output> {
    start(command)?
        .end(Child::wait_with_output)
        .with_context(|| format!("failed to read what `{}` prints", line(command)))
}

/// Shows what a command prints, line by line, while it runs. Returns all of that, and how the command ended.
/// If that cannot be read or shown, the command is killed.
pub(crate) fn shown(command: &mut Command) -> Result<(String, ExitStatus)> {
    let started = start(command.stdout(Stdio::piped()))?;
    let context = || format!("failed to show what `{}` prints", line(command));
    started.end(|mut child| {
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let printed = show(stdout).with_context(context);
        if printed.is_err() {
            // Otherwise the command would run on, alone. If it has ended, there is nothing to kill.
            child.kill().ok();
        }
        let status = child.wait().with_context(context)?;
        Ok((printed?, status))
    })
}

/// Shows lines as they arrive, and returns all of them.
fn show(from: impl Read) -> io::Result<String> {
    let mut lines = BufReader::new(from);
    let mut printed = String::new();
    let mut next = vec![];
    while lines.read_until(b'\n', &mut next)? > 0 {
        let shown = String::from_utf8_lossy(&next);
        io::stdout().write_all(shown.as_bytes())?;
        printed.push_str(&shown);
        next.clear();
    }
    Ok(printed)
}

/// Whether the command runs and succeeds. Its output is discarded.
pub(crate) fn works(command: &mut Command) -> bool {
    status(command.stdout(Stdio::null()).stderr(Stdio::null())).is_ok_and(|status| status.success())
}

/// Replaces this process by `command`, with its exit status, signals and terminal. Returns only if that
/// fails.
pub(crate) fn become_program(command: &mut Command) -> anyhow::Error {
    let error = command.exec();
    not_started(command, error)
}

fn not_started(command: &Command, error: io::Error) -> anyhow::Error {
    if children::are_interrupted() {
        return anyhow!("interrupted before `{}`", line(command));
    }
    anyhow!(error).context(format!(
        "failed to start `{}`; is it installed and on PATH?",
        line(command)
    ))
}

/// The command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = [program.file_name().unwrap_or(program.as_os_str())]
        .into_iter()
        .chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Whether the effective user is root. The kernel gives our `/proc` entry to the effective user.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

pub(crate) fn on_path(program: &str) -> bool {
    let is_program =
        |path: PathBuf| fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0);
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|folder| is_program(folder.join(program))))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{line, on_path, show, shown, variables_of_this_package};

    #[test]
    fn a_command_reads_as_it_is_typed() {
        let mut command = Command::new("/opt/toolchain/bin/cargo");
        assert_eq!(line(command.args(["fmt", "--check"])), "cargo fmt --check");
    }

    #[test]
    fn the_output_of_a_command_is_returned_unchanged_with_its_status() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo; echo '  µs'; echo log >&2; printf end; exit 3"]);
        let (printed, status) = shown(&mut command).unwrap();
        assert_eq!(printed, "\n  µs\nend");
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn bytes_that_are_not_text_do_not_end_the_output() {
        assert_eq!(show(&b"\xff ms\nend"[..]).unwrap(), "\u{fffd} ms\nend");
    }

    #[test]
    fn only_variables_of_cargo_about_xtask_are_removed_for_children() {
        let names = [
            "CARGO_PKG_NAME",
            "CARGO_MANIFEST_DIR",
            "CARGO_TARGET_DIR",
            "CARGO",
            "PATH",
        ];
        let dropped: Vec<_> = variables_of_this_package(names.map(String::from)).collect();
        assert_eq!(dropped, ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"]);
    }

    #[test]
    fn a_missing_program_is_noticed() {
        assert!(on_path("sh"));
        assert!(!on_path("perfrun-no-such-program"));
    }
}
