//! This binary as something else than a list of tests: an emulator that can be killed, the first process of a kernel, or
//! a benchmark.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::{env, panic, process, thread};

use perfrun_emulator::{Emulator, Options};
use perfrun_link::{Backend, Link};

use crate::lab::Lab;
use crate::{privileges, uml};

/// What this binary is to be.
pub const ROLE: &str = "PERFRUN_TEST_ROLE";
/// What it needs to know for that.
pub const ARGUMENT: &str = "PERFRUN_TEST_ARGUMENT";

const READY: &str = "ready";

/// The loader calls this before `main`: a test harness would list tests first, and start threads.
#[used]
// SAFETY: the section is an array of functions without arguments that matter, and this is one.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn act_if_asked() {
        let play = match env::var(ROLE).as_deref() {
            Ok("emulator") => emulate,
            Ok("capabilities") => privileges::tell_capabilities,
            Ok("init") => uml::init,
            Ok("benchmark") => uml::benchmark,
            _ => return,
        };
        process::exit(panic::catch_unwind(play).map_or(101, |()| 0));
    }
    act_if_asked
};

/// Impairs eth0 of the lab's near end in a process of its own.
pub fn start_emulator(lab: &Lab, link: &Link, backend: Backend) -> Child {
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
    let (backend, link): (Backend, Link) = serde_json::from_str(&env::var(ARGUMENT).unwrap()).unwrap();
    let _emulator = Emulator::start("eth0", &link, Options { backend, seed: None }).unwrap();
    println!("{READY}");
    loop {
        thread::park();
    }
}
