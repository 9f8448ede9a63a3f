//! A kernel with netem for machines without: Debian's user-mode-linux, a kernel that is a program.
//!
//! It sees the files of this machine read-only. The program that boots it is also its first process, which
//! loads modules and starts the program once more, as tests or a benchmark. Their output comes back through a
//! folder that the kernel can write to.
#![expect(
    clippy::print_stderr,
    reason = "standard error is the console of the other kernel"
)]

use std::{
    env,
    ffi::CString,
    fs::{self, File},
    os::unix::process::CommandExt,
    panic,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::{
    mount::{MountFlags, mount},
    process::{Pid, Signal, kill_process_group},
    system::{RebootCommand, finit_module, reboot, uname},
};

use crate::skip::LOG;

/// Debian's package installs these.
const KERNEL: &str = "/usr/bin/linux.uml";
const MODULES: &str = "/usr/lib/uml/modules";

/// The modules that links need, each after those it needs itself; paths are those of the package's
/// `modules.dep`. Filters are not among them: see [`FLOWER`] and [`U32`].
const LINK_MODULES: &[&str] = &[
    "lib/crc-ccitt.ko",
    "net/ipv6/ipv6.ko",
    "drivers/net/veth.ko",
    "drivers/net/dummy.ko",
    "drivers/net/tun.ko",
    "net/sched/sch_prio.ko",
    "net/sched/sch_tbf.ko",
    "net/sched/sch_netem.ko",
    "net/sched/sch_ingress.ko",
    "net/sched/act_mirred.ko",
];

/// The module of the kind of filters that links use if u32 is missing.
pub const FLOWER: &str = "net/sched/cls_flower.ko";

/// The module of the preferred kind of filters.
pub const U32: &str = "net/sched/cls_u32.ko";

/// Set in the other kernel, where everything takes about ten times as long as on the host.
const SLOW: &str = "PERFRUN_TEST_IN_UML";

/// The folder of the first process, in its environment.
const FOLDER: &str = "PERFRUN_TEST_UML_FOLDER";

/// How long the other kernel may run: three times what it takes beside two busy loops.
const RUN_TIMEOUT: Duration = Duration::from_mins(30);

const ARGUMENTS: &str = "arguments";
const OUTPUT: &str = "output";
const SKIPPED: &str = "skipped";
const EXIT_STATUS: &str = "status";

/// Whether this is the other kernel.
pub fn is_here() -> bool {
    env::var_os(SLOW).is_some()
}

/// Whether the other kernel can be booted.
pub fn is_installed() -> bool {
    Path::new(KERNEL).exists() && !is_here()
}

/// What was printed in the other kernel.
pub struct Printed {
    /// The output of its programs.
    pub output: String,
    /// The lines of its log of skips.
    pub skipped: Vec<String>,
}

/// Boots the other kernel. This program is its first process, and must call [`first_process`] if
/// [`is_first_process`] before it does anything else.
pub fn boot(arguments: &str) -> Result<Printed> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join(ARGUMENTS), arguments)?;
    let console = File::create(folder.path().join("console"))?;
    let mut kernel = Kernel(start(folder.path(), console)?);
    let ended = kernel.wait()?;
    let read = |name| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let output = read(OUTPUT);
    ensure!(
        ended,
        "not within {RUN_TIMEOUT:?}:\n{output}\n{}",
        read("console")
    );
    ensure!(read(EXIT_STATUS) == "0", "{output}\n{}", read("console"));
    Ok(Printed {
        output,
        skipped: read(SKIPPED).lines().map(str::to_owned).collect(),
    })
}

/// Dropping it ends the kernel.
struct Kernel(Child);

impl Kernel {
    fn wait(&mut self) -> Result<bool> {
        let begin = Instant::now();
        while begin.elapsed() < RUN_TIMEOUT {
            if self.0.try_wait()?.is_some() {
                return Ok(true);
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(false)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // The kernel is several processes, in a group of their own.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

fn start(folder: &Path, console: File) -> Result<Child> {
    let program = env::current_exe()?;
    // The kernel ends, with its processes, when this thread does: Ctrl-C does not reach its group.
    let kernel = Command::new("setpriv")
        .args(["--pdeathsig", "TERM", KERNEL])
        .args([
            "mem=768M",
            "root=none",
            "rootfstype=hostfs",
            "ro",
            "quiet",
            "con=null",
            "con0=null,fd:1",
        ])
        .arg(format!("uml_dir={}/", folder.display()))
        .arg(format!("init={}", program.display()))
        // Parameters that the kernel does not know become the environment of the first process.
        .arg(format!("{FOLDER}={}", folder.display()))
        .stdin(Stdio::null())
        .stdout(console.try_clone()?)
        .stderr(console)
        // The kernel's memory is a file there.
        .env("TMPDIR", "/dev/shm")
        .env("LD_PRELOAD", registers(folder)?)
        .process_group(0)
        .spawn();
    kernel.with_context(|| format!("failed to start {KERNEL}"))
}

/// A library that user-mode-linux needs on processors that are newer than it.
fn registers(folder: &Path) -> Result<PathBuf> {
    let (source, library) = (folder.join("registers.c"), folder.join("registers.so"));
    fs::write(&source, include_str!("uml/registers.c"))?;
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .output()
        .context("failed to start cc: install a C compiler")?;
    ensure!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    Ok(library)
}

/// Whether this process is the first of the other kernel.
pub fn is_first_process() -> bool {
    process::id() == 1 && env::var_os(FOLDER).is_some()
}

/// The other kernel, as its first process sees it.
pub struct Guest {
    folder: PathBuf,
}

/// Acts as the first process: prepares the kernel, calls `act` with the arguments of [`boot`], and powers
/// off. `act` returns the exit status of the last program that it ran.
pub fn first_process(act: impl FnOnce(&Guest, &str) -> Result<i32> + panic::UnwindSafe) -> ! {
    let acted = panic::catch_unwind(|| -> Result<()> {
        let guest = Guest::new()?;
        let arguments = fs::read_to_string(guest.folder.join(ARGUMENTS))?;
        let status = act(&guest, &arguments)?;
        Ok(fs::write(guest.folder.join(EXIT_STATUS), status.to_string())?)
    });
    if let Ok(Err(error)) = acted {
        eprintln!("the first process failed: {error:#}");
    }
    // If the first process ended, the kernel would panic.
    let _ = reboot(RebootCommand::PowerOff);
    loop {
        thread::park();
    }
}

impl Guest {
    fn new() -> Result<Self> {
        let folder = PathBuf::from(env::var_os(FOLDER).context("no folder in the environment")?);
        let source = CString::new(folder.as_os_str().as_encoded_bytes())?;
        let flags = MountFlags::empty();
        mount("none", &folder, "hostfs", flags, Some(source.as_c_str()))?;
        mount("none", "/proc", "proc", flags, None)?;
        mount("none", "/sys", "sysfs", flags, None)?;
        Ok(Self { folder })
    }

    /// Loads the modules of links and, of the filters, this one.
    pub fn load_links(&self, filter: &str) -> Result<()> {
        LINK_MODULES.iter().try_for_each(|module| self.load(module))?;
        self.load(filter)
    }

    /// Loads a module.
    pub fn load(&self, module: &str) -> Result<()> {
        let release = uname().release().to_str()?.to_owned();
        let path = format!("{MODULES}/{release}/kernel/{module}");
        let file = File::open(&path).with_context(|| format!("failed to open {path}"))?;
        finit_module(&file, c"", 0).with_context(|| format!("failed to load {path}"))
    }

    /// Runs this program once more with these arguments; returns its exit status.
    pub fn run(&self, arguments: &[&str]) -> Result<i32> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(OUTPUT))?;
        let status = Command::new("/proc/self/exe")
            .args(arguments)
            .env_remove(FOLDER)
            .env(SLOW, "1")
            .env(LOG, self.folder.join(SKIPPED))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            // iperf3 keeps there what it sends; everything else is read-only.
            .env("TMPDIR", &self.folder)
            .stdout(output.try_clone()?)
            .stderr(output)
            .status()?;
        match status.code() {
            Some(code) => Ok(code),
            None => bail!("{arguments:?} was killed: {status}"),
        }
    }
}
