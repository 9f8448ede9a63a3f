//! Starting this program again, in its process.

use std::{
    env,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    os::unix::process::CommandExt,
    process::Command,
};

use perfrun_contract::node::variables;

/// A number for the running program or a part of it. A process id would not do: in a container it may be that
/// of the process before.
pub(crate) fn instance() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The variable that passes on the largest epoch of callers to a new start of the program.
pub(crate) const EPOCH_VARIABLE: &str = "PERFRUN_EPOCH";

/// Replaces the running program by a new start of it, in the same process and with the same arguments.
/// Returns only if that fails. Descriptors that were inherited stay open. `epoch` is the largest one of
/// callers so far, `digest` that of the program.
pub(crate) fn restart(epoch: u64, digest: Option<String>) -> io::Error {
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_default();
    Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments)
        .env(EPOCH_VARIABLE, epoch.to_string())
        .envs(digest.map(|digest| (variables::PROGRAM_SHA256, digest)))
        .exec()
}
