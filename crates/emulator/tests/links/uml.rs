//! A kernel with netem for machines without: Debian's user-mode-linux, a kernel that is a program.
//!
//! It sees the files of this machine read-only, so this binary is its first process, loads the modules, and runs itself
//! once more as a list of tests. What those say comes back through a folder that it can write to.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use perfrun_link::Backend;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::system::{RebootCommand, finit_module, reboot, uname};

use crate::lab::alone;
use crate::role::{ARGUMENT, ROLE};
use crate::suite;
use perfrun_test_kit::{Need, skip};

/// Set where everything is some ten times slower than on the machine itself.
const SLOW: &str = "PERFRUN_TEST_IN_UML";

/// Debian's package puts them there.
const KERNEL: &str = "/usr/bin/linux.uml";
const MODULES: &str = "/usr/lib/uml/modules";

/// What links need, each after what it needs itself; paths are those of the package's `modules.dep`. [`U32`] is
/// not among them.
const NEEDED: &[&str] = &[
    "lib/crc-ccitt.ko",
    "net/ipv6/ipv6.ko",
    "drivers/net/veth.ko",
    "drivers/net/dummy.ko",
    "drivers/net/tun.ko",
    "net/sched/sch_prio.ko",
    "net/sched/sch_tbf.ko",
    "net/sched/sch_netem.ko",
    "net/sched/sch_ingress.ko",
    "net/sched/cls_flower.ko",
    "net/sched/act_mirred.ko",
];

/// What runs there first, while there is no other kind of filters: who is impaired, and who takes over.
const FLOWER_TESTS: &str = "others_are_not_impaired a_killed_emulator";

/// The kind of filters that is preferred.
const U32: &str = "net/sched/cls_u32.ko";

/// What runs there then: everything of its netem, and whether the detour works on an older kernel, too.
const TESTS: &str = "kernel:: userspace::others_are_not_impaired userspace::a_killed_emulator";

/// No tests: the benchmark.
const BENCHMARK: &str = "";

/// How long the tests in there may take.
const PATIENCE: Duration = Duration::from_secs(600);

const ARGUMENTS: &str = "arguments";
const OUTPUT: &str = "output";
const SKIPPED: &str = "skipped";
const VERDICT: &str = "verdict";

/// Whether this is the slow kernel.
pub fn is_here() -> bool {
    env::var_os(SLOW).is_some()
}

/// Whether there is another kernel than this one for tests that need netem.
pub fn is_installed() -> bool {
    Path::new(KERNEL).exists() && !is_here()
}

#[test]
fn netem_impairs_links_of_a_kernel_that_has_it() {
    // Not in the kernel that this test has started.
    if is_here() {
        return;
    }
    if has_netem() {
        println!("this kernel has netem itself: `kernel` tests it");
        return;
    }
    if !is_installed() {
        skip(
            Need::UserModeLinux,
            &Backend::Kernel.to_string(),
            "needs `apt-get install user-mode-linux`",
        );
        return;
    }
    let output = run(TESTS);
    assert!(
        output.contains("kernel::round_trips_are_as_long_as_the_delay ... ok"),
        "it ran other tests"
    );
    // With each kind of filters.
    for test in [
        "kernel::others_are_not_impaired ... ok",
        "userspace::others_are_not_impaired ... ok",
    ] {
        assert_eq!(output.matches(test).count(), 2, "{test}");
    }
}

/// `cargo xtask bench netem`, in the kernel that has it.
pub fn benchmark() {
    if has_netem() {
        suite::tcp_against_netem_by_hand();
    } else {
        assert!(is_installed(), "needs `apt-get install user-mode-linux`");
        run(BENCHMARK);
    }
}

fn has_netem() -> bool {
    let chosen = perfrun_emulator::capabilities::probe("lo").choose(&perfrun_link::Link::default());
    chosen == Ok(perfrun_link::Kind::Kernel)
}

/// What these tests, or the benchmark, say there.
fn run(tests: &str) -> String {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(ARGUMENTS), tests).unwrap();
    let console = File::create(folder.path().join("console")).unwrap();
    let mut uml = Uml(start(folder.path(), console));
    let ended = uml.wait();
    let read = |name| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let (output, verdict) = (read(OUTPUT), read(VERDICT));
    println!("{output}");
    assert!(ended, "not within {PATIENCE:?}:\n{}", read("console"));
    assert_eq!(verdict, "0", "{}", read("console"));
    for line in read(SKIPPED).lines() {
        skip(Need::Speed, "in user-mode-linux", line);
    }
    output
}

/// Ends with this value, whatever becomes of the test.
struct Uml(Child);

impl Uml {
    fn wait(&mut self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if self.0.try_wait().unwrap().is_some() {
                return true;
            }
            thread::sleep(Duration::from_millis(50));
        }
        false
    }
}

impl Drop for Uml {
    fn drop(&mut self) {
        // It is several processes, in a group of their own.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

fn start(folder: &Path, console: File) -> Child {
    let binary = env::current_exe().unwrap();
    Command::new(KERNEL)
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
        .arg(format!("init={}", binary.display()))
        // What the kernel does not know becomes the environment of the first process.
        .arg(format!("{ROLE}=init"))
        .arg(format!("{ARGUMENT}={}", folder.display()))
        .stdin(Stdio::null())
        .stdout(console.try_clone().unwrap())
        .stderr(console)
        // Its memory is a file there.
        .env("TMPDIR", "/dev/shm")
        .env("LD_PRELOAD", registers(folder))
        .process_group(0)
        .spawn()
        .unwrap()
}

/// What user-mode-linux needs on processors that are newer than it.
fn registers(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("registers.c"), folder.join("registers.so"));
    fs::write(&source, include_str!("uml/registers.c")).unwrap();
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .output()
        .expect("a C compiler is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    library
}

/// The first process of the other kernel. It must not end, but switch off.
pub fn init() {
    let tests = std::panic::catch_unwind(run_tests);
    if tests.is_err() {
        eprintln!("the first process failed before the tests");
    }
    let _ = reboot(RebootCommand::PowerOff);
}

fn run_tests() {
    let folder = PathBuf::from(env::var_os(ARGUMENT).unwrap());
    let here = CString::new(folder.to_str().unwrap()).unwrap();
    mount(
        "none",
        &folder,
        "hostfs",
        MountFlags::empty(),
        Some(here.as_c_str()),
    )
    .unwrap();
    mount("none", "/proc", "proc", MountFlags::empty(), None).unwrap();
    mount("none", "/sys", "sysfs", MountFlags::empty(), None).unwrap();
    NEEDED.iter().copied().for_each(load);
    let tests = fs::read_to_string(folder.join(ARGUMENTS)).unwrap();
    let mut code = 0;
    if tests != BENCHMARK {
        code = run_here(FLOWER_TESTS, &folder);
    }
    if code == 0 {
        load(U32);
        code = run_here(&tests, &folder);
    }
    fs::write(folder.join(VERDICT), code.to_string()).unwrap();
}

fn load(module: &str) {
    let release = uname().release().to_str().unwrap().to_owned();
    let path = format!("{MODULES}/{release}/kernel/{module}");
    let file = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    finit_module(&file, c"", 0).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// This binary once more; returns its exit code.
fn run_here(tests: &str, folder: &Path) -> i32 {
    let output = File::options()
        .create(true)
        .append(true)
        .open(folder.join(OUTPUT))
        .unwrap();
    let mut command = Command::new("/proc/self/exe");
    if tests == BENCHMARK {
        command.env(ROLE, "benchmark");
    } else {
        let tests = tests.split(' ');
        command.args(tests).arg("--test-threads=1").env_remove(ROLE);
    }
    let status = command
        .env(SLOW, "1")
        .env(perfrun_test_kit::LOG, folder.join(SKIPPED))
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        // Where iperf3 keeps what it sends; all else is read-only.
        .env("TMPDIR", folder)
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .status()
        .unwrap();
    status.code().unwrap_or(-1)
}
