//! The users whose rights a scenario may have.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Command, Output, Stdio},
};

use crate::{ARGUMENT, MYSELF, ROLE};
use perfrun_test_kit::{Need, skip};

/// The exit status of a scenario that lacks a privilege.
pub(crate) const SKIPPED: i32 = 77;
/// `nobody`, on every distribution.
const NOBODY: u32 = 65534;

/// Whose rights a scenario has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum User {
    Caller,
    Nobody,
}

impl User {
    pub(crate) fn available() -> impl Iterator<Item = Self> {
        let root = rustix::process::geteuid().is_root();
        if !root {
            skip(Need::Root, "as another user", "only root can become nobody");
        }
        [Self::Caller].into_iter().chain(root.then_some(Self::Nobody))
    }

    pub(crate) fn uid(self) -> u32 {
        match self {
            Self::Caller => rustix::process::geteuid().as_raw(),
            Self::Nobody => NOBODY,
        }
    }

    fn command(self, scenario: &str, argument: &str) -> Command {
        let mut command = Command::new(MYSELF);
        command
            .env(ROLE, scenario)
            .env(ARGUMENT, argument)
            .stdin(Stdio::null());
        if let Self::Nobody = self {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Runs a scenario and expects success.
    pub(crate) fn run(self, scenario: &str) {
        self.output_of(scenario, "");
    }

    pub(crate) fn output_of(self, scenario: &str, argument: &str) -> Option<Output> {
        let output = self.command(scenario, argument).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(SKIPPED) {
            skip(Need::Namespaces, &format!("{self:?}"), errors.trim());
            return None;
        }
        assert!(
            output.status.success(),
            "{scenario} as {self:?}: {}\n{errors}",
            output.status
        );
        Some(output)
    }

    /// If not, the test is skipped.
    pub(crate) fn can_have_namespaces(self) -> bool {
        self.output_of("scenario_probe", "").is_some()
    }

    /// Starts a scenario, which the test will kill.
    pub(crate) fn start(self, scenario: &str) -> Child {
        self.command(scenario, "").stdout(Stdio::piped()).spawn().unwrap()
    }
}
