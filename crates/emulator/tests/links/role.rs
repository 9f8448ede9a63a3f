//! This binary in another role than a list of tests: an emulator that can be killed, or the first process of
//! a kernel.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    panic, process,
    process::{Child, Command, Stdio},
    thread,
};

use perfrun_emulator::{Emulator, Options, abilities::detect};
use perfrun_link::{Backend, OutgoingLinks};
use perfrun_test_kit::uml::is_first_process;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::{lab::Lab, uml};

/// The variable that names the role of this binary.
pub(crate) const ROLE: &str = "PERFRUN_TEST_ROLE";
/// The variable with the argument of the role.
pub(crate) const ARGUMENT: &str = "PERFRUN_TEST_ARGUMENT";

const READY: &str = "ready";

/// The loader calls this before `main`: a test harness would list tests first, and start threads.
#[used]
// SAFETY: the section is an array of functions without arguments that matter, and this is one.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn play_role() {
        if is_first_process() {
            uml::init();
        }
        let play = match env::var(ROLE).as_deref() {
            Ok("emulator") => emulate,
            Ok("abilities") => print_abilities,
            _ => return,
        };
        process::exit(panic::catch_unwind(play).map_or(101, |()| 0));
    }
    play_role
};

/// Impairs eth0 of the lab's near end in a process of its own.
pub(crate) fn start_emulator(lab: &Lab, link: &OutgoingLinks, backend: Backend) -> Child {
    let argument = serde_json::to_string(&(backend, link)).unwrap();
    let mut command = Command::new("/proc/self/exe");
    command
        .env(ROLE, "emulator")
        .env(ARGUMENT, argument)
        .stdout(Stdio::piped());
    let mut child = lab.near.run(|| command.spawn()).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line.trim_end(), READY);
    child
}

fn emulate() {
    let (backend, link): (Backend, OutgoingLinks) =
        serde_json::from_str(&env::var(ARGUMENT).unwrap()).unwrap();
    let _emulator = Emulator::start("eth0", &link, Options { backend, seed: None }).unwrap();
    println!("{READY}");
    loop {
        thread::park();
    }
}

/// In a user namespace and a network namespace in it, as perfrun runs for an ordinary user.
fn print_abilities() {
    let user = rustix::process::geteuid().as_raw();
    // SAFETY: this process has one thread, and its file descriptor table stays as it is.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET) }.unwrap();
    fs::write("/proc/self/uid_map", format!("0 {user} 1\n")).unwrap();
    println!("{}", serde_json::to_string(&detect("lo")).unwrap());
}
