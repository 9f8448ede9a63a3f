//! The tests of netem in user-mode-linux, where this kernel has none.

use perfrun_link::Backend;
use perfrun_test_kit::{
    Need, skip,
    uml::{FLOWER, U32, boot, first_process, is_here, is_installed},
};

use crate::lab::alone;

/// The tests that run first, with filters of flower: which peers are impaired, and how a killed emulator is
/// replaced.
const FLOWER_TESTS: &[&str] = &["others_are_not_impaired", "a_killed_emulator"];

/// The tests that run then, with filters of u32: everything about netem, and the detour on an older kernel.
const TESTS: &[&str] = &[
    "kernel::",
    "userspace::others_are_not_impaired",
    "userspace::a_killed_emulator",
];

#[test]
fn netem_impairs_links_of_a_kernel_that_has_it() {
    // This test also runs in the kernel that it boots.
    if is_here() {
        return;
    }
    if has_netem() {
        println!("this kernel has netem: the tests in `kernel` use it");
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
    let _alone = alone();
    let printed = boot("").unwrap_or_else(|error| panic!("{error:#}"));
    println!("{}", printed.output);
    for line in &printed.skipped {
        skip(Need::Speed, "in user-mode-linux", line);
    }
    assert!(
        printed
            .output
            .contains("kernel::round_trips_are_as_long_as_the_delay ... ok"),
        "it ran other tests"
    );
    // Each runs with both kinds of filters.
    for test in [
        "kernel::others_are_not_impaired ... ok",
        "userspace::others_are_not_impaired ... ok",
    ] {
        assert_eq!(printed.output.matches(test).count(), 2, "{test}");
    }
}

fn has_netem() -> bool {
    let chosen = perfrun_emulator::abilities::detect("lo").choose(&perfrun_link::OutgoingLinks::default());
    chosen == Ok(perfrun_link::ActiveBackend::Kernel)
}

/// Acts as the first process of the other kernel.
pub(crate) fn init() -> ! {
    first_process(|guest, _| {
        let one_by_one = |tests: &[&'static str]| [tests, &["--test-threads=1"]].concat();
        guest.load_links(FLOWER)?;
        let status = guest.run(&one_by_one(FLOWER_TESTS))?;
        if status != 0 {
            return Ok(status);
        }
        guest.load(U32)?;
        guest.run(&one_by_one(TESTS))
    })
}
