//! A machine of the lab: namespaces for processes, mounts, network and host name, held by one process.
//!
//! The holder is process 1 of its namespace. When it is killed the kernel kills all other processes,
//! containers included, and then mounts, links and routes disappear. So a machine fails immediately, as a
//! real one does, and leaves nothing to clean up.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    os::fd::AsFd,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces, unshare_unsafe};

use crate::{
    part::Part,
    paths::{self, LIB, Paths},
    process::{self, GATE, Held, Process},
};

/// Kernel settings that the kubelet changes when it starts. On a machine of the lab they are files of the
/// machine, so the kubelet does not change the host.
const SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

const READY: &str = "ready";

/// Creates the namespaces and their first process, which waits until it is released.
pub(crate) fn create(machine: Part, paths: &Paths) -> Result<Held> {
    let folder = paths.machine(machine);
    for part in ["run", "var-log"] {
        paths::create_folder(&folder.join(part))?;
    }
    paths::create_folder(&paths.lib(machine).join("bin"))?;
    let log = log_file(paths, machine)?;
    let args = [
        machine.to_string(),
        folder.to_string_lossy().into_owned(),
        paths.bin().to_string_lossy().into_owned(),
    ];
    let script = script();
    let all = UnshareFlags::NEWPID
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWIPC;
    on_thread(|| {
        // SAFETY: no descriptor table is unshared, and the thread ends with this closure.
        unsafe { unshare_unsafe(all) }.context("failed to make namespaces; are you root?")?;
        process::spawn(&script, &args, &log, Stdio::piped())
    })
    .and_then(Held::new)
    .with_context(|| format!("failed to create {machine}"))
}

/// Releases a recorded machine and waits for its mounts.
pub(crate) fn begin(mut held: Held) -> Result<()> {
    let stdout = held.stdout.take().context("a machine's stdout is a pipe")?;
    held.release()?;
    let mut said = String::new();
    BufReader::new(stdout)
        .read_line(&mut said)
        .context("failed to read from a machine")?;
    match said.trim() {
        READY => Ok(()),
        _ => bail!("failed to set up a machine's mounts"),
    }
}

/// Starts a program on a machine, in its own session. The program waits until it is released.
pub(crate) fn start(
    holder: Process,
    paths: &Paths,
    part: Part,
    program: &str,
    args: &[String],
) -> Result<Held> {
    let log = log_file(paths, part)?;
    let script = format!("{GATE}export PATH=$PATH:{LIB}/bin\nexec setsid \"$0\" \"$@\" </dev/null");
    let words: Vec<_> = [program.to_owned()]
        .into_iter()
        .chain(args.iter().cloned())
        .collect();
    let output = log.try_clone().context("failed to share a log file")?;
    inside(holder, || process::spawn(&script, &words, &log, output.into()))?
        .and_then(Held::new)
        .with_context(|| format!("failed to start {part}"))
}

/// Runs `work` on a thread that is in a machine's namespaces. Processes that `work` starts are in them, too.
pub(crate) fn inside<T: Send>(holder: Process, work: impl FnOnce() -> T + Send) -> Result<T> {
    let machine = holder
        .open()
        .with_context(|| format!("process {}, which holds a machine, is gone", holder.pid))?;
    let all = ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::NETWORK
        | ThreadNameSpaceType::PROCESS_ID
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION;
    on_thread(|| {
        // SAFETY: only root and working directory become this thread's own, which the next call requires.
        unsafe { unshare_unsafe(UnshareFlags::FS) }.context("failed to separate a thread")?;
        move_into_thread_name_spaces(machine.as_fd(), all).context("failed to enter a machine")?;
        Ok(work())
    })
}

/// Runs `ip` with a list of commands, on a machine, or on the host if there is none.
pub(crate) fn ip(machine: Option<Process>, commands: &str) -> Result<()> {
    let run = || -> Result<()> {
        let mut ip = Command::new("ip")
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("failed to start `ip`; install iproute2")?;
        let mut input = ip.stdin.take().context("a piped stdin is there")?;
        input
            .write_all(commands.as_bytes())
            .context("failed to write to `ip`")?;
        drop(input);
        let output = ip.wait_with_output().context("failed to wait for `ip`")?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("`ip` failed: {}\nits commands were:\n{commands}", error.trim());
        }
        Ok(())
    };
    match machine {
        Some(holder) => inside(holder, run)?,
        None => run(),
    }
}

fn on_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        scope
            .spawn(work)
            .join()
            .map_err(|_| anyhow!("a thread panicked; its message is above"))?
    })
}

fn log_file(paths: &Paths, part: Part) -> Result<File> {
    let path = paths.log(part);
    paths::create_folder(path.parent().context("a log is in a folder")?)?;
    File::options()
        .append(true)
        .create(true)
        .open(&path)
        .with_context(|| format!("failed to open {}", path.display()))
}

/// The script of process 1. `$0` is the machine's name, `$1` its folder, `$2` the folder of the programs.
///
/// The programs use their usual paths, at which they find the machine's own files. Mounts do not propagate to
/// the host, while pods can ask for propagation inside the machine.
fn script() -> String {
    let sysctls: String = SYSCTLS
        .iter()
        .map(|(key, value)| format!(" {key}={value}"))
        .collect();
    format!(
        r#"{GATE}set -e
mount --make-rprivate /
mount --make-rshared /
mount -t proc proc /proc
echo "$0" >/proc/sys/kernel/hostname
mount -t tmpfs -o mode=755 tmpfs "$1/run"
mount --bind "$2" "$1/var-lib/perfrun/bin"
mount --rbind "$1/run" /run
mount --rbind "$1/var-log" /var/log
mount --rbind "$1/var-lib" /var/lib
mkdir -p /run/perfrun
for setting in{sysctls}; do
  key=${{setting%=*}}
  file=/run/perfrun/$(echo "$key" | tr / .)
  echo "${{setting#*=}}" >"$file"
  test ! -e "/proc/sys/$key" || mount --bind "$file" "/proc/sys/$key"
done
echo {READY}
exec setsid {LIB}/bin/pause >/dev/null </dev/null
"#
    )
}

#[cfg(test)]
mod tests {
    use super::{GATE, script};

    #[test]
    fn mounts_are_private_before_the_first_is_made() {
        let script = script();
        assert!(script.starts_with(GATE));
        let private = script.find("--make-rprivate").unwrap();
        let first = script.find("mount -t proc").unwrap();
        assert!(private < first);
        assert!(script.contains(" kernel/panic=10 "), "{script}");
    }
}
