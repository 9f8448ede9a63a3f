//! The program of `cargo xtask fuzz`: libFuzzer with the target that an environment variable names.
#![no_main]

use std::{env, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use perfrun_fuzz::Target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = env::var("PERFRUN_FUZZ_TARGET").expect("cargo xtask fuzz names the target");
    Target::named(&name).expect("cargo xtask fuzz names a known target")
});

fuzz_target!(|bytes: &[u8]| TARGET.read(bytes));
