//! Nodes in network namespaces of their own, as root and as an ordinary user.
//!
//! Namespaces belong to processes, so most tests here are about processes other than this one. They are this
//! same binary, executed again with [`ROLE`] set: as a stand-in for perfrun (`scenario_*`), or for a node
//! (`node_*`).

// Helpers outside of `#[test]` functions fail a test by panicking, as those do; what they print is for its
// output.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod as_user;
mod held;
mod in_process;
mod node;
mod scenario;
mod support;
mod user;

use std::{env, panic, process};

/// The role that this binary plays instead of running tests.
const ROLE: &str = "PERFRUN_TEST_ROLE";
/// Arguments of a role.
const ARGUMENT: &str = "PERFRUN_TEST_ARGUMENT";
/// The image of the running process, whether or not its path can be reached by the user it runs as.
const MYSELF: &str = "/proc/self/exe";

/// The loader calls this before `main`, that is before the test harness starts threads:
/// [`perfrun_local::privilege::acquire`] is for processes with one thread, and a harness always runs tests on
/// another one.
#[used]
// SAFETY: the section is an array of functions without arguments that matter, and this is one.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn play_role_if_set() {
        let Ok(role) = env::var(ROLE) else { return };
        let play = || {
            if role.starts_with("scenario") {
                scenario::play(&role);
            } else {
                node::play(&role);
            }
        };
        process::exit(panic::catch_unwind(play).map_or(101, |()| 0));
    }
    play_role_if_set
};

fn argument() -> String {
    env::var(ARGUMENT).unwrap()
}
